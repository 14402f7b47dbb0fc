"""Bytes of an open file, read when they are used.

Files are read with pread(2) and are never mapped: if another process truncates a mapped file,
SIGBUS ends the process that reads it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, overload

from usdt.base.errors import ElfError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("FileBytes", "OpenFile")

_WINDOW = 4096  # bytes that a small read fetches and keeps
_SMALL = 128 << 10  # bytes; a smaller range is fetched and kept as a whole
_MEDIUM = 1 << 20  # bytes; the same of a range of which as many bytes were fetched piece by piece
_SHORT = 256  # bytes; most strings are shorter
_PIECE = 1 << 20  # bytes that are read at once when all are needed


class OpenFile:
    """A descriptor that is closed with its last user, and how the file is named in messages."""

    __slots__ = ("_descriptor", "name")

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self.name = name

    def close(self) -> None:
        """Close the file; idempotent."""
        # ^C may come before __init__ has run.
        descriptor = getattr(self, "_descriptor", -1)
        self._descriptor = -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close

    @property
    def number(self) -> int:
        """The descriptor's number; -1 if it is closed."""
        return self._descriptor

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes.

        Raises:
            ElfError: the file has become shorter, or cannot be read.
        """
        try:
            data = os.pread(self._descriptor, size, offset)
            while data and len(data) < size:
                more = os.pread(self._descriptor, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except (OSError, OverflowError) as err:
            raise ElfError(f"{self.name}: cannot be read: {err}") from err
        if len(data) < size:
            raise ElfError(f"{self.name}: became shorter while it was read; try again")
        return data


class FileBytes:
    """A range of a file with the length, the items and the slices of a ``memoryview``.

    Slices are ``bytes``. Of a large range only the last few kilobytes are kept.
    """

    __slots__ = ("_fetched", "_file", "_size", "_start", "_window")

    def __init__(self, file: OpenFile, start: int, size: int) -> None:
        self._file = file
        self._start = start
        self._size = size
        self._fetched = 0
        self._window = (0, b"")  # replaced as a whole: threads may read at once

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, key: int) -> int: ...

    @overload
    def __getitem__(self, key: slice) -> bytes: ...

    def __getitem__(self, key: int | slice) -> int | bytes:
        if isinstance(key, int):
            if not 0 <= key < self._size:
                raise IndexError(f"{self._file.name}: position {key} of {self._size}")
            return self._near(key, key + 1)[0]
        start, end, _ = key.indices(self._size)
        if end <= start:
            return b""
        if end - start > _WINDOW and self._size > _SMALL:
            return self._file.read(self._start + start, end - start)
        return self._near(start, end)

    def _near(self, start: int, end: int) -> bytes:
        at, data = self._window
        if not at <= start <= end <= at + len(data):
            whole = self._size <= _SMALL or self._fetched >= self._size <= _MEDIUM
            at = 0 if whole else start
            size = self._size if whole else min(_WINDOW, self._size - at)
            data = self._file.read(self._start + at, size)
            self._window = at, data
            self._fetched += size
        return data[start - at : end - at]

    def after(self, position: int) -> FileBytes:
        """Return the bytes from a position on."""
        return FileBytes(self._file, self._start + position, self._size - position)

    def string(self, at: int, most: int) -> bytes | None:
        """Return the bytes before the next NUL; None if there is none within ``most`` bytes."""
        for size in (min(_SHORT, most), most):
            data = self[at : at + size]
            end = data.find(b"\0")
            if end >= 0:
                return data[:end]
        return None

    def pieces(self, unit: int = 1) -> Iterator[bytes]:
        """Yield all bytes in pieces, each a multiple of ``unit``; what is left over is dropped."""
        step = _PIECE // unit * unit or unit
        whole = self._size // unit * unit
        for at in range(0, whole, step):
            yield self[at : min(at + step, whole)]

    def find_all(self, wanted: bytes) -> Iterator[int]:
        """Yield the positions at which some bytes stand."""
        for at in range(0, self._size, _PIECE):
            data = self[at : at + _PIECE + len(wanted) - 1]
            found = data.find(wanted)
            while found >= 0:
                yield at + found
                found = data.find(wanted, found + 1)
