"""User stacks by unwind tables in programs of ``usdt run``: dw_ustack()."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from usdt.base.errors import LanguageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from program_runs import Run

pytestmark = pytest.mark.root

_C = """
#include <unistd.h>
volatile int number;
#define CALL __attribute__((noinline, noclone))
CALL int inner(int one) { number += one; return number; }
CALL int middle(int one) { int got = inner(one); return getppid() > 0 ? got + one : one; }
CALL int outer(int one) { return middle(one + 1) + number; }
int main(void) { for (write(1, "x", 1);; usleep(10000)) outer(1); }
"""


class _Called(NamedTuple):
    path: str
    pids: tuple[int]


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Called]:
    """A process without frame pointers, whose mappings no longer change."""
    folder = tmp_path_factory.mktemp("calls")
    (folder / "calls.c").write_text(_C)
    command = ("gcc", "-O1", "-fomit-frame-pointer", "-o", "calls", "calls.c")
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with subprocess.Popen(f"{folder}/calls", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        yield _Called(f"{folder}/calls", (process.pid,))
        process.kill()


def _names(printed: str) -> list[str]:
    return [line.strip().partition("+")[0] for line in printed.splitlines() if "+" in line]


def test_a_stack_without_frame_pointers(run: Run, called: _Called) -> None:
    text = f"u:{called.path}:inner {{ print(dw_ustack); @s = dw_ustack(perf, 2); exit(); }}"
    whole, _, cut = run(text, pids=called.pids).partition("@s: ")
    assert _names(whole)[:4] == ["inner", "middle", "outer", "main"]
    assert "(" not in whole  # no reason: it ends at its outermost function
    named = [line.split()[1] for line in cut.splitlines() if line.strip()]
    assert _names("\n".join(named)) == ["inner", "middle"]


def test_stacks_are_keys_in_loops_and_beside_others(run: Run, called: _Called) -> None:
    text = (
        f"u:{called.path}:inner /@hits == 0/ {{ @hits = 1; $s = dw_ustack(3);"
        " for ($i : 0..2) { for ($j : 0..2) { @[comm, dw_ustack(3)] = count(); } @b[$s] = $i; }"
        ' printf("%s %s|%d\\n", comm, $s, 5); exit(); }'
    )
    printed = run(text, pids=called.pids)
    assert _names(printed) == ["inner", "middle", "outer"] * 3
    assert "calls \n" in printed
    assert "|5\n" in printed
    assert "]: 4\n" in printed
    assert "]: 1\n" in printed


def test_a_stack_at_a_probe_of_the_kernel(run: Run, called: _Called) -> None:
    probe = f"t:syscalls:sys_enter_getppid /pid == {called.pids[0]}/"
    printed = run(f"{probe} {{ @[dw_ustack(4)] = count(); exit(); }}", pids=called.pids)
    assert _names(printed)[1:4] == ["middle", "outer", "main"]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("len(dw_ustack())", r"len\(\) of dw_ustack\(\) is not known at the hit"),
        ("dw_ustack(whole)", "whole is no mode of stacks"),
        ("dw_ustack(1, raw, 2)", "takes 0 to 2 arguments, 3 given"),
    ],
)
def test_what_is_refused(run: Run, call: str, reason: str) -> None:
    with pytest.raises(LanguageError, match=reason):
        run(f"BEGIN {{ print({call}); }}")
