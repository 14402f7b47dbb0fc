"""Offsets of members of the running kernel's structures, without finding all of its types.

:class:`~usdt.btf.reader.Btf` needs to know where each of some 150,000 records begins, and finding
that takes 20 ms. That is too long for one number at the start of a trace.
"""

from __future__ import annotations

import struct
import sys
from itertools import islice
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.files import KERNEL, read_or_map
from usdt.btf.format import Kind, kind_of, parse_header
from usdt.btf.positions import occurrences

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

__all__ = ("member_offsets",)

_RECORD = _MEMBER = struct.Struct("=III")
_MAX_HITS = 1000  # of a name's offset among the records
_PIECE = 1 << 18  # bytes


def member_offsets(structure: str, *members: str) -> tuple[int, ...] | None:
    """Return the offsets in bytes of direct members of a structure of the running kernel.

    Bytes that look like the structure's record count as it only if these members follow. No other
    record has the name's offset, a structure's kind and such members.

    Returns:
        One offset for each member; None if the kernel's BTF does not have them.
    """
    try:
        data = read_or_map(KERNEL)
        header = parse_header(data, KERNEL)
    except (OSError, BtfError):
        return None
    if header.order != sys.byteorder:
        return None
    name, *wanted = (_name(data, header.strings, one) for one in (structure, *members))
    if name is None or None in wanted:
        return None
    for at in _records(data, header.types, name):
        found = dict(_members(data, header.types, at))
        offsets = [found[one] for one in wanted if one in found]
        if len(offsets) == len(members):
            return tuple(offsets)
    return None


def _name(data: bytes | mmap.mmap, strings: tuple[int, int], name: str) -> int | None:
    # The offset of a name among the strings; each is once in the kernel's. They are searched in
    # pieces: all of them would be a copy of megabytes.
    start, end = strings
    pattern = b"\0" + name.encode() + b"\0"
    for first in range(start, end, _PIECE):
        at = data[first : min(first + _PIECE + len(pattern) - 1, end)].find(pattern)
        if at >= 0:
            return first + at + 1 - start
    return None


def _records(data: bytes | mmap.mmap, types: tuple[int, int], name: int) -> Iterator[int]:
    # Where a structure of this name may begin.
    for at in islice(occurrences(data, name, sys.byteorder, types), _MAX_HITS):
        if at > types[1] - _RECORD.size:
            break
        _, info, _ = _RECORD.unpack_from(data, at)
        if at % 4 == 0 and kind_of(info) == Kind.STRUCT:
            yield at


def _members(data: bytes | mmap.mmap, types: tuple[int, int], at: int) -> Iterator[tuple[int, int]]:
    # The offset of each member's name, and its own in bytes.
    _, info, _ = _RECORD.unpack_from(data, at)
    packed = info >> 31  # the upper byte of an offset is the size of a bit field
    first = at + _RECORD.size
    last = min(types[1], first + (info & 0xFFFF) * _MEMBER.size)
    for name, _, bits in _MEMBER.iter_unpack(data[first : last - (last - first) % _MEMBER.size]):
        yield name, (bits & 0xFFFFFF if packed else bits) // 8
