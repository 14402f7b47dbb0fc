"""Operands of x86-64 and i386, in AT&T syntax as gcc and clang print them.

    $5  $-1  $0x10  $sym+4                       constants
    %eax  %r8b  %ah                              registers
    -8(%rbp)  (%rdi,%rcx,8)  sv(,%rdi,4)         memory: displacement(base, index, scale)
    8+sv(%rip)  sv@GOTOFF(%ebx)  .LC0  %fs:0x28  memory relative to a symbol, or to a segment

The address of a symbol does not depend on where the file is loaded: the instruction pointer at the
site minus the site's link-time address is the load bias, so ``symbol - location + ip`` is the
symbol's address in every process. The registers of an operand are added to it. For
``sv@GOTOFF(%ebx)`` the address is ``symbol - _GLOBAL_OFFSET_TABLE_ + ebx``, which is also right if
an array index has been added to ebx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import Address, Constant, Location, Memory, Register, Unreadable
from usdt.arch.operands.grammar import (
    LinearAddress,
    excerpt,
    parse_linear,
    value_type,
    wrap,
)
from usdt.arch.pt_regs import saved_registers
from usdt.base.frozen import frozen
from usdt.base.machine import KERNEL_MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.arch.operands.grammar import ArgSpec, Operand

__all__ = ("GOT", "REGISTERS", "fetch", "parse_operand", "value_type")

ET_EXEC = 2  # e_type, elf.h: runs at its link-time addresses
GOT = "_GLOBAL_OFFSET_TABLE_"  # the symbol all @GOTOFF displacements are relative to
GOT_SLOT = "@GOT"  # appended to a symbol's name: the address of its slot in that table

IP_NAME = "eip"  # in the tables of both machines
ADDRESS_BYTES = {"x86_64": 8, "i386": 4}
NO_INDEX = ("riz", "eiz")  # assembler syntax for a SIB byte without an index
FLAT_SEGMENTS = ("cs", "ds", "es", "ss")  # start at address 0 on Linux
SCALES = {"": 1, "1": 1, "2": 2, "4": 4, "8": 8}

THREAD_LOCAL = frozenset(
    ("TPOFF", "NTPOFF", "DTPOFF", "GOTTPOFF", "INDNTPOFF", "GOTNTPOFF", "TLSGD", "TLSLD", "TLSLDM")
)
NO_THREAD_POINTER = "thread-local: the thread pointer is not among the saved registers"

# Full name of a general register -> names of its parts, widest first.
LEGACY = {f"r{letter}x": (f"e{letter}x", f"{letter}x", f"{letter}l") for letter in "abcd"} | {
    f"r{name}": (f"e{name}", name, f"{name}l") for name in ("si", "di", "bp", "sp")
}
NUMBERED = {f"r{n}": (f"r{n}d", f"r{n}w", f"r{n}b") for n in range(8, 16)}
WIDTHS = (4, 2, 1)


def registers_of(machine: str, kernel: str = KERNEL_MACHINE) -> dict[str, tuple[int, int]]:
    """Return the readable registers of a machine: name -> (offset in struct pt_regs, bytes)."""
    wide = machine == "x86_64"
    saved = saved_registers(machine, kernel)
    known = {f"{letter}h": (saved[f"r{letter}x"] + 1, 1) for letter in "abcd"}
    known |= {name: (saved[name], 2) for name in ("cs", "ss")}
    known["eip"] = (saved["rip"], 4)
    for full, parts in (LEGACY | NUMBERED if wide else LEGACY).items():
        offset = saved[full]
        known |= {name: (offset, width) for name, width in zip(parts, WIDTHS, strict=True)}
        if wide:
            known[full] = (offset, 8)
    if wide:
        known["rip"] = (saved["rip"], 8)
    else:  # sil and the like need a REX prefix, which 32-bit code does not have
        known = {name: slot for name, slot in known.items() if len(name) < 3 or name[2] != "l"}
    return known


def unsaved_registers(machine: str) -> frozenset[str]:
    """Return the registers of a machine that ``struct pt_regs`` does not have."""
    wide = machine == "x86_64"
    vectors = {f"{kind}mm{n}" for kind in "xyz" for n in range(32 if wide else 8)}
    fpu = {"st", *(f"st({n})" for n in range(8)), *(f"mm{n}" for n in range(8))}
    other = {*(f"k{n}" for n in range(8)), "ds", "es", "fs", "gs"}
    return frozenset(vectors | fpu | other)


REGISTERS = {machine: registers_of(machine) for machine in ADDRESS_BYTES}
UNSAVED = {machine: unsaved_registers(machine) for machine in ADDRESS_BYTES}


@frozen
class AddressRegisters:
    """The registers of an address by name, or the reason why it has none."""

    base: str | None = None
    index: str | None = None
    scale: int = 1
    error: str | None = None

    @property
    def ip_relative(self) -> bool:
        """True if the address is relative to the instruction pointer."""
        return self.base in ("rip", "eip")


def parse_operand(spec: ArgSpec) -> Operand:
    """Parse the text after the size; see :class:`usdt.arch.operands.Arch`."""
    body = spec.body
    if body.startswith("$"):
        return immediate(spec)
    if not body.startswith("%"):
        return memory(spec, body, None)
    segment, colon, address = body[1:].partition(":")
    if not colon:
        return register(spec, body[1:])
    if segment in ("fs", "gs"):
        return memory(spec, address, segment)
    if segment in FLAT_SEGMENTS:
        return memory(spec, address, None)
    return spec.unknown(f"{excerpt(segment)} is not a segment register")


def immediate(spec: ArgSpec) -> Operand:
    """Parse ``$…``: a number, or the address of a symbol."""
    total = parse_linear(spec.body[1:])
    if total.error is not None:
        return spec.unknown(total.error)
    if total.symbol is None and total.relocation is None:
        return spec.constant(total.displacement)
    if total.symbol is None or total.relocation is not None:
        return spec.unknown(f"{excerpt(spec.body)} is not a constant that a program can compute")
    return spec.address(total)


def register(spec: ArgSpec, name: str) -> Operand:
    """Parse the name of a register. The argument's size counts, not the register's width."""
    known = REGISTERS[spec.machine].get(name)
    if known is None:
        if name in UNSAVED[spec.machine]:
            return spec.in_register(name, f"%{name} is not saved where a program can read it")
        return spec.unknown(f"{spec.machine} has no register {excerpt(name)}")
    full = 1 if name[1:] == "h" else ADDRESS_BYTES[spec.machine]
    width = known[1] if spec.size > full else full
    return spec.in_register_of(name, width, sigil="%")


def memory(spec: ArgSpec, text: str, segment: str | None) -> Operand:
    """Parse ``[displacement][(base, index, scale)]``."""
    head, inner = split_address(text)
    total = parse_linear(without_parentheses(head)) if head else LinearAddress()
    if total.error is not None:
        return spec.unknown(total.error)
    if inner is None:
        if not head:
            return spec.unknown(f"{excerpt(spec.body)} names no address")
        found = AddressRegisters()
    else:
        found = address_registers(inner, spec.machine)
    if found.error is not None:
        return spec.unknown(found.error)
    return spec.in_memory(
        total,
        base=found.base,
        index=found.index,
        scale=found.scale,
        segment=segment,
        error=unreachable(total, found, segment),
    )


def split_address(text: str) -> tuple[str, str | None]:
    """Split ``8+sv(%rbx,%rdi,4)`` into ``8+sv`` and ``%rbx,%rdi,4`` (None without registers)."""
    opening = text.rfind("(")
    if opening < 0 or not text.endswith(")"):
        return text, None
    inner = text[opening + 1 : -1]
    if inner and inner[0] not in "%, ":  # "(sv+4)": an expression in parentheses
        return text, None
    return text[:opening], inner


def without_parentheses(text: str) -> str:
    """Remove the parentheses around an expression."""
    return text[1:-1] if text[0] == "(" and text[-1] == ")" else text


def address_registers(inner: str, machine: str) -> AddressRegisters:
    """Parse ``%base,%index,scale``, each of which may be missing."""
    parts = [part.strip(" ") for part in inner.split(",")]
    base, index, factor = (*parts, "", "")[:3]
    scale = SCALES.get(factor)
    if len(parts) > 3 or scale is None or (factor and not index):
        return AddressRegisters(error=f"{excerpt(inner)} is not base, index, scale of 1, 2, 4 or 8")
    if index[1:] in NO_INDEX:
        index, scale = "", 1
    names = [name for name in (base, index) if name]
    known = REGISTERS[machine]
    widths = {known.get(name[1:], (0, 0))[1] if name[0] == "%" else 0 for name in names}
    if len(widths) != 1 or not widths <= {4, ADDRESS_BYTES[machine]}:
        return AddressRegisters(error=f"{excerpt(inner)} has no registers that {machine} adds")
    if any(name[2:] == "ip" for name in names) and (index or machine == "i386"):
        return AddressRegisters(error=f"{excerpt(inner)}: {machine} cannot add these registers")
    return AddressRegisters(base[1:] or None, index[1:] or None, scale)


def unreachable(total: LinearAddress, found: AddressRegisters, segment: str | None) -> str | None:
    """Return why a program cannot read a valid address, or None."""
    if segment is None and total.relocation is None:
        return None
    relocation = (total.relocation or "").upper()
    if segment is not None or relocation in THREAD_LOCAL:
        return NO_THREAD_POINTER
    usable = {
        "GOTOFF": not found.ip_relative and bool(found.base or found.index),
        "GOTPCREL": found.ip_relative and total.displacement == 0,
        "GOT": found.base is not None and found.index is None and total.displacement == 0,
    }
    if total.symbol is None and relocation:
        return f"relocation @{total.relocation} has no symbol"
    if not usable.get(relocation, False):
        return f"relocation @{total.relocation} cannot be followed here"
    return None


def fetch(
    operand: Operand,
    *,
    symbol_address: Callable[[str], int | str],
    location: int,
    machine: str,
    elf_type: int,
) -> Location:
    """Return the location of an operand; see :class:`usdt.arch.operands.Arch`."""
    if operand.error is not None:
        return Unreadable(operand.error)
    if operand.register is not None:
        return Register(REGISTERS[machine][operand.register][0], operand.read_size)
    if operand.value is not None:
        return Constant(operand.value)
    addresses = SiteAddresses(symbol_address, location, machine, elf_type)
    if operand.symbol is None:
        return addresses.memory(operand, operand.base, operand.displacement)
    if (operand.relocation or "").upper() in ("GOT", "GOTPCREL"):
        slot = symbol_address(operand.symbol + GOT_SLOT)
        if isinstance(slot, int):
            return addresses.memory(operand, IP_NAME, slot - location)
    target = symbol_address(operand.symbol)
    if isinstance(target, str):
        return Unreadable(target)
    if operand.kind == "constant" or (operand.relocation or "").upper() in ("GOT", "GOTPCREL"):
        return addresses.address(operand, target)
    return addresses.symbolic(operand, target + operand.displacement)


@frozen
class SiteAddresses:
    """A site, to which the addresses of its operands are relative."""

    symbol_address: Callable[[str], int | str]
    location: int
    machine: str
    elf_type: int

    def memory(
        self, operand: Operand, base: str | None, displacement: int, index: str | None = None
    ) -> Location:
        """Return memory at ``base + index * scale + displacement``; registers are given by name."""
        known = REGISTERS[self.machine]
        index = index or operand.index
        named = {known[name][1] for name in (operand.base, operand.index) if name is not None}
        size = 4 if 4 in named else ADDRESS_BYTES[self.machine]
        return Memory(
            base=None if base is None else known[base][0],
            index=None if index is None else known[index][0],
            scale=operand.scale,
            displacement=wrap(displacement, size, signed=True),
            address_size=size,
            size=operand.size,
        )

    def address(self, operand: Operand, target: int) -> Location:
        """Return the address of a symbol."""
        if self.elf_type == ET_EXEC:
            number = target + operand.displacement
            return Constant(wrap(number, operand.size, signed=operand.type == "signed"))
        ip = REGISTERS[self.machine][IP_NAME][0]
        distance = target + operand.displacement - self.location
        return Address(ip, distance, operand.size, ADDRESS_BYTES[self.machine])

    def symbolic(self, operand: Operand, target: int) -> Location:
        """Return memory relative to a symbol at the link-time address ``target``."""
        if operand.relocation is not None:  # GOTOFF; unreachable() refuses all others
            table = self.symbol_address(GOT)
            if isinstance(table, str):
                return Unreadable(table)
            return self.memory(operand, operand.base, target - table)
        if operand.base in ("rip", "eip"):
            return self.memory(operand, operand.base, target - self.location)
        if self.elf_type == ET_EXEC:
            return self.memory(operand, operand.base, target)
        if operand.base is None:
            return self.memory(operand, IP_NAME, target - self.location)
        if operand.index is None:
            return self.memory(operand, operand.base, target - self.location, IP_NAME)
        return Unreadable(f"the address of {operand.symbol} depends on where the file is loaded")
