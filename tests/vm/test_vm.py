"""The live tests inside other kernels: one test here for each cell of matrix.py that is asked for.

USDT_VM says which cells, and how much of the tests (``_MODES``); conftest.py leaves this file out
without it. Two cells run at a time, ahead of the tests that look at them; what each wrote is in the
cache, ``logs/CELL.log``.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

import pytest
from vm.apt import Unavailable, Unreachable
from vm.image import logs
from vm.job import job
from vm.machine import Run, need_emulator, run
from vm.matrix import CELLS, Cell, quick_tests
from vm.report import TALLY, Tally
from vm.supply import SUPPLY, Image
from vm.verdict import failures, features_that_differ, summary, trouble

if TYPE_CHECKING:
    from collections.abc import Mapping

_LIVE = ("tests/live",)
# Mode → its cells, the words of the guests' pytest (none: the quick tests), seconds that a cell may
# take.
_MODES: dict[str, tuple[list[Cell], tuple[str, ...], float]] = {
    # The CPUs at the end of the table take longest to emulate: begun last, one ran alone.
    "quick": ([cell for cell in reversed(CELLS) if cell.often], (), 900.0),
    "live": ([c for c in CELLS if c.cpu == "amd64" and not c.tests], _LIVE, 3600.0),
    "all": (list(CELLS), _LIVE, 7200.0),
}
_CELLS, _WORDS, _LIMIT = _MODES[os.environ.get("USDT_VM", "quick")]
_GUEST_WORDS = shlex.split(os.environ.get("USDT_VM_TESTS", "")) or _WORDS
_AT_ONCE = int(os.environ.get("USDT_VM_JOBS", "2"))
_IN_CI = os.environ.get("CI", "") == "true"


@pytest.fixture(autouse=True)
def no_leaked_fds() -> None:
    """Not here: other cells run beside a test, and theirs come and go."""


class _Done(NamedTuple):
    image: Image
    run: Run


def _run(cell: Cell) -> _Done:
    need_emulator(cell)
    made = SUPPLY.image(cell)
    with (logs() / f"{cell.name}.log").open("w", buffering=1) as log:
        archive = job(cell, made.python, cell.tests or _GUEST_WORDS or quick_tests(cell))
        found = run(cell, made, archive, lambda line: print(line, file=log), limit=_LIMIT)
        return _Done(made, found)


def _work(waiting: deque[tuple[Cell, Future[_Done]]]) -> None:
    while waiting:
        cell, future = waiting.popleft()
        try:
            future.set_result(_run(cell))
        except Exception as err:  # noqa: BLE001 - the test that waits for it raises it
            future.set_exception(err)


@pytest.fixture(scope="session")
def started(request: pytest.FixtureRequest) -> Mapping[Cell, Future[_Done]]:
    """The runs of all selected cells, started."""
    params = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = {spec.params["cell"] for spec in params if spec and "cell" in spec.params}
    runs: dict[Cell, Future[_Done]] = {cell: Future() for cell in _CELLS if cell in wanted}
    request.config.stash[TALLY] = Tally(selected=set(runs))
    waiting = deque(runs.items())
    # Daemons, not a pool, which would see its work to the end even if we are interrupted. Machines
    # end with the threads that started them.
    for _ in range(_AT_ONCE):
        threading.Thread(target=_work, args=(waiting,), daemon=True).start()
    return runs


def _outcome(cell: Cell, future: Future[_Done], tally: Tally) -> _Done:
    reason = future.exception()
    if isinstance(reason, Unreachable):
        tally.missing[cell] = str(reason)
        pytest.skip(f"{cell.name}: no mirror gives it; the end of the run says why")
    if isinstance(reason, Unavailable):
        tally.selected.remove(cell)
        if _IN_CI:
            pytest.fail(f"{cell.name} cannot be had, and CI is set: {reason}", pytrace=False)
        pytest.skip(f"{cell.name}: {reason}")
    tally.ran.add(cell)
    return future.result()


@pytest.mark.parametrize("cell", _CELLS, ids=lambda cell: cell.name)
def test_the_live_tests_pass_in(
    cell: Cell,
    started: Mapping[Cell, Future[_Done]],
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made, found = _outcome(cell, started[cell], pytestconfig.stash[TALLY])
    with capsys.disabled():
        print(f"\n{cell.name}: {''.join(f'{note}: ' for note in made.notes)}{summary(found)}")
    wrong = [*trouble(found), *features_that_differ(made.cell, found), *failures(made.cell, found)]
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
