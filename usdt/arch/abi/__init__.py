"""Calling conventions: the locations of parameters and results of every type, per CPU.

    PassedInRegisters   in registers; each piece has some bytes of the value
    PassedInMemory      at an offset from the stack pointer, or at an address in a register
    NotReadable         unknown, or not readable by programs; with the reason

convention    the base class of all conventions; x86, others, rust: the conventions
classify      types as ABIs classify them; rust_layout: as rustc does
passed        locations of parameters and results

Sources: the processor supplements of the System V ABI for x86-64 (3.2.3), i386, s390x and RISC-V,
AAPCS and AAPCS64 (6.8), the ELF v2 ABI of Power, the Itanium C++ ABI (3.1.2.3). If the location of
a parameter is unknown, those of the parameters after it are unknown as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.abi.convention import CallingConvention
from usdt.arch.abi.others import Aarch64, Arm, Mips, Power, Riscv, S390x
from usdt.arch.abi.passed import (
    NotReadable,
    Passed,
    PassedInMemory,
    PassedInRegisters,
    RegisterPiece,
    Value,
)
from usdt.arch.abi.rust import Rust
from usdt.arch.abi.x86 import I386, SystemV
from usdt.arch.calling_convention import CONVENTIONS
from usdt.arch.pt_regs import PT_REGS, saved_registers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.btf.reader import Btf

__all__ = (
    "NotReadable",
    "Passed",
    "PassedInMemory",
    "PassedInRegisters",
    "RegisterPiece",
    "Value",
    "passing_of",
)

_CONVENTIONS: dict[str, type[CallingConvention]] = {
    "aarch64": Aarch64,
    "aarch64_be": Aarch64,
    "arm": Arm,
    "armeb": Arm,
    "i386": I386,
    "ppc64le": Power,
    "riscv32": Riscv,
    "riscv64": Riscv,
    "s390x": S390x,
    "x86_64": SystemV,
}
# i386 kernels pass parameters in registers (-mregparm=3); only single words are known there.
_KERNEL_CONVENTIONS = _CONVENTIONS | {
    "i386": CallingConvention,
    "loongarch64": Riscv,
    "mips64": Mips,
    "mips64el": Mips,
}


def passing_of(
    btf: Btf,
    machine: str,
    parameters: Iterable[Value],
    result: Value,
    *,
    rust: bool = False,
    kernel: bool = False,
) -> tuple[list[Passed], Passed]:
    """Return the locations of a function's parameters at entry, and of its result at return.

    Args:
        btf: the types.
        machine: the CPU, as ElfFile.machine_name returns it.
        parameters: the parameters, in order.
        result: the result; its type is 0 if the function returns nothing.
        rust: True for the convention of Rust, False for that of C.
        kernel: True for a C function of the kernel, which uses no floating-point registers.

    Raises:
        BtfError: a type is damaged.
    """
    if machine not in CONVENTIONS or not (PT_REGS if kernel else saved_registers(machine)):
        lost = NotReadable(f"calling conventions of {machine} are not known")
        return [lost for _ in parameters], lost
    convention: CallingConvention
    if kernel:
        convention = _KERNEL_CONVENTIONS.get(machine, CallingConvention)(btf, machine, kernel=True)
    else:
        convention = (Rust if rust else _CONVENTIONS.get(machine, CallingConvention))(btf, machine)
    returned = convention.result(result)
    return [convention.assign_parameter(one) for one in parameters], returned
