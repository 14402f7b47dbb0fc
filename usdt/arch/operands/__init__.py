"""One module per CPU: its operand syntax, its registers, and how a program fetches them.

A module of this package is loaded when the first operand of its CPU is parsed.
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

# ElfFile.machine_name -> the module that knows it.
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
    """What a CPU's module offers."""

    def parse_operand(self, spec: ArgSpec) -> Operand:
        """Read the text after the size; never raises: what is not understood is "unknown"."""

    def fetch(
        self,
        operand: Operand,
        *,
        symbol_address: Callable[[str], int | str],
        location: int,
        machine: str,
        elf_type: int,
    ) -> Location:
        """Say how a program attached at ``location`` reads the operand's value.

        Args:
            operand: what ``parse_operand`` returned.
            symbol_address: a symbol's link-time address, or why it has none, in one line; also
                asked for what :meth:`usdt.elf.symbols.SymbolResolver.address` knows of the GOT.
            location: the probe's link-time address, after the prelink adjustment.
            machine: the CPU, as ElfFile.machine_name gives it.
            elf_type: e_type of the file: only ET_EXEC runs at its link-time addresses.
        """

    def value_type(self, operand: Operand) -> ValueType:
        """The type of the operand's value."""


@functools.cache
def arch_of(machine: str) -> Arch | None:
    """The module of a CPU, or None where there is none yet."""
    name = MODULES.get(machine)
    return cast("Arch", importlib.import_module(name)) if name else None
