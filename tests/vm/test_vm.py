"""The live tests inside other kernels: one test here for each cell of matrix.py.

Two cells run at a time, ahead of the tests that look at them. Slow, so it is no part of
``make test``: ``make test-vm`` sets USDT_VM=1, and without that everything here is left out.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from vm.apt import Unavailable
from vm.image import image
from vm.job import job
from vm.machine import Run, run
from vm.matrix import CELLS, FEATURES, Cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_AT_ONCE = 2
_GUEST_WORDS = os.environ.get("USDT_VM_TESTS", "tests/live").split()
_SHOWN = 40  # failures in full; all are named
_IN_CI = os.environ.get("CI", "") == "true"

pytestmark = pytest.mark.skipif(
    os.environ.get("USDT_VM") != "1", reason="virtual machines are started by: make test-vm"
)


def _run(cell: Cell) -> Run:
    return run(cell, image(cell), job(_GUEST_WORDS))


@pytest.fixture(scope="session")
def started(request: pytest.FixtureRequest) -> Iterator[Mapping[Cell, Future[Run]]]:
    """The runs of all selected cells, started."""
    params = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = {spec.params["cell"] for spec in params if spec and "cell" in spec.params}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {cell: pool.submit(_run, cell) for cell in CELLS if cell in wanted}
        pool.shutdown(cancel_futures=True)


def _outcome(future: Future[Run]) -> Run:
    try:
        return future.result()
    except Unavailable as err:
        if _IN_CI:
            pytest.fail(f"this cell cannot be had, and CI is set: {err}", pytrace=False)
        pytest.skip(str(err))


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_the_live_tests_pass_in(
    cell: Cell, started: Mapping[Cell, Future[Run]], capsys: pytest.CaptureFixture[str]
) -> None:
    found = _outcome(started[cell])
    with capsys.disabled():
        print(f"\n{cell.name}: {summary(found)}")
    wrong = [*trouble(found), *features_that_differ(cell, found), *failures(cell, found)]
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


def summary(found: Run) -> str:
    """One line about a run, and one for each reason to skip."""
    counts = Counter(result["outcome"] for result in found.of("test"))
    release = [result["release"] for result in found.of("start")]
    again = "; hung at boot, second try" if found.retried else ""
    what = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))
    skips = Counter(r["why"] for r in found.of("test") if r["outcome"] == "skipped")
    lines = [f"    {number} skipped: {why}" for why, number in skips.most_common()]
    first = f"{' '.join(release) or 'no kernel'}: {what or 'no tests'} in {found.seconds:.0f} s"
    return "\n".join([first + again, *lines])


def trouble(found: Run) -> list[str]:
    """What went wrong beside the tests."""
    wrong = [f"{found.problem}; the end of the console:", *found.console[-15:]]
    wrong = wrong if found.problem else []
    wrong += [
        f"the kernel says: {end['complaints']}" for end in found.of("end") if end["complaints"]
    ]
    if not wrong and not [r for r in found.of("test") if r["outcome"] == "passed"]:
        wrong.append("no test passed in the guest")
    return wrong


def features_that_differ(cell: Cell, found: Run) -> list[str]:
    """Where the toolkit's feature probes and the matrix do not agree."""
    return [
        f"feature {name}: the matrix says {name in cell.offers}, the toolkit {answer}"
        for start in found.of("start")
        for name, answer in start["features"].items()
        if answer is not (name in cell.offers)
    ]


def failures(cell: Cell, found: Run) -> list[str]:
    """Tests that failed, or skipped for want of a feature that the kernel has: all names first."""
    wrong = [
        (result["test"], result["why"] if result["outcome"] == "failed" else f"skipped: {lacking}")
        for result in found.of("test")
        if (lacking := contradicted(cell, result)) or result["outcome"] == "failed"
    ]
    names = [f"FAILED {cell.name} {test}" for test, _ in wrong]
    return names + [f"\n--- {test}\n{why}" for test, why in wrong[:_SHOWN]]


def contradicted(cell: Cell, result: Mapping[str, str]) -> str:
    """The reason of a skip that names a feature which the matrix says the kernel has, or ""."""
    if result["outcome"] != "skipped":
        return ""
    words = (word for name in cell.offers for word in FEATURES[name])
    return result["why"] if any(word in result["why"] for word in words) else ""
