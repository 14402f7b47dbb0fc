"""The check of a whole program: all probes at all attach points, until the types are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError, ProgramError, TracingError
from usdt.base.frozen import frozen
from usdt.engine.programs.check.statements import StatementChecker
from usdt.engine.programs.codegen.action import ProbeBody, scratch_size
from usdt.engine.programs.codegen.frame import ValuesTooLarge
from usdt.engine.programs.codegen.kernels import check_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.programs.check.site import Site
    from usdt.engine.programs.check.state import ProgramState
    from usdt.engine.programs.syntax.program import Probe
    from usdt.engine.programs.typed import Statement

__all__ = ("OptionsAsked", "ProbeAt", "check", "check_one")

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
    checks = [_Check(state, one) for one in probes]
    for _ in range(_MOST_PASSES):
        before = state.changes
        for one in checks:
            one.repeat()
        waiting = any(one.waiting for one in checks)
        if state.changes == before and (state.guessing or not waiting):
            break
        state.guessing = state.changes == before
    else:
        reason = "a value of a map or a variable is made of itself and another: it has no size"
        raise state.error(probes[0].probe.start, reason)
    _check_options(state)
    state.final = True
    return _bodies(state, checks)


class _Check:
    # The check of a probe, which is repeated when types that it depends on have changed since.
    def __init__(self, state: ProgramState, probe: ProbeAt) -> None:
        self._state = state
        self._changes = -1  # those before the check whose result is kept; -1: there is none
        self._depends: set[str | int] = set()
        self.probe = probe
        self.waiting = False
        self.statements: tuple[Statement, ...] = ()

    @property
    def current(self) -> bool:
        known = self._changes >= 0
        return known and not self._state.changed_since(self._changes, self._depends)

    def repeat(self) -> None:
        if self.current:
            return
        before = self._state.changes
        self._state.asked_for = self._depends = {self.probe.site.index}
        self.statements = _statements(self._state, self.probe)
        self.waiting = self._state.waiting
        # A guess is no result: the last pass refuses what nothing is known of.
        self._changes = -1 if self.waiting or self._state.guessing else before


def _bodies(state: ProgramState, checks: Sequence[_Check]) -> list[ProbeBody]:
    # Places of a probe mostly do the same: their code is measured once.
    made: list[ProbeBody] = []
    for one in checks:
        site = one.probe.site
        if not one.current:
            made.append(check_one(state, one.probe))
        elif made and (made[-1].statements, made[-1].kernel, made[-1].iterates) == (
            *(one.statements, site.kernel, site.kind == "iter"),
        ):
            made.append(made[-1])
        else:
            made.append(_body(state, one.probe, one.statements))
    return made


class OptionsAsked(TracingError):  # noqa: N818 - no error: --help was given
    """The options of the program, a line each."""


def _check_options(state: ProgramState) -> None:
    if "help" in state.options and "help" not in state.asked:
        rows = sorted(state.asked.values())
        width = max((len(use) for use, _ in rows), default=0)
        lines = [f"  {use:{width}}  {about}".rstrip() for use, about in rows]
        raise OptionsAsked("\n".join(["Options of the program:", *(lines or ["  none"])]))
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
    before = state.changes
    statements = _statements(state, one)
    if state.changes != before:
        reason = f"{one.site.probe}: its values are larger than those of the maps in use"
        raise state.error(one.probe.start, reason)
    return _body(state, one, statements)


def _body(state: ProgramState, one: ProbeAt, statements: tuple[Statement, ...]) -> ProbeBody:
    site = one.site
    check_kernel(statements, iterator=site.kind == "iter")
    try:
        scratch = scratch_size(statements, kernel=site.kernel)
    except ValuesTooLarge as err:
        raise state.error(one.probe.start, f"{site.probe}: {err}") from err
    return ProbeBody(statements, site.kernel, scratch, iterates=site.kind == "iter")


def _statements(state: ProgramState, one: ProbeAt) -> tuple[Statement, ...]:
    state.waiting = False
    state.at_end = one.site.kind == "end"
    try:
        return StatementChecker(state, one.site).probe(one.probe)
    except ProgramError:
        raise
    except LanguageError as err:  # of the engine, with a column of the program's text
        raise state.error(err.column, err.reason) from err
