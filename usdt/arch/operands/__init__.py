"""Operands of USDT argument specs: syntax, registers and locations, one module per CPU.

grammar      what all syntaxes share: the operand, numbers, sums of numbers and symbols
load_store   what the CPUs other than x86 share: a CPU as a table of registers and relocations
x86, arm, arm64, loongarch, mips, ppc, riscv, s390x   one CPU family each

A CPU's module is loaded when the first operand of that CPU is parsed.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.arch.locations import Location, ValueType
    from usdt.arch.operands.grammar import ArgSpec, Operand

__all__ = ("MODULES", "Arch", "arch_of")

# ElfFile.machine_name -> the module of its CPU.
MODULES = {
    machine: f"usdt.arch.operands.{module}"
    for module, machines in {
        "arm": "arm armeb",
        "arm64": "aarch64 aarch64_be",
        "loongarch": "loongarch32 loongarch64",
        "mips": "mips mipsel mips64 mips64el",
        "ppc": "ppc ppcle ppc64 ppc64le",
        "riscv": "riscv32 riscv64",
        "s390x": "s390 s390x",
        "x86": "i386 x86_64",
    }.items()
    for machine in machines.split()
}


class Arch(Protocol):
    """The interface of a CPU's module."""

    def parse_operand(self, spec: ArgSpec) -> Operand:
        """Parse the text after the size. Never raises: text it does not know is "unknown"."""

    def fetch(
        self,
        operand: Operand,
        *,
        symbol_address: Callable[[str], int | str],
        location: int,
        machine: str,
        elf_type: int,
    ) -> Location:
        """Return the location of the operand's value for a program attached at ``location``.

        Args:
            operand: a result of ``parse_operand``.
            symbol_address: returns a symbol's link-time address, or one line that says why it has
                none; also takes the names of GOT slots, ``NAME@GOT``.
            location: the site's link-time address, after the prelink adjustment.
            machine: the CPU, as ElfFile.machine_name gives it.
            elf_type: e_type of the file; only ET_EXEC files run at their link-time addresses.
        """

    def value_type(self, operand: Operand) -> ValueType:
        """Return the type of the operand's value."""


@functools.cache
def arch_of(machine: str) -> Arch | None:
    """Return the module of a CPU, or None if there is none yet."""
    name = MODULES.get(machine)
    return cast("Arch", importlib.import_module(name)) if name else None
