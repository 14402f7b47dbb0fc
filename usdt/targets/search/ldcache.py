"""Parser for /etc/ld.so.cache: the libraries that ldconfig(8) found.

Layout: glibc ``sysdeps/generic/dl-cache.h``. Integers are in the byte order of the machine.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ("CacheEntry", "parse_cache")

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
    if data.startswith(_OLD_MAGIC) and len(data) >= _OLD_HEADER:
        count = min(struct.unpack_from("I", data, 12)[0], len(data) // _OLD_ENTRY.size)
        strings = _OLD_HEADER + count * _OLD_ENTRY.size
        start = (strings + 7) & ~7  # ALIGN_CACHE
        if data.startswith(_NEW_MAGIC, start):
            return _new_entries(data[start:])
        return _old_entries(data[:strings], data[strings:])
    return _new_entries(data) if data.startswith(_NEW_MAGIC) else []


def _new_entries(data: bytes) -> list[CacheEntry]:
    if len(data) < _NEW_HEADER:
        return []
    count = min(struct.unpack_from("I", data, len(_NEW_MAGIC))[0], _MAX_ENTRIES)
    end = min(_NEW_HEADER + count * _NEW_ENTRY.size, len(data))
    whole = end - (end - _NEW_HEADER) % _NEW_ENTRY.size
    entries = _NEW_ENTRY.iter_unpack(data[_NEW_HEADER:whole])
    return list(_entries(data, ((flags, key, value, cap) for flags, key, value, _, cap in entries)))


def _old_entries(table: bytes, strings: bytes) -> list[CacheEntry]:
    whole = len(table) - (len(table) - _OLD_HEADER) % _OLD_ENTRY.size
    entries = _OLD_ENTRY.iter_unpack(table[_OLD_HEADER:whole])
    return list(_entries(strings, ((flags, key, value, 0) for flags, key, value in entries)))


def _entries(strings: bytes, entries: Iterable[tuple[int, int, int, int]]) -> Iterator[CacheEntry]:
    for flags, key, value, hwcap in entries:
        name, path = _string_at(strings, key), _string_at(strings, value)
        if name and path:
            yield CacheEntry(name, path, flags, hwcap)


def _string_at(data: bytes, offset: int) -> str:
    # "" for a string that is outside the data, unterminated, or longer than PATH_MAX.
    end = data.find(b"\0", offset, offset + _MAX_NAME)
    return os.fsdecode(data[offset:end]) if end > offset else ""
