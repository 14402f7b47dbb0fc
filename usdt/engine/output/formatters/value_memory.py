"""The bytes that are made of values, kept for when the values come again.

Flags, enumerators, error numbers and file names repeat from record to record. Looking them up takes
a tenth of the time of making them. Where values do not repeat, as addresses may not, keeping
them costs more than making them: then nothing is kept for a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ("ValueMemory",)

_MOST = 4096  # values that are kept
_MOST_BYTES = 1 << 20  # of values that are kept
_REUSE = 4  # how often each value must come, on average
_PAUSE = 64  # times the values that are kept: so many are made before values are kept again


class ValueMemory(dict[Any, bytes]):
    """What was made of values, by value, or by tuple of values.

    Args:
        make: returns the bytes for one value, or for several.
        make_all: returns the bytes for each row of columns of values.
        size: bytes of a value, or of several.
    """

    def __init__(
        self, make: Callable[..., bytes], make_all: Callable[..., list[bytes]], size: int
    ) -> None:
        super().__init__()
        self._make = make
        self._make_all = make_all
        self._most = max(1, min(_MOST, _MOST_BYTES // max(1, size)))
        self._several = False
        self._seen = 0  # values since the memory was empty
        self._pause = 0  # values that are still to be made without keeping any

    def of(self, *columns: Sequence[Any]) -> Iterable[bytes]:
        """Return the bytes for each row of columns of values."""
        count = len(columns[0])
        if self._pause > 0:
            self._pause -= count
            return self._make_all(*columns)
        self._seen += count
        self._several = len(columns) > 1
        return map(self.__getitem__, zip(*columns, strict=True) if self._several else columns[0])

    def __missing__(self, key: Any) -> bytes:
        if len(self) >= self._most:
            if self._seen < _REUSE * self._most:
                self._pause = _PAUSE * self._most
            self._seen = 0
            self.clear()
        made = self[key] = self._make(*key) if self._several else self._make(key)
        return made
