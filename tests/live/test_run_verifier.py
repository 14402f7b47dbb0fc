"""Programs whose branches and loops ask much of the verifier."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from fixtures import build
from processes import running
from skips import skip_or_fail

import usdt
from usdt.base.errors import NotSupported
from usdt.bpf.rings.groups import ring_groups

# Name → the body of BEGIN, and what it prints.
_BODIES = {
    "the length of a map in a condition": (
        "@k[1] = 2; @k[2] = 3; if (len(@k) > 1) { print(len(@k)); } clear(@k);",
        "2",
    ),
    "a loop around what has many branches": (
        """
        $i = 0;
        while ($i < 1000) { @h = hist($i % 7); @a = avg($i); @m = max($i); $i++; }
        print((int64)@a); print(@m); clear(@h); clear(@a); clear(@m);
        """,
        "499 999",
    ),
    "loops in one another": (
        """
        $n = 0;
        for ($i : 0..40) { for ($j : 0..40) {
            if ($i == $j) { continue; }
            if ($j > 30) { break; }
            @h = lhist($j, 0, 40, 1);
            $n += ($i > 20 ? 1 : -1);
        } }
        print($n); clear(@h);
        """,
        "-51",
    ),
    "comparisons of the number of a round": (
        """
        $n = 0; @k[1] = 2;
        for ($i : 2..10) {
            if ($i >= 5) { $n += 1; }
            if (@k[1] > 1) { $n *= --$n; for ($e : @k) { $n += $e.0; } }
        }
        print($n); clear(@k);
        """,
        "1133904603",
    ),
    "conditions of constants that add up": (
        """
        $a = 1; $n = 0;
        unroll(20) {
            $a = $a * 3 % 7;
            if ($a > 3) { $n += 1; } else { $n -= 2; }
            if ($n < 0) { $n = $n + 5; }
        }
        print($n);
        """,
        "2",
    ),
    "comparisons of strings": (
        """
        $n = 0; $s = "ab";
        unroll(12) {
            if ($s == "ab" || comm == "x" || $s == "cd") { $n++; }
            $s = $s == "ab" ? "cd" : "ab";
        }
        print($n);
        """,
        "12",
    ),
}


@pytest.mark.parametrize("name", _BODIES)
def test_branches_and_loops(name: str) -> None:
    body, printed = _BODIES[name]
    with contextlib.ExitStack() as stack:
        try:
            program = stack.enter_context(usdt.run(f"BEGIN {{ {body} exit(); }}"))
        except NotSupported as err:
            skip_or_fail(err)
        assert " ".join(str(event.value) for event in program) == printed


def _verified() -> int:
    """The most instructions that the verifier has gone through for a program of this process."""
    infos = [info.read_text() for info in Path("/proc/self/fdinfo").iterdir() if info.exists()]
    found = re.findall(r"^verified_insns:\s*([0-9]+)$", "\n".join(infos), re.MULTILINE)
    if not found:
        skip_or_fail(NotSupported("verified_insns in fdinfo", (5, 16)))
    return max(map(int, found))


def test_a_record_is_little_work_for_the_verifier() -> None:
    with usdt.run(f"interval:s:100 {{ {'print(1); ' * 100} }}"):
        assert _verified() < 100 * (1000 if ring_groups().cpus <= 2 else 3000)


def test_spans_of_threads_are_little_work_for_the_verifier() -> None:
    with (
        running(build("default", "loop"), "-n", "100000000", "-s", "1000") as loop,
        usdt.spans("loop:hit", "loop:hit", pid=loop.pid),
    ):
        assert _verified() < 60_000  # it goes down 64 depths once, not once for each
