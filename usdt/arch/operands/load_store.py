"""What the modules of load-store CPUs share: registers by table, addresses by table, one fetch.

A CPU's module describes it as a :class:`Cpu` and reads its own punctuation; everything about
widths, byte order, registers that are not saved and symbols is here. Values are fetched at their
exact size: of a register the low bytes, which a big-endian machine keeps at its end; of memory the
bytes themselves.

The address of a symbol itself is the instruction pointer at the probe plus the distance from the
probe to the symbol, in whatever process was hit. A relocation such as ``%lo(sym)`` or ``:lo12:sym``
is the second half of an address whose first half an instruction before has put into the base
register. Where linkers relax such pairs (RISC-V, Power's TOC, LoongArch, arm64), that instruction
may be gone and the register hold something else, of which the note knows nothing; nothing can be
added between the halves there, so the address is the symbol's. Elsewhere (MIPS, 32-bit Power) an
index may have been added to the first half: bits of the link-time address are added to the
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
from usdt.arch.operands.grammar import SCALARS, LinearAddress, excerpt, parse_linear, wrap
from usdt.arch.pt_regs import saved_registers
from usdt.base.frozen import frozen
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
THREAD_LOCAL = "thread-local: where a thread keeps it is not in its registers"
# Parts of the names of relocations that stand for thread-local storage.
_THREAD_LOCAL = ("tls", "tpr", "tpoff", "dtp", "dtv", "le_", "ie_", "ld_", "gd_", "desc")
_EXTENSIONS = {"sxtw": ValueType(ValueClass.SIGNED, 4), "uxtw": ValueType(ValueClass.UNSIGNED, 4)}


def numbered(prefix: str, numbers: range) -> list[str]:
    """Names that differ in their number."""
    return [f"{prefix}{number}" for number in numbers]


def signed_bits(count: int) -> Callable[[int], int]:
    """What a relocation leaves of an address: its low bits, as a signed number."""
    top = 1 << count - 1
    return lambda address: ((address & 2 * top - 1) ^ top) - top


@frozen
class Relocation:
    """How a relocation becomes a displacement.

    Attributes:
        part: the bits of the address that are left to the operand; None: the operand is at the
            symbol, whatever its base register holds.
        origin: the symbol the address is relative to, or None.
        fixed: the base register holds the link-time address: only ET_EXEC runs there.
    """

    part: Callable[[int], int] | None = None
    origin: str | None = None
    fixed: bool = False


@frozen
class Cpu:
    """A CPU as operands have it.

    Attributes:
        names: a register as spelled, without its sigil -> its name in struct pt_regs.
        ip: the instruction pointer's name in struct pt_regs.
        zero: registers that always read as 0.
        base_zero: registers that an address takes for 0.
        narrow: registers as spelled -> bytes, where they are parts of those of ``names``.
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
        """An operand in a register. The argument's size rules, not the register's width."""
        if name in self.zero:
            return spec.constant(0)
        if name not in self.names:
            if name in self.unsaved:
                return spec.in_register(name, f"{name} is not saved where a program can read it")
            return spec.unknown(f"{spec.machine} has no register {excerpt(name)}")
        full = self.width(name, spec.machine)
        error = None
        if spec.size > full:
            error = f"{name} holds a part of its {spec.size} bytes; where the rest is, is not noted"
        elif spec.size not in SCALARS:
            error = f"a value of {spec.size} bytes in a register is not read: 1, 2, 4 and 8 are"
        return spec.in_register(name, error)

    def width(self, name: str, machine: str) -> int:
        """Bytes of a register."""
        return self.narrow.get(name, word_size(machine))

    def symbol(self, spec: ArgSpec, text: str) -> Operand:
        """An operand that is the address of a symbol, plus numbers."""
        total = parse_linear(text)
        if total.error is not None:
            return spec.unknown(total.error)
        if total.symbol is None or total.relocation is not None:
            return spec.unknown(f"{excerpt(spec.body)} is no constant a program can make")
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
        """An operand in memory, at registers given as they are spelled."""
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
        """Why registers make no address, or None."""
        word = word_size(spec.machine)
        for name, width in ((base, word), (index, 4 if extend else word)):
            if name is None or name in self.zero or name in self.base_zero:
                continue
            if name not in self.names or self.width(name, spec.machine) != width:
                return f"{excerpt(name)} is no register {spec.machine} makes addresses of"
        return None

    def unreachable(self, total: LinearAddress) -> str | None:
        """Why an address that was understood cannot be read by a program, or None."""
        if total.relocation is None:
            return None if total.symbol is None else f"{total.symbol} is no displacement"
        name = total.relocation.lower()
        if any(part in name for part in _THREAD_LOCAL):
            return THREAD_LOCAL
        if total.symbol is None or name not in self.relocations:
            return f"relocation {excerpt(total.relocation)} cannot be followed here"
        return None

    # Operands to what a program fetches

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
        """Say how a program reads the operand; see :class:`usdt.arch.operands.Arch`."""
        if operand.error is not None:
            return Unreadable(operand.error)
        place = ParsedAddress(self, machine, saved_registers(machine, kernel))
        if operand.register is not None:
            return Register(place.bytes_of(operand.register, operand.size), operand.size)
        if operand.value is not None:
            return Constant(operand.value)
        if operand.symbol is None:
            return place.memory(operand, operand.displacement)
        target = symbol_address(operand.symbol)
        if isinstance(target, str):
            return Unreadable(target)
        target += operand.displacement
        if operand.kind == "constant":
            return place.address(operand, target, target - location, elf_type)
        relocation = self.relocations[(operand.relocation or "").lower()]
        if relocation.part is None:
            return place.symbolic(operand, target - location)
        return self._relocated(operand, target, place, symbol_address, elf_type)

    def _relocated(
        self,
        operand: Operand,
        target: int,
        place: ParsedAddress,
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
        return place.memory(operand, target if relocation.part is None else relocation.part(target))


@frozen
class ParsedAddress:
    """Where the registers of a process are."""

    cpu: Cpu
    machine: str
    slots: dict[str, int]

    def bytes_of(self, name: str, size: int) -> int:
        """The offset of a register's low bytes; of its name in pt_regs or as it is spelled."""
        spare = word_size(self.machine) - size
        offset = self.slots[self.cpu.names.get(name, name)]
        return offset + (spare if self.machine in BIG_ENDIAN else 0)

    def memory(self, operand: Operand, displacement: int) -> Memory:
        """Memory at the operand's registers and a displacement."""
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
        """Memory at a distance from the instruction pointer."""
        word = word_size(self.machine)
        ip = self.bytes_of(self.cpu.ip, word)
        return Memory(ip, None, 1, wrap(distance, word, signed=True), word, operand.size)

    def address(self, operand: Operand, target: int, distance: int, elf_type: int) -> Location:
        """The value that is itself the address of a symbol."""
        if elf_type == ET_EXEC:
            return Constant(wrap(target, operand.size, signed=operand.type == "signed"))
        word = word_size(self.machine)
        return Address(self.bytes_of(self.cpu.ip, word), distance, operand.size, word)


def relocated(text: str) -> LinearAddress:
    """Read a displacement as mips, riscv and loongarch have it: a sum, or ``%relocation(sum)``."""
    if not text.startswith("%"):
        return parse_linear(text) if text else LinearAddress()
    name, opening, rest = text[1:].partition("(")
    if not opening or not rest.endswith(")") or not name.isidentifier():
        return LinearAddress(error=f"{excerpt(text)} is no relocation the assembler knows")
    total = parse_linear(rest[:-1])
    if total.error is not None or total.relocation is not None:
        return LinearAddress(error=total.error or f"{excerpt(text)} holds two relocations")
    return total._replace(relocation=name)
