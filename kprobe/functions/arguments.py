"""A function's arguments and result, by its prototype in BTF: names, types, and where they are.

Where they are depends on how the kernel is asked: a program on a kprobe finds registers as the
function was entered, one on fentry every argument in a word of its own. What is known of a function
without BTF is that its arguments are words.
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
# Where the second word of a structure is that two registers return.
_SECOND_RESULT = {
    "x86_64": "rdx",
    "aarch64": "x1",
    "riscv64": "a1",
    "loongarch64": "r5",
    "ppc64le": "r4",
}


class CallContextAbi:
    """Where a program finds the words of a call.

    Args:
        traced: whether it is fentry's context; else registers, as a kprobe has them.
        machine: the kernel's CPU.
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
        """How a function's entry and return find one another."""
        if self.traced:
            return EntryReturnMatch(None)
        pointer = Register(self._slots[self._convention.sp], self.word)
        # What a return takes off the stack where no register holds the address to return to.
        return EntryReturnMatch(pointer, (self.word if self._convention.link is None else 0,))

    @property
    def halves(self) -> dict[int, int]:
        """Offset of a register → that of the next argument's, where they are no neighbours."""
        if self.traced or not self.known:
            return {}
        slots = [self._slots[name] for name in self._convention.arguments]
        return {one: other for one, other in pairwise(slots) if other != one + self.word}

    @property
    def results(self) -> tuple[int, ...]:
        """Offsets of the registers that a structure is returned in; () if it is not known."""
        if self.traced or self.machine not in _SECOND_RESULT:
            return ()
        names = self._convention.result, _SECOND_RESULT[self.machine]
        return tuple(self._slots[name] for name in names)

    def where(self, shapes: list[AbiType]) -> list[ArgumentWords | None]:
        """The words of arguments."""
        return fentry_words(shapes) if self.traced else call_words(shapes, self.machine)

    def fetch(self, number: int, size: int) -> Location:
        """The first bytes of a word as a number of so many bytes is passed in it."""
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
        """The address of a structure: of its words, wherever they are."""
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
        """The result; ``number``: of words before it in the context of fexit."""
        shift = self.word - size if self._big else 0
        if self.traced:
            return TypedContextWord(self.word * number + shift, size)
        return Register(self._slots[self._convention.result] + shift, size)


class FunctionTypes(BtfTypes):
    """A :class:`usdt.engine.compiler.scope.TypeProvider` that knows structures passed by value.

    Args:
        source: gives the BTF.
        context: knows the registers of structures, which need not follow one another.
    """

    def __init__(self, source: Callable[[], Btf], context: CallContextAbi) -> None:
        super().__init__(source)
        self._halves = context.halves
        self._results = context.results
        self._held: dict[Node, tuple[tuple[int, ...], bool]] = {}

    def argument(self, argument: Argument, node: Node) -> Node:
        """A structure is a place, whose address its fetch is."""
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
        # The bytes of a structure in registers, in pieces that are numbers.
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
        """A member of a structure in registers is in one of them."""
        found = super().member(tree, self._completed(target))
        if found is not None and isinstance(target, LValue) and _start_of(target.address):
            return self._picked(found)
        return found

    def _picked(self, node: Node) -> Node:
        # What would be read where a structure would lie is in a register.
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
        # A pointer to a structure that is only named here, and described elsewhere in the BTF.
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
    # A number in one of the registers that hold a structure.
    register = Register(registers[start // 8] + start % 8, kind.size)
    return ArgumentValue(AtFunctionReturn(register) if returned else register, kind, handle)


def _start_of(address: Node) -> tuple[RegisterAggregate, int] | None:
    # A structure in registers, and how far in it an address would be.
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
    # A parameter or a result: its type's ID, what it resolves to, its shape.
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
    """The arguments of a function, by name and as ``arg0``…, and ``return``.

    Args:
        btf: whose types the prototype is of; None: nothing is known of it.
        prototype: its ID.
        context: where a program finds its words.
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
        reason = f"where {context.machine} passes it is not known"
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
