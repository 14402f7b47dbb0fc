"""Check whether an instruction begins at an address.

On x86, this needs a disassembler: capstone, if it is installed (``pip install
usdt-toolkit[capstone]``). On CPUs with instructions of one size, the alignment decides. On RISC-V
and s390x, the first bits of an instruction determine its length.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.elf.file import ElfFile

__all__ = ("boundary_problem",)

_MODES = {"x86_64": 64, "i386": 32}
# Alignment of instructions in bytes.
_ALIGNED = {
    **dict.fromkeys(("aarch64", "aarch64_be", "arm", "armeb", "mips", "mipsel"), 4),
    **dict.fromkeys(("mips64", "mips64el", "ppc", "ppcle", "ppc64", "ppc64le"), 4),
    **dict.fromkeys(("loongarch32", "loongarch64"), 4),
    **dict.fromkeys(("riscv32", "riscv64", "s390", "s390x"), 2),
}
_UNKNOWN = "cannot check that an instruction begins here"
_MARGIN = 16  # bytes; the longest instruction has 15
_MAX_DISASSEMBLED = 1 << 20  # bytes of a function that are disassembled


def boundary_problem(elf: ElfFile, start: int, address: int) -> tuple[str, str]:
    """Return why no instruction begins at an address, or why that is unknown; each may be "".

    Args:
        elf: the file.
        start: link-time address of the function.
        address: link-time address in it.
    """
    unit = _ALIGNED.get(elf.machine_name, 1)
    if address % unit:
        return f"instructions of {elf.machine_name} begin at multiples of {unit} bytes", ""
    walks = elf.machine_name in _MODES or elf.machine_name in _LENGTHS
    if not walks or address == start:
        return "", ""
    offset = elf.offset_of(start, executable=True)
    if offset is None or address - start > _MAX_DISASSEMBLED:
        return "", f"{_UNKNOWN} (the code cannot be read)"
    code = elf.bytes_at(offset, address - start + _MARGIN)
    steps = _instructions(elf.machine_name, code, start)
    if steps is None:
        return "", f"{_UNKNOWN} (capstone is not installed)"
    for at, size in steps:
        if at == address:
            return "", ""
        if at + size > address:
            return f"the instruction there begins at {at:#x} (+{at - start:#x})", ""
    return "", f"{_UNKNOWN} (the code before it cannot be disassembled)"


def _instructions(machine: str, code: bytes, start: int) -> Iterator[tuple[int, int]] | None:
    # Address and size of each instruction up to the first invalid one; None without a disassembler.
    length = _LENGTHS.get(machine)
    if length is not None:
        return _walked(code, start, length)
    capstone = _capstone()
    if capstone is None:
        return None
    mode = capstone.CS_MODE_64 if _MODES[machine] == 64 else capstone.CS_MODE_32
    engine = capstone.Cs(capstone.CS_ARCH_X86, mode)
    return ((at, size) for at, size, *_ in engine.disasm_lite(code, start))


def _walked(code: bytes, start: int, length: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(code):
        size = length(code[at])
        yield start + at, size
        at += size


def _riscv(first: int) -> int:
    # ``first`` is the low byte. The bits 11 mark a 4-byte instruction; longer ones do not exist.
    return 4 if first & 3 == 3 else 2


def _s390(first: int) -> int:
    return (2, 4, 4, 6)[first >> 6]


_LENGTHS = {"riscv32": _riscv, "riscv64": _riscv, "s390": _s390, "s390x": _s390}


def _capstone() -> Any:
    try:
        return importlib.import_module("capstone")
    except ImportError:
        return None
