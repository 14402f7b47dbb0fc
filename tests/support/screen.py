"""What a terminal shows after some output."""

from __future__ import annotations

import re

__all__ = ("Screen",)

_TOKEN = re.compile(r"\x1b\[[\d;]*m|\x1b\[(\d*)([A-Z])|([\r\n])|([^\x1b\r\n]+)")


class Screen:
    """A terminal that knows what LiveDisplay writes: lines, cursor up, erase below."""

    def __init__(self) -> None:
        self.lines = [""]
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        """Show more output."""
        end = 0
        for found in _TOKEN.finditer(text):
            assert found.start() == end, f"unknown: {text[end : found.start()]!r}"
            end = found.end()
            number, command, control, shown = found.groups()
            if control == "\n":
                self._row += 1
                self._column = 0
                self.lines += [""] * (self._row + 1 - len(self.lines))
            elif control:
                self._column = 0
            elif shown:
                line = f"{self.lines[self._row]:<{self._column}}"
                after = line[self._column + len(shown) :]
                self.lines[self._row] = line[: self._column] + shown + after
                self._column += len(shown)
            elif not command:  # a colour
                continue
            elif command == "A":
                self._row = max(0, self._row - int(number or 1))
            else:
                assert (number, command) == ("", "J"), found[0]
                self.lines = [*self.lines[: self._row], self.lines[self._row][: self._column]]
        assert end == len(text), f"unknown: {text[end:]!r}"
