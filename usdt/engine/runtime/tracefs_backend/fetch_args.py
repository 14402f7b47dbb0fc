"""Expressions → fetch arguments of a definition (Documentation/trace/uprobetracer.rst).

A definition can fetch a register, a constant, a string, and memory at a register plus displacement
or at an address loaded from such memory. The arguments of probes are of these forms. Anything
computed from them is computed when the record is read
(:mod:`usdt.engine.runtime.tracefs_backend.evaluate`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import (
    Address,
    AtFunctionReturn,
    Constant,
    CurrentTask,
    ForReturn,
    Memory,
    Register,
    Unreadable,
    ValueClass,
)
from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.base.machine import BIG_ENDIAN, KERNEL_MACHINE, word_size
from usdt.engine.compiler.ir import (
    ArgumentValue,
    Arithmetic,
    Builtin,
    Convert,
    Deref,
    LValue,
    Number,
    PointerExpr,
    Unavailable,
)
from usdt.tracefs.registers import register_part_at

if TYPE_CHECKING:
    from usdt.arch.locations import ValueType
    from usdt.engine.compiler.ir import Node
    from usdt.tracefs.registers import RegisterPart

__all__ = ("MAX_ARRAY", "MAX_BYTES", "FetchArg", "FetchArgBuilder", "UnsupportedFetch")

MAX_ARRAY = 64  # elements; MAX_ARRAY_LEN of kernel/trace/trace_probe.h
MAX_BYTES = 1024  # bytes, fetched as several arrays: an event has 128 arguments and 3072 bytes
_MAX_BODY = 63  # characters of an argument; MAX_ARGSTR_LEN of the same file
_MAX_DEPTH = 12  # pointers followed: the kernel compiles at most 16 steps
_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}


class UnsupportedFetch(TracingError):  # noqa: N818 - the name states the error
    """An expression that no probe event can fetch, with the reason."""


@frozen
class FetchArg:
    """One fetch argument of a definition.

    Attributes:
        text: the argument in the kernel's syntax, ``%di:s32``, without a name.
        code: :mod:`struct` code of its bytes in a record; for a string, these are its location.
    """

    text: str
    code: str


class FetchArgBuilder:
    """A builder of the fetch arguments of a definition at one site.

    Args:
        offset: offset of the site in its file.
        word: bytes of an address of the traced program.
        kernel: machine of the kernel, whose registers :class:`usdt.arch.locations.Register` and
            similar classes refer to.
        returns: whether it is a return probe, which has ``$retval`` and no arguments.
    """

    def __init__(
        self, offset: int, word: int, kernel: str = KERNEL_MACHINE, *, returns: bool = False
    ) -> None:
        self._offset = offset
        self._word = word
        self._kernel = kernel
        self._returns = returns

    def number(self, node: Node) -> FetchArg:
        """Return the fetch argument of an integer or float.

        Raises:
            UnsupportedFetch: there is none.
        """
        kind = node.type
        if self._is_result(node):
            return _field("$retval", kind)
        if isinstance(node, ArgumentValue) and isinstance(node.fetch, Register):
            return self._register(node.fetch, kind)
        if isinstance(node, ArgumentValue) and isinstance(node.fetch, Constant):
            return _field(f"\\{node.fetch.value}", kind)
        return _field(self._at(*self._location(node)), kind)

    def _is_result(self, node: Node) -> bool:
        if not self._returns or not isinstance(node, ArgumentValue):
            return False
        if isinstance(node.fetch, (Register, Memory, Address, ForReturn)):
            raise UnsupportedFetch("what only the function's entry has, beside what it returns")
        return isinstance(node.fetch, AtFunctionReturn) and isinstance(
            node.fetch.register, Register
        )

    def string(self, address: Node) -> FetchArg:
        """Return the fetch argument of the string at an address."""
        base, displacement = self._address(address)
        return _checked(FetchArg(f"{self._at(base, displacement)}:string", "I"))

    def array(self, node: Node, size: int) -> list[FetchArg]:
        """Return the fetch arguments of the bytes of a structure, in order."""
        return self._array(*self._location(node), size)

    def buffer(self, address: Node, size: int) -> list[FetchArg]:
        """Return the fetch arguments of the bytes at an address, in order."""
        return self._array(*self._address(address), size)

    def saved(self, offset: int, kind: ValueType) -> FetchArg:
        """Return the fetch argument of a saved register."""
        return self._register(Register(offset, kind.size), kind)

    def is_pointer(self, offset: int) -> bool:
        """Return whether the register at an offset is the instruction pointer."""
        found = register_part_at(self._kernel, offset, self._word)
        return found is not None and found.pointer

    def _array(self, base: str, displacement: int, size: int) -> list[FetchArg]:
        if not 0 < size <= MAX_BYTES:
            raise UnsupportedFetch(f"{size} bytes, of which an event takes 1 to {MAX_BYTES}")
        made = []
        for start in range(0, size, MAX_ARRAY):
            part = min(MAX_ARRAY, size - start)
            text = f"{self._at(base, displacement + start)}:u8[{part}]"
            made.append(_checked(FetchArg(text, f"{part}s")))
        return made

    def _register(self, fetch: Register, kind: ValueType) -> FetchArg:
        found = self._slice(fetch.offset, fetch.size)
        bits = 8 * fetch.size
        if not found.shift:
            return _field(f"%{found.name}", kind)
        container = 1 << (found.shift + bits - 1).bit_length()
        text = f"%{found.name}:b{bits}@{found.shift}/{container}"
        return _checked(FetchArg(text, _CODES[container // 8].upper()))

    def _slice(self, offset: int, size: int) -> RegisterPart:
        found = register_part_at(self._kernel, offset, size)
        if found is None or not found.name:
            raise UnsupportedFetch("the kernel's event tracer has no name for the register")
        return found

    # Locations of memory are (base, displacement); the base is "" for an absolute address.

    def _location(self, node: Node) -> tuple[str, int]:
        match node:
            case ArgumentValue(fetch=Memory() as memory):
                return self._memory(memory)
            case Deref(address=address):
                return self._address(address)
        raise UnsupportedFetch(_why(node))

    def _memory(self, memory: Memory) -> tuple[str, int]:
        if memory.kernel:
            raise UnsupportedFetch("the kernel's memory")
        if memory.index is not None:
            raise UnsupportedFetch("indexed memory: events add a constant to one register at most")
        if memory.base is None:
            return "", memory.displacement
        return self._based(memory.base, memory.displacement)

    def _based(self, base: int, displacement: int) -> tuple[str, int]:
        found = register_part_at(self._kernel, base, self._word)
        if found is None or (self._kernel not in BIG_ENDIAN and found.shift):
            raise UnsupportedFetch("memory at a part of a register")
        if not found.name and found.pointer and self._offset + displacement >= 0:
            # @+OFFSET is relative to the instruction, in memory as in the file. It serves kernels
            # without a name for the register: Linux 6.1 reads 0 there.
            return "@", self._offset + displacement
        if not found.name:
            raise UnsupportedFetch("the kernel's event tracer has no name for the register")
        return f"%{found.name}", displacement

    def _address(self, node: Node, depth: int = 0) -> tuple[str, int]:
        # Returns the location that a node's value points to.
        if depth > _MAX_DEPTH:
            raise UnsupportedFetch("too many pointers to follow")
        if self._is_result(node):
            return "$retval", 0
        match node:
            case PointerExpr(address=inner):
                return self._address(inner, depth + 1)
            case Number(value=value) | ArgumentValue(fetch=Constant(value=value)):
                return "", value
            case ArgumentValue(fetch=Address(base=base, displacement=displacement)):
                return self._based(base, displacement)
            case ArgumentValue(fetch=Register() as register) if register.size == self._word:
                return f"%{self._slice(register.offset, register.size).name}", 0
            case Arithmetic(op="+" | "-" as op, left=left, right=Number(value=value)):
                name, offset = self._address(left, depth + 1)
                return name, offset + (value if op == "+" else -value)
            case Arithmetic(op="+", left=Number(value=value), right=right) if right is not None:
                name, offset = self._address(right, depth + 1)
                return name, offset + value
            case Convert(operand=inner) if inner.type.size >= self._word:
                return self._address(inner, depth + 1)
            case Deref(type=kind) | ArgumentValue(fetch=Memory(), type=kind):
                if kind.size != word_size(self._kernel):
                    raise UnsupportedFetch(f"a pointer of {kind.size} bytes in memory")
                return self._at(*self._location(node)), 0
        raise UnsupportedFetch(_why(node))

    def _at(self, base: str, displacement: int) -> str:
        if base == "@":
            return f"@+{displacement:#x}"
        if not base:
            if displacement < 0:
                raise UnsupportedFetch("a negative address")
            return f"@{displacement:#x}"
        return f"{displacement:+d}({base})"


def _field(text: str, kind: ValueType) -> FetchArg:
    if kind.size not in _CODES:
        raise UnsupportedFetch(f"a value of {kind.size} bytes")
    # The bits of the float; the struct code reads them as a float.
    if kind.kind is ValueClass.FLOAT:
        return _checked(FetchArg(f"{text}:x{8 * kind.size}", "f" if kind.size == 4 else "d"))
    code = _CODES[kind.size]
    letter, code = ("s", code) if kind.signed else ("u", code.upper())
    return _checked(FetchArg(f"{text}:{letter}{8 * kind.size}", code))


def _checked(field: FetchArg) -> FetchArg:
    if len(field.text) > _MAX_BODY:
        raise UnsupportedFetch(f"too long for an event: {field.text}")
    return field


def _why(node: Node) -> str:
    match node:
        case Unavailable(reason=reason) | ArgumentValue(fetch=Unreadable(reason=reason)):
            return reason
        case ArgumentValue(fetch=CurrentTask()):
            return "the kernel's structures of the task"
        case ArgumentValue(fetch=Address()):
            return "the address of a symbol"
        case ArgumentValue(fetch=AtFunctionReturn() | ForReturn()):
            return "a value at the function's return"
        case ArgumentValue(fetch=Register(size=size)):
            return f"an address of {size} bytes, which is not as wide as the program's"
        case Builtin(name=name):
            return f"{name}, which an event does not record"
        case LValue():
            return "not a number"
    return "a computed value: an event fetches registers, and memory at a register plus a constant"
