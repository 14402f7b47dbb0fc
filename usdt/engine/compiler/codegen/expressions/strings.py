"""Code for string comparisons; the docstring of the package lists the registers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R10, Alu, Jump
from usdt.engine.compiler.codegen.stack_slots import COMM_SLOT, STRING_SLOT
from usdt.engine.compiler.ir import of_kernel

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.compiler.codegen.expressions.operands import OperandEmitter
    from usdt.engine.compiler.ir import Node, StringEquals, StringEqualsConst, StringMatches

__all__ = ("emit_compare_strings", "emit_compare_with_constant", "emit_match")

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
        asm.mov(R1, R10)
        asm.add(R1, COMM_SLOT)
        asm.mov(R2, 16)
        asm.call(Helper.GET_CURRENT_COMM)
    else:
        # Read one byte more than the constant and its NUL, to see if the string is longer.
        writer.value(node.address)
        address = writer.push()
        size = len(wanted) + (1 if node.prefix else 2)
        _read_text(writer, address, 0, STRING_SLOT, size, kernel=of_kernel(node.address))
        writer.pop()
        asm.jump(Jump.NE, R0, len(wanted) + 1, differ)
    _compare_bytes(asm, slot, wanted, differ)
    asm.goto(label if when is node.equal else done)
    asm.label(differ)
    if when is not node.equal:
        asm.goto(label)
    asm.label(done)


def _compare_bytes(asm: Assembler, slot: int, wanted: bytes, differ: str) -> None:
    position = 0
    while position < len(wanted):
        size = next(size for size in (8, 4, 2, 1) if size <= len(wanted) - position)
        asm.load(R1, R10, slot + position, size)
        asm.mov(R2, int.from_bytes(wanted[position : position + size], sys.byteorder))
        asm.jump(Jump.NE, R1, R2, differ)
        position += size


def emit_match(writer: OperandEmitter, node: StringMatches, label: str, *, when: bool) -> None:
    """Emit a branch to ``label`` if a comparison with a pattern is true (``when``) or false.

    Each part is searched for at the first position that is left. The code has no loop, and no
    variable position: there is code for each part at each position, and a part that is found leads
    to the code of the next part at the position behind it.
    """
    asm = writer.asm
    matches, differ, done = (asm.new_label(hint) for hint in ("matches", "differ", "done"))
    slot = COMM_SLOT if node.address is None else STRING_SLOT
    if node.address is None:
        asm.mov(R1, R10)
        asm.add(R1, COMM_SLOT)
        asm.mov(R2, 16)
        asm.call(Helper.GET_CURRENT_COMM)
    else:
        _read_searched(writer, node.address, node)
    _compare_bytes(asm, slot, node.parts[0], differ)
    _search(asm, node, slot, matches, differ)
    asm.label(matches)
    asm.goto(label if when is node.equal else done)
    asm.label(differ)
    if when is not node.equal:
        asm.goto(label)
    asm.label(done)


def _read_searched(writer: OperandEmitter, address: Node, node: StringMatches) -> None:
    # Read the string to STRING_SLOT. If a longer one must not match as if it were cut, read one
    # byte more than is searched.
    asm = writer.asm
    size = node.limit + (1 if node.cut else 2)
    writer.value(address)
    start = writer.push()
    if node.length is None:
        _read_text(writer, start, 0, STRING_SLOT, size, kernel=of_kernel(address))
        writer.pop()
        return
    writer.value(node.length)
    fits = asm.new_label("fits")
    asm.jump(Jump.LT, R0, size, fits)
    asm.mov(R0, size - 1)
    asm.label(fits)
    length = writer.push()
    for offset in range(0, size, 8):  # the size read is no constant: initialize every byte
        asm.store(R10, STRING_SLOT + offset, 0)
    _read_text(writer, start, 0, STRING_SLOT, size, kernel=of_kernel(address), length=length)
    writer.pop()
    writer.pop()


def _search(asm: Assembler, node: StringMatches, slot: int, found: str, differ: str) -> None:
    # Search for the parts but the first, one behind the other. A NUL ends the search.
    first, *middle, last = node.parts
    searched = [(part, len(part)) for part in middle]
    if last:
        searched.append((last + b"\0", len(last)))  # it ends where the string ends
    entries: list[dict[int, str]] = []  # of each part: position → label
    start = len(first)
    for _, size in searched:
        entries.append({at: asm.new_label("at") for at in range(start, node.limit - size + 1)})
        start += size
    for index, (part, size) in enumerate(searched):
        following = entries[index + 1] if index + 1 < len(searched) else None
        for at, label in entries[index].items():
            here, missed = asm.new_label("here"), entries[index].get(at + 1, differ)
            asm.label(label)
            asm.load(R1, R10, slot + at, 1)
            # The verifier follows a jump that is taken last: let it pass all positions first, so
            # that few branches wait (BPF_COMPLEXITY_LIMIT_JMP_SEQ).
            asm.jump(Jump.EQ, R1, part[0], here)
            asm.jump(Jump.NE, R1, 0, missed)
            asm.goto(differ)
            asm.label(here)
            for offset, byte in enumerate(part[1:], 1):
                asm.load(R1, R10, slot + at + offset, 1)
                asm.jump(Jump.NE, R1, byte, missed)
            asm.goto(found if following is None else following.get(at + size, differ))
        asm.goto(differ)


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
        _read_text(writer, left, start, STRING_SLOT, size, kernel=of_kernel(node.left))
        asm.store(R10, length, R0)
        slot = STRING_SLOT + _PIECE
        _read_text(writer, right, start, slot, size, kernel=of_kernel(node.right))
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


def _read_text(
    writer: OperandEmitter,
    address: int,
    start: int,
    slot: int,
    size: int,
    *,
    kernel: bool,
    length: int | None = None,
) -> None:
    # Read a string into ``size`` bytes of the stack at ``slot``, and its length with the NUL into
    # r0. ``address`` is the slot with the string's address, ``start`` an offset to add to it;
    # ``length`` that with the length, below 256, of a string without a NUL at its end.
    asm = writer.asm

    def shorter() -> None:
        asm.load(R2, R10, length or 0)
        asm.alu(Alu.AND, R2, 255)
        asm.add(R2, 1)

    wanted = size if length is None else shorter
    asm.load(R3, R10, address)
    asm.add(R3, start)
    writer.read_to(Helper.PROBE_READ_USER_STR, R10, slot, wanted, kernel=kernel)
    if writer.sleepable:
        done = asm.new_label("text")
        asm.jump(Jump.SGE, R0, 0, done)
        asm.load(R0, R10, address)
        asm.add(R0, start)
        writer.touch(size)
        asm.load(R3, R10, address)
        asm.add(R3, start)
        writer.read_to(Helper.PROBE_READ_USER_STR, R10, slot, wanted)
        asm.label(done)
    asm.jump(Jump.SLT, R0, 0, writer.fail)
    writer.count_nul()
