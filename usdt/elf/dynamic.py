"""The information that the dynamic loader reads from an ELF file.

It uses program headers and the dynamic section only, so files without section headers can be read.
Sources: elf(5), the System V ABI chapter 5, glibc ``elf/dl-load.c``.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.elf.format import (
    ELF_STRUCTS,
    PT_DYNAMIC,
    PT_INTERP,
    PT_LOAD,
    HeaderTable,
    check_table,
    decode_header,
    decode_segments,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.elf.file_bytes import FileBytes
    from usdt.elf.format import ElfHeader, Segment

__all__ = ("Dynamic", "parse_dynamic")

DT_NULL, DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 0, 1, 5, 14, 15, 29
DT_SYMBOLIC, DT_FLAGS, DT_FLAGS_1 = 16, 30, 0x6FFFFFFB
DF_SYMBOLIC, DF_1_PIE = 2, 0x08000000

_MAX_TAGS = 16384
_MAX_STRING = 4096  # PATH_MAX


@frozen
class Dynamic:
    """The information that the loader reads from one ELF file.

    Attributes:
        bits: 32 or 64.
        machine: e_machine.
        interpreter: of PT_INTERP, or "".
        soname: DT_SONAME, or "".
        needed: DT_NEEDED, in order.
        rpath: directories of DT_RPATH; empty if there is a runpath, which overrides it.
        runpath: directories of DT_RUNPATH.
        symbolic: whether a library's own definitions of symbols precede those of the program.
        pie: whether it is marked as a program.
    """

    bits: int
    machine: int
    interpreter: str = ""
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    symbolic: bool = False
    pie: bool = False

    @property
    def is_program(self) -> bool:
        """True for a program, whose definitions of symbols precede those of libraries.

        A library may have an interpreter as well, as libc does.
        """
        return self.pie or (bool(self.interpreter) and not self.soname)


_TAGS = {32: "II", 64: "QQ"}  # Elf32_Dyn, Elf64_Dyn


def parse_dynamic(data: bytes | FileBytes, name: str) -> Dynamic:
    """Read the information that the loader needs from an ELF file.

    Args:
        data: the contents of the file.
        name: of the file, for messages.

    Raises:
        ElfError: not ELF, or its program headers are outside the file.
    """
    header = decode_header(bytes(data[:64]), name)
    phdr, count = ELF_STRUCTS[header.bits, header.byteorder].phdr, header.phnum
    if count:
        headers = HeaderTable("program", header.phoff, count, header.phentsize)
        check_table(headers, phdr, len(data), name)
    segments = decode_segments(data[header.phoff : header.phoff + count * phdr.size], header)
    interpreter = next((s for s in segments if s.type == PT_INTERP), None)
    dynamic = next((s for s in segments if s.type == PT_DYNAMIC), None)
    tags = _tags(data, dynamic, header) if dynamic else []
    table = next((_offset(segments, value) for tag, value in tags if tag == DT_STRTAB), None)
    strings = [(tag, _string(data, table + value)) for tag, value in tags if table is not None]
    runpath = _directories(strings, DT_RUNPATH)
    flags = {tag: value for tag, value in tags if tag in (DT_SYMBOLIC, DT_FLAGS, DT_FLAGS_1)}
    return Dynamic(
        bits=header.bits,
        machine=header.machine,
        interpreter=_string(data, interpreter.offset) if interpreter else "",
        soname=next((text for tag, text in strings if tag == DT_SONAME), ""),
        needed=tuple(text for tag, text in strings if tag == DT_NEEDED and text),
        rpath=() if runpath else _directories(strings, DT_RPATH),
        runpath=runpath,
        symbolic=DT_SYMBOLIC in flags or bool(flags.get(DT_FLAGS, 0) & DF_SYMBOLIC),
        pie=bool(flags.get(DT_FLAGS_1, 0) & DF_1_PIE),
    )


def _tags(data: bytes | FileBytes, dynamic: Segment, header: ElfHeader) -> list[tuple[int, int]]:
    order = "<" if header.byteorder == "little" else ">"
    entry = struct.Struct(order + _TAGS[header.bits])
    end = min(dynamic.offset + min(dynamic.filesz, _MAX_TAGS * entry.size), len(data))
    size = max(end - dynamic.offset, 0) // entry.size * entry.size
    tags = []
    for tag, value in entry.iter_unpack(data[dynamic.offset : dynamic.offset + size]):
        if tag == DT_NULL:
            break
        tags.append((tag, value))
    return tags


def _offset(segments: Sequence[Segment], address: int) -> int | None:
    for segment in segments:
        if segment.type == PT_LOAD and 0 <= address - segment.address < segment.filesz:
            return address - segment.address + segment.offset
    return None


def _string(data: bytes | FileBytes, offset: int) -> str:
    # "" if it is outside the file, has no end or is longer than a path can be.
    text, end, _ = data[offset : offset + _MAX_STRING].partition(b"\0")
    return os.fsdecode(text) if end else ""


def _directories(strings: list[tuple[int, str]], wanted: int) -> tuple[str, ...]:
    text = next((text for tag, text in strings if tag == wanted), "")
    return tuple(text.split(":")) if text else ()
