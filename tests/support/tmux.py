"""A real terminal: tmux, with keys, a size and what it shows."""

from __future__ import annotations

import contextlib
import subprocess
import time
from typing import TYPE_CHECKING

from patience import patient
from skips import need_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ("Terminal", "terminal")

_TRIES, _PAUSE = int(patient(400)), 0.1  # a busy machine takes its time


class Terminal:
    """A window of tmux in which a shell runs a script."""

    def __init__(self, socket: Path) -> None:
        self._tmux = [need_program("tmux", "tmux"), "-S", str(socket), "-f", "/dev/null"]

    def tell(self, *words: str) -> str:
        """Run a command of tmux; return its output."""
        return subprocess.run(
            [*self._tmux, *words], capture_output=True, text=True, check=True
        ).stdout

    def screen(self) -> str:
        """Return what the window shows."""
        return self.tell("capture-pane", "-p")

    def shown(self, *texts: str, meanwhile: Callable[[], object] = lambda: None) -> str:
        """Wait until the window shows all texts, doing a thing meanwhile; return what it shows."""
        for _ in range(_TRIES):
            meanwhile()
            screen = self.screen()
            if all(text in screen for text in texts):
                return screen
            time.sleep(_PAUSE)
        raise AssertionError(f"{texts} not in:\n{screen}")

    def gone(self, text: str) -> str:
        """Wait until the window does not show a text; return what it shows."""
        for _ in range(_TRIES):
            screen = self.screen()
            if text not in screen:
                return screen
            time.sleep(_PAUSE)
        raise AssertionError(f"{text} still in:\n{screen}")

    def keys(self, *names: str) -> None:
        """Press keys, by tmux's names."""
        self.tell("send-keys", *names)

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size."""
        self.tell("resize-window", "-x", str(columns), "-y", str(rows))


@contextlib.contextmanager
def terminal(folder: Path, script: str, columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    """Run a script of the shell in a terminal, which is closed at the end."""
    window = Terminal(folder / "tmux")
    size = ["-x", str(columns), "-y", str(rows)]
    window.tell("new-session", "-d", *size, "sh", "-c", script)
    try:
        yield window
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            window.tell("kill-server")
