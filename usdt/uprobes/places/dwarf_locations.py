"""DWARF expressions → where a program finds a value: DWARF 5, section 2.5 and 2.6.

An expression is not executed here, but turned into an expression of the probe language, which the
program computes at each hit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.abi import NotReadable, Passed, PassedInMemory, PassedInRegisters, RegisterPiece
from usdt.arch.dwarf_registers import register_name, unsaved_name
from usdt.arch.locations import Constant, Register, ValueClass, ValueType
from usdt.arch.pt_regs import saved_registers
from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.base.machine import BIG_ENDIAN, word_size
from usdt.dwarf.units.constants import CONSTANT_OPS
from usdt.dwarf.units.forms import MalformedDwarf, read_sleb128, read_uleb128
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    S64,
    U64,
    ArgumentValue,
    Arithmetic,
    Compare,
    Convert,
    Deref,
    Node,
    Number,
    children,
    wrap,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.arch.locations import Location
    from usdt.dwarf.units.units import Unit

__all__ = ("Computed", "DwarfLocation", "Surroundings", "location_at")

_MAX_STEPS = 256
_MAX_NODES = 64  # of an expression that a program computes
_ENTRY_VALUE = "computed from values of the function's entry, which are not kept"
_NO_OBJECT = "it points to an object that the compiler has removed"
_TYPED = "it is computed with types (DW_OP_convert), which is not supported"
_FLOATING = "in {}, which programs on uprobes cannot read"

_BINARY = {  # DW_OP_and to DW_OP_xor
    0x1A: ("&", U64),
    0x1B: ("/", S64),
    0x1C: ("-", U64),
    0x1D: ("%", U64),
    0x1E: ("*", U64),
    0x21: ("|", U64),
    0x22: ("+", U64),
    0x24: ("<<", U64),
    0x25: (">>", U64),
    0x26: (">>", S64),
    0x27: ("^", U64),
}
_COMPARE = {0x29: "==", 0x2A: ">=", 0x2B: ">", 0x2C: "<=", 0x2D: "<", 0x2E: "!="}
_REFUSED = {
    **dict.fromkeys((0xA3, 0xF3), _ENTRY_VALUE),
    **dict.fromkeys((0xA0, 0xF2), _NO_OBJECT),
    **dict.fromkeys((*range(0xA4, 0xAA), *range(0xF4, 0xFA)), _TYPED),
    **dict.fromkeys((0x9B, 0xE0), "it is thread-local, which is not supported"),
}


@frozen
class Computed:
    """A value that is computed at each hit.

    Attributes:
        node: the value, or its address.
        by_address: whether ``node`` is the address.
    """

    node: Node
    by_address: bool = False

    @property
    def where(self) -> str:
        """The location as text."""
        if isinstance(self.node, Number):
            return "at a fixed address" if self.by_address else f"the constant {self.node.value}"
        if self.by_address and isinstance(self.node, ArgumentValue):
            return "at a fixed address of the file"
        names = "in memory, at an address computed" if self.by_address else "computed"
        return f"{names} from registers"


DwarfLocation = Passed | Computed


@frozen
class Surroundings:
    """What expressions refer to.

    Attributes:
        machine: the CPU.
        unit: the unit of the variable's entry.
        frame_base: expression of the function's frame base.
        cfa: returns the canonical frame address: a register's name and an offset, or an expression.
        static: returns the location of an address in the file of the debug information.
    """

    machine: str
    unit: Unit
    frame_base: bytes
    cfa: Callable[[], tuple[str, int] | bytes]
    static: Callable[[int], Location]


class _Refused(Exception):  # noqa: N818 - the value is not readable
    pass


def location_at(expression: bytes, size: int, around: Surroundings) -> DwarfLocation:
    """Return the location that an expression describes.

    Args:
        expression: the expression.
        size: bytes of the value.
        around: what it refers to.
    """
    try:
        return _Evaluation(expression, around).run(size)
    except _Refused as err:
        return NotReadable(str(err))
    except (IndexError, MalformedDwarf) as err:
        return NotReadable(f"damaged debug information: {err}")
    except TracingError as err:
        return NotReadable(str(err))


class _Evaluation:
    def __init__(self, code: bytes, around: Surroundings, *, nested: bool = False) -> None:
        self.code = code
        self.around = around
        self.at = 0
        self.stack: list[Node] = []
        self.register: int | None = None  # the value is in this register
        self.is_value = False
        self._nested = nested
        self._word = word_size(around.machine)

    # ------------------------------------------------------------ the whole expression

    def run(self, size: int) -> DwarfLocation:
        pieces: list[RegisterPiece] = []
        start = steps = 0
        while self.at < len(self.code):
            steps += 1
            if steps > _MAX_STEPS:
                raise _Refused("its location has too many operations")
            opcode = self._byte()
            if opcode != 0x93:  # DW_OP_piece
                self._step(opcode)
                continue
            length = self._uleb()
            pieces.append(self._piece(start, length))
            start += length
        if not pieces:
            return self._whole(size)
        if all(piece.register is None for piece in pieces):
            return NotReadable(pieces[0].problem)
        return PassedInRegisters(tuple(pieces))

    def _whole(self, size: int) -> DwarfLocation:
        if self.register is not None:
            piece = self._register_piece(self.register, 0, size)
            if size > self._word:
                return NotReadable(f"{size} bytes in one register")
            return PassedInRegisters((piece,)) if piece.register else NotReadable(piece.problem)
        node = self._top()
        narrow = self._word != U64.size and not isinstance(node, Number)
        if self.is_value and not narrow:
            return Computed(node)
        match None if self.is_value else node:
            case ArgumentValue(fetch=Register() as base):
                return PassedInMemory(base, 0, self._name(base))
            case Arithmetic(
                op="+" | "-" as op,
                left=ArgumentValue(fetch=Register() as base),
                right=Number(value=number),
            ):
                offset = wrap(number if op == "+" else -number, S64)
                return PassedInMemory(base, offset, self._name(base))
        if narrow:
            raise _Refused("computed values are not supported in 32-bit programs")
        return Computed(node, by_address=True)

    def _piece(self, start: int, length: int) -> RegisterPiece:
        try:
            if self.register is not None:
                return self._register_piece(self.register, start, length)
            problem = "a part of it is not in a register, which is not supported"
            if not self.stack:
                problem = "a part of it is optimized out here"
            return RegisterPiece(start, length, None, "", problem)
        finally:
            self.register, self.is_value = None, False
            self.stack.clear()

    def _register_piece(self, number: int, start: int, size: int) -> RegisterPiece:
        name, slot = self._slot(number)
        if slot is None:
            name = unsaved_name(self.around.machine, number)
            return RegisterPiece(start, size, None, name, _FLOATING.format(name))
        big = self.around.machine in BIG_ENDIAN
        shift = self._word - size if big and size < self._word else 0
        return RegisterPiece(start, size, Register(slot + shift, size), self._shown(name))

    # ------------------------------------------------------------ operations

    def _step(self, opcode: int) -> None:
        if 0x30 <= opcode < 0x50:  # DW_OP_lit0…31
            self._push(Number(opcode - 0x30, U64))
        elif 0x50 <= opcode < 0x70:  # DW_OP_reg0…31
            self.register = opcode - 0x50
        elif 0x70 <= opcode < 0x90:  # DW_OP_breg0…31
            self._push(self._sum(self._content(opcode - 0x70), self._sleb()))
        elif opcode in CONSTANT_OPS:
            size, signed = CONSTANT_OPS[opcode]
            self._push(Number(wrap(self._fixed(size, signed=signed), U64), U64))
        elif opcode in _BINARY:
            self._binary(*_BINARY[opcode])
        elif opcode in _COMPARE:
            right, left = Convert(self._pop(), S64), Convert(self._pop(), S64)
            self._push(Convert(fold(Compare(_COMPARE[opcode], left, right, S64)), U64))
        elif opcode in _REFUSED:
            raise _Refused(_REFUSED[opcode])
        else:
            found = _OTHERS.get(opcode)
            if found is None:
                raise _Refused(
                    f"its location has the operation {opcode:#x}, which is not supported"
                )
            found(self)

    def _binary(self, op: str, kind: ValueType) -> None:
        right, left = self._pop(), self._pop()
        if kind != U64:
            left = fold(Convert(left, kind))
            right = fold(Convert(right, kind)) if op == "/" else right
        made = fold(Arithmetic(op, left, right, kind))
        self._push(made if kind == U64 else fold(Convert(made, U64)))

    def _static(self, address: int) -> None:
        place = self.around.static(address)
        if isinstance(place, Constant):
            self._push(Number(place.value, U64))
        else:
            self._push(ArgumentValue(place, ValueType(ValueClass.UNSIGNED, self._word)))

    def _frame(self, offset: int) -> None:
        # DW_OP_fbreg
        if self._nested or not self.around.frame_base:
            raise _Refused("the frame of its function is not known")
        self._push(self._sum(self._inner(self.around.frame_base), offset))

    def _cfa(self) -> None:
        found = self.around.cfa()
        if isinstance(found, bytes):  # of a function that aligns its stack
            self._push(self._inner(found))
            return
        name, offset = found
        slot = saved_registers(self.around.machine)[name]
        self._push(self._sum(self._register(slot), offset))

    def _inner(self, code: bytes) -> Node:
        # The value of another expression.
        base = _Evaluation(code, self.around, nested=True)
        for _ in range(_MAX_STEPS):
            if base.at >= len(base.code):
                break
            base._step(base._byte())
        return base._top() if base.register is None else self._content(base.register)

    def _load(self, size: int) -> None:
        if size not in (1, 2, 4, 8):
            raise MalformedDwarf(f"an expression reads {size} bytes")
        loaded = Deref(self._pop(), ValueType(ValueClass.UNSIGNED, size))
        self._push(loaded if loaded.type == U64 else Convert(loaded, U64))

    def _implicit(self) -> None:
        # DW_OP_implicit_value
        length = self._uleb()
        data = self.code[self.at : self.at + length]
        if len(data) < length:
            raise IndexError(self.at)
        self.at += length
        if length > U64.size:
            raise _Refused(f"a constant of {length} bytes is not supported")
        self._push(Number(self._number(data, signed=False), U64))
        self.is_value = True

    def _value(self) -> None:
        self._top()
        self.is_value = True

    # ------------------------------------------------------------ registers

    def _slot(self, number: int) -> tuple[str, int | None]:
        name = register_name(self.around.machine, number)
        return name, saved_registers(self.around.machine).get(name)

    def _content(self, number: int) -> Node:
        _, slot = self._slot(number)
        if slot is None:
            raise _Refused(_FLOATING.format(unsaved_name(self.around.machine, number)))
        return self._register(slot)

    def _register(self, slot: int) -> Node:
        return ArgumentValue(Register(slot, self._word), ValueType(ValueClass.UNSIGNED, self._word))

    def _sum(self, node: Node, offset: int) -> Node:
        # register + a + b is register + (a + b), so that the base of a frame stays recognizable.
        match node:
            case Arithmetic(op="+", left=left, right=Number(value=number)):
                node, offset = left, offset + number
        return fold(Arithmetic("+", node, Number(wrap(offset, U64), U64), U64)) if offset else node

    def _name(self, base: Register) -> str:
        slots = saved_registers(self.around.machine)
        return self._shown(next(name for name, slot in slots.items() if slot == base.offset))

    def _shown(self, name: str) -> str:
        return f"e{name[1:]}" if self.around.machine == "i386" else name

    # ------------------------------------------------------------ stack and bytes

    def _push(self, node: Node) -> None:
        if _count(node) > _MAX_NODES:
            raise _Refused("its location is too complex")
        self.stack.append(node)

    def _pop(self) -> Node:
        return self.stack.pop()

    def _drop(self) -> None:
        self.stack.pop()

    def _top(self) -> Node:
        return self.stack[-1]

    def _pick(self, depth: int) -> None:
        self._push(self.stack[-1 - depth])

    def _swap(self) -> None:
        self.stack[-1], self.stack[-2] = self.stack[-2], self.stack[-1]

    def _byte(self) -> int:
        self.at += 1
        return self.code[self.at - 1]

    def _uleb(self) -> int:
        value, self.at = read_uleb128(self.code, self.at)
        return value

    def _sleb(self) -> int:
        value, self.at = read_sleb128(self.code, self.at)
        return value

    def _fixed(self, size: int, *, signed: bool = False) -> int:
        data = self.code[self.at : self.at + size]
        if len(data) < size:
            raise IndexError(self.at)
        self.at += size
        return self._number(data, signed=signed)

    def _number(self, data: bytes, *, signed: bool) -> int:
        if self.around.machine in BIG_ENDIAN:
            return int.from_bytes(data, "big", signed=signed)
        return int.from_bytes(data, "little", signed=signed)

    def _indexed(self) -> int:
        return self.around.unit.indexed_address(self._uleb())


def _count(node: Node) -> int:
    # The number of nodes, at most one more than is allowed.
    total, waiting = 0, [node]
    while waiting and total <= _MAX_NODES:
        total += 1
        waiting += children(waiting.pop())
    return total


_OTHERS: dict[int, Callable[[_Evaluation], None]] = {
    0x03: lambda self: self._static(self._fixed(self.around.unit.encoding.address_size)),
    0x06: lambda self: self._load(self._word),  # DW_OP_deref
    0x10: lambda self: self._push(Number(wrap(self._uleb(), U64), U64)),
    0x11: lambda self: self._push(Number(wrap(self._sleb(), U64), U64)),
    0x12: lambda self: self._pick(0),  # DW_OP_dup
    0x13: lambda self: self._drop(),
    0x14: lambda self: self._pick(1),  # DW_OP_over
    0x15: lambda self: self._pick(self._byte()),
    0x16: lambda self: self._swap(),
    0x1F: lambda self: self._push(fold(Arithmetic("-", self._pop(), None, U64))),
    0x20: lambda self: self._push(fold(Arithmetic("~", self._pop(), None, U64))),
    0x23: lambda self: self._push(self._sum(self._pop(), self._uleb())),
    0x90: lambda self: setattr(self, "register", self._uleb()),  # DW_OP_regx
    0x91: lambda self: self._frame(self._sleb()),
    0x92: lambda self: self._push(self._sum(self._content(self._uleb()), self._sleb())),
    0x94: lambda self: self._load(self._byte()),
    0x96: lambda _: None,  # DW_OP_nop
    0x9C: lambda self: self._cfa(),
    0x9E: lambda self: self._implicit(),
    0x9F: lambda self: self._value(),
    0xA1: lambda self: self._static(self._indexed()),
    0xA2: lambda self: self._push(Number(self._indexed(), U64)),
    0xFB: lambda self: self._static(self._indexed()),
    0xFC: lambda self: self._push(Number(self._indexed(), U64)),
}
