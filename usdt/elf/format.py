"""ELF structures as elf(5) has them: layouts of both classes and byte orders, machine names.

Only what the reader of :mod:`usdt.elf.file` needs; the names are the specification's.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from usdt.base.machine import ByteOrder

__all__ = (
    "CLASSES",
    "EI_NIDENT",
    "ET_REL",
    "LAYOUTS",
    "MACHINES",
    "NT_GNU_BUILD_ID",
    "ORDERS",
    "PF_W",
    "PF_X",
    "PN_XNUM",
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
    "STB_WEAK",
    "STT_FILE",
    "STT_FUNC",
    "STT_GNU_IFUNC",
    "STT_NOTYPE",
    "STT_OBJECT",
    "STT_TLS",
    "Layout",
    "Section",
    "Segment",
    "excerpt",
)

EI_NIDENT = 16
ET_REL = 1
SHN_UNDEF, SHN_ABS, SHN_COMMON, SHN_XINDEX = 0, 0xFFF1, 0xFFF2, 0xFFFF
PN_XNUM = 0xFFFF
PT_LOAD, PT_NOTE = 1, 4
PF_X, PF_W = 1, 2
SHF_EXECINSTR, SHF_COMPRESSED = 1 << 2, 1 << 11
SHT_SYMTAB, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 7, 8, 11
STB_GLOBAL, STB_WEAK = 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_FILE, STT_TLS, STT_GNU_IFUNC = 0, 1, 2, 4, 6, 10
NT_GNU_BUILD_ID = 3


MAX_EXCERPT = 100  # characters


@frozen
class Section:
    """A section header; the fields are those of ``Elf64_Shdr``, in its order.

    ``name`` is "" where the file gives none that can be read.
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
class Layout:
    """The structures of one ELF class and byte order."""

    ehdr: struct.Struct  # what follows e_ident
    shdr: struct.Struct
    phdr: struct.Struct
    sym: struct.Struct
    sym_name: struct.Struct  # st_name, then as much padding as makes a symbol
    note: struct.Struct

    @classmethod
    def make(cls, bits: int, order: str) -> Layout:
        """The layouts of that class; ``order`` is "<" or ">"."""
        wide = bits == 64
        return cls(
            struct.Struct(order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH")),
            struct.Struct(order + ("IIQQQQIIQQ" if wide else "10I")),
            struct.Struct(order + ("IIQQQQQQ" if wide else "8I")),
            struct.Struct(order + ("IBBHQQ" if wide else "IIIBBH")),
            struct.Struct(order + ("I20x" if wide else "I12x")),
            struct.Struct(order + "III"),
        )


LAYOUTS: dict[tuple[int, ByteOrder], Layout] = {
    (32, "little"): Layout.make(32, "<"),
    (32, "big"): Layout.make(32, ">"),
    (64, "little"): Layout.make(64, "<"),
    (64, "big"): Layout.make(64, ">"),
}
CLASSES = {1: 32, 2: 64}  # EI_CLASS
ORDERS: dict[int, ByteOrder] = {1: "little", 2: "big"}  # EI_DATA

# e_machine -> names for (32-bit little, 32-bit big, 64-bit little, 64-bit big); uname -m's words
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
    """A name out of a file as a message can show it: on one line, not too long."""
    shown = name[: MAX_EXCERPT + 1]
    shown = shown if shown.isprintable() else ascii(shown)[1:-1]
    return shown if len(shown) <= MAX_EXCERPT else f"{shown[:MAX_EXCERPT]}…"
