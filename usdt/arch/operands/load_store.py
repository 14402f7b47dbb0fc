"""Operands of load-store CPUs: registers and relocations by table, one function for locations.

The module of a CPU describes it as a :class:`Cpu` and parses its own punctuation. Widths, byte
order, registers that are not saved, and symbols are handled here. Values are read at their exact
size. Of a register these are the low bytes, which a big-endian machine keeps at the end.

The address of a symbol is the instruction pointer at the site plus the distance from the site to
the symbol, which is the same in every process. A relocation such as ``%lo(sym)`` or ``:lo12:sym``
is the second half of an address; an earlier instruction has put the first half into the base
register. Linkers relax such pairs on RISC-V, Power (TOC), LoongArch and arm64: that instruction may
be gone and the register may hold another value, unknown to the note. On these CPUs nothing can be
added between the halves, so the address is the symbol's. On others (MIPS, 32-bit Power) an index
may have been added to the first half, so the bits of the link-time address are added to the
register.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import (
    Address,
    Constant,
    Location,
    Memory,
    Register,
    Unreadable,
    ValueClass,
    ValueType,
)
from usdt.arch.operands.grammar import LinearAddress, excerpt, parse_linear, wrap
from usdt.arch.pt_regs import saved_registers
from usdt.base.frozen import frozen, replace
from usdt.base.machine import BIG_ENDIAN, KERNEL_MACHINE, word_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.arch.operands.grammar import ArgSpec, Operand

__all__ = (
    "ET_EXEC",
    "THREAD_LOCAL",
    "Cpu",
    "Relocation",
    "numbered",
    "relocated",
    "signed_bits",
)

ET_EXEC = 2  # e_type, elf.h: runs at its link-time addresses
THREAD_LOCAL = "thread-local: its address is not in the saved registers"
# Substrings of the names of relocations for thread-local storage.
_THREAD_LOCAL = ("tls", "tpr", "tpoff", "dtp", "dtv", "le_", "ie_", "ld_", "gd_", "desc")
_EXTENSIONS = {"sxtw": ValueType(ValueClass.SIGNED, 4), "uxtw": ValueType(ValueClass.UNSIGNED, 4)}


def numbered(prefix: str, numbers: range) -> list[str]:
    """Return ``prefix0``, ``prefix1``, … for each number."""
    return [f"{prefix}{number}" for number in numbers]


def signed_bits(count: int) -> Callable[[int], int]:
    """Return a function that extracts the low ``count`` bits of an address as a signed number."""
    top = 1 << count - 1
    return lambda address: ((address & 2 * top - 1) ^ top) - top


@frozen
class Relocation:
    """How a relocation becomes a displacement.

    Attributes:
        part: extracts the bits of the address that the operand adds; None if the operand is at the
            symbol, whatever its base register holds.
        origin: the symbol the address is relative to, or None.
        fixed: True if the base register holds the link-time address, as only in ET_EXEC files.
    """

    part: Callable[[int], int] | None = None
    origin: str | None = None
    fixed: bool = False


@frozen
class Cpu:
    """A CPU, as its operands need it.

    Attributes:
        names: register as written, without its sigil -> its name in struct pt_regs.
        ip: the instruction pointer's name in struct pt_regs.
        zero: registers that always read as 0.
        base_zero: registers that mean 0 in an address.
        narrow: register as written -> its bytes, if it is a part of a register in ``names``.
        unsaved: registers that struct pt_regs does not have.
        relocations: by name, in lower case.
    """

    names: dict[str, str]
    ip: str
    zero: frozenset[str] = frozenset()
    base_zero: frozenset[str] = frozenset()
    narrow: dict[str, int] = {}  # noqa: RUF012 - frozen
    unsaved: frozenset[str] = frozenset()
    relocations: dict[str, Relocation] = {}  # noqa: RUF012 - frozen

    # Text to operands

    def register(self, spec: ArgSpec, name: str) -> Operand:
        """Return a register operand. The argument's size counts, not the register's width."""
        if name in self.zero:
            return spec.constant(0)
        if name not in self.names:
            if name in self.unsaved:
                return spec.in_register(name, f"{name} is not saved where a program can read it")
            return spec.unknown(f"{spec.machine} has no register {excerpt(name)}")
        return spec.in_register_of(name, self.width(name, spec.machine))

    def width(self, name: str, machine: str) -> int:
        """Return the bytes of a register."""
        return self.narrow.get(name, word_size(machine))

    def symbol(self, spec: ArgSpec, text: str) -> Operand:
        """Parse an operand that is the address of a symbol plus numbers."""
        total = parse_linear(text)
        if total.error is not None:
            return spec.unknown(total.error)
        if total.symbol is None or total.relocation is not None:
            return spec.unknown(
                f"{excerpt(spec.body)} is not a constant that a program can compute"
            )
        return spec.address(total)

    def memory(
        self,
        spec: ArgSpec,
        total: LinearAddress,
        base: str,
        index: str | None = None,
        *,
        scale: int = 1,
        extend: str | None = None,
        error: str | None = None,
    ) -> Operand:
        """Return a memory operand; registers are given as written."""
        if total.error is not None:
            return spec.unknown(total.error)
        problem = self.unfit(spec, base, index, extend)
        if problem is not None:
            return spec.unknown(problem)
        none = self.zero | self.base_zero
        return spec.in_memory(
            total,
            base=None if base in none else base,
            index=None if index is None or index in none else index,
            scale=scale,
            extend=extend,
            error=error or self.unreachable(total),
        )

    def unfit(self, spec: ArgSpec, base: str, index: str | None, extend: str | None) -> str | None:
        """Return why registers cannot form an address, or None."""
        word = word_size(spec.machine)
        for name, width in ((base, word), (index, 4 if extend else word)):
            if name is None or name in self.zero or name in self.base_zero:
                continue
            if name not in self.names or self.width(name, spec.machine) != width:
                return f"{excerpt(name)} is not an address register of {spec.machine}"
        return None

    def unreachable(self, total: LinearAddress) -> str | None:
        """Return why a program cannot read a valid address, or None."""
        if total.relocation is None:
            return None if total.symbol is None else f"{total.symbol} is not a displacement"
        name = total.relocation.lower()
        if any(part in name for part in _THREAD_LOCAL):
            return THREAD_LOCAL
        if total.symbol is None or name not in self.relocations:
            return f"relocation {excerpt(total.relocation)} cannot be followed here"
        return None

    # Operands to locations

    def fetch(
        self,
        operand: Operand,
        *,
        symbol_address: Callable[[str], int | str],
        location: int,
        machine: str,
        elf_type: int,
        kernel: str = KERNEL_MACHINE,
    ) -> Location:
        """Return the location of an operand; see :class:`usdt.arch.operands.Arch`."""
        if operand.error is not None:
            return Unreadable(operand.error)
        registers = SavedRegisters(self, machine, saved_registers(machine, kernel))
        if operand.register is not None:
            size = operand.read_size
            return Register(registers.bytes_of(operand.register, size), size)
        if operand.value is not None:
            return Constant(operand.value)
        if operand.symbol is None:
            return registers.memory(operand, operand.displacement)
        target = symbol_address(operand.symbol)
        if isinstance(target, str):
            return Unreadable(target)
        target += operand.displacement
        if operand.kind == "constant":
            return registers.address(operand, target, target - location, elf_type)
        relocation = self.relocations[(operand.relocation or "").lower()]
        if relocation.part is None:
            return registers.symbolic(operand, target - location)
        return self._relocated(operand, target, registers, symbol_address, elf_type)

    def _relocated(
        self,
        operand: Operand,
        target: int,
        registers: SavedRegisters,
        symbol_address: Callable[[str], int | str],
        elf_type: int,
    ) -> Location:
        relocation = self.relocations[(operand.relocation or "").lower()]
        if relocation.fixed and elf_type != ET_EXEC:
            return Unreadable(
                f"the address of {operand.symbol} depends on where the file is loaded"
            )
        if relocation.origin is not None:
            origin = symbol_address(relocation.origin)
            if isinstance(origin, str):
                return Unreadable(origin)
            target -= origin
        return registers.memory(
            operand, target if relocation.part is None else relocation.part(target)
        )


@frozen
class SavedRegisters:
    """The saved registers of a process, and locations relative to them."""

    cpu: Cpu
    machine: str
    slots: dict[str, int]

    def bytes_of(self, name: str, size: int) -> int:
        """Return the offset of the low bytes of a register, named as in pt_regs or as written."""
        spare = word_size(self.machine) - size
        offset = self.slots[self.cpu.names.get(name, name)]
        return offset + (spare if self.machine in BIG_ENDIAN else 0)

    def memory(self, operand: Operand, displacement: int) -> Memory:
        """Return memory at the operand's registers plus a displacement."""
        word = word_size(self.machine)
        extend = _EXTENSIONS.get(operand.extend or "")
        return Memory(
            base=None if operand.base is None else self.bytes_of(operand.base, word),
            index=None
            if operand.index is None
            else self.bytes_of(operand.index, word if extend is None else extend.size),
            scale=operand.scale,
            displacement=wrap(displacement, word, signed=True),
            address_size=word,
            size=operand.size,
            index_type=extend,
        )

    def symbolic(self, operand: Operand, distance: int) -> Memory:
        """Return memory at a distance from the instruction pointer."""
        word = word_size(self.machine)
        ip = self.bytes_of(self.cpu.ip, word)
        return Memory(ip, None, 1, wrap(distance, word, signed=True), word, operand.size)

    def address(self, operand: Operand, target: int, distance: int, elf_type: int) -> Location:
        """Return the address of a symbol."""
        if elf_type == ET_EXEC:
            return Constant(wrap(target, operand.size, signed=operand.type == "signed"))
        word = word_size(self.machine)
        return Address(self.bytes_of(self.cpu.ip, word), distance, operand.size, word)


def relocated(text: str) -> LinearAddress:
    """Parse a displacement of MIPS, RISC-V or LoongArch: a sum, or ``%relocation(sum)``."""
    if not text.startswith("%"):
        return parse_linear(text) if text else LinearAddress()
    name, opening, rest = text[1:].partition("(")
    if not opening or not rest.endswith(")") or not name.isidentifier():
        return LinearAddress(error=f"{excerpt(text)}: unknown relocation")
    total = parse_linear(rest[:-1])
    if total.error is not None or total.relocation is not None:
        return LinearAddress(error=total.error or f"{excerpt(text)} has two relocations")
    return replace(total, relocation=name)
