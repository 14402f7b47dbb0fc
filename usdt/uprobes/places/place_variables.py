"""Parameters and local variables at places inside functions → arguments of probes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.arch.abi import NotReadable
from usdt.arch.locations import Constant, Register, ValueClass, ValueType
from usdt.base.errors import BtfError, TracingError
from usdt.btf import types as btf_types
from usdt.dwarf.units.constants import Op
from usdt.dwarf.units.forms import read_sleb128
from usdt.engine.compiler.arguments import Argument, Display
from usdt.engine.compiler.ir import ArgumentValue, BtfType, ByAddress, Node, Number, children
from usdt.engine.compiler.resolve.btf_types import enum_names
from usdt.uprobes.places.dwarf_locations import Computed, Surroundings, location_at
from usdt.uprobes.typed_arguments import ParameterInfo, location_text, lost_argument
from usdt.uprobes.variables import address_location

if TYPE_CHECKING:
    from usdt.arch.locations import Location
    from usdt.dwarf.places.locals import LocalDebug
    from usdt.dwarf.places.scopes import CodePlace
    from usdt.uprobes.debug_info import Debug
    from usdt.uprobes.places.dwarf_locations import DwarfLocation
    from usdt.uprobes.places.probe_function import ProbeFunction
    from usdt.uprobes.typed_arguments import TypedArguments

__all__ = ("PlaceVariables",)

_NOT_STORED = "not stored yet: this instruction is in the function's prologue"
_NO_FRAME = "the unwind table does not say where the frame of its function is"


class PlaceVariables:
    """The parameters and local variables at places inside functions.

    Args:
        debug: the debug information.
        typed: makes arguments of values with types.
    """

    def __init__(self, debug: Debug, typed: TypedArguments) -> None:
        self._debug = debug
        self._typed = typed
        self._known: dict[int, list[ParameterInfo]] = {}

    def variables(self, function: ProbeFunction) -> list[ParameterInfo]:
        """Return what is in scope at a place: parameters in order, then variables.

        Raises:
            TracingError: the debug information is damaged.
        """
        place = function.place or self._debug.place(function.address)
        if place is None:
            return []
        return [self._info(one, place) for one in self._debug.locals(place)]

    def _info(self, one: LocalDebug, place: CodePlace) -> ParameterInfo:
        try:
            argument, where = self._argument(one, place)
            kind = self._debug.text(one.type_id, one.language) if one.type_id else "?"
        except BtfError as err:
            argument, where = lost_argument(one.name, _NO_BYTES, str(err)), str(err)
            kind = "?"
        return ParameterInfo(one.name, kind, where, argument, local=not one.parameter)

    def _argument(self, one: LocalDebug, place: CodePlace) -> tuple[Argument, str]:
        found = self._location(one, place)
        if not isinstance(found, Computed):
            argument = self._typed.argument(one.name, one.type_id, found)
            return argument, location_text(argument, found)
        return self._computed(one, found), found.where

    def _location(self, one: LocalDebug, place: CodePlace) -> DwarfLocation:
        if not one.type_id:
            return NotReadable("its type is not in the debug information")
        if one.value is not None:
            return Computed(Number(one.value, _WORD))
        if one.problem or one.expression is None:
            return NotReadable(one.problem)
        if place.prologue and not one.listed and _in_frame(one):
            return NotReadable(_NOT_STORED)
        around = Surroundings(
            self._debug.machine,
            one.unit,
            one.frame_base,
            functools.partial(self._frame_address, place.address),
            functools.partial(self._static, place.address),
        )
        return location_at(one.expression, self._typed.size_of(one.type_id), around)

    def _computed(self, one: LocalDebug, found: Computed) -> Argument:
        kind = self._typed.value_type(one.type_id)
        base = _register_in(found.node)
        size = self._typed.size_of(one.type_id)
        if found.by_address:
            whole = kind or ValueType(ValueClass.BYTES, size)
            return Argument(one.name, whole, base, type_ref=ByAddress(one.type_id, found.node))
        if kind is None or kind.kind is ValueClass.FLOAT:
            reason = "a value that is computed from registers, of a type that is no integer"
            return lost_argument(one.name, ValueType(ValueClass.BYTES, size), reason)
        number = self._debug.btf.resolve(one.type_id)
        display = Display.HEX if isinstance(number, btf_types.Pointer) else Display.INTEGER
        return Argument(
            one.name,
            kind,
            base,
            display=display,
            names=enum_names(number),
            type_ref=BtfType(one.type_id, found.node),
        )

    def _frame_address(self, address: int) -> tuple[str, int] | bytes:
        found = self._debug.frame_address(address)
        if found is None:
            raise TracingError(_NO_FRAME)
        return found

    def _static(self, code: int, address: int) -> Location:
        return address_location(self._debug.elf, address - self._debug.bias, code)


_WORD = ValueType(ValueClass.UNSIGNED, 8)
_NO_BYTES = ValueType(ValueClass.BYTES, 0)


def _in_frame(one: LocalDebug) -> bool:
    # Whether it is in the function's own frame, not among the arguments that its caller has stored.
    expression = one.expression or b""
    if not expression or expression[0] != Op.FBREG:
        return False
    offset, _ = read_sleb128(expression, 1)
    return one.frame_base != bytes((Op.CALL_FRAME_CFA,)) or offset < 0


def _register_in(node: Node) -> Location:
    # A location for the argument, which is not read: the expression is.
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ArgumentValue) and isinstance(one.fetch, Register):
            return one.fetch
        waiting += children(one)
    return Constant(0)
