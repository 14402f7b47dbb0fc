"""The check of a whole program: all probes at all attach points, until the types are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError, ProgramError, TracingError
from usdt.base.frozen import frozen
from usdt.engine.programs.check.statements import StatementChecker
from usdt.engine.programs.codegen.action import ProbeBody, scratch_size
from usdt.engine.programs.codegen.kernels import check_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.programs.check.site import Site
    from usdt.engine.programs.check.state import ProgramState
    from usdt.engine.programs.syntax.program import Probe
    from usdt.engine.programs.typed import Statement

__all__ = ("ProbeAt", "check", "check_one")

_MOST_PASSES = 64


@frozen
class ProbeAt:
    """A probe of a program, and an attach point of it."""

    probe: Probe
    site: Site


def check(state: ProgramState, probes: Sequence[ProbeAt]) -> list[ProbeBody]:
    """Return what each probe does at its attach point.

    Types of maps and variables may depend on what comes later in the text, so the program is
    checked until nothing new is found.

    Raises:
        LanguageError: a name is unknown, or values do not fit.
        NotSupported: this kernel cannot run it.
    """
    for _ in range(_MOST_PASSES):
        state.changed = state.waiting = False
        for one in probes:
            _statements(state, one)
        if not state.changed and (state.guessing or not state.waiting):
            break
        state.guessing = not state.changed
    _check_options(state)
    state.final = True
    state.changed = state.waiting = False
    return [check_one(state, one) for one in probes]


def _check_options(state: ProgramState) -> None:
    unknown = [f"--{name}" for name in state.options if name not in state.asked]
    if unknown:
        known = ", ".join(f"--{name}" for name in sorted(state.asked))
        takes = f"; it takes {known}" if known else " with getopt()"
        raise TracingError(f"{', '.join(unknown)}: the program asks for no such option{takes}")


def check_one(state: ProgramState, one: ProbeAt) -> ProbeBody:
    """Return what a probe does at an attach point that is found after the check of the program.

    Raises:
        LanguageError: as :func:`check`; also if it needs wider types than those that are in use.
        NotSupported: this kernel cannot run it.
    """
    statements = _statements(state, one)
    if state.changed:
        reason = f"{one.site.probe}: its values are larger than those of the maps in use"
        raise state.error(one.probe.start, reason)
    check_kernel(statements)
    kernel = one.site.kernel
    return ProbeBody(statements, kernel, scratch_size(statements, kernel=kernel))


def _statements(state: ProgramState, one: ProbeAt) -> tuple[Statement, ...]:
    state.at_end = one.site.kind == "end"
    try:
        return StatementChecker(state, one.site).probe(one.probe)
    except ProgramError:
        raise
    except LanguageError as err:  # of the engine, with a column of the program's text
        raise state.error(err.column, err.reason) from err
