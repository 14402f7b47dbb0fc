"""What earlier runs were told about one file: rows of text by key, in the cache.

The searches of :mod:`usdt.dwarf` keep here where functions, types and variables are. Rows are not
trusted: who follows one checks the entry that it leads to, and searches as if there were none.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.base.text import encoded
from usdt.dwarf.units import cache

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Answers",)

_KIND = "answers"  # of files of the cache
_MAX_ROWS = 1 << 12  # that are kept, the newest ones
_MAX_LENGTH = 1 << 12  # characters of a row
_MIN_COST = 4 << 20  # bytes; answers that took less are not kept
_READING = 16  # bytes that are searched in the time in which one byte of entries is read


class Answers:
    """The rows of one file.

    Args:
        identity: returns the file's key in the cache.
    """

    def __init__(self, identity: Callable[[], str]) -> None:
        self._identity = identity
        self._new: dict[str, tuple[str, ...]] = {}
        self._cost = 0

    def get(self, key: str) -> tuple[str, ...] | None:
        """Return the row of a key; None if there is none."""
        found = self._new.get(key)
        return self._kept.get(key) if found is None else found

    def put(self, key: str, *values: str) -> None:
        """Note a row; one that is too long or has characters that cannot be printed is left out."""
        row = (key, *values)
        if sum(map(len, row)) <= _MAX_LENGTH and all(map(str.isprintable, row)):
            if len(self._new) >= _MAX_ROWS:
                del self._new[next(iter(self._new))]
            self._new[key] = values

    def note_cost(self, searched: int, read: int = 0) -> None:
        """Note what answers have taken.

        Args:
            searched: bytes that were decompressed or searched.
            read: bytes of units whose entries were read.
        """
        self._cost += searched + _READING * read

    def close(self) -> None:
        """Leave new rows to later runs, unless they took little; idempotent."""
        if not self._new or self._cost < _MIN_COST:
            return
        # Another process may have added rows meanwhile.
        rows = {**_load(self._identity()), **self._new}
        self._new = {}
        newest = [*rows.items()][-_MAX_ROWS:]
        text = encoded("\n".join("\t".join((key, *values)) for key, values in newest))
        cache.store(self._identity(), _KIND, lambda: iter((text,)))

    @functools.cached_property
    def _kept(self) -> dict[str, tuple[str, ...]]:
        return _load(self._identity())


def _load(identity: str) -> dict[str, tuple[str, ...]]:
    data = cache.load(identity, _KIND)
    if data is None:
        return {}
    lines = bytes(data).decode("utf-8", "surrogateescape").split("\n")
    rows = (line.split("\t") for line in lines if line)
    return {row[0]: tuple(row[1:]) for row in rows}
