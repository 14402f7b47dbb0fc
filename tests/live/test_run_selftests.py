"""``usdt run --test`` and ``--bench``: probes that run alone."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import LanguageError

if TYPE_CHECKING:
    from program_runs import Run

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("ringbuf")]

_TESTS = (
    'test:prints { @n = count(); printf("shown\\n"); print(3); }'
    " test:exits { exit(2); } test:returns { return 5 - 4; } test:large { return 1 << 40; }"
    " test:zero { return 0; exit(1); } begin { print(7); } bench:other { print(8); }"
)


def test_tests_run_alone_and_say_which_return_0(run: Run) -> None:
    found = run(_TESTS, mode="test", code=1, whole=True)
    text = re.sub(r"\(\d+ µs\)", "(N)", found)
    assert text.splitlines() == [
        *("[ RUN      ] prints", "shown", "3", "[       OK ] prints (N)"),
        *("[ RUN      ] exits", "[  FAILED  ] exits (N)"),
        *("[ RUN      ] returns", "[  FAILED  ] returns (N)"),
        *("[ RUN      ] large", "[  FAILED  ] large (N)"),
        *("[ RUN      ] zero", "[       OK ] zero (N)"),
        *("[==========] 5 tests ran.", "[  PASSED  ] 2 tests."),
        "[  FAILED  ] 3 tests, listed below:",
        *("[  FAILED  ] exits", "[  FAILED  ] returns", "[  FAILED  ] large"),
    ]


def test_tests_in_json(run: Run) -> None:
    found = run("test:a { print((1, 2)); } test:b { return 1; }", mode="test", form="json", code=1)
    first, second = (json.loads(line)["data"] for line in found.splitlines())
    assert first["a"].pop("duration") > 0
    assert first == {"a": {"passed": True, "output": "(1, 2)\n"}}
    assert not second["b"]["passed"]


def test_benchmarks(run: Run) -> None:
    text = (
        'bench:count { @ = count(); } bench:print { printf("dropped\\n"); } test:no { print(1); }'
    )
    title, line, *rows = run(text, mode="bench", whole=True).splitlines()
    assert title.split() == ["Benchmark", "Time(ns)", "Iterations"]
    assert {*line} == {"-"}
    assert [row.split()[0] for row in rows] == ["count", "print"]
    assert all(int(row.split()[2]) >= 10_000 for row in rows)
    data = json.loads(run(text, mode="bench", form="json"))
    assert data["type"] == "benchmark_results"
    assert data["data"].keys() == {"count", "print"}


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("test:a { }", None, "1:1: no probe to attach, .* the kind test: --test runs those"),
        ("config = { max_map_keys = 5 }", None, "1:1: no probe to attach: expected one at least"),
        ("begin { }", "bench", "the kind begin: --bench runs bench:NAME alone"),
        ("bench { }", "bench", "expected bench:NAME, found 'bench'"),
        ("test:a { return $x; }", "test", "1:17: "),
        ('test:a { return "x"; }', "test", "the result of a test"),
        ("begin { return $x; }", None, "1:16: "),
    ],
)
def test_what_is_refused(run: Run, text: str, mode: str | None, reason: str) -> None:
    with pytest.raises(LanguageError, match=reason):
        run(text, mode=mode)


def test_warnings_about_tests(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run("test:a { 1 + 2; return 0; }", mode="test", whole=True)
    assert capfd.readouterr().err == "-e:1:10: WARNING: Return value discarded.\n"
    run("test:a { 1 + 2; return 0; }", mode="test", whole=True, no_warnings=True)
    assert not capfd.readouterr().err
