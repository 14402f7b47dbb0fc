"""Code that compares a string with a pattern; the docstring of the package lists the registers.

The pattern is a nondeterministic automaton in one 64-bit word (the shift-and algorithm: Baeza-Yates
and Gonnet, "A new approach to text searching", 1992). Bit n is set while the first n bytes of the
pattern, without its stars, have been matched. A byte of the string shifts the bits whose next byte
it is; at a star the bit stays. The code is a loop with a constant bound (Linux 5.3), so that a long
string needs no long program. Each string is compared in pieces that fit on the stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R5, R9, R10, Alu, Jump
from usdt.engine.compiler.codegen.current_task import emit_comm
from usdt.engine.compiler.codegen.expressions.strings import read_bytes, read_text
from usdt.engine.compiler.codegen.stack_slots import COMM_SLOT, STRING_SLOT
from usdt.engine.compiler.ir import Number, of_kernel

if TYPE_CHECKING:
    from usdt.engine.compiler.codegen.expressions.operands import OperandEmitter
    from usdt.engine.compiler.ir import StringMatches

__all__ = ("emit_match",)

_PIECE = 255  # bytes that are read at once
_COMM = 16  # bytes of a thread's name with its NUL


def emit_match(writer: OperandEmitter, node: StringMatches, label: str, *, when: bool) -> None:
    """Emit a branch to ``label`` if a comparison with a pattern is true (``when``) or false."""
    asm = writer.asm
    emitter = _MatchEmitter(writer, node)
    emitter.emit()
    done = asm.new_label("matched")
    asm.label(emitter.same)
    asm.goto(label if when is node.equal else done)
    asm.label(emitter.differ)
    if when is not node.equal:
        asm.goto(label)
    asm.label(done)


class _MatchEmitter:
    # r0: bytes of the piece; r1: position; r2: scratch; r3: a byte; r4: state; r5: its mask.
    def __init__(self, writer: OperandEmitter, node: StringMatches) -> None:
        self.writer, self.asm, self.node = writer, writer.asm, node
        self.same, self.differ = self.asm.new_label("same"), self.asm.new_label("differ")
        self._end = self.asm.new_label("end")
        text = b"".join(node.parts)
        self._last = len(text)
        self._masks = {byte: _bits(text, byte) for byte in set(text)}
        self._stays, at = 0, 0
        for part in node.parts[:-1]:
            at += len(part)
            self._stays |= 1 << at

    def emit(self) -> None:
        """Emit code that goes to ``same`` or ``differ``."""
        asm, writer, node = self.asm, self.writer, self.node
        asm.mov(R0, 1)
        state = writer.push()
        slots = 1
        if node.address is None:
            emit_comm(asm, R10, COMM_SLOT)
            asm.mov(R0, _COMM)
            asm.load(R4, R10, state)
            self._scan(_Piece(COMM_SLOT, _COMM, ends_at_nul=True))
        else:
            length = None
            if node.length is not None:
                writer.value(node.length)
                length, slots = writer.push(), slots + 1
            writer.value(node.address)
            address, slots = writer.push(), slots + 1
            limit = node.limit
            for start in range(0, limit, _PIECE):
                size = min(_PIECE, limit - start)
                last = start + size == limit
                if length is None:
                    self._read_string(address, start, size, peek=last and not node.cut)
                else:
                    self._read_bytes(address, length, start, size)
                asm.load(R4, R10, state)
                self._scan(_Piece(STRING_SLOT, size))
                if last and not node.cut:
                    if length is not None:
                        asm.load(R0, R10, length)
                    asm.jump(Jump.GT, R0, size if length is None else limit, self.differ)
                elif not last:
                    asm.jump(Jump.LT, R0, size, self._end)
                    asm.store(R10, state, R4)
        asm.label(self._end)
        asm.alu(Alu.RSH, R4, self._last)
        asm.alu(Alu.AND, R4, 1)
        asm.jump(Jump.EQ, R4, 0, self.differ)
        asm.goto(self.same)
        for _ in range(slots):
            writer.pop()

    def _read_string(self, address: int, start: int, size: int, *, peek: bool) -> None:
        # With ``peek``, one byte more is read, to see if the string is longer than the limit.
        kernel = of_kernel(self.node.address)
        read_text(self.writer, address, start, STRING_SLOT, size + 1 + peek, kernel=kernel)
        self.asm.add(R0, -1)

    def _read_bytes(self, address: int, length: int, start: int, size: int) -> None:
        asm, writer = self.asm, self.writer
        kernel = of_kernel(self.node.address)

        def count() -> None:
            # The verifier of old kernels forgets the bounds of a number on the stack.
            small = asm.new_label("small")
            asm.load(R2, R10, length)
            asm.add(R2, -start)
            asm.jump(Jump.LE, R2, size, small)
            asm.mov(R2, size)
            asm.label(small)

        if isinstance(self.node.length, Number):
            read_bytes(writer, address, start, size, kernel=kernel)
        else:
            for offset in range(0, size, 8):  # a read of variable size needs initialized memory
                asm.store(R10, STRING_SLOT + offset, 0)
            read_bytes(writer, address, start, size, kernel=kernel, count=count)
        count()
        asm.mov(R0, R2)

    def _scan(self, piece: _Piece) -> None:
        # Go over r0 bytes, at most ``piece.size``, with the state in r4.
        asm = self.asm
        following, over, shift = (asm.new_label(hint) for hint in ("byte", "piece", "shift"))
        asm.mov(R1, 0)
        asm.label(following)
        asm.jump(Jump.GE, R1, piece.size, over)
        asm.jump(Jump.LE, R0, R1, over)
        asm.mov(R2, R10)
        asm.add(R2, R1)
        asm.load(R3, R2, piece.slot, 1)
        asm.add(R1, 1)
        if piece.ends_at_nul:
            asm.jump(Jump.EQ, R3, 0, over)
        asm.mov(R5, 0)
        self._find_mask(sorted(self._masks), shift)
        asm.label(shift)
        asm.alu(Alu.AND, R5, R4)
        asm.alu(Alu.LSH, R5, 1)
        asm.mov(R2, _signed(self._stays))
        asm.alu(Alu.AND, R4, R2)
        asm.alu(Alu.OR, R4, R5)
        # The verifier would follow each state that it knows on its own, so let it know none.
        asm.alu(Alu.XOR, R4, R9)
        asm.alu(Alu.XOR, R4, R9)
        asm.jump(Jump.EQ, R4, 0, self.differ)
        if not self.node.parts[-1]:
            asm.mov(R2, R4)
            asm.alu(Alu.RSH, R2, self._last)
            asm.jump(Jump.NE, R2, 0, self.same)
        asm.goto(following)
        asm.label(over)

    def _find_mask(self, choices: list[int], found: str) -> None:
        # Leave the mask of the byte in r3 in r5, by binary search, and go to ``found``.
        asm = self.asm
        if len(choices) == 1:
            asm.jump(Jump.NE, R3, choices[0], found)
            asm.mov(R5, _signed(self._masks[choices[0]]))
            asm.goto(found)
            return
        middle = len(choices) // 2
        greater = asm.new_label("greater")
        asm.jump(Jump.GE, R3, choices[middle], greater)
        self._find_mask(choices[:middle], found)
        asm.label(greater)
        self._find_mask(choices[middle:], found)


@frozen
class _Piece:
    # A piece of the string: its slot on the stack, its maximum size, and whether a NUL may end it.
    slot: int
    size: int
    ends_at_nul: bool = False


def _bits(text: bytes, byte: int) -> int:
    return sum(1 << at for at, one in enumerate(text) if one == byte)


def _signed(mask: int) -> int:
    return mask - (1 << 64) if mask >> 63 else mask
