"""ELF structures and constants under the names of elf(5), in both classes and byte orders."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from usdt.base.machine import ByteOrder

__all__ = (
    "CLASSES",
    "EI_NIDENT",
    "ELF_STRUCTS",
    "ET_EXEC",
    "ET_REL",
    "MACHINES",
    "NT_GNU_BUILD_ID",
    "ORDERS",
    "PF_W",
    "PF_X",
    "PN_XNUM",
    "PT_DYNAMIC",
    "PT_INTERP",
    "PT_LOAD",
    "PT_NOTE",
    "SHF_COMPRESSED",
    "SHF_EXECINSTR",
    "SHN_ABS",
    "SHN_COMMON",
    "SHN_UNDEF",
    "SHN_XINDEX",
    "SHT_DYNSYM",
    "SHT_NOBITS",
    "SHT_NOTE",
    "SHT_SYMTAB",
    "STB_GLOBAL",
    "STB_LOCAL",
    "STB_WEAK",
    "STT_FILE",
    "STT_FUNC",
    "STT_GNU_IFUNC",
    "STT_NOTYPE",
    "STT_OBJECT",
    "STT_TLS",
    "STV_DEFAULT",
    "ElfHeader",
    "ElfStructs",
    "HeaderTable",
    "Section",
    "Segment",
    "check_table",
    "decode_header",
    "decode_segments",
    "excerpt",
)

EI_NIDENT = 16
ET_REL, ET_EXEC = 1, 2
SHN_UNDEF, SHN_ABS, SHN_COMMON, SHN_XINDEX = 0, 0xFFF1, 0xFFF2, 0xFFFF
PN_XNUM = 0xFFFF
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE = 1, 2, 3, 4
PF_X, PF_W = 1, 2
SHF_EXECINSTR, SHF_COMPRESSED = 1 << 2, 1 << 11
SHT_SYMTAB, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 7, 8, 11
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STV_DEFAULT = 0
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_FILE, STT_TLS, STT_GNU_IFUNC = 0, 1, 2, 4, 6, 10
NT_GNU_BUILD_ID = 3


MAX_EXCERPT = 100  # characters
MAX_ENTRIES = 1 << 18  # sections or segments; real files stay below 100,000


@frozen
class Section:
    """A section header; the fields are those of ``Elf64_Shdr``, in its order.

    ``name`` is "" if it cannot be read.
    """

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    addralign: int
    entsize: int


@frozen
class Segment:
    """A program header: ``filesz`` bytes at file ``offset`` are loaded at ``address``."""

    type: int
    flags: int
    offset: int
    address: int
    filesz: int
    memsz: int


@frozen
class ElfStructs:
    """The structures of one ELF class and byte order."""

    ehdr: struct.Struct  # without e_ident
    shdr: struct.Struct
    phdr: struct.Struct
    sym: struct.Struct
    note: struct.Struct

    @classmethod
    def make(cls, bits: int, order: str) -> ElfStructs:
        """Return the structures of a class; ``order`` is "<" or ">"."""
        wide = bits == 64
        return cls(
            struct.Struct(order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH")),
            struct.Struct(order + ("IIQQQQIIQQ" if wide else "10I")),
            struct.Struct(order + ("IIQQQQQQ" if wide else "8I")),
            struct.Struct(order + ("IBBHQQ" if wide else "IIIBBH")),
            struct.Struct(order + "III"),
        )


ELF_STRUCTS: dict[tuple[int, ByteOrder], ElfStructs] = {
    (32, "little"): ElfStructs.make(32, "<"),
    (32, "big"): ElfStructs.make(32, ">"),
    (64, "little"): ElfStructs.make(64, "<"),
    (64, "big"): ElfStructs.make(64, ">"),
}
CLASSES = {1: 32, 2: 64}  # EI_CLASS
ORDERS: dict[int, ByteOrder] = {1: "little", 2: "big"}  # EI_DATA


@frozen
class ElfHeader:
    """The ELF header; the fields from ``type`` on are those of ``Elf64_Ehdr``."""

    bits: int
    byteorder: ByteOrder
    type: int
    machine: int
    phoff: int
    shoff: int
    phentsize: int
    phnum: int
    shentsize: int
    shnum: int
    shstrndx: int


def _other_file(start: bytes) -> str:
    if not start:
        return "empty file, not an ELF file"
    if not start.startswith(b"#!"):
        return "not an ELF file"
    line = start[2:].split(b"\n")[0].decode(errors="replace").split()
    return f"a script, not an ELF file; its program is {line[0] if line else 'not named'}"


def decode_header(start: bytes, name: str) -> ElfHeader:
    """Decode the ELF header in the first 64 bytes of a file.

    Raises:
        ElfError: not ELF, or the header is cut off.
    """
    if start[:4] != b"\x7fELF":
        raise ElfError(f"{name}: {_other_file(start)}")
    if len(start) < EI_NIDENT:
        raise ElfError(
            f"{name}: truncated ELF header: {len(start)} bytes,"
            f" {EI_NIDENT} of identification needed"
        )
    if start[4] not in CLASSES or start[5] not in ORDERS:
        raise ElfError(
            f"{name}: damaged ELF header: class {start[4]}, data {start[5]}; 1 or 2 expected"
        )
    bits, byteorder = CLASSES[start[4]], ORDERS[start[5]]
    structure = ELF_STRUCTS[bits, byteorder].ehdr
    need = EI_NIDENT + structure.size
    if len(start) < need:
        raise ElfError(f"{name}: truncated ELF header: {len(start)} bytes, {need} needed")
    kind, machine, _, _, phoff, shoff, _, _, *counts = structure.unpack_from(start, EI_NIDENT)
    return ElfHeader(bits, byteorder, kind, machine, phoff, shoff, *counts)


@frozen
class HeaderTable:
    """Where the ELF header says that a table of headers is; ``what`` is "section" or "program"."""

    what: str
    offset: int
    entries: int
    entry_size: int


def check_table(table: HeaderTable, structure: struct.Struct, size: int, name: str) -> None:
    """Check that a table of headers is inside a file.

    Args:
        table: the table.
        structure: of its entries.
        size: of the file.
        name: of the file, for messages.

    Raises:
        ElfError: it is not, or has entries of another size, or more than real files have.
    """
    what, offset, count, entry_size = table.what, table.offset, table.entries, table.entry_size
    if entry_size != structure.size:
        raise ElfError(
            f"{name}: damaged ELF header: {what} headers of {entry_size} bytes,"
            f" {structure.size} expected"
        )
    if count > MAX_ENTRIES:
        raise ElfError(f"{name}: {count} {what} headers, at most {MAX_ENTRIES} are read")
    end = offset + count * entry_size
    if end > size:
        raise ElfError(
            f"{name}: truncated: {count} {what} headers at {offset:#x} end at {end:#x},"
            f" the file has {size:#x} bytes"
        )


def decode_segments(table: bytes, header: ElfHeader) -> tuple[Segment, ...]:
    """Decode a table of program headers."""
    rows = ELF_STRUCTS[header.bits, header.byteorder].phdr.iter_unpack(table)
    if header.bits == 64:
        return tuple(
            Segment(kind, flags, offset, address, filesz, memsz)
            for kind, flags, offset, address, _, filesz, memsz, _ in rows
        )
    return tuple(
        Segment(kind, flags, offset, address, filesz, memsz)
        for kind, offset, address, _, filesz, memsz, flags, _ in rows
    )


# e_machine → names for (32-bit little, 32-bit big, 64-bit little, 64-bit big), as of uname -m
MACHINES = {
    2: ("sparc",) * 4,
    3: ("i386",) * 4,
    4: ("m68k",) * 4,
    8: ("mipsel", "mips", "mips64el", "mips64"),
    15: ("parisc", "parisc", "parisc64", "parisc64"),
    20: ("ppcle", "ppc", "ppcle", "ppc"),
    21: ("ppc64le", "ppc64", "ppc64le", "ppc64"),
    22: ("s390", "s390", "s390x", "s390x"),
    40: ("arm", "armeb", "arm", "armeb"),
    42: ("sh4", "sh4eb", "sh4", "sh4eb"),
    43: ("sparc64",) * 4,
    50: ("ia64",) * 4,
    62: ("x86_64",) * 4,  # 32 bits: the x32 ABI, with the same operands
    183: ("aarch64", "aarch64_be", "aarch64", "aarch64_be"),
    195: ("arc", "arceb", "arc", "arceb"),
    243: ("riscv32", "riscv32", "riscv64", "riscv64"),
    247: ("bpf", "bpfeb", "bpf", "bpfeb"),
    252: ("csky",) * 4,
    258: ("loongarch32", "loongarch32", "loongarch64", "loongarch64"),
    0x9026: ("alpha",) * 4,
}


def excerpt(name: str) -> str:
    """Return a name from a file as messages show it: on one line, not too long."""
    shown = name[: MAX_EXCERPT + 1]
    shown = shown if shown.isprintable() else ascii(shown)[1:-1]
    return shown if len(shown) <= MAX_EXCERPT else f"{shown[:MAX_EXCERPT]}…"
