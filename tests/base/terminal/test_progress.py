"""Progress: shown late, on terminals only, and erased."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING

import pytest
from dwarf_programs import program
from fixtures import build

from usdt.base.terminal import progress
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile
from usdt.probes.probe import read_probes
from usdt.probes.sites import attachable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class _Terminal(io.StringIO):
    # A terminal that does not know its width.
    def isatty(self) -> bool:
        return True


class _Clock:
    # time.monotonic(), as the test sets it.
    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Clock]]:
    """The time that passes between reports."""
    monkeypatch.setattr(_Clock, "now", 100.0)
    monkeypatch.setattr(time, "monotonic", lambda: _Clock.now)
    monkeypatch.setenv("TERM", "xterm")
    yield _Clock
    progress.show_on(None)


def _shown_on(stream: io.StringIO) -> str:
    text = stream.getvalue()
    stream.seek(0)
    stream.truncate()
    return text


def test_nothing_is_shown_before_half_a_second(clock: type[_Clock]) -> None:
    terminal = _Terminal()
    progress.show_on(terminal)
    progress.report("reading")
    clock.now += 0.4
    progress.report("reading", 4)
    assert not _shown_on(terminal)
    clock.now += 0.2
    progress.report("reading", 6)
    assert _shown_on(terminal) == "\r\x1b[Kreading: 6"
    clock.now += 0.01
    progress.report("reading", 7)
    assert not _shown_on(terminal), "ten lines a second are enough"


def test_clear_erases_the_line_and_begins_to_wait_anew(clock: type[_Clock]) -> None:
    terminal = _Terminal()
    progress.show_on(terminal)
    progress.report("x")
    clock.now += 1
    progress.report("x", 1, 4)
    progress.clear()
    assert _shown_on(terminal) == "\r\x1b[Kx: 25%\r\x1b[K"
    progress.clear()
    progress.report("x", 2, 4)
    assert not _shown_on(terminal)


def test_work_in_several_parts_is_waited_for_as_a_whole(clock: type[_Clock]) -> None:
    terminal = _Terminal()
    progress.show_on(terminal)
    for part in "ab":
        for _ in progress.through(range(2), part, 2):
            clock.now += 0.15
    assert not _shown_on(terminal)
    assert list(progress.through("xyz", "c", 3)) == ["x", "y", "z"]
    assert _shown_on(terminal) == "\r\x1b[Kc: 0%\r\x1b[K"


def test_work_that_begins_later_is_waited_for_anew(clock: type[_Clock]) -> None:
    terminal = _Terminal()
    progress.show_on(terminal)
    for _ in range(3):
        assert list(progress.through("xy", "rescan")) == ["x", "y"]
        clock.now += 2
    assert not _shown_on(terminal)


def test_a_loop_that_is_left_erases_the_line(clock: type[_Clock]) -> None:
    terminal = _Terminal()
    progress.show_on(terminal)
    progress.report("x")
    clock.now += 1
    items = progress.through([1, 2], "x")
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert _shown_on(terminal).endswith("\r\x1b[K")


def test_a_line_fits_the_terminal_and_cannot_write_to_it(clock: type[_Clock]) -> None:
    terminal = _Terminal()
    progress.show_on(terminal)
    progress.report("x")
    clock.now += 1
    progress.report("/tmp/\x1b[2J" + "y" * 100, 50, 100)
    line = _shown_on(terminal).removeprefix("\r\x1b[K")
    assert len(line) == 79
    assert line.startswith("/tmp/\\x1b[2Jyyy")
    assert line.endswith("y…: 50%")


@pytest.mark.parametrize(
    ("stream", "term"),
    [
        pytest.param(io.StringIO(), "xterm", id="a pipe or a file"),
        pytest.param(_Terminal(), "dumb", id="a terminal that cannot erase"),
    ],
)
def test_other_streams_show_none(
    clock: type[_Clock], monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    progress.show_on(stream)
    progress.report("x")
    clock.now += 1
    progress.report("x")
    progress.clear()
    assert not stream.getvalue()


@pytest.fixture
def impatient(clock: type[_Clock], monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """A wide terminal that shows every report."""
    monkeypatch.setattr(progress, "_PATIENCE", 0)
    monkeypatch.setattr(progress, "_PAUSE", 0)
    monkeypatch.setattr(progress, "terminal_size", lambda _: (1000, 24))
    terminal = _Terminal()
    progress.show_on(terminal)
    return terminal


def test_reading_probes_is_shown(impatient: _Terminal) -> None:
    path = str(build("default", "args"))
    probes = read_probes(path).probes
    attachable(probes, path, path, 0, ())
    shown = _shown_on(impatient)
    assert f"reading probes of {path}: {100 * (len(probes) - 1) // len(probes)}%" in shown
    assert shown.endswith("\r\x1b[K")


def test_reading_debug_information_is_shown(
    impatient: _Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = str(program("gccO2v5", "values"))
    with ElfFile(path) as elf:
        debug = DebugInfo.of(elf)
        assert debug is not None
        with debug:
            assert [*debug.functions()]
    shown = _shown_on(impatient)
    assert f"reading debug information of {path}: " in shown
    assert shown.endswith("\r\x1b[K")
