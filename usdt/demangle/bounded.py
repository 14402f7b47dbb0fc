"""A bounded reader of mangled names and a bounded printer, which the demanglers share.

Symbol tables may be hostile: a name of a kilobyte can expand to gigabytes of text (substitutions
that double), or nest deeper than any stack. Reader and printer raise :class:`MalformedName` beyond
their limits.
"""

from __future__ import annotations

__all__ = ("MAX_NAME", "BoundedPrinter", "MalformedName", "NameReader")

MAX_NAME = 1 << 14  # characters of a mangled name
MAX_TEXT = 1 << 16  # characters of a demangled one
MAX_DEPTH = 160  # levels of nesting; a level takes several Python frames
MAX_STEPS = 1 << 16  # nodes printed


class MalformedName(ValueError):  # noqa: N818 - never leaves this package
    """The text is not a mangled name, or it is too large."""


class NameReader:
    """A mangled name and a position in it."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_NAME or not text.isascii():
            raise MalformedName
        self.text = text
        self.at = 0
        self._depth = 0

    def __enter__(self) -> None:
        """Enter one level of nesting."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise MalformedName

    def __exit__(self, *_: object) -> None:
        """Leave it."""
        self._depth -= 1

    def peek(self, size: int = 1) -> str:
        """Return the next characters without consuming them; fewer at the end."""
        return self.text[self.at : self.at + size]

    def take(self, wanted: str) -> bool:
        """Consume the wanted text if it is next; return True if it was."""
        if self.text.startswith(wanted, self.at):
            self.at += len(wanted)
            return True
        return False

    def expect(self, wanted: str) -> None:
        """Consume the wanted text.

        Raises:
            MalformedName: it is not next.
        """
        if not self.take(wanted):
            raise MalformedName

    def next(self, size: int = 1) -> str:
        """Consume and return the next characters.

        Raises:
            MalformedName: there are fewer.
        """
        found = self.text[self.at : self.at + size]
        if len(found) < size:
            raise MalformedName
        self.at += size
        return found

    def digits(self) -> str:
        """Consume and return the next decimal digits; "" if there are none."""
        start = self.at
        while self.at < len(self.text) and self.text[self.at].isdigit():
            self.at += 1
        if self.at - start > 20:
            raise MalformedName
        return self.text[start : self.at]

    def number(self) -> int:
        """Consume and return a decimal number."""
        found = self.digits()
        if not found:
            raise MalformedName
        return int(found)

    def base(self, letters: str) -> int:
        """Consume a number in base ``len(letters)`` up to ``_``; "_" is 0, "0_" is 1."""
        value = 0
        start = self.at
        while not self.take("_"):
            digit = letters.find(self.next())
            value = value * len(letters) + digit
            if digit < 0 or self.at - start > 14:
                raise MalformedName
        return value + 1 if self.at - start > 1 else 0

    @property
    def done(self) -> bool:
        """True if the whole text was consumed."""
        return self.at >= len(self.text)


class BoundedPrinter:
    """A buffer for demangled text, with limits.

    Attributes:
        last: its last character.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._steps = 0
        self._depth = 0
        self.last = ""

    def __enter__(self) -> None:
        """Enter a node."""
        self._depth += 1
        self._steps += 1
        if self._depth > 2 * MAX_DEPTH or self._steps > MAX_STEPS:
            raise MalformedName

    def __exit__(self, *_: object) -> None:
        """Leave it."""
        self._depth -= 1

    def put(self, text: str) -> None:
        """Append text."""
        if text:
            self._parts.append(text)
            self._size += len(text)
            self.last = text[-1]
            if self._size > MAX_TEXT:
                raise MalformedName

    def mark(self) -> tuple[int, int, str]:
        """Return the state, for :meth:`undo` and :meth:`written_since`."""
        return len(self._parts), self._size, self.last

    @property
    def last_part(self) -> str:
        """The text that was appended last; "" if there is none."""
        return self._parts[-1] if self._parts else ""

    def written_since(self, mark: tuple[int, int, str]) -> bool:
        """Return True if anything was appended since ``mark``."""
        return self._size > mark[1]

    def undo(self, mark: tuple[int, int, str]) -> None:
        """Remove the text appended since ``mark``."""
        del self._parts[mark[0] :]
        _, self._size, self.last = mark

    def text(self) -> str:
        """Return the printed text."""
        return "".join(self._parts)
