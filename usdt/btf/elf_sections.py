"""Sections of ELF files with BTF, which may have a gigabyte of debug information beside it.

:mod:`usdt.elf` is layered above: BTF finds sections by itself, in files of both classes.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Protocol

from usdt.base.errors import BtfError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("ELF_MAGIC", "FileData", "find_sections")

ELF_MAGIC = b"\x7fELF"
_NOBITS = 8
_XINDEX = 0xFFFF
_COMPRESSED = 1 << 11
_MAX_SECTIONS = 1 << 20
_MAX_SECTION = 1 << 30  # bytes


class _Data(Protocol):
    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes: ...


class FileData:
    """The bytes of an open regular file, read when they are used.

    Args:
        number: its descriptor; the caller closes it.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._size = os.fstat(number).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, end, _ = part.indices(self._size)
        pieces = []
        while start < end and (piece := os.pread(self._number, end - start, start)):
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)


def find_sections(data: _Data, names: Iterable[str], path: str) -> dict[str, bytes]:
    """Return the contents of the first section with each of some names; leave out missing ones.

    Args:
        data: the bytes of the file.
        names: the names.
        path: the file's name, for messages.

    Raises:
        BtfError: the ELF file is damaged.
    """
    try:
        return _find(data, {name.encode() + b"\0": name for name in names}, path)
    except (struct.error, IndexError) as err:
        raise BtfError(f"{path}: damaged ELF file ({err})") from err


def _find(data: _Data, wanted: dict[bytes, str], path: str) -> dict[str, bytes]:
    head = data[:64]
    wide, mark = _ident(head, path)
    where = struct.unpack_from(mark + ("Q" if wide else "I"), head, 40 if wide else 32)[0]
    size, count, names_at = struct.unpack_from(mark + "HHH", head, 58 if wide else 46)
    if not where:
        return {}
    layout = struct.Struct(mark + ("IIQQQQIIQQ" if wide else "10I"))
    if size < layout.size:
        raise BtfError(f"{path}: ELF section headers of {size} bytes, {layout.size} expected")
    first = layout.unpack(data[where : where + layout.size])
    count = count or first[5]  # more sections than the header has bits for
    names_at = first[6] if names_at == _XINDEX else names_at
    if count > _MAX_SECTIONS or where + count * size > len(data):
        raise BtfError(f"{path}: ELF file ends before its {count} section headers")
    table = data[where : where + count * size]
    rows = [layout.unpack_from(table, index * size) for index in range(count)]
    if names_at >= count:
        raise BtfError(f"{path}: ELF file without section names")
    names = _contents(data, rows[names_at], path)
    found: dict[str, bytes] = {}
    for row in rows:
        for raw, name in wanted.items():
            if name not in found and names.startswith(raw, row[0]):
                found[name] = _contents(data, row, path)
    return found


def _ident(data: bytes, path: str) -> tuple[bool, str]:
    if len(data) < 52 or data[4] not in (1, 2) or data[5] not in (1, 2):
        raise BtfError(f"{path}: damaged ELF file (e_ident)")
    return data[4] == 2, "<" if data[5] == 1 else ">"


def _contents(data: _Data, row: tuple[int, ...], path: str) -> bytes:
    kind, flags, offset, size = row[1], row[2], row[4], row[5]
    if kind == _NOBITS:
        return b""
    if offset + size > len(data):
        raise BtfError(
            f"{path}: ELF section of {size} bytes at {offset} ends after the end of the file"
        )
    if size > _MAX_SECTION:
        raise BtfError(f"{path}: ELF section of more than {_MAX_SECTION >> 20} MiB")
    if flags & _COMPRESSED:
        raise BtfError(
            f"{path}: the section is compressed; decompress it: objcopy --decompress-debug-sections"
        )
    return data[offset : offset + size]
