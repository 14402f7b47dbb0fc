"""Global and static variables: where an entry says that one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.dwarf.types import functions as fn
from usdt.dwarf.units.constants import At, Op
from usdt.dwarf.units.forms import read_uleb128
from usdt.elf.variables import THREAD_LOCAL

if TYPE_CHECKING:
    from usdt.dwarf.units.dies import Die

__all__ = ("REMOVED", "StaticLocation", "VariableDebug", "location_of", "symbol_of")

_TLS = (Op.FORM_TLS_ADDRESS, Op.GNU_PUSH_TLS_ADDRESS)
_SIZES = {Op.CONST4U: 4, Op.CONST8U: 8}
REMOVED = "the debug information has no address for it; the compiler may have removed it"
_INDEXES = (Op.ADDRX, Op.CONSTX, Op.GNU_ADDR_INDEX, Op.GNU_CONST_INDEX)


@frozen
class VariableDebug:
    """A global or static variable, from debug information.

    Attributes:
        name: qualified name in the source language.
        symbol: its name in symbol tables.
        type_id: its type.
        address: link-time address in the program's own file; None if none is known.
        value: its value, if it is a constant without an address.
        problem: why neither is known, though this file defines it; "" otherwise.
    """

    name: str
    symbol: str
    type_id: int
    address: int | None = None
    value: int | None = None
    problem: str = ""

    @property
    def declared(self) -> bool:
        """True if it is only declared here."""
        return self.address is None and self.value is None and not self.problem


@frozen
class StaticLocation:
    """A location that does not depend on the running program.

    Attributes:
        address: address in the file of the debug information; 0 if the linker dropped it.
        problem: why it is not known.
    """

    address: int = 0
    problem: str = ""


def location_of(die: Die) -> StaticLocation | None:
    """Return the location of a variable; None if its entry has no location of this kind.

    Raises:
        DwarfError: the location is damaged.
        LookupError: likewise.
    """
    block = die.block(At.LOCATION)
    if block is None:
        return None
    if not block:
        return StaticLocation(problem=REMOVED)
    unit, op = die.unit, block[0]
    size = unit.encoding.address_size if op == Op.ADDR else _SIZES.get(op, 0)
    if size:
        number, at = unit.encoding.number(block, 1, size), 1 + size
    elif op in _INDEXES:
        index, at = read_uleb128(block, 1)
        number = unit.indexed_address(index)
    else:
        return None
    rest = block[at:]
    if rest[:1] and rest[0] in _TLS:
        return StaticLocation(problem=THREAD_LOCAL)
    if op in _SIZES:
        return None
    if rest[:1] == bytes((Op.PLUS_UCONST,)):
        more, after = read_uleb128(rest, 1)
        number, rest = number + more, rest[after:]
    if rest:
        return StaticLocation(problem="the compiler keeps it in pieces")
    dropped = number >= (1 << 8 * unit.encoding.address_size) - 2
    return StaticLocation(0 if dropped else number)


def symbol_of(die: Die, name: str) -> str:
    """Return the name of a variable in symbol tables; ``name`` is that in the source."""
    return fn.text(die, At.LINKAGE_NAME, At.MIPS_LINKAGE_NAME) or name
