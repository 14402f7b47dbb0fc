"""Run the probes ``test`` and ``bench`` of a program: nothing but these runs fires them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from usdt.base.errors import SyscallError, TracingError
from usdt.base.frozen import frozen
from usdt.bpf.program import measure_programs
from usdt.engine.programs.output.results import ProgramResults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.engine.programs.output.writer import Writer
    from usdt.engine.run.programs import AttachedProgram

__all__ = ("BenchResult", "TestResult", "run_benches", "run_tests")

_ROUNDS, _RUNS = 100, 100


@frozen
class TestResult:
    """The result of a test.

    Attributes:
        name: that of the probe.
        passed: whether it returned 0, or nothing, and did not exit with another code.
        nanoseconds: of the run.
    """

    name: str
    passed: bool
    nanoseconds: int


@frozen
class BenchResult:
    """The cost of a run: ``nanoseconds`` on average of ``runs``, as the kernel measures them."""

    name: str
    nanoseconds: int
    runs: int


def run_tests(
    program: AttachedProgram,
    writer: Writer,
    *,
    say: Callable[[str], object],
    warn: Callable[[str], object],
    begin: Callable[[str], object],
) -> Iterator[TestResult]:
    """Run each probe of the kind ``test`` once.

    Args:
        program: the program, prepared for this mode.
        writer: takes what tests print.
        say: takes messages for the user.
        warn: takes warnings.
        begin: takes the name of each test before it runs.

    Raises:
        LanguageError: a name is unknown, or values do not fit.
        TracingError: the kernel cannot run them.
    """
    program.session.start(begin=False)
    for name, code in program.session.programs_of("test"):
        begin(name)
        results = ProgramResults(
            program.session,
            writer,
            program.symbols,
            say=say,
            warn=warn,
            stop=lambda: None,
            max_cat=program.settings.max_cat,
        )
        began = time.perf_counter_ns()
        code.run()
        took = time.perf_counter_ns() - began
        for batch in program.session.pending():
            results.take(batch)
        yield TestResult(name, not results.code, took)


def run_benches(program: AttachedProgram) -> Iterator[BenchResult]:
    """Run each probe of the kind ``bench`` ten thousand times; drop what it prints.

    Args:
        program: the program, prepared for this mode.

    Raises:
        LanguageError: a name is unknown, or values do not fit.
        TracingError: the kernel cannot run or measure them.
    """
    program.session.start(begin=False)
    try:
        measured = measure_programs()
    except SyscallError as err:
        raise TracingError(f"--bench: the kernel does not measure programs: {err}") from err
    try:
        for name, code in program.session.programs_of("bench"):
            for _ in range(_ROUNDS):
                for _ in range(_RUNS):
                    code.run()
                for _ in program.session.pending():
                    pass
            nanoseconds, runs = code.cost()
            yield BenchResult(name, nanoseconds // max(runs, 1), runs)
    finally:
        measured.close()
