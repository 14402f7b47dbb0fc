"""The CPU that the kernel runs on and the one that this process runs on, and their word sizes.

Names are those of ELF files (``usdt.elf.file``'s machine_name): the CPU's, its word's and byte
order's variant. ``uname`` has others for some: every 32-bit x86 is "i386", every 32-bit ARM "arm".
"""

from __future__ import annotations

import os
import struct
import sys
from typing import Literal

__all__ = (
    "BIG_ENDIAN",
    "KERNEL_MACHINE",
    "KERNEL_WORD_SIZE",
    "MACHINES_32BIT",
    "PROCESS_MACHINE",
    "ByteOrder",
    "program_word_size",
    "word_size",
)

ByteOrder = Literal["little", "big"]

# Machines with words of 4 bytes.
MACHINES_32BIT = frozenset(
    (
        *("i386", "arm", "armeb", "mips", "mipsel", "ppc", "ppcle", "riscv32", "s390", "sparc"),
        *("m68k", "parisc", "loongarch32", "sh4", "sh4eb", "arc", "arceb", "csky"),
    )
)
# Big-endian machines.
BIG_ENDIAN = frozenset(
    (
        *("aarch64_be", "armeb", "m68k", "mips", "mips64", "parisc", "parisc64", "ppc", "ppc64"),
        *("s390", "s390x", "sh4eb", "sparc", "sparc64", "arceb", "bpfeb"),
    )
)

# 64-bit machine → the machine of its 32-bit processes.
_NARROWED = {
    "x86_64": "i386",
    "aarch64": "arm",
    "aarch64_be": "armeb",
    "mips64": "mips",
    "mips64el": "mipsel",
    "ppc64": "ppc",
    "ppc64le": "ppcle",
    "riscv64": "riscv32",
    "s390x": "s390",
}


def word_size(machine: str) -> int:
    """Return the size of a machine's addresses, registers and ``long`` in bytes."""
    return 4 if machine in MACHINES_32BIT else 8


def program_word_size(path: str) -> int:
    """Return the word size of an ELF file, by its class alone.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs an import
        return 4 if file.read(5) == b"\x7fELF\1" else 8


def _kernel(name: str) -> str:
    if name[0] == "i" and name[2:] == "86":
        return "i386"
    if name.startswith("armv"):
        return "arm" if sys.byteorder == "little" else "armeb"
    if name in ("mips", "mips64") and sys.byteorder == "little":
        return f"{name}el"
    return name


def _process(kernel: str) -> str:
    return _NARROWED.get(kernel, kernel) if struct.calcsize("P") == 4 else kernel


KERNEL_MACHINE = _kernel(os.uname().machine)
KERNEL_WORD_SIZE = word_size(KERNEL_MACHINE)
PROCESS_MACHINE = _process(KERNEL_MACHINE)
