"""Passes of the check: what is kept of one, and what is done again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import LanguageError
from usdt.engine.programs.check.program import ProbeAt, check
from usdt.engine.programs.check.site import site_of
from usdt.engine.programs.check.statements import StatementChecker
from usdt.engine.programs.prepared import prepare_program
from usdt.engine.programs.syntax.source import Source

if TYPE_CHECKING:
    from usdt.engine.programs.codegen.action import ProbeBody
    from usdt.engine.programs.syntax.program import Probe


def _check(text: str) -> list[ProbeBody]:
    prepared = prepare_program(Source(text, "-e"), [], unsafe=False)
    probes = [
        ProbeAt(one.probe, site_of(one.index, text, one.kind, None, kind=one.kind))
        for one in prepared.requests
    ]
    return check(prepared.state, probes)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indices of the probes, in the order of their checks."""
    seen: list[int] = []
    probe = StatementChecker.probe

    def counted(self: StatementChecker, node: Probe) -> object:
        seen.append(self.site.index)
        return probe(self, node)

    monkeypatch.setattr(StatementChecker, "probe", counted)
    return seen


def test_probes_are_not_checked_again_when_no_type_has_changed_since(checks: list[int]) -> None:
    _check('BEGIN { @x = 1; } END { printf("%d", @x); }')
    assert checks == [0, 1, 0]


def test_a_probe_is_checked_again_when_a_later_one_changes_its_map(checks: list[int]) -> None:
    bodies = _check('BEGIN { @x = (uint64)1; @s = "a"; } END { @x = (int64)-1; @s = "longer"; }')
    assert checks == [0, 1, 0, 1]
    assert len(bodies) == 2


def test_a_map_that_is_only_read_is_refused_after_the_guess() -> None:
    with pytest.raises(LanguageError, match="@x has no value"):
        _check('BEGIN { @y = 1; } END { printf("%d", @x); }')


def test_a_place_of_a_probe_is_not_checked_again_for_maps_it_does_not_use(
    checks: list[int],
) -> None:
    # The first place is, because its own check has changed what is known.
    _check("BEGIN, END { @x = 1; } interval:s:1, interval:s:2 { @y = 1; }")
    assert checks == [0, 0, 1, 1, 0, 1]
