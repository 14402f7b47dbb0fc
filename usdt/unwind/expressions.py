"""DWARF expressions in call frame information: a stack machine over registers and memory.

DWARF 5, section 2.5. Only operations that call frame information may use are implemented
(section 6.4.2); all values have 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import CONSTANT_OPS
from usdt.dwarf.units.errors import MalformedDwarf
from usdt.dwarf.units.forms import read_sleb128, read_uleb128

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ("MemoryNotRead", "evaluate")

_MAX_STEPS = 1000
_MAX_DEPTH = 64
_MASK = (1 << 64) - 1


class MemoryNotRead(Exception):  # noqa: N818 - it says that a value is not known
    """The memory at ``address`` is not known."""

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self.address = address


def evaluate(
    code: bytes,
    registers: Mapping[int, int],
    read: Callable[[int, int], int],
    start: int | None = None,
) -> int:
    """Return the value of an expression.

    Args:
        code: the expression.
        registers: DWARF register number → value.
        read: returns the unsigned integer at an address, of a size in bytes.
        start: the value on the stack before the first operation: the CFA.

    Raises:
        MalformedDwarf: the expression is damaged, or uses a register that is not known.
        MemoryNotRead: from ``read``.
    """
    return _Evaluation(code, registers, read, start).run()


class _Evaluation:
    def __init__(
        self,
        code: bytes,
        registers: Mapping[int, int],
        read: Callable[[int, int], int],
        start: int | None,
    ) -> None:
        self.code, self.registers, self.read = code, registers, read
        self.stack = [] if start is None else [start]
        self.at = 0

    def run(self) -> int:
        steps = 0
        try:
            while self.at < len(self.code):
                steps += 1
                if steps > _MAX_STEPS or len(self.stack) > _MAX_DEPTH:
                    raise MalformedDwarf("an expression of call frame information does not end")
                self._step()
            return self.stack[-1]
        except IndexError:
            raise MalformedDwarf("an expression of call frame information is cut off") from None

    def _step(self) -> None:
        opcode = self.code[self.at]
        self.at += 1
        if 0x30 <= opcode < 0x50:  # DW_OP_lit0…31
            self._push(opcode - 0x30)
        elif 0x70 <= opcode < 0x90:  # DW_OP_breg0…31
            self._push(self._register(opcode - 0x70) + self._sleb())
        elif opcode in _FIXED:
            size, signed = _FIXED[opcode]
            self._push(self._fixed(size, signed=signed))
        elif opcode in _BINARY:
            right, left = self.stack.pop(), self.stack.pop()
            self._push(_BINARY[opcode](left, right))
        elif opcode in _OTHERS:
            _OTHERS[opcode](self)
        else:
            raise MalformedDwarf(f"operation {opcode:#x} in call frame information")

    def _push(self, value: int) -> None:
        self.stack.append(value & _MASK)

    def _register(self, number: int) -> int:
        if number not in self.registers:
            raise MalformedDwarf(f"register {number} is not known here")
        return self.registers[number]

    def _uleb(self) -> int:
        value, self.at = read_uleb128(self.code, self.at)
        return value

    def _sleb(self) -> int:
        value, self.at = read_sleb128(self.code, self.at)
        return value

    def _fixed(self, size: int, *, signed: bool) -> int:
        data = self.code[self.at : self.at + size]
        if len(data) < size:
            raise IndexError
        self.at += size
        return int.from_bytes(data, "little", signed=signed)

    def _pick(self, depth: int) -> None:
        self.stack.append(self.stack[-1 - depth])

    def _drop(self) -> None:
        self.stack.pop()

    def _load(self) -> None:
        size = self._fixed(1, signed=False)
        if size not in (1, 2, 4, 8):
            raise MalformedDwarf(f"an expression of call frame information reads {size} bytes")
        self._push(self.read(self.stack.pop(), size))

    def _swap(self) -> None:
        self.stack[-1], self.stack[-2] = self.stack[-2], self.stack[-1]

    def _rotate(self) -> None:
        first, second, third = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.stack += [first, third, second]

    def _based(self) -> None:
        number = self._uleb()
        self._push(self._register(number) + self._sleb())

    def _jump(self, *, always: bool) -> None:
        distance = self._fixed(2, signed=True)
        if always or self.stack.pop():
            self.at += distance
            if self.at < 0:
                raise IndexError


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _divide(left: int, right: int) -> int:
    if not right:
        raise MalformedDwarf("an expression of call frame information divides by zero")
    quotient = abs(_signed(left)) // abs(_signed(right))
    return -quotient if (_signed(left) < 0) != (_signed(right) < 0) else quotient


def _modulo(left: int, right: int) -> int:
    if not right:
        raise MalformedDwarf("an expression of call frame information divides by zero")
    return left % right


_FIXED = {0x03: (8, False), **CONSTANT_OPS}  # DW_OP_addr

_BINARY: dict[int, Callable[[int, int], int]] = {
    0x1A: lambda left, right: left & right,
    0x1B: _divide,
    0x1C: lambda left, right: left - right,
    0x1D: _modulo,
    0x1E: lambda left, right: left * right,
    0x21: lambda left, right: left | right,
    0x22: lambda left, right: left + right,
    0x24: lambda left, right: left << right if right < 64 else 0,
    0x25: lambda left, right: left >> right if right < 64 else 0,
    0x26: lambda left, right: _signed(left) >> min(right, 63),
    0x27: lambda left, right: left ^ right,
    0x29: lambda left, right: left == right,
    0x2A: lambda left, right: _signed(left) >= _signed(right),
    0x2B: lambda left, right: _signed(left) > _signed(right),
    0x2C: lambda left, right: _signed(left) <= _signed(right),
    0x2D: lambda left, right: _signed(left) < _signed(right),
    0x2E: lambda left, right: left != right,
}

_OTHERS: dict[int, Callable[[_Evaluation], None]] = {
    0x06: lambda self: self._push(self.read(self.stack.pop(), 8)),  # DW_OP_deref
    0x10: lambda self: self._push(self._uleb()),
    0x11: lambda self: self._push(self._sleb()),
    0x12: lambda self: self._pick(0),  # DW_OP_dup
    0x13: lambda self: self._drop(),
    0x14: lambda self: self._pick(1),  # DW_OP_over
    0x15: lambda self: self._pick(self._fixed(1, signed=False)),
    0x16: lambda self: self._swap(),
    0x17: lambda self: self._rotate(),
    0x19: lambda self: self._push(abs(_signed(self.stack.pop()))),
    0x1F: lambda self: self._push(-self.stack.pop()),
    0x20: lambda self: self._push(~self.stack.pop()),
    0x23: lambda self: self._push(self.stack.pop() + self._uleb()),  # DW_OP_plus_uconst
    0x28: lambda self: self._jump(always=False),  # DW_OP_bra
    0x2F: lambda self: self._jump(always=True),  # DW_OP_skip
    0x92: lambda self: self._based(),  # DW_OP_bregx
    0x94: lambda self: self._load(),  # DW_OP_deref_size
    0x96: lambda _: None,  # DW_OP_nop
}
