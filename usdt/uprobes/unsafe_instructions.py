"""Instructions that Linux on x86 misinterprets when a uprobe is on them.

The kernel emulates jumps, calls, pushes and nops instead of executing them out of line, and
corrects the instruction pointer after others. It recognizes them by the opcode's first byte
(``branch_setup_xol_ops()``, ``push_setup_xol_ops()``, ``arch_uprobe_analyze_insn()``,
arch/x86/kernel/uprobes.c). It does not check for a VEX, EVEX or XOP prefix, after which the same
byte means something else: ``62 e2 7d 28 7a ce``, vpbroadcastb, is emulated as the jump 7a. The
program then continues with wrong data or at a wrong address. This was observed with Linux 6.18 in
glibc's ``__strchrnul_evex``: a traced program printed ``%ld`` in place of numbers.
"""

from __future__ import annotations

__all__ = ("is_unsafe",)

_PREFIXES = frozenset((0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x67))  # allowed before VEX
# First byte of the prefix -> its length.
_VECTOR = {0xC5: 2, 0xC4: 3, 0x62: 4, 0x8F: 3}
# push; jcc; nop, lcall, popf; ret, iret; call, jmp, ljmp; the group of indirect jumps
_TAKEN = frozenset(
    (
        *range(0x50, 0x58),
        *range(0x70, 0x80),
        *(0x90, 0x9A, 0x9D),
        *(0xC2, 0xC3, 0xCA, 0xCB, 0xCF),
        *(0xE8, 0xE9, 0xEA, 0xEB, 0xFF),
    )
)


def is_unsafe(code: bytes, machine: str) -> bool:
    """Return True if the kernel would mistake the instruction for another one.

    Args:
        code: up to 15 bytes that begin with the instruction.
        machine: CPU of the file.
    """
    if machine not in ("x86_64", "i386"):
        return False
    at = 0
    while at < len(code) and code[at] in _PREFIXES:
        at += 1
    if at + 1 >= len(code):
        return False
    size = _VECTOR.get(code[at], 0)
    if code[at] == 0x8F and code[at + 1] & 0x1F < 8:
        size = 0  # pop
    elif machine == "i386" and code[at + 1] < 0xC0:
        size = 0  # les, lds, bound: with an operand in memory
    return bool(size) and at + size < len(code) and code[at + size] in _TAKEN
