"""The live tests inside other kernels: one test here for each cell of matrix.py.

Two cells run at a time, ahead of the tests that look at them; what each wrote is in the cache,
``logs/CELL.log``. Slow, so it is no part of ``make test``: ``make test-vm`` sets USDT_VM=1, and
conftest.py leaves this file out without that.
"""

from __future__ import annotations

import os
import shlex
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from vm.apt import Unavailable
from vm.image import image, logs
from vm.job import job
from vm.machine import Run, run
from vm.matrix import CELLS, Cell
from vm.verdict import failures, features_that_differ, summary, trouble

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_AT_ONCE = int(os.environ.get("USDT_VM_JOBS", "2"))
_GUEST_WORDS = shlex.split(os.environ.get("USDT_VM_TESTS", "tests/live"))
_IN_CI = os.environ.get("CI", "") == "true"


@pytest.fixture(autouse=True)
def no_leaked_fds() -> None:
    """Not here: other cells run beside a test, and theirs come and go."""


def _run(cell: Cell) -> Run:
    made = image(cell)
    with (logs() / f"{cell.name}.log").open("w", buffering=1) as log:
        return run(cell, made, job(_GUEST_WORDS), lambda line: print(line, file=log))


@pytest.fixture(scope="session")
def started(request: pytest.FixtureRequest) -> Iterator[Mapping[Cell, Future[Run]]]:
    """The runs of all selected cells, started."""
    params = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = {spec.params["cell"] for spec in params if spec and "cell" in spec.params}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {cell: pool.submit(_run, cell) for cell in CELLS if cell in wanted}
        pool.shutdown(cancel_futures=True)


def _outcome(cell: Cell, future: Future[Run]) -> Run:
    reason = future.exception()
    if isinstance(reason, Unavailable):
        if _IN_CI:
            pytest.fail(f"{cell.name} cannot be had, and CI is set: {reason}", pytrace=False)
        pytest.skip(f"{cell.name}: {reason}")
    return future.result()


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_the_live_tests_pass_in(
    cell: Cell, started: Mapping[Cell, Future[Run]], capsys: pytest.CaptureFixture[str]
) -> None:
    found = _outcome(cell, started[cell])
    with capsys.disabled():
        print(f"\n{cell.name}: {summary(found)}")
    wrong = [*trouble(found), *features_that_differ(cell, found), *failures(cell, found)]
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
