"""Builds small ELF files in memory, of both classes and byte orders, and damages them on purpose.

``elf()`` lays out header, program headers, the sections' contents and section headers, in that
order. ``probe_elf()`` is a file with code, data and notes; ``patched()`` overwrites header fields.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

CODE = 0x400000  # where the code segment of probe_elf() is loaded
CODE_OFFSET = 0x400
DATA = 0x600000  # where its data segment is
DATA_OFFSET = 0x500
BASE = 0x400800  # address of its .stapsdt.base

EHDR = [
    "type",
    "machine",
    "version",
    "entry",
    "phoff",
    "shoff",
    "flags",
    "ehsize",
    "phentsize",
    "phnum",
    "shentsize",
    "shnum",
    "shstrndx",
]
SHDR = [
    "name",
    "type",
    "flags",
    "address",
    "offset",
    "size",
    "link",
    "info",
    "addralign",
    "entsize",
]
PHDR64 = ["type", "flags", "offset", "address", "paddr", "filesz", "memsz", "align"]
PHDR32 = ["type", "offset", "address", "paddr", "filesz", "memsz", "flags", "align"]


@dataclass(frozen=True)
class Format:
    """An ELF class and byte order with its structures."""

    bits: int = 64
    byteorder: str = "little"

    @property
    def order(self) -> str:
        return "<" if self.byteorder == "little" else ">"

    @property
    def ehdr(self) -> struct.Struct:
        return struct.Struct(self.order + ("HHIQQQIHHHHHH" if self.bits == 64 else "HHIIIIIHHHHHH"))

    @property
    def shdr(self) -> struct.Struct:
        return struct.Struct(self.order + ("IIQQQQIIQQ" if self.bits == 64 else "10I"))

    @property
    def phdr(self) -> struct.Struct:
        return struct.Struct(self.order + ("IIQQQQQQ" if self.bits == 64 else "8I"))

    @property
    def sym(self) -> struct.Struct:
        return struct.Struct(self.order + ("IBBHQQ" if self.bits == 64 else "IIIBBH"))

    @property
    def phdr_fields(self) -> list[str]:
        return PHDR64 if self.bits == 64 else PHDR32


LE64 = Format()
FORMATS = [Format(bits, order) for bits in (64, 32) for order in ("little", "big")]


def pad(data: bytes, to: int = 4) -> bytes:
    return data + bytes(-len(data) % to)


def raw_note(owner: bytes, kind: int, desc: bytes, fmt: Format = LE64, padding: int = 4) -> bytes:
    head = struct.pack(fmt.order + "III", len(owner), len(desc), kind) + owner
    return pad(pad(head, padding) + desc, padding)


def note(
    name: bytes = b"name",
    args: bytes = b"",
    *,
    provider: bytes = b"prov",
    location: int = CODE + 0x10,
    base: int = BASE,
    semaphore: int = 0,
    fmt: Format = LE64,
    padding: int = 4,
    strings: bytes | None = None,
) -> bytes:
    """One stapsdt note; ``strings`` replaces provider, name and args with their NULs."""
    words = struct.pack(fmt.order + ("QQQ" if fmt.bits == 64 else "III"), location, base, semaphore)
    if strings is None:
        strings = b"".join(text + b"\0" for text in (provider, name, args))
    return raw_note(b"stapsdt\0", 3, words + strings, fmt, padding)


@dataclass
class Section:
    name: bytes
    type: int = 1  # SHT_PROGBITS
    contents: bytes = b""
    flags: int = 0
    address: int = 0
    link: int = 0
    info: int = 0
    addralign: int = 1
    entsize: int = 0
    offset: int | None = None  # where to put the contents; None = behind the one before
    size: int | None = None  # what to say of them


@dataclass
class Segment:
    type: int = 1  # PT_LOAD
    flags: int = 5  # R+X
    offset: int = 0
    address: int = 0
    filesz: int = 0
    memsz: int | None = None


def elf(
    sections: list[Section],
    segments: list[Segment] = [],  # noqa: B006 - never changed
    *,
    fmt: Format = LE64,
    machine: int = 62,
    kind: int = 3,
    header: dict[str, int] | None = None,
) -> bytes:
    """An ELF file; ``header`` overrides fields of the ELF header after all else is laid out.

    The empty first section and ``.shstrtab`` (last) are added.
    """
    phoff = 16 + fmt.ehdr.size
    body = bytearray(phoff + len(segments) * fmt.phdr.size)
    names = bytearray(b"\0")
    rows = [(0,) * 10]
    everything = [*sections, Section(b".shstrtab", 3)]
    for one in everything:
        names += one.name + b"\0"
    at = 1
    for one in everything:
        contents = bytes(names) if one is everything[-1] else one.contents
        if one.offset is not None and one.offset > len(body):
            body += bytes(one.offset - len(body))
        body += bytes(-len(body) % max(1, min(one.addralign, 4096)))
        size = len(contents) if one.size is None else one.size
        rows.append(
            (
                at,
                one.type,
                one.flags,
                one.address,
                len(body),
                size,
                one.link,
                one.info,
                one.addralign,
                one.entsize,
            )
        )
        body += contents
        at += len(one.name) + 1
    body += bytes(-len(body) % 8)
    values = {
        "type": kind, "machine": machine, "version": 1, "entry": 0, "flags": 0,
        "phoff": phoff if segments else 0, "phentsize": fmt.phdr.size, "phnum": len(segments),
        "shoff": len(body), "shentsize": fmt.shdr.size, "shnum": len(rows),
        "shstrndx": len(rows) - 1, "ehsize": phoff,
    }  # fmt: skip
    values |= header or {}
    ident = bytes([0x7F, *b"ELF", fmt.bits // 32, 1 + (fmt.byteorder == "big"), 1]).ljust(16, b"\0")
    body[:phoff] = ident + fmt.ehdr.pack(*(values[field] for field in EHDR))
    for index, segment in enumerate(segments):
        row = {"paddr": 0, "align": 1, **vars(segment)}
        row["memsz"] = segment.filesz if segment.memsz is None else segment.memsz
        packed = fmt.phdr.pack(*(row[field] for field in fmt.phdr_fields))
        body[phoff + index * len(packed) : phoff + (index + 1) * len(packed)] = packed
    return bytes(body) + b"".join(fmt.shdr.pack(*row) for row in rows)


def symbols(table: list[tuple[int, int, int, int]], fmt: Format = LE64) -> bytes:
    """A symbol table of (st_name, st_info, st_shndx, st_value), with the empty first symbol."""
    rows = [(0, 0, 0, 0), *table]
    if fmt.bits == 64:
        return b"".join(
            fmt.sym.pack(name, info, 0, where, value, 0) for name, info, where, value in rows
        )
    return b"".join(
        fmt.sym.pack(name, value, 0, info, 0, where) for name, info, where, value in rows
    )


def probe_elf(
    notes: bytes | list[bytes],
    *extra: Section,
    fmt: Format = LE64,
    machine: int = 62,
    kind: int = 3,
    base: int | None = BASE,
    addralign: int = 4,
    segments: list[Segment] | None = None,
    section_type: int = 7,
) -> bytes:
    """A file with 256 bytes of code at CODE, 64 bytes of data at DATA (16 more in memory only).

    Sections, in order: 1 .text, 2 .data, 3 .note.stapsdt (one per item of ``notes``), then
    .stapsdt.base at ``base`` unless None, then ``extra``.
    """
    if segments is None:
        segments = [
            Segment(1, 5, CODE_OFFSET, CODE, 0x100),
            Segment(1, 6, DATA_OFFSET, DATA, 0x40, 0x50),
        ]
    sections = [
        Section(b".text", 1, b"\x90" * 0x100, 6, CODE, offset=CODE_OFFSET),
        Section(b".data", 1, bytes(0x40), 3, DATA, offset=DATA_OFFSET),
        *(
            Section(b".note.stapsdt", section_type, data, addralign=addralign)
            for data in ([notes] if isinstance(notes, bytes) else notes)
        ),
    ]
    if base is not None:
        sections.append(Section(b".stapsdt.base", 1, b"\0", 2, base))
    return elf([*sections, *extra], segments, fmt=fmt, machine=machine, kind=kind)


def header_field(data: bytes, field: str, fmt: Format = LE64) -> int:
    values: tuple[int, ...] = fmt.ehdr.unpack_from(data, 16)
    return values[EHDR.index(field)]


def patched(
    data: bytes,
    *,
    header: dict[str, int] | None = None,
    section: tuple[int, dict[str, int]] | None = None,
    segment: tuple[int, dict[str, int]] | None = None,
    fmt: Format = LE64,
) -> bytes:
    """``data`` with fields of the ELF header, one section or program header changed."""
    shoff, phoff = header_field(data, "shoff", fmt), header_field(data, "phoff", fmt)
    if header:
        data = _patch(data, fmt.ehdr, 16, EHDR, header)
    if section:
        data = _patch(data, fmt.shdr, shoff + section[0] * fmt.shdr.size, SHDR, section[1])
    if segment:
        at = phoff + segment[0] * fmt.phdr.size
        data = _patch(data, fmt.phdr, at, fmt.phdr_fields, segment[1])
    return data


def _patch(
    data: bytes, layout: struct.Struct, at: int, fields: list[str], changes: dict[str, int]
) -> bytes:
    row = dict(zip(fields, layout.unpack_from(data, at), strict=True)) | changes
    return data[:at] + layout.pack(*(row[field] for field in fields)) + data[at + layout.size :]
