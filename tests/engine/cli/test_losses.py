"""What commands say of lost hits, by probe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.cli.running import report_losses
from usdt.engine.runtime.session import Lost

if TYPE_CHECKING:
    import pytest

_HELP = "lost; a larger --buffer or --backlog may help"


def test_every_probe_is_named_where_there_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    report_losses([Lost("p:a", 0, 0), Lost("p:b", 1, 2), Lost("p:c", 3, 0)])
    assert capsys.readouterr().err.splitlines() == [
        "p:b: skipped 2 hits with an unreadable predicate",
        f"p:b: 1 event {_HELP}",
        f"p:c: 3 events {_HELP}",
    ]


def test_of_many_probes_those_with_the_most_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    report_losses([Lost(f"p:{number}", number, 0) for number in range(1, 1001)])
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        *(f"p:{number}: {number} events {_HELP}" for number in range(1000, 992, -1)),
        f"992 other probes: {sum(range(1, 993))} events {_HELP}",
    ]
