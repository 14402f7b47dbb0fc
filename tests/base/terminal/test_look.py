"""When text has colours."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import termios
from typing import TYPE_CHECKING

import click
import pytest

from usdt.base.terminal import look
from usdt.base.terminal.look import COLOURED, PLAIN, has_colours, look_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _default() -> Iterator[None]:
    look.choose("auto")
    yield
    look.choose("auto")


@pytest.mark.parametrize(
    ("environ", "on_terminals", "elsewhere"),
    [
        pytest.param({}, True, False, id="terminals have colours"),
        pytest.param({"TERM": "dumb"}, False, False, id="a dumb terminal has none"),
        pytest.param({"NO_COLOR": "1"}, False, False, id="NO_COLOR"),
        pytest.param({"NO_COLOR": ""}, True, False, id="an empty NO_COLOR does not count"),
        pytest.param({"FORCE_COLOR": "1"}, True, True, id="FORCE_COLOR"),
        pytest.param({"FORCE_COLOR": "0"}, True, False, id="FORCE_COLOR=0 forces nothing"),
        pytest.param({"CLICOLOR_FORCE": "1", "TERM": "dumb"}, True, True, id="CLICOLOR_FORCE"),
        pytest.param({"CLICOLOR": "0"}, False, False, id="CLICOLOR=0"),
        pytest.param({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False, id="NO_COLOR wins"),
    ],
)
def test_the_environment_decides_unless_an_option_does(
    environ: dict[str, str], on_terminals: bool, elsewhere: bool
) -> None:
    assert has_colours(terminal=True, environ=environ) is on_terminals
    assert has_colours(terminal=False, environ=environ) is elsewhere
    for when, answer in (("always", True), ("never", False)):
        look.choose(when)
        assert has_colours(terminal=True, environ=environ) is answer
        assert has_colours(terminal=False, environ=environ) is answer


def test_a_terminal_has_a_width_and_a_pipe_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    ours, theirs = os.openpty()
    try:
        found = look_of(theirs)
        assert not found.coloured
        assert found.width == 80, "of a terminal that does not know it"
    finally:
        os.close(ours)
        os.close(theirs)
    assert look_of(io.StringIO()) == PLAIN
    look.choose("always")
    assert look_of(io.StringIO()) == COLOURED
    assert COLOURED.width is None


@pytest.mark.parametrize("columns", [None, "", "40", "70", "200", "0", "-1", "many"])
@pytest.mark.parametrize("width", [None, 0, 30, 60, 100])
def test_help_is_as_wide_as_click_has_it(
    columns: str | None, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    main, other = os.openpty()
    with open(main, "wb"), open(other, "w") as terminal:  # noqa: PTH123
        if width is None:
            monkeypatch.setattr("sys.__stdout__", None)
        else:
            fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("4H", 24, width, 0, 0))
            monkeypatch.setattr("sys.__stdout__", terminal)
        assert look.help_width() == click.HelpFormatter().width
