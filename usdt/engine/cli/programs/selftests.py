"""``usdt run --test`` and ``--bench``: the probes of these kinds, and a report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from usdt.engine.programs.output.writer import TextWriter
from usdt.engine.run.selftests import run_benches, run_tests

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.run.programs import AttachedProgram
    from usdt.engine.run.selftests import TestResult

__all__ = ("report_benches", "report_tests")

_NAME, _TIME, _RUNS = 41, 17, 10


def report_tests(
    program: AttachedProgram,
    write: Callable[[str], object],
    *,
    form: str,
    say: Callable[[str], object],
    warn: Callable[[str], object],
) -> int:
    """Run the tests of a program and report each.

    Args:
        program: the program.
        write: takes the report, and what tests print.
        form: ``text`` or ``json``.
        say: takes messages for the user.
        warn: takes warnings.

    Returns:
        The exit code: 1 if a test has failed.
    """
    printed: list[str] = []

    def begin(name: str) -> None:
        printed.clear()
        if form == "text":
            write(f"[ RUN      ] {name}\n")

    taken = write if form == "text" else printed.append
    writer = TextWriter(taken, program.symbols)
    found: list[TestResult] = []
    for one in run_tests(program, writer, say=say, warn=warn, begin=begin):
        found.append(one)
        if form == "text":
            word = "[       OK ]" if one.passed else "[  FAILED  ]"
            write(f"{word} {one.name} ({one.nanoseconds // 1000} \N{MICRO SIGN}s)\n")
            continue
        made = {"duration": one.nanoseconds, "passed": one.passed, "output": "".join(printed)}
        write(f"{json.dumps({'type': 'test_result', 'data': {one.name: made}})}\n")
    failed = [one.name for one in found if not one.passed]
    if form == "text":
        write(_summary(len(found), failed))
    return int(bool(failed))


def _summary(ran: int, failed: list[str]) -> str:
    lines = [
        f"[==========] {_tests(ran)} ran.",
        f"[  PASSED  ] {_tests(ran - len(failed))}.",
    ]
    if failed:
        lines.append(f"[  FAILED  ] {_tests(len(failed))}, listed below:")
        lines += (f"[  FAILED  ] {name}" for name in failed)
    return "".join(f"{line}\n" for line in lines)


def _tests(number: int) -> str:
    return f"{number} test{'' if number == 1 else 's'}"


def report_benches(program: AttachedProgram, write: Callable[[str], object], *, form: str) -> None:
    """Run the benchmarks of a program and report the nanoseconds that a run takes on average.

    Args:
        program: the program.
        write: takes the report.
        form: ``text`` or ``json``.
    """
    found = run_benches(program)
    if form == "json":
        data = {one.name: one.nanoseconds for one in found}
        write(f"{json.dumps({'type': 'benchmark_results', 'data': data})}\n")
        return
    title = f"{'Benchmark':{_NAME}}{'Time(ns)':{_TIME}}{'Iterations':{_RUNS}}"
    write(f"{title}\n{'-' * (_NAME + _TIME + _RUNS)}\n")
    for one in found:
        write(f"{one.name:{_NAME}}{one.nanoseconds:<{_TIME}}{one.runs}\n")
