"""Typed values at known locations → arguments of probes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.arch.abi import NotReadable, Passed, PassedInRegisters
from usdt.arch.locations import Address, AtFunctionReturn, Memory, Unreadable, ValueClass, ValueType
from usdt.base.errors import BtfError
from usdt.base.frozen import frozen
from usdt.btf import types as btf_types
from usdt.engine.compiler.arguments import Argument, Display
from usdt.engine.compiler.ir import BtfType, ByAddress, InRegisters
from usdt.engine.compiler.resolve.btf_types import enum_names, is_wide, value_type

if TYPE_CHECKING:
    from usdt.uprobes.debug_info import Debug

__all__ = ("ParameterInfo", "TypedArguments", "location_text", "lost_argument", "problem_of")


@frozen
class ParameterInfo:
    """A parameter or result, as ``usdt info`` shows it.

    Attributes:
        name: name of the parameter, or ``return``.
        type: its type in the source language.
        where: its location as text.
        argument: the probe argument.
        local: whether it is a local variable, not a parameter or result.
    """

    name: str
    type: str
    where: str
    argument: Argument
    local: bool = False


class TypedArguments:
    """Makes arguments of values with the types of debug information.

    Args:
        debug: the debug information.
    """

    def __init__(self, debug: Debug) -> None:
        self.debug = debug

    def argument(
        self, name: str, number: int, passed: Passed, *, returned: bool = False
    ) -> Argument:
        """Return the argument with a name, a type and a location."""
        kind = self.value_type(number)
        whole = kind or ValueType(ValueClass.BYTES, self.size_of(number))
        if isinstance(passed, NotReadable):
            return lost_argument(name, whole, passed.reason, returned=returned)
        if isinstance(passed, PassedInRegisters):
            return self._spread(name, number, passed, kind, returned=returned)
        location = passed.register
        fetch: Any
        if passed.displacement is None:
            fetch = AtFunctionReturn(location) if returned else location
            return Argument(name, whole, fetch, type_ref=ByAddress(number))
        size = whole.size if kind is not None else location.size
        if passed.pointer:
            fetch = Memory(
                location.offset, None, 1, passed.displacement, location.size, location.size
            )
            return Argument(name, whole, fetch, type_ref=ByAddress(number))
        found = self.debug.btf.resolve(number)
        shown = (btf_types.Composite, btf_types.Array, btf_types.Int)  # Int: __int128
        if kind is None and not isinstance(found, shown):
            # A long double is shown as bytes.
            fetch = Memory(location.offset, None, 1, passed.displacement, location.size, whole.size)
            return Argument(name, whole, fetch)
        if kind is None:
            fetch = Address(location.offset, passed.displacement, location.size, location.size)
            return Argument(name, whole, fetch, type_ref=ByAddress(number))
        fetch = Memory(location.offset, None, 1, passed.displacement, location.size, size)
        return Argument(name, kind, fetch, names=self._names(number), type_ref=BtfType(number))

    def _spread(
        self,
        name: str,
        number: int,
        passed: PassedInRegisters,
        kind: ValueType | None,
        *,
        returned: bool,
    ) -> Argument:
        pieces = passed.pieces
        if kind is not None and len(pieces) == 1 and pieces[0].size == kind.size:
            register = pieces[0].register
            if register is None:
                return lost_argument(name, kind, pieces[0].problem, returned=returned)
            fetch = AtFunctionReturn(register) if returned else register
            display = Display.HEX if self._is_pointer(number) else Display.INTEGER
            names = self._names(number)
            return Argument(
                name, kind, fetch, display=display, names=names, type_ref=BtfType(number)
            )
        whole = ValueType(ValueClass.BYTES, self.debug.btf.size_of(number))
        register = next((one.register for one in pieces if one.register is not None), None)
        if register is None:
            reason = pieces[0].problem if pieces else "it is empty"
            return lost_argument(name, whole, reason, returned=returned)
        fetch = AtFunctionReturn(register) if returned else register
        return Argument(name, whole, fetch, type_ref=InRegisters(number, pieces, returned=returned))

    def is_number(self, argument: Argument) -> bool:
        """Return whether an argument is an integer of any size; pointers are none."""
        if argument.type.kind in (ValueClass.SIGNED, ValueClass.UNSIGNED):
            return argument.display is not Display.HEX
        reference = argument.type_ref
        if not isinstance(reference, InRegisters | ByAddress):
            return False
        return is_wide(self.debug.btf.resolve(reference.id))

    def size_of(self, number: int) -> int:
        """Return the size of a type in bytes; 0 if it is only declared."""
        try:
            return self.debug.btf.size_of(number)
        except BtfError:  # only declared
            return 0

    def _is_pointer(self, number: int) -> bool:
        return isinstance(self.debug.btf.resolve(number), btf_types.Pointer)

    def _names(self, number: int) -> Any:
        return enum_names(self.debug.btf.resolve(number))

    def value_type(self, number: int) -> ValueType | None:
        """Return the class and size of a type of numbers or pointers; None for other types."""
        found = self.debug.btf.resolve(number)
        if isinstance(found, btf_types.Pointer):
            return ValueType(ValueClass.UNSIGNED, self.debug.btf.size_of(number))
        if isinstance(found, btf_types.Float) and found.size in (4, 8):
            return ValueType(ValueClass.FLOAT, found.size)
        return value_type(self.debug.btf, number)


def lost_argument(name: str, kind: ValueType, reason: str, *, returned: bool = False) -> Argument:
    """Return an argument that cannot be read.

    An unreadable result keeps its location, so that the probe fires at the return.
    """
    lost = Unreadable(reason)
    if returned:
        return Argument(name, ValueType(ValueClass.UNSIGNED, 8), AtFunctionReturn(lost))
    return Argument(name, kind, lost)


def problem_of(argument: Argument) -> str:
    """Return why an argument cannot be read at all; "" if it or a part of it can."""
    fetch = (
        argument.fetch.register if isinstance(argument.fetch, AtFunctionReturn) else argument.fetch
    )
    return fetch.reason if isinstance(fetch, Unreadable) else ""


def location_text(argument: Argument, passed: Passed) -> str:
    """Return the location of an argument as text."""
    problem = problem_of(argument)
    if problem:
        return f"not readable: {problem}"
    problems = (
        [one for one in passed.pieces if one.problem]
        if isinstance(passed, PassedInRegisters)
        else []
    )
    if problems:
        return f"{passed.where}; {problems[0].name} not readable"
    return passed.where
