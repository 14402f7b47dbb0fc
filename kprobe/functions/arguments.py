"""Arguments and result of a kernel function, by its prototype in BTF: names, types, locations.

The locations depend on the attach method. The context of a kprobe has the registers at the
function's entry (:mod:`usdt.arch.abi`). That of fentry has the words of each argument in order
(btf_ctx_access()). Without BTF, each argument is assumed to fill one register or stack slot.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, assert_never

from usdt.arch.abi import NotReadable, PassedInMemory, PassedInRegisters, Value, passing_of
from usdt.arch.calling_convention import KERNEL_CONVENTIONS
from usdt.arch.locations import (
    VOID,
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
from usdt.base.frozen import replace
from usdt.base.machine import BIG_ENDIAN, KERNEL_MACHINE, word_size
from usdt.btf import types as btf_types
from usdt.engine.compiler.arguments import Argument, Display
from usdt.engine.compiler.entry_return import EntryReturnMatch
from usdt.engine.compiler.ir import BtfType, ByAddress, InRegisters
from usdt.engine.compiler.resolve.btf_types import enum_names, value_type

if TYPE_CHECKING:
    from usdt.arch.abi import Passed
    from usdt.arch.locations import Location
    from usdt.btf.reader import Btf

__all__ = ("CallContextAbi", "arguments_of")

_NUMBERED = 16  # arguments of a function without BTF
_EMPTY = Unreadable("a structure without members")
# __kretprobe_trampoline() of arch/arm/probes/kprobes/core.c saves no stack pointer.
_ARM_RETURNS = "the stack pointer at a return, which tells whose entry it belongs to (32-bit ARM),"


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
        popped = self.word if self._convention.link is None else 0
        unmatched = _ARM_RETURNS if self.machine in ("arm", "armeb") else ""
        return EntryReturnMatch(pointer, (popped,), unmatched=unmatched)

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

    def locations(
        self, btf: Btf, parameters: list[int], result: int
    ) -> tuple[list[Location | PassedInRegisters], Passed]:
        """Return the locations of parameters at entry, and of the result at return.

        A structure in memory has the location of its address. One in registers that are adjacent
        in the context is an area of the context.

        Args:
            btf: the types.
            parameters: their type IDs.
            result: type ID of the result; 0 for void.
        """
        if self.traced:
            return self._fentry_locations(btf, parameters), NotReadable(
                "fexit keeps one word of it"
            )
        values = [Value(number) for number in parameters]
        locations, returned = passing_of(btf, self.machine, values, Value(result), kernel=True)
        return [
            self._location(passed, btf, number)
            for passed, number in zip(locations, parameters, strict=True)
        ], returned

    def _fentry_locations(
        self, btf: Btf, parameters: list[int]
    ) -> list[Location | PassedInRegisters]:
        found: list[Location | PassedInRegisters] = []
        slot = 0
        for number in parameters:
            size = btf.size_of(number)
            at = self.word * slot + (self.word - size if self._big and size < self.word else 0)
            if isinstance(btf.resolve(number), btf_types.Composite):
                found.append(ContextArea(at, size) if size else _EMPTY)
            else:
                found.append(TypedContextWord(at, size))
            slot += _words(size)
        return found

    def _location(self, passed: Passed, btf: Btf, number: int) -> Location | PassedInRegisters:
        whole = isinstance(btf.resolve(number), btf_types.Composite)
        match passed:
            case NotReadable(reason=reason):
                return Unreadable(reason)
            case PassedInRegisters(pieces=()):
                return _EMPTY
            case PassedInRegisters(pieces=pieces):
                locations = [one.register for one in pieces if one.register is not None]
                if not whole and len(locations) == 1:
                    return locations[0]
                if any(two.offset != one.offset + self.word for one, two in pairwise(locations)):
                    return passed
                return ContextArea(locations[0].offset, sum(one.size for one in locations))
            case PassedInMemory(register=register, displacement=displacement, pointer=pointer):
                if displacement is None:
                    return register
                if whole and not pointer:
                    return Address(register.offset, displacement, self.word, self.word)
                size = self.word if pointer else btf.size_of(number)
                base = register.offset
                return Memory(base, None, 1, displacement, self.word, size, kernel=True)
            case _:
                assert_never(passed)

    def result(self, number: int, size: int) -> Register | TypedContextWord:
        """Return the location of the result; ``number`` slots precede it in fexit's context."""
        shift = self.word - size if self._big else 0
        if self.traced:
            return TypedContextWord(self.word * number + shift, size)
        return Register(self._slots[self._convention.result] + shift, size)


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
    types = [one.type_id for one in parameters]
    locations, returned = context.locations(btf, types, found.return_type_id)
    named, numbered = [], []
    for index, parameter in enumerate(parameters):
        name = parameter.name or f"arg{index}"
        made = _argument(btf, name, parameter.type_id, locations[index], context)
        named.append(made)
        if parameter.name:
            numbered.append(replace(made, name=f"arg{index}", hidden=True))
    before = sum(_words(btf.size_of(number)) for number in types)
    return (*named, *numbered, _result(btf, found.return_type_id, returned, before, context))


def _untyped(context: CallContextAbi) -> tuple[Argument, ...]:
    kind = ValueType(ValueClass.SIGNED, context.word)
    made = [
        Argument(f"arg{number}", kind, context.fetch(number, context.word), hidden=True)
        for number in range(_NUMBERED)
    ]
    result = AtFunctionReturn(context.result(0, context.word))
    return (*made, Argument("return", kind, result, hidden=True))


def _argument(
    btf: Btf,
    name: str,
    number: int,
    location: Location | PassedInRegisters,
    context: CallContextAbi,
) -> Argument:
    found = btf.resolve(number)
    word = ValueType(ValueClass.UNSIGNED, context.word)
    if isinstance(found, btf_types.Composite):
        whole = ValueType(ValueClass.BYTES, found.size)
        if isinstance(location, PassedInRegisters):
            return _in_registers(name, whole, found.id, location)
        return Argument(name, whole, location, type_ref=ByAddress(found.id))
    is_pointer = isinstance(found, btf_types.Pointer)
    kind = word if is_pointer else value_type(btf, number)
    if isinstance(location, Unreadable):
        return Argument(name, word, location)
    if kind is None or isinstance(location, PassedInRegisters):
        return Argument(name, word, Unreadable(f"a number of {btf.size_of(number)} bytes"))
    display = Display.HEX if is_pointer else Display.INTEGER
    names = enum_names(found)
    return Argument(name, kind, location, display=display, names=names, type_ref=BtfType(number))


def _in_registers(
    name: str, whole: ValueType, number: int, location: PassedInRegisters, *, returned: bool = False
) -> Argument:
    first = location.pieces[0].register or Unreadable(location.pieces[0].problem)
    held = InRegisters(number, location.pieces, returned=returned)
    if returned:
        return Argument(name, whole, AtFunctionReturn(first), hidden=True, type_ref=held)
    return Argument(name, whole, first, type_ref=held)


def _result(
    btf: Btf, number: int, passed: Passed, before: int, context: CallContextAbi
) -> Argument:
    word = ValueType(ValueClass.UNSIGNED, context.word)
    found = btf.resolve(number)
    if isinstance(found, btf_types.Void):
        return Argument("return", word, AtFunctionReturn(VOID), hidden=True)
    if (
        isinstance(found, btf_types.Composite)
        and isinstance(passed, PassedInRegisters)
        and passed.pieces
    ):
        whole = ValueType(ValueClass.BYTES, found.size)
        return _in_registers("return", whole, found.id, passed, returned=True)
    is_pointer = isinstance(found, btf_types.Pointer)
    kind = word if is_pointer else value_type(btf, number)
    if kind is None or kind.size > context.word:
        reason = AtFunctionReturn(Unreadable("a structure, or a number wider than a register"))
        return Argument("return", word, reason, hidden=True)
    fetch = AtFunctionReturn(context.result(before, kind.size))
    display = Display.HEX if is_pointer else Display.INTEGER
    return Argument(
        "return",
        kind,
        fetch,
        hidden=True,
        display=display,
        names=enum_names(found),
        type_ref=BtfType(number),
    )


def _words(size: int) -> int:
    return -(-size // 8)
