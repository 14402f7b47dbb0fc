"""Drawings on a terminal erase only themselves."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
from typing import TYPE_CHECKING

from screen import Screen

from usdt.engine.cli.aggregates.live_display import LiveDisplay
from usdt.engine.cli.click_group import say
from usdt.engine.output.output_file import OutputFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


@contextlib.contextmanager
def terminal(rows: int, columns: int) -> Iterator[tuple[int, OutputFile]]:
    """A terminal, as a descriptor that reads what it gets, and as the output."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("=4H", rows, columns, 0, 0))
    with OutputFile(os.ttyname(theirs)) as output:
        yield ours, output
    os.close(ours)
    os.close(theirs)


def read(terminal: int, last: str) -> str:
    """What a terminal got, up to the line that begins with this."""
    found = ""
    while last not in found or not found.endswith("\n"):
        found += os.read(terminal, 1 << 16).decode()
    return found


def test_a_drawing_replaces_the_one_before() -> None:
    with terminal(10, 40) as (ours, output):
        display = LiveDisplay(output)
        assert display.size() == (39, 8)
        display.draw(["one\n", "two\n", "three\n"])
        output.write(["^C"])  # as the terminal echoes it
        display.draw(["four\n"])
        display.clear()
        output.write(["result\n"])
        shown = read(ours, "result")
    assert "\x1b[H" not in shown
    screen = Screen()
    screen.feed("above\n" + shown)
    assert screen.lines == ["above", "result", ""]


def test_a_message_below_a_drawing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(10, 40) as (ours, output):
        display = LiveDisplay(output)
        display.draw(["one\n"])
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        say("library loaded")
        output.write(["library loaded\n"])
        display.draw(["two\n"])
        display.draw(["three\n"])
        shown = read(ours, "three")
    screen = Screen()
    screen.feed(shown)
    assert screen.lines == ["one", "library loaded", "three", ""]


def test_a_terminal_without_a_size_has_one() -> None:
    with terminal(0, 0) as (_, output):
        assert LiveDisplay(output).size() == (79, 22)
