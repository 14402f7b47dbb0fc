"""Whether an offset is where an instruction begins: on x86 only a disassembler can tell.

capstone does, where it is installed; it is no requirement. On CPUs whose instructions have one
size, the size tells.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usdt.elf import ElfFile

__all__ = ("boundary_problem",)

_MODES = {"x86_64": 64, "i386": 32}
# Bytes that every instruction's address is a multiple of.
_ALIGNED = {
    **dict.fromkeys(("aarch64", "aarch64_be", "arm", "armeb", "mips", "mipsel"), 4),
    **dict.fromkeys(("mips64", "mips64el", "ppc", "ppcle", "ppc64", "ppc64le"), 4),
    **dict.fromkeys(("loongarch32", "loongarch64"), 4),
    **dict.fromkeys(("riscv32", "riscv64", "s390", "s390x"), 2),
}
_LONGEST = 1 << 20  # bytes of a function that are disassembled


def boundary_problem(elf: ElfFile, start: int, address: int) -> tuple[str, str]:
    """Why no instruction begins at an address, and why that is not known; each "" if it is.

    Args:
        elf: the file.
        start: link-time address of the function.
        address: link-time address in it.
    """
    unit = _ALIGNED.get(elf.machine_name, 1)
    if address % unit:
        return f"instructions of {elf.machine_name} begin at multiples of {unit} bytes", ""
    bits = _MODES.get(elf.machine_name)
    if bits is None or address == start:
        return "", ""
    capstone = _capstone()
    offset = elf.offset_of(start, executable=True)
    if capstone is None or offset is None or address - start > _LONGEST:
        return "", "not checked to be the beginning of an instruction (capstone is not installed)"
    mode = capstone.CS_MODE_64 if bits == 64 else capstone.CS_MODE_32
    engine = capstone.Cs(capstone.CS_ARCH_X86, mode)
    code = elf.bytes_at(offset, address - start + 16)
    for at, size, *_ in engine.disasm_lite(code, start):
        if at == address:
            return "", ""
        if at + size > address:
            return f"the instruction there begins at {at:#x} (+{at - start:#x})", ""
    return "", "not checked to be the beginning of an instruction (the code cannot be read)"


def _capstone() -> Any:
    try:
        return importlib.import_module("capstone")
    except ImportError:
        return None
