"""Arguments and result of a kernel function, by its prototype in BTF: names, types, locations.

The locations depend on the attach method: the context of a kprobe has the registers at the
function's entry, that of fentry has each argument in its own slots. Without BTF, each argument is
assumed to fill one register or stack slot.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from kprobe.functions.abi import AbiType, ArgumentWords, call_words, fentry_words, has_sret
from usdt.arch.calling_convention import KERNEL_CONVENTIONS
from usdt.arch.locations import (
    Address,
    AtFunctionReturn,
    ContextArea,
    Memory,
    Register,
    TypedContextWord,
    Unreadable,
    ValueClass,
    ValueType,
)
from usdt.arch.pt_regs import PT_REGS
from usdt.base.errors import BtfError
from usdt.base.frozen import frozen, replace
from usdt.base.machine import BIG_ENDIAN, KERNEL_MACHINE, word_size
from usdt.btf import types as btf_types
from usdt.btf.format import Kind as BtfKind
from usdt.engine.compiler.arguments import Argument, Display
from usdt.engine.compiler.entry_return import EntryReturnMatch
from usdt.engine.compiler.ir import (
    U64,
    ArgumentValue,
    Arithmetic,
    Convert,
    Deref,
    LValue,
    Number,
    PointerExpr,
    RegisterAggregate,
)
from usdt.engine.compiler.resolve.btf_types import BtfTypes, enum_names, value_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.arch.locations import Location
    from usdt.btf.reader import Btf
    from usdt.engine.compiler.ir import Node
    from usdt.engine.language.tree import Member

__all__ = ("CallContextAbi", "FunctionTypes", "arguments_of")

_NUMBERED = 16  # arguments of a function without BTF
_PIECES = (1, 2, 4, 8)
# CPU → register with the second half of a structure that is returned in two registers.
_SECOND_RESULT = {
    "x86_64": "rdx",
    "aarch64": "x1",
    "riscv64": "a1",
    "loongarch64": "r5",
    "ppc64le": "r4",
}


class CallContextAbi:
    """Locations of the argument slots of a call in a program's context.

    Args:
        traced: True for the context of fentry; False for registers, as in a kprobe.
        machine: the kernel's CPU.

    Attributes:
        known: False if the calling convention is unknown.
        word: size of a register in bytes.
    """

    def __init__(self, *, traced: bool, machine: str = KERNEL_MACHINE) -> None:
        self.traced = traced
        self.machine = machine
        self.word = word_size(machine)
        self._big = machine in BIG_ENDIAN
        convention = KERNEL_CONVENTIONS.get(machine)
        self._slots = PT_REGS.get(machine, {})
        self.known = traced or (convention is not None and bool(self._slots))
        if convention is not None:
            self._convention = convention

    @property
    def stack(self) -> EntryReturnMatch:
        """The rule that matches a call's return with its entry."""
        if self.traced:
            return EntryReturnMatch(None)
        pointer = Register(self._slots[self._convention.sp], self.word)
        # Bytes that a return pops, if the return address is on the stack.
        return EntryReturnMatch(pointer, (self.word if self._convention.link is None else 0,))

    @property
    def halves(self) -> dict[int, int]:
        """Offset of an argument register → that of the next one, if they are not adjacent."""
        if self.traced or not self.known:
            return {}
        slots = [self._slots[name] for name in self._convention.arguments]
        return {one: other for one, other in pairwise(slots) if other != one + self.word}

    @property
    def results(self) -> tuple[int, ...]:
        """Offsets of the registers that return a structure; () if unknown."""
        if self.traced or self.machine not in _SECOND_RESULT:
            return ()
        names = self._convention.result, _SECOND_RESULT[self.machine]
        return tuple(self._slots[name] for name in names)

    def where(self, shapes: list[AbiType]) -> list[ArgumentWords | None]:
        """Return the slots of each argument; None for those that are unknown."""
        return fentry_words(shapes) if self.traced else call_words(shapes, self.machine)

    def fetch(self, number: int, size: int) -> Location:
        """Return the location of an integer of ``size`` bytes in slot ``number``."""
        shift = self.word - size if self._big else 0
        if self.traced:
            return TypedContextWord(self.word * number + shift, size)
        later = number - len(self._convention.arguments)
        if later < 0:
            return Register(self._slots[self._convention.arguments[number]] + shift, size)
        base = self._slots[self._convention.sp]
        return Memory(base, None, 1, self._above(later) + shift, self.word, size, kernel=True)

    def _above(self, later: int) -> int:
        return self._convention.stack + self.word * later

    def place(self, where: ArgumentWords, size: int) -> Location:
        """Return the location of a structure: an area of the context, or its address."""
        if not where.words:
            return Unreadable("a structure without members")
        first, last = where.words[0], where.words[-1]
        if where.by_reference:
            return self.fetch(first, self.word)
        shift = self.word - size if self._big and size < self.word else 0
        if self.traced:
            return ContextArea(self.word * first + shift, size)
        later = first - len(self._convention.arguments)
        if later >= 0:
            base = self._slots[self._convention.sp]
            return Address(base, self._above(later) + shift, self.word, self.word)
        if last >= len(self._convention.arguments):
            return Unreadable("one half of this structure is in a register, the other on the stack")
        return ContextArea(self._slots[self._convention.arguments[first]] + shift, size)

    def result(self, number: int, size: int) -> Register | TypedContextWord:
        """Return the location of the result; ``number`` slots precede it in fexit's context."""
        shift = self.word - size if self._big else 0
        if self.traced:
            return TypedContextWord(self.word * number + shift, size)
        return Register(self._slots[self._convention.result] + shift, size)


class FunctionTypes(BtfTypes):
    """A :class:`usdt.engine.compiler.scope.TypeProvider` for structures passed by value.

    Args:
        source: returns the BTF.
        context: locations of the registers that hold structures.
    """

    def __init__(self, source: Callable[[], Btf], context: CallContextAbi) -> None:
        super().__init__(source)
        self._halves = context.halves
        self._results = context.results
        self._held: dict[Node, tuple[tuple[int, ...], bool]] = {}

    def argument(self, argument: Argument, node: Node) -> Node:
        """Return an argument; a structure becomes an object at the address that is its location."""
        if argument.type.kind is not ValueClass.BYTES or not isinstance(argument.handle, int):
            return super().argument(argument, node)
        number = self.btf.resolve(argument.handle).id
        fetch, size = argument.fetch, argument.type.size
        if isinstance(fetch, AtFunctionReturn):
            held = self._gathered(self._results, size, returned=True)
        elif isinstance(fetch, ContextArea) and size > fetch.size:
            held = self._gathered((fetch.offset, self._halves[fetch.offset]), size, returned=False)
        else:
            return LValue(ArgumentValue(fetch, U64), argument.type, handle=number, kernel=True)
        return LValue(held, argument.type, handle=number, kernel=True)

    def _gathered(
        self, registers: tuple[int, ...], size: int, *, returned: bool
    ) -> RegisterAggregate:
        # A structure in registers, as integers of 8, 4, 2 and 1 bytes.
        parts: list[tuple[int, Node]] = []
        start = 0
        while start < size:
            piece = next(one for one in reversed(_PIECES) if one <= size - start)
            kind = ValueType(ValueClass.UNSIGNED, piece)
            parts.append((start, _piece(registers, start, kind, returned=returned)))
            start += piece
        held = RegisterAggregate(tuple(parts), ValueType(ValueClass.BYTES, size))
        self._held[held] = registers, returned
        return held

    def member(self, tree: Member, target: Node) -> Node | None:
        """Resolve a member, also of a structure in registers."""
        found = super().member(tree, self._completed(target))
        if found is not None and isinstance(target, LValue) and _start_of(target.address):
            return self._picked(found)
        return found

    def _picked(self, node: Node) -> Node:
        # Replaces loads from the address of a structure in registers by loads of the registers.
        match node:
            case Deref(address=address, type=kind):
                start = _start_of(address)
                if start is None or start[1] % 8 + kind.size > 8:
                    return node
                registers, returned = self._held[start[0]]
                made = _piece(registers, start[1], kind, node.handle, returned=returned)
                if node in self._names:
                    self._names[made] = self._names[node]
                return made
            case Convert(operand=operand):
                return replace(node, operand=self._picked(operand))
            case PointerExpr(address=address):
                return replace(node, address=self._picked(address))
            case Arithmetic(left=left, right=right):
                right = None if right is None else self._picked(right)
                return replace(node, left=self._picked(left), right=right)
        return node

    def _completed(self, target: Node) -> Node:
        # Completes a pointer to a structure that is a forward declaration here.
        if not isinstance(target, PointerExpr) or not isinstance(target.handle, int):
            return target
        found = self.btf.resolve(target.handle)
        if not isinstance(found, btf_types.Forward):
            return target
        kind = BtfKind.UNION if found.union else BtfKind.STRUCT
        whole = self.btf.find(found.name, kind)
        if not whole:
            return target
        size = ValueType(ValueClass.BYTES, self.btf.size_of(whole[0]))
        return PointerExpr(target.address, size, target.type, whole[0])


def _piece(
    registers: tuple[int, ...],
    start: int,
    kind: ValueType,
    handle: object = None,
    *,
    returned: bool,
) -> ArgumentValue:
    # An integer in one of the registers of a structure.
    register = Register(registers[start // 8] + start % 8, kind.size)
    return ArgumentValue(AtFunctionReturn(register) if returned else register, kind, handle)


def _start_of(address: Node) -> tuple[RegisterAggregate, int] | None:
    # The structure in registers that an address points into, and the offset.
    match address:
        case RegisterAggregate():
            return address, 0
        case Arithmetic(op="+", left=RegisterAggregate() as held, right=Number(value=offset)):
            return held, offset
        case Arithmetic(op="+", left=Arithmetic() as inner, right=Number(value=offset)):
            found = _start_of(inner)
            return found and (found[0], found[1] + offset)
    return None


@frozen
class _Passed:
    # A parameter or result: its type ID, its resolved type, and its ABI type.
    handle: int
    type: object
    shape: AbiType | None


def _passed(btf: Btf, number: int) -> _Passed:
    found = btf.resolve(number)
    try:
        size = btf.size_of(number)
        align = btf.align_of(number) if size > 8 else 1
    except BtfError:
        return _Passed(number, found, None)
    return _Passed(number, found, AbiType(size, align, isinstance(found, btf_types.Composite)))


def arguments_of(btf: Btf | None, prototype: int, context: CallContextAbi) -> tuple[Argument, ...]:
    """Return the arguments of a function, by name and as ``arg0``…, and ``return``.

    Args:
        btf: the BTF with the prototype; None if there is none.
        prototype: ID of the prototype.
        context: locations of the slots.
    """
    if not context.known:
        return ()
    found = btf.type(prototype) if btf is not None else None
    if btf is None or not isinstance(found, btf_types.FunctionProto):
        return _untyped(context)
    parameters = found.parameters[:-1] if found.variadic else found.parameters
    passed = [_passed(btf, one.type_id) for one in parameters]
    shapes = [one.shape or AbiType(8) for one in passed]
    result = _passed(btf, found.return_type_id).shape
    if result is not None and not context.traced and has_sret(result, context.machine):
        places = context.where([AbiType(8), *shapes])[1:]
    else:
        places = context.where(shapes)
    named, numbered = [], []
    for index, parameter in enumerate(parameters):
        name = parameter.name or f"arg{index}"
        made = _argument(btf, name, passed[index], places[index], context)
        named.append(made)
        if parameter.name:
            numbered.append(_renamed(made, f"arg{index}"))
    before = sum(shape.words for shape in shapes)
    return (*named, *numbered, _result(btf, found.return_type_id, before, context))


def _untyped(context: CallContextAbi) -> tuple[Argument, ...]:
    kind = ValueType(ValueClass.SIGNED, context.word)
    made = [
        Argument(f"arg{number}", kind, context.fetch(number, context.word), hidden=True)
        for number in range(_NUMBERED)
    ]
    result = AtFunctionReturn(context.result(0, context.word))
    return (*made, Argument("return", kind, result, hidden=True))


def _renamed(one: Argument, name: str) -> Argument:
    return Argument(
        name,
        one.type,
        one.fetch,
        hidden=True,
        display=one.display,
        names=one.names,
        handle=one.handle,
    )


def _argument(
    btf: Btf, name: str, passed: _Passed, where: ArgumentWords | None, context: CallContextAbi
) -> Argument:
    word = ValueType(ValueClass.UNSIGNED, context.word)
    if where is None or passed.shape is None:
        reason = f"how {context.machine} passes it is not known"
        return Argument(name, word, Unreadable(reason))
    if isinstance(passed.type, btf_types.Pointer):
        fetch = context.fetch(where.words[0], context.word)
        return Argument(name, word, fetch, display=Display.HEX, handle=passed.handle)
    if isinstance(passed.type, btf_types.Composite):
        size = passed.shape.size
        fetch = context.place(where, size)
        if isinstance(fetch, ContextArea) and size > 8 and fetch.offset in context.halves:
            fetch = ContextArea(fetch.offset, 8)
        return Argument(name, ValueType(ValueClass.BYTES, size), fetch, handle=passed.handle)
    kind = value_type(btf, passed.handle)
    if kind is None:
        return Argument(name, word, Unreadable(f"a number of {passed.shape.size} bytes"))
    names = enum_names(btf.resolve(passed.handle))
    fetch = context.fetch(where.words[0], kind.size)
    return Argument(name, kind, fetch, names=names, handle=passed.handle)


def _result(btf: Btf, number: int, before: int, context: CallContextAbi) -> Argument:
    word = ValueType(ValueClass.UNSIGNED, context.word)
    passed = _passed(btf, number)
    if isinstance(passed.type, btf_types.Void):
        reason = AtFunctionReturn(Unreadable("void: nothing is returned"))
        return Argument("return", word, reason, hidden=True)
    if isinstance(passed.type, btf_types.Pointer):
        fetch = AtFunctionReturn(context.result(before, context.word))
        return Argument("return", word, fetch, hidden=True, display=Display.HEX, handle=number)
    shape = passed.shape
    small = shape is not None and shape.aggregate and 0 < shape.size <= 8 * len(context.results)
    if shape is not None and small:
        kept = AtFunctionReturn(context.result(before, 8))
        whole = ValueType(ValueClass.BYTES, shape.size)
        return Argument("return", whole, kept, hidden=True, handle=number)
    kind = value_type(btf, number)
    if kind is None or kind.size not in _PIECES or kind.size > context.word:
        reason = AtFunctionReturn(Unreadable("a structure, or a number wider than a register"))
        return Argument("return", word, reason, hidden=True)
    fetch = AtFunctionReturn(context.result(before, kind.size))
    names = enum_names(btf.resolve(number))
    return Argument("return", kind, fetch, hidden=True, names=names, handle=number)
