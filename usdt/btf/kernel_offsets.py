"""Offsets of members of the running kernel's structures, without finding all of its types.

:class:`~usdt.btf.reader.Btf` first finds where each of some 150,000 records begins, which takes
30 ms. That is too long for one number at the start of a trace.
"""

from __future__ import annotations

import mmap
import struct
import sys
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.files import KERNEL
from usdt.btf.format import Kind, kind_of, parse_header

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("member_offsets",)

_RECORD = _MEMBER = struct.Struct("=III")
_MAX_HITS = 1000  # of a name's offset among the records


def member_offsets(structure: str, *members: str) -> tuple[int, ...] | None:
    """Return the offsets in bytes of direct members of a structure of the running kernel.

    Bytes that look like the structure's record count as it only if these members follow. No other
    record has the name's offset, a structure's kind and such members.

    Returns:
        One offset for each member; None if the kernel's BTF does not have them.
    """
    try:
        with open(KERNEL, "rb") as file:  # noqa: PTH123 - importing pathlib takes longer than this
            data = _contents(file.fileno())
        header = parse_header(data, KERNEL)
    except (OSError, BtfError):
        return None
    if header.order != sys.byteorder:
        return None
    wanted = [set(_names(data, header.strings, member)) for member in members]
    for at in _records(data, header.types, set(_names(data, header.strings, structure))):
        found = dict(_members(data, header.types, at))
        offsets = [found[name] for names in wanted for name in names if name in found]
        if len(offsets) == len(members):
            return tuple(offsets)
    return None


def _contents(number: int) -> bytes | mmap.mmap:
    # Mapping costs nothing. Linux 6.16 allows it (commit a539e2a6d51d), for whole pages.
    try:
        return mmap.mmap(number, 0, prot=mmap.PROT_READ)
    except (OSError, ValueError):
        with open(number, "rb", closefd=False) as file:
            return file.read()


def _names(data: bytes | mmap.mmap, strings: tuple[int, int], name: str) -> Iterator[int]:
    # The offsets of a name among the strings; each is once in the kernel's.
    pattern = b"\0" + name.encode() + b"\0"
    start, end = strings
    at = data.find(pattern, start, end)
    while at >= 0:
        yield at + 1 - start
        at = data.find(pattern, at + 1, end)


def _records(data: bytes | mmap.mmap, types: tuple[int, int], names: set[int]) -> Iterator[int]:
    # Where a structure of one of these names may begin.
    start, end = types
    for name in names:
        word = name.to_bytes(4, sys.byteorder)
        at = data.find(word, start, end)
        for _ in range(_MAX_HITS):
            if not 0 <= at <= end - _RECORD.size:
                break
            _, info, _ = _RECORD.unpack_from(data, at)
            if at % 4 == 0 and kind_of(info) == Kind.STRUCT:
                yield at
            at = data.find(word, at + 1, end)


def _members(data: bytes | mmap.mmap, types: tuple[int, int], at: int) -> Iterator[tuple[int, int]]:
    # The offset of each member's name, and its own in bytes.
    _, info, _ = _RECORD.unpack_from(data, at)
    packed = info >> 31  # the upper byte of an offset is the size of a bit field
    first = at + _RECORD.size
    last = min(types[1], first + (info & 0xFFFF) * _MEMBER.size)
    for name, _, bits in _MEMBER.iter_unpack(data[first : last - (last - first) % _MEMBER.size]):
        yield name, (bits & 0xFFFFFF if packed else bits) // 8
