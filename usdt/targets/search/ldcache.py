"""Parser for /etc/ld.so.cache: the libraries that ldconfig(8) found.

Layout: glibc ``sysdeps/generic/dl-cache.h``. Integers are in the byte order of the machine.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("CacheEntry", "CachedPaths", "parse_cache")

_MAX_ENTRIES = 1 << 18  # a large desktop has 4,000
_MAX_NAME = 4096  # PATH_MAX

_OLD_MAGIC = b"ld.so-1.7.0"
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
_OLD_HEADER, _OLD_ENTRY = 16, struct.Struct("III")
_NEW_HEADER, _NEW_ENTRY = 48, struct.Struct("IIIIQ")


@frozen
class CacheEntry:
    """A library in /etc/ld.so.cache.

    Attributes:
        name: the name that programs ask for, such as ``libc.so.6``.
        path: the file.
        flags: FLAG_* of glibc's ldconfig.h.
        hwcap: the hardware capabilities that it needs.
    """

    name: str
    path: str
    flags: int
    hwcap: int


def parse_cache(data: bytes) -> list[CacheEntry]:
    """Parse /etc/ld.so.cache: the new format, the old one, or the new one inside an old one.

    Entries with strings outside the file are skipped. The result is empty for a file that is not a
    cache; the loader ignores such a file as well.
    """
    strings, rows = _table(data)
    found = []
    for flags, key, value, hwcap in rows:
        name, path = (os.fsdecode(_bytes_at(strings, at)) for at in (key, value))
        if name and path:
            found.append(CacheEntry(name, path, flags, hwcap))
    return found


class CachedPaths:
    """The files of a cache by the names that programs ask for.

    A program asks for a few of a thousand names, so only their paths are decoded.

    Args:
        data: /etc/ld.so.cache, as :func:`parse_cache` takes it.
    """

    def __init__(self, data: bytes) -> None:
        self._strings, rows = _table(data)
        self._paths: dict[bytes, list[int]] = {}  # by name, where they are
        for _, key, value, _ in rows:
            self._paths.setdefault(_bytes_at(self._strings, key), []).append(value)

    def of(self, name: str) -> list[str]:
        """Return the files of a name, in the order of the cache."""
        found = self._paths.get(os.fsencode(name), ()) if name else ()
        paths = (os.fsdecode(_bytes_at(self._strings, at)) for at in found)
        return [path for path in paths if path]


def _table(data: bytes) -> tuple[bytes, Iterable[tuple[int, int, int, int]]]:
    # The bytes to which offsets of strings refer; flags, name, path and hardware of each entry.
    if data.startswith(_OLD_MAGIC) and len(data) >= _OLD_HEADER:
        count = min(struct.unpack_from("I", data, 12)[0], len(data) // _OLD_ENTRY.size)
        strings = _OLD_HEADER + count * _OLD_ENTRY.size
        start = (strings + 7) & ~7  # ALIGN_CACHE
        if data.startswith(_NEW_MAGIC, start):
            return _new_table(data[start:])
        return data[strings:], _old_rows(data[:strings])
    return _new_table(data) if data.startswith(_NEW_MAGIC) else (b"", ())


def _new_table(data: bytes) -> tuple[bytes, Iterable[tuple[int, int, int, int]]]:
    if len(data) < _NEW_HEADER:
        return b"", ()
    count = min(struct.unpack_from("I", data, len(_NEW_MAGIC))[0], _MAX_ENTRIES)
    end = min(_NEW_HEADER + count * _NEW_ENTRY.size, len(data))
    whole = end - (end - _NEW_HEADER) % _NEW_ENTRY.size
    entries = _NEW_ENTRY.iter_unpack(data[_NEW_HEADER:whole])
    return data, ((flags, key, value, hwcap) for flags, key, value, _, hwcap in entries)


def _old_rows(table: bytes) -> Iterable[tuple[int, int, int, int]]:
    whole = len(table) - (len(table) - _OLD_HEADER) % _OLD_ENTRY.size
    entries = _OLD_ENTRY.iter_unpack(table[_OLD_HEADER:whole])
    return ((flags, key, value, 0) for flags, key, value in entries)


def _bytes_at(data: bytes, offset: int) -> bytes:
    # b"" for a string that is outside the data, unterminated, or longer than PATH_MAX.
    return data[offset : max(offset, data.find(b"\0", offset, offset + _MAX_NAME))]
