"""Results that are drawn again and again on a terminal, below what is there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from usdt.engine.cli.click_group import messages_said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.output.output_file import OutputFile

__all__ = ("LiveDisplay",)


class LiveDisplay:
    """Lines on a terminal, of which the next drawing erases only its own.

    If a message was written below them, they stay, and the next drawing begins below the message.
    """

    def __init__(self, output: OutputFile) -> None:
        self._output = output
        self._lines = 0
        self._said = messages_said()

    def size(self) -> tuple[int, int]:
        """Return the columns and rows that a drawing may use."""
        width, height = self._output.terminal_size()
        return max(1, width - 1), max(1, height - 2)

    def draw(self, lines: Sequence[str]) -> None:
        """Draw lines in place of those before; each must fit :meth:`size`."""
        self._output.write([self._erased(), *lines])
        self._lines = len(lines)
        self._said = messages_said()

    def clear(self) -> None:
        """Erase what was drawn."""
        self.draw(())

    def _erased(self) -> str:
        # Returns what erases the lines: ^C may stand on the line of the cursor.
        if not self._lines or (messages_said() != self._said and sys.stderr.isatty()):
            return ""
        return f"\r\x1b[{self._lines}A\x1b[J"
