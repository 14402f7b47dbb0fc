"""Code for string comparisons; the docstring of the package lists the registers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R10, Alu, Jump
from usdt.engine.compiler.codegen.current_task import emit_comm
from usdt.engine.compiler.codegen.stack_slots import COMM_SLOT, STRING_SLOT
from usdt.engine.compiler.ir import of_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.compiler.codegen.expressions.operands import OperandEmitter
    from usdt.engine.compiler.ir import StringEquals, StringEqualsConst

__all__ = ("emit_compare_strings", "emit_compare_with_constant", "read_bytes", "read_text")

_PIECE = 128  # bytes of each of two strings that are compared at once, with a NUL


def emit_compare_with_constant(
    writer: OperandEmitter, node: StringEqualsConst, label: str, *, when: bool
) -> None:
    """Emit a branch to ``label`` if a comparison with a constant is true (``when``) or false."""
    asm = writer.asm
    differ, done = asm.new_label("differ"), asm.new_label("same")
    slot = COMM_SLOT if node.address is None else STRING_SLOT
    wanted = node.text if node.prefix or node.address else node.text + b"\0"
    if node.address is None:
        emit_comm(asm, R10, COMM_SLOT)
    else:
        writer.value(node.address)
        address = writer.push()
        kernel = of_kernel(node.address)
        if node.counted:
            read_bytes(writer, address, 0, len(wanted), kernel=kernel)
        else:
            # Read one byte more than the constant and its NUL, to see if the string is longer.
            size = len(wanted) + (1 if node.prefix else 2)
            read_text(writer, address, 0, STRING_SLOT, size, kernel=kernel)
            asm.jump(Jump.NE, R0, len(wanted) + 1, differ)
        writer.pop()
    position = 0
    while position < len(wanted):
        size = next(size for size in (8, 4, 2, 1) if size <= len(wanted) - position)
        asm.load(R1, R10, slot + position, size)
        asm.mov(R2, int.from_bytes(wanted[position : position + size], sys.byteorder))
        asm.jump(Jump.NE, R1, R2, differ)
        position += size
    asm.goto(label if when is node.equal else done)
    asm.label(differ)
    if when is not node.equal:
        asm.goto(label)
    asm.label(done)


def emit_compare_strings(
    writer: OperandEmitter, node: StringEquals, label: str, *, when: bool
) -> None:
    """Emit a branch to ``label`` if a comparison of two strings is true (``when``) or false.

    The code compares the strings in pieces, because both do not fit on the stack. Equal pieces
    that are not full end both strings.
    """
    asm = writer.asm
    same, differ, done = (asm.new_label(hint) for hint in ("same", "differ", "done"))
    writer.value(node.left)
    left = writer.push()
    writer.value(node.right)
    right = writer.push()
    length = writer.push()
    for start in range(0, node.limit, _PIECE - 1):
        size = min(_PIECE, node.limit - start + 1)
        if size % 8:  # the verifier requires that every byte of a loaded word is initialized
            asm.store(R10, STRING_SLOT + size // 8 * 8, 0)
            asm.store(R10, STRING_SLOT + _PIECE + size // 8 * 8, 0)
        read_text(writer, left, start, STRING_SLOT, size, kernel=of_kernel(node.left))
        asm.store(R10, length, R0)
        slot = STRING_SLOT + _PIECE
        read_text(writer, right, start, slot, size, kernel=of_kernel(node.right))
        asm.load(R3, R10, length)
        asm.jump(Jump.NE, R0, R3, differ)
        _compare_pieces(asm, size, same, differ)
    asm.label(same)
    asm.goto(label if when is node.equal else done)
    asm.label(differ)
    if when is not node.equal:
        asm.goto(label)
    asm.label(done)
    for _ in range(3):
        writer.pop()


def _compare_pieces(asm: Assembler, size: int, same: str, differ: str) -> None:
    # Compare two pieces of r3 bytes each; fall through if they are equal and full.
    for word in range(0, size, 8):
        whole, following = asm.new_label("whole"), asm.new_label("following")
        asm.load(R1, R10, STRING_SLOT + word)
        asm.load(R2, R10, STRING_SLOT + _PIECE + word)
        asm.alu(Alu.XOR, R1, R2)
        asm.jump(Jump.GE, R3, word + 8, whole)
        # Shift out the bytes after the NUL, which are undefined.
        asm.mov(R4, word + 8)
        asm.alu(Alu.SUB, R4, R3)
        asm.alu(Alu.LSH, R4, 3)
        asm.alu(Alu.LSH if sys.byteorder == "little" else Alu.RSH, R1, R4)
        asm.jump(Jump.NE, R1, 0, differ)
        asm.goto(same)
        asm.label(whole)
        asm.jump(Jump.NE, R1, 0, differ)
        if word + 8 < size:
            asm.jump(Jump.NE, R3, word + 8, following)
            asm.goto(same)
        asm.label(following)


def read_text(
    writer: OperandEmitter, address: int, start: int, slot: int, size: int, *, kernel: bool
) -> None:
    """Read a string into ``size`` bytes of the stack at ``slot``; r0 is its length with the NUL.

    Args:
        writer: the emitter of the expression; it goes to ``fail`` if the string cannot be read.
        address: the slot with the string's address.
        start: an offset to add to the address.
        slot: the slot for the string.
        size: bytes of the slot.
        kernel: whether the address is a pointer by the kernel's types.
    """
    asm = writer.asm
    asm.load(R3, R10, address)
    asm.add(R3, start)
    writer.read_to(Helper.PROBE_READ_USER_STR, R10, slot, size, kernel=kernel)
    if writer.sleepable:
        done = asm.new_label("text")
        asm.jump(Jump.SGE, R0, 0, done)
        asm.load(R0, R10, address)
        asm.add(R0, start)
        writer.touch(size)
        asm.load(R3, R10, address)
        asm.add(R3, start)
        writer.read_to(Helper.PROBE_READ_USER_STR, R10, slot, size)
        asm.label(done)
    asm.jump(Jump.SLT, R0, 0, writer.fail)
    writer.count_nul()


def read_bytes(
    writer: OperandEmitter,
    address: int,
    start: int,
    size: int,
    *,
    kernel: bool,
    count: Callable[[], None] | None = None,
) -> None:
    """Read bytes into ``STRING_SLOT``.

    Args:
        writer: the emitter of the expression; it goes to ``fail`` if they cannot be read.
        address: the slot with their address.
        start: an offset to add to the address.
        size: the number of bytes, or the greatest number.
        kernel: whether the address is a pointer by the kernel's types.
        count: emits code that puts the number of bytes into r2; None: it is ``size``.
    """
    asm = writer.asm
    asm.load(R3, R10, address)
    asm.add(R3, start)
    writer.read_to(Helper.PROBE_READ_USER, R10, STRING_SLOT, count or size, kernel=kernel)
    if writer.sleepable:
        done = asm.new_label("bytes")
        asm.jump(Jump.EQ, R0, 0, done)
        asm.load(R0, R10, address)
        asm.add(R0, start)
        writer.touch(size)
        asm.load(R3, R10, address)
        asm.add(R3, start)
        writer.read_to(Helper.PROBE_READ_USER, R10, STRING_SLOT, count or size)
        asm.label(done)
    asm.jump(Jump.NE, R0, 0, writer.fail)
