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
        imported: the programs that it imports, each with the offset at which its nodes begin, in
            ascending order: behind its own text.
    """

    text: str
    name: str
    imported: tuple[tuple[int, Source], ...] = ()

    def error(self, offset: int, reason: str) -> ProgramError:
        """Return an error for the place ``offset``, as in ``source.error(node.start, reason)``."""
        source, offset = self.at(offset)
        return ProgramError(source.name, source.text, offset, reason)

    def at(self, offset: int) -> tuple[Source, int]:
        """Return the text that an offset is in, this or an imported one, and the offset in it."""
        for start, source in reversed(self.imported):
            if offset >= start:
                return source, offset - start
        return self, offset
