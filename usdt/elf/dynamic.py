"""What the dynamic loader reads of an ELF file: its program headers and the dynamic section.

Sections play no part, so stripped and section-less files are read as well. Sources: elf(5), the
System V ABI chapter 5, glibc ``elf/dl-load.c``.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from usdt.base.errors import ElfError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from mmap import mmap

__all__ = ("Dynamic", "parse_dynamic")

PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 0, 1, 5, 14, 15, 29

_MAX_SEGMENTS = 4096
_MAX_TAGS = 16384
_MAX_STRING = 4096  # PATH_MAX


@frozen
class Dynamic:
    """What the loader reads of one ELF file.

    Attributes:
        bits: 32 or 64.
        machine: e_machine.
        interpreter: of PT_INTERP, or "".
        soname: DT_SONAME, or "".
        needed: DT_NEEDED, in order.
        rpath: directories of DT_RPATH; empty where there is a runpath, which overrides it.
        runpath: directories of DT_RUNPATH.
    """

    bits: int
    machine: int
    interpreter: str = ""
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


class _Layout(NamedTuple):
    # Where the fields of one ELF class stand: (e_phoff, e_phentsize, e_phnum) in the ELF header,
    # (type, offset, vaddr, filesz) in a program header.
    header: str
    header_size: int
    segment: str
    tag: str
    order: tuple[int, int, int, int]


_LAYOUTS = {
    32: _Layout("28xI10xHH", 52, "IIIIIIII", "II", (0, 1, 2, 4)),
    64: _Layout("32xQ14xHH", 64, "IIQQQQQQ", "QQ", (0, 2, 3, 5)),
}


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def parse_dynamic(data: bytes | mmap, name: str) -> Dynamic:
    """Read what the loader needs to know of an ELF file.

    Args:
        data: the whole file.
        name: of the file, for messages.

    Raises:
        ElfError: not ELF, or its program headers lie outside the file.
    """
    if len(data) < 52 or data[:4] != b"\x7fELF" or data[4] not in {1, 2} or data[5] not in {1, 2}:
        raise ElfError(f"{name}: not an ELF file")
    bits, order = 32 * data[4], "<>"[data[5] - 1]
    (machine,) = struct.unpack_from(order + "H", data, 18)
    segments = _segments(data, name, bits, order)
    interpreter = next((s for s in segments if s.kind == PT_INTERP), None)
    dynamic = next((s for s in segments if s.kind == PT_DYNAMIC), None)
    tags = _tags(data, dynamic, _LAYOUTS[bits].tag, order) if dynamic else []
    table = next((_offset(segments, value) for tag, value in tags if tag == DT_STRTAB), None)
    strings = [(tag, _string(data, table + value)) for tag, value in tags if table is not None]
    runpath = _directories(strings, DT_RUNPATH)
    return Dynamic(
        bits=bits,
        machine=machine,
        interpreter=_string(data, interpreter.offset) if interpreter else "",
        soname=next((text for tag, text in strings if tag == DT_SONAME), ""),
        needed=tuple(text for tag, text in strings if tag == DT_NEEDED and text),
        rpath=() if runpath else _directories(strings, DT_RPATH),
        runpath=runpath,
    )


def _segments(data: bytes | mmap, name: str, bits: int, order: str) -> list[_Segment]:
    layout = _LAYOUTS[bits]
    if len(data) < layout.header_size:
        raise ElfError(f"{name}: {len(data)} bytes end inside the ELF header")
    start, size, count = struct.unpack_from(order + layout.header, data)
    entry = struct.Struct(order + layout.segment)
    if count and size != entry.size:
        raise ElfError(f"{name}: program headers of {size} bytes, expected {entry.size}")
    if count > _MAX_SEGMENTS or start + count * size > len(data):
        raise ElfError(f"{name}: {count} program headers at {start} lie outside the file")
    rows = entry.iter_unpack(data[start : start + count * size])
    return [_Segment(*(row[column] for column in layout.order)) for row in rows]


def _tags(data: bytes | mmap, dynamic: _Segment, form: str, order: str) -> list[tuple[int, int]]:
    entry = struct.Struct(order + form)
    end = min(dynamic.offset + min(dynamic.size, _MAX_TAGS * entry.size), len(data))
    whole = max(end - dynamic.offset, 0) // entry.size * entry.size
    tags = []
    for tag, value in entry.iter_unpack(data[dynamic.offset : dynamic.offset + whole]):
        if tag == DT_NULL:
            break
        tags.append((tag, value))
    return tags


def _offset(segments: list[_Segment], address: int) -> int | None:
    for segment in segments:
        if segment.kind == PT_LOAD and 0 <= address - segment.address < segment.size:
            return address - segment.address + segment.offset
    return None


def _string(data: bytes | mmap, offset: int) -> str:
    # "" for what is outside the file, unterminated or longer than a path can be.
    if offset >= len(data):
        return ""
    end = data.find(b"\0", offset, offset + _MAX_STRING)
    return os.fsdecode(data[offset:end]) if end > offset else ""


def _directories(strings: list[tuple[int, str]], wanted: int) -> tuple[str, ...]:
    text = next((text for tag, text in strings if tag == wanted), "")
    return tuple(text.split(":")) if text else ()
