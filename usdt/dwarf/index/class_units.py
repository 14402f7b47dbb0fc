"""The units of a C++ class with virtual functions, by its symbols.

gcc and clang describe such a class only in the unit with its vtable, and elsewhere declare it. A
search for its name finds a declaration in nearly every unit before that one. The symbols of its
functions and ``.debug_aranges`` lead to the unit at once.
"""

from __future__ import annotations

import bisect
from collections import Counter
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.dwarf.units.errors import DAMAGE
from usdt.dwarf.units.forms import UnitEncoding
from usdt.dwarf.units.ranges import read_aranges
from usdt.elf.format import SHT_SYMTAB, STT_FUNC
from usdt.elf.symbol_table import SymbolTable

if TYPE_CHECKING:
    from usdt.dwarf.units.units import DebugFile

__all__ = ("class_units",)

_MAX_FUNCTIONS = 1 << 14  # of one class
_MAX_UNITS = 3


def class_units(file: DebugFile, name: str) -> list[int]:
    """Return the positions of the units that probably define a class, the most probable one first.

    Args:
        file: the file with symbols and ``.debug_aranges``.
        name: the qualified name of the class.

    An empty list means nothing: the class has no virtual functions, or the file no symbols.
    """
    mangled = _mangled(name)
    if not mangled:
        return []
    try:
        return _units(file, _addresses(file, *mangled))
    except (*DAMAGE, TracingError):
        return []  # the search says what is damaged


def _mangled(name: str) -> tuple[str, ...]:
    # The symbol of the vtable, and how those of member functions begin.
    words = name.split("::")
    if not all(word.isidentifier() for word in words) or words[0] == "std":
        return ()
    parts = "".join(f"{len(word.encode())}{word}" for word in words)
    vtable = parts if len(words) == 1 else f"N{parts}E"
    return f"_ZTV{vtable}", f"_ZN{parts}", f"_ZNK{parts}"


def _addresses(file: DebugFile, vtable: str, *functions: str) -> list[int]:
    elf = file.sections.elf
    for section in elf.sections:
        if section.type == SHT_SYMTAB:
            table = SymbolTable(elf, section)
            if table.addresses(vtable):
                return sorted(
                    address
                    for address, kind in table.starting_with(*functions)
                    if kind == STT_FUNC and address
                )
    return []


def _units(file: DebugFile, addresses: list[int]) -> list[int]:
    if not 0 < len(addresses) <= _MAX_FUNCTIONS:
        return []
    found: Counter[int] = Counter()
    plain = UnitEncoding(file.byteorder, 8, 4, 0)
    for low, high, unit in read_aranges(file.sections[".debug_aranges"], plain):
        first = bisect.bisect_left(addresses, low)
        if first < len(addresses) and addresses[first] < high:
            found[unit] += bisect.bisect_left(addresses, high, first) - first
    # Other units have copies of inline functions, but few.
    return sorted(found, key=lambda unit: (-found[unit], unit))[:_MAX_UNITS]
