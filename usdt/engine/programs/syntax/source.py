"""The text of a program, and errors that point into it."""

from __future__ import annotations

from usdt.base.errors import ProgramError
from usdt.base.frozen import frozen

__all__ = ("Source",)


@frozen
class Source:
    """The text of a program.

    Attributes:
        text: as written; nodes of the tree have offsets in it.
        name: the name of its file for errors; ``-e`` if it was given on the command line.
    """

    text: str
    name: str

    def error(self, offset: int, reason: str) -> ProgramError:
        """Return an error for the place ``offset``, as in ``source.error(node.start, reason)``."""
        return ProgramError(self.name, self.text, offset, reason)
