"""What a run lacks for reasons outside the project: told at its end, and when that fails it.

A pytest plugin (conftest.py takes its hooks): a cell whose kernel or userland no mirror gives is
skipped. A run stands without such cells as long as enough others ran.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vm.matrix import Cell

__all__ = (
    "TALLY",
    "Tally",
    "block",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "shortfalls",
)

_ENOUGH = 3  # CPUs beside amd64
_FIRST = "amd64"


@dataclass
class Tally:
    """What became of the cells of a run."""

    selected: set[Cell] = field(default_factory=set)  # that this machine can start
    ran: set[Cell] = field(default_factory=set)  # well or not
    missing: dict[Cell, str] = field(default_factory=dict)  # why no mirror gives them


#: That of this run, in the stash of pytest's configuration.
TALLY = pytest.StashKey[Tally]()


def shortfalls(tally: Tally) -> list[str]:
    """Why a run does not stand without what is missing; nothing if it does.

    Every selected kernel of amd64 has to have run, and three other CPUs; all of them where fewer
    are selected.
    """
    if not tally.missing:
        return []
    wrong = []
    absent = sorted(cell.name for cell in tally.missing if cell.cpu == _FIRST)
    if absent:
        wrong.append(f"every kernel of {_FIRST} has to run, and these did not: {', '.join(absent)}")
    others = {cell.cpu for cell in tally.selected} - {_FIRST}
    ran = sorted({cell.cpu for cell in tally.ran} - {_FIRST})
    needed = min(_ENOUGH, len(others))
    if len(ran) < needed:
        wrong.append(
            f"{needed} of the other CPUs selected ({', '.join(sorted(others))}) have to run, "
            f"and {len(ran)} did{': ' if ran else ''}{', '.join(ran)}"
        )
    return wrong


def block(tally: Tally) -> list[str]:
    """Lines about what is missing, each with its reason, and what that means for the run."""
    lines = [f"{cell.name}: {why}" for cell, why in tally.missing.items()]
    wrong = shortfalls(tally)
    if wrong:
        return [*lines, *(f"This fails the run: {one}." for one in wrong)]
    return [*lines, "The run stands without: enough of the other cells ran."]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which too much is missing."""
    if not session.exitstatus and shortfalls(session.config.stash.get(TALLY, Tally())):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Tell what is missing, in one block."""
    tally = config.stash.get(TALLY, Tally())
    if tally.missing:
        terminalreporter.section("cells that no mirror gives")
        for line in block(tally):
            terminalreporter.write_line(line)
