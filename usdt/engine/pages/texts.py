"""Texts of traced processes for a page: printable, cut, and not more than a page can hold."""

from __future__ import annotations

from usdt.engine.output.formatters.formatter import escape

__all__ = ("NAME", "Texts", "shortened")

NAME = 200  # characters of a name
_ALL = 1_500_000  # bytes of all longer texts
_ESCAPED = 6  # bytes of a character that is not ASCII


def shortened(text: str, longest: int = NAME) -> str:
    """Return a text, or its beginning and ``…``."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


class Texts:
    """The texts of a page: those that come first are whole; once there is no space, ``…`` stands.

    Attributes:
        left_out: how many texts have no space.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._left = _ALL

    def fitting(self, text: str, longest: int) -> str:
        """Return a text as it is shown, on one line or on several."""
        shown = shortened("\n".join(map(escape, text.split("\n"))), longest)
        size = len(shown) if shown.isascii() else len(shown) * _ESCAPED
        if size > self._left:
            self.left_out += 1
            return "…"
        self._left -= size
        return shown
