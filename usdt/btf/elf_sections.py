"""Find sections of an ELF file by name, of both classes and byte orders.

``usdt.elf`` stands on a higher floor, so BTF has this small reader of its own.
"""

from __future__ import annotations

import struct

from usdt.base.errors import BtfError

__all__ = ("find_sections", "is_elf")

_NOBITS = 8
_XINDEX = 0xFFFF
_COMPRESSED = 1 << 11
_MAX_SECTIONS = 1 << 20


def is_elf(data: bytes) -> bool:
    """Return True if the data begins with the ELF magic."""
    return data[:4] == b"\x7fELF"


def find_sections(data: bytes, names: tuple[str, ...], path: str) -> dict[str, bytes]:
    """Return the contents of the first section with each of the names; leave out missing ones.

    Raises:
        BtfError: the ELF file is damaged.
    """
    try:
        return _find(data, {name.encode() + b"\0": name for name in names}, path)
    except (struct.error, IndexError) as err:
        raise BtfError(f"{path}: damaged ELF file ({err})") from err


def _find(data: bytes, wanted: dict[bytes, str], path: str) -> dict[str, bytes]:
    wide, mark = _ident(data, path)
    where = struct.unpack_from(mark + ("Q" if wide else "I"), data, 40 if wide else 32)[0]
    size, count, names_at = struct.unpack_from(mark + "HHH", data, 58 if wide else 46)
    if not where:
        return {}
    layout = struct.Struct(mark + ("IIQQQQIIQQ" if wide else "10I"))
    if size < layout.size:
        raise BtfError(f"{path}: ELF section headers of {size} bytes, {layout.size} expected")
    first = layout.unpack_from(data, where)
    count = count or first[5]  # more sections than the header has bits for
    names_at = first[6] if names_at == _XINDEX else names_at
    if count > _MAX_SECTIONS or where + count * size > len(data):
        raise BtfError(f"{path}: ELF file ends before its {count} section headers")
    rows = [layout.unpack_from(data, where + index * size) for index in range(count)]
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


def _contents(data: bytes, row: tuple[int, ...], path: str) -> bytes:
    kind, flags, offset, size = row[1], row[2], row[4], row[5]
    if kind == _NOBITS:
        return b""
    if offset + size > len(data):
        raise BtfError(
            f"{path}: ELF section of {size} bytes at {offset} ends after the end of the file"
        )
    if flags & _COMPRESSED:
        raise BtfError(
            f"{path}: the section is compressed; decompress it: objcopy --decompress-debug-sections"
        )
    return data[offset : offset + size]
