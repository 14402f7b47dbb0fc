"""Instructions that Linux on x86 misinterprets or refuses when a uprobe is on them.

The kernel emulates jumps, calls, pushes and nops instead of executing them out of line, and
corrects the instruction pointer after others. It recognizes them by the opcode's first byte
(``branch_setup_xol_ops()``, ``push_setup_xol_ops()``, ``arch_uprobe_analyze_insn()``,
arch/x86/kernel/uprobes.c). It does not check for a VEX, EVEX or XOP prefix, after which the same
byte means something else: ``62 e2 7d 28 7a ce``, vpbroadcastb, is emulated as the jump 7a. The
program then continues with wrong data or at a wrong address. This was observed with Linux 6.18 in
glibc's ``__strchrnul_evex``: a traced program printed ``%ld`` in place of numbers.

It refuses others (``uprobe_init_insn()``) when a process maps the file: with error 524 (ENOTSUPP)
if one does when the probe is attached, else without a word. These are instructions with a ``lock``
prefix or a segment prefix other than ``fs`` and ``gs``, and instructions of drivers, debuggers and
kernels. The nop of ten bytes has such a prefix, and Linux accepts it since 7.2.

Linux 6.18 to 7.1 take a nop of five bytes, and damage the program: see
:mod:`usdt.bpf.optimized_nops`.
"""

from __future__ import annotations

import errno

from usdt.arch.nops import NOP5, NOP10

__all__ = ("is_unsafe", "refused_reason")

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
# Legacy prefixes that uprobes accept, then those that they refuse.
_ACCEPTED = frozenset((0x64, 0x65, 0x66, 0x67, 0xF2, 0xF3))
_REFUSED = {0xF0: "lock", 0x26: "es", 0x2E: "cs", 0x36: "ss", 0x3E: "ds"}
# ins, outs; int3, int; in, out; int1, hlt, cli, sti
_PRIVILEGED = frozenset(
    (*range(0x6C, 0x70), 0xCC, 0xCD, *range(0xE4, 0xE8), *range(0xEC, 0xF0), 0xF1, 0xF4, 0xFA, 0xFB)
)
# After 0f: lar, lsl; syscall, clts, sysret; invd, wbinvd; ud2; sysenter, sysexit
_PRIVILEGED_0F = frozenset((0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0B, 0x34, 0x35))


def refused_reason(code: bytes, machine: str) -> str:
    """Return which instruction the running kernel refuses to probe, as a noun; "" if it accepts it.

    An accepted one is refused, too, if its probe would damage the program in a way that
    :func:`is_unsafe` does not know, because it depends on the kernel.

    Args:
        code: up to 15 bytes that begin with the instruction.
        machine: CPU of the file.
    """
    if machine not in ("x86_64", "i386"):
        return ""
    if code.startswith(NOP5) and machine == "x86_64" and _damages_nop5():
        return "the nop 0f 1f 44 00 00 (this kernel's probe on it kills forked children)"
    at = 0
    while at < len(code) and (code[at] in _ACCEPTED or code[at] in _REFUSED):
        if code[at] in _REFUSED:
            if code.startswith(NOP10) and machine == "x86_64" and not _refuses_nop10():
                return ""
            return f"an instruction with the prefix {code[at]:02x} ({_REFUSED[code[at]]})"
        at += 1
    if machine == "x86_64" and at < len(code) and code[at] & 0xF0 == 0x40:
        at += 1  # REX
    opcode = code[at : at + 2]
    if opcode[:1] == b"\x0f" and opcode[1:] and opcode[1] in _PRIVILEGED_0F:
        return f"the instruction {opcode.hex(' ')}"
    return f"the instruction {opcode[:1].hex()}" if opcode and opcode[0] in _PRIVILEGED else ""


def _damages_nop5() -> bool:
    from usdt.bpf.features import uprobe_syscall_error  # noqa: PLC0415 - rare

    return uprobe_syscall_error() == errno.ENXIO


def _refuses_nop10() -> bool:
    from usdt.bpf.features import uprobe_syscall_error  # noqa: PLC0415 - rare

    answer = uprobe_syscall_error()
    return answer is not None and answer != errno.EPROTO  # unknown: the kernel will say


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
