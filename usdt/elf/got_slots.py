"""Words of the global offset table that the loader fills with addresses of symbols.

The loader looks a symbol up in the program first, then in its libraries. A library therefore finds
an exported variable through such a word: the variable may be in the program, which has a copy of
it (``R_*_COPY``), or in a library that defines it as well.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.elf.symbol_table import SymbolTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.elf.file import ElfFile
    from usdt.elf.format import Section

__all__ = ("has_slots", "read_slots")

_SHT_RELA, _SHT_REL = 4, 9  # elf.h
_ADDENDS = {
    (64, _SHT_RELA): "q",
    (64, _SHT_REL): "",
    (32, _SHT_RELA): "i",
    (32, _SHT_REL): "",
}
_MAX_SLOTS = 1 << 16  # real tables have some thousands at most


@frozen
class _Relocation:
    # The type for such a word. Where it is that of any word with an address, only those in the
    # table count: the program may change others.
    type: int
    anywhere: bool = True


_RELOCATIONS = {
    "x86_64": _Relocation(6),  # R_X86_64_GLOB_DAT
    "i386": _Relocation(6),  # R_386_GLOB_DAT
    "aarch64": _Relocation(1025),  # R_AARCH64_GLOB_DAT
    "arm": _Relocation(21),  # R_ARM_GLOB_DAT
    "s390x": _Relocation(10),  # R_390_GLOB_DAT
    "ppc64": _Relocation(38, anywhere=False),  # R_PPC64_ADDR64
    "ppc64le": _Relocation(38, anywhere=False),
    "riscv64": _Relocation(2, anywhere=False),  # R_RISCV_64
    "loongarch64": _Relocation(2, anywhere=False),  # R_LARCH_64
}


def has_slots(machine: str) -> bool:
    """Return True if :func:`read_slots` knows the CPU."""
    return machine in _RELOCATIONS


def read_slots(elf: ElfFile) -> Iterator[tuple[bytes, int]]:
    """Yield the name of a symbol and the link-time address of the word for it.

    Raises:
        ElfError: a table lies outside the file.
    """
    kind = _RELOCATIONS.get(elf.machine_name)
    if kind is None:
        return
    number = 0
    tables = [(one.address, one.address + one.size) for one in elf.sections_named(".got")]
    for section in elf.sections:
        if section.type not in (_SHT_RELA, _SHT_REL) or not 0 < section.link < len(elf.sections):
            continue
        symbols = SymbolTable(elf, elf.sections[section.link])
        for address, symbol in _relocations(elf, section, kind.type):
            if not (kind.anywhere or any(low <= address < high for low, high in tables)):
                continue
            number += 1
            if number > _MAX_SLOTS:
                return
            name = symbols.name(symbol)
            if name:
                yield name, address


def _relocations(elf: ElfFile, section: Section, kind: int) -> Iterator[tuple[int, int]]:
    # (address of the word, index of the symbol) for each relocation of a type without an addend.
    wide = elf.bits == 64
    shift = 32 if wide else 8
    mark = "<" if elf.byteorder == "little" else ">"
    layout = struct.Struct(mark + ("QQ" if wide else "II") + _ADDENDS[elf.bits, section.type])
    for piece in elf.data(section).pieces(layout.size):
        for address, info, *addend in layout.iter_unpack(piece):
            if info & ((1 << shift) - 1) == kind and not any(addend):
                yield address, info >> shift
