"""What tests of operand grammars share: one operand, its fetch, and a symbol table of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import Location, Memory, Unreadable, ValueType
from usdt.arch.operands import arch_of
from usdt.arch.pt_regs import saved_registers
from usdt.base.machine import word_size
from usdt.probes.argspec import parse_arguments

if TYPE_CHECKING:
    from usdt.probes.argspec import Operand

__all__ = (
    "ET_DYN",
    "ET_EXEC",
    "LOCATION",
    "SYMBOLS",
    "fetch_of",
    "mem",
    "one",
    "reason_of",
    "slot",
)

ET_EXEC, ET_DYN = 2, 3
LOCATION = 0x11000
SYMBOLS = {"sv": 0x24A38, "_gp": 0x2C010, "high": 0x2F900}


def symbol_address(name: str) -> int | str:
    return SYMBOLS.get(name, f"no {name}")


def one(text: str, machine: str) -> Operand:
    """The only operand of an argument string."""
    (operand,) = parse_arguments(text, machine)
    return operand


def fetch_of(text: str, machine: str, elf_type: int = ET_DYN) -> Location:
    """How a program reads it, where the symbols are SYMBOLS and the probe is at LOCATION."""
    arch = arch_of(machine)
    assert arch is not None
    return arch.fetch(
        one(text, machine),
        symbol_address=symbol_address,
        location=LOCATION,
        machine=machine,
        elf_type=elf_type,
    )


def reason_of(text: str, machine: str, elf_type: int = ET_DYN) -> str:
    """Why a program cannot read it."""
    fetched = fetch_of(text, machine, elf_type)
    assert isinstance(fetched, Unreadable), fetched
    return fetched.reason


def slot(machine: str, name: str, shift: int = 0) -> int:
    """A register's offset in struct pt_regs, and as much more."""
    return saved_registers(machine)[name] + shift


def mem(
    machine: str,
    base: str | None,
    displacement: int = 0,
    index: str | None = None,
    scale: int = 1,
    *,
    size: int = 8,
    index_type: ValueType | None = None,
) -> Memory:
    """Memory at registers given by their names in struct pt_regs."""
    return Memory(
        base=None if base is None else slot(machine, base),
        index=None if index is None else slot(machine, index),
        scale=scale,
        displacement=displacement,
        address_size=word_size(machine),
        size=size,
        index_type=index_type,
    )
