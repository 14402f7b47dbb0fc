"""Parameters of functions by name and type, from debug information."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.arch.abi import NotReadable, Passed, PassedInRegisters, Value, passing_of
from usdt.arch.locations import Address, AtFunctionReturn, Memory, Unreadable, ValueClass, ValueType
from usdt.base.errors import BtfError, TracingError
from usdt.base.frozen import frozen, replace
from usdt.btf import types as btf_types
from usdt.engine.compiler.arguments import Argument, Display
from usdt.engine.compiler.ir import BtfType, ByAddress, InRegisters
from usdt.engine.compiler.resolve.btf_types import enum_names, is_wide, value_type
from usdt.uprobes.dwarf_types import DwarfTypeProvider

if TYPE_CHECKING:
    from usdt.dwarf.info import FunctionDebug, ParameterDebug
    from usdt.uprobes.debug_info import Debug
    from usdt.uprobes.functions import ProbeFunction

__all__ = (
    "DebugParameters",
    "ParameterInfo",
    "Prototype",
    "problem_of",
)

_ADDRESS = ValueType(ValueClass.UNSIGNED, 8)


@frozen
class ParameterInfo:
    """A parameter or result, as ``usdt info`` shows it.

    Attributes:
        name: name of the parameter, or ``return``.
        type: its type in the source language.
        where: its location as text.
        argument: the probe argument.
    """

    name: str
    type: str
    where: str
    argument: Argument


@frozen
class Prototype:
    """A function, as ``usdt info`` shows it.

    Attributes:
        declaration: its prototype in the source language.
        file: the source file; "" if unknown.
        line: the line in the file; 0 if unknown.
        language: ``c``, ``c++``, ``rust``…
        parameters: the parameters in order, then the result, if there is one.
    """

    declaration: str
    file: str
    line: int
    language: str
    parameters: tuple[ParameterInfo, ...]

    @property
    def returns(self) -> ParameterInfo | None:
        """The result, or None."""
        return next((one for one in self.parameters if one.name == "return"), None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of ``usdt info --json``."""
        return {
            "prototype": self.declaration,
            "file": self.file or None,
            "line": self.line or None,
            "language": self.language,
            "parameters": [
                {
                    "name": one.name,
                    "type": one.type,
                    "where": one.where,
                    "readable": not problem_of(one.argument),
                }
                for one in self.parameters
            ],
        }


class DebugParameters:
    """The functions in a file's debug information.

    Args:
        debug: the debug information.
    """

    def __init__(self, debug: Debug) -> None:
        self.debug = debug
        self._types = {
            rust: DwarfTypeProvider(lambda: debug, debug.machine, rust=rust)
            for rust in (False, True)
        }
        self._known: dict[tuple[int, str], FunctionDebug | None] = {}

    def types(self, function: ProbeFunction | None = None) -> DwarfTypeProvider:
        """Return the provider of types and members for a function's language."""
        found = None if function is None else self.described(function)
        return self._types[found is not None and found.language == "rust"]

    def described(self, function: ProbeFunction) -> FunctionDebug | None:
        """Return the description of a function, or None if it has none.

        Raises:
            TracingError: the description is damaged.
        """
        key = function.start, function.symbol
        if key not in self._known:
            found = self.debug.function(*key)
            # Debug information of assembler code has no parameters.
            self._known[key] = None if found and found.language == "assembler" else found
        return self._known[key]

    @property
    def missing_reason(self) -> str:
        """The part of the debug information that is missing; "" if it is complete."""
        return self.debug.missing_reason

    def arguments(self, function: ProbeFunction) -> tuple[Argument, ...]:
        """Return the named arguments of a function and ``return``; empty if nothing is known.

        Raises:
            TracingError: its description is damaged.
        """
        return tuple(one.argument for one in self.parameters(function))

    def parameters(self, function: ProbeFunction) -> list[ParameterInfo]:
        """Return the parameters of a function in order, then its result if it has one.

        Raises:
            TracingError: its description is damaged.
        """
        found = self.described(function)
        if found is None or function.is_go or function.offset_in_function:
            return []
        try:
            return self._parameters(function, found)
        except BtfError as err:
            raise TracingError(f"{function.path}: {function.name}: {err}") from err

    def prototype(self, function: ProbeFunction) -> Prototype | None:
        """Return the prototype of a function; None if it is unknown.

        Raises:
            TracingError: its description is damaged.
        """
        found = self.described(function)
        if found is None:
            return None
        shown = tuple(self.parameters(function))
        return Prototype(found.declaration, found.file, found.line, found.language, shown)

    def is_number(self, argument: Argument) -> bool:
        """Return whether an argument is an integer of any size; pointers are none."""
        if argument.type.kind in (ValueClass.SIGNED, ValueClass.UNSIGNED):
            return argument.display is not Display.HEX
        reference = argument.type_ref
        if not isinstance(reference, InRegisters | ByAddress):
            return False
        return is_wide(self.debug.btf.resolve(reference.id))

    def _parameters(self, function: ProbeFunction, found: FunctionDebug) -> list[ParameterInfo]:
        locations, result = self._locations(found)
        shown = []
        for number, (one, passed) in enumerate(zip(found.parameters, locations, strict=True)):
            name = one.name or f"arg{number}"
            argument = self._argument(name, one.type_id, passed, returned=False)
            shown.append(
                ParameterInfo(
                    name, self._declared(one, found.language), _where(argument, passed), argument
                )
            )
        if found.returns and not self._is_unknown(found.returns):
            argument = self._argument("return", found.returns, result, returned=True)
            if function.no_return:
                result = NotReadable(function.no_return)
                argument = Argument("return", argument.type, Unreadable(function.no_return))
            kind = self.debug.text(found.returns, found.language)
            argument = replace(argument, hidden=True)  # only shown if an item names it
            shown.append(ParameterInfo("return", kind, _where(argument, result), argument))
        return shown

    def _declared(self, one: ParameterDebug, language: str) -> str:
        return "?" if one.problem else self.debug.text(one.type_id, language)

    def _locations(self, found: FunctionDebug) -> tuple[list[Passed], Passed]:
        if found.problem:
            lost = NotReadable(found.problem)
            return [lost for _ in found.parameters], lost
        values: list[Value] = []
        for number, one in enumerate(found.parameters):
            if one.problem or not one.type_id:
                # The locations of all later parameters are unknown as well.
                lost = NotReadable(one.problem or "its type is unknown")
                before, result = self._passing(found, values)
                return before + [lost for _ in found.parameters[number:]], result
            values.append(Value(one.type_id, self.debug.by_reference(one.type_id)))
        return self._passing(found, values)

    def _passing(self, found: FunctionDebug, values: list[Value]) -> tuple[list[Passed], Passed]:
        returns = found.returns
        result = Value(returns, bool(returns) and self.debug.by_reference(returns))
        return passing_of(
            self.debug.btf, self.debug.machine, values, result, rust=found.language == "rust"
        )

    # ------------------------------------------------------------ as arguments

    def _argument(self, name: str, number: int, passed: Passed, *, returned: bool) -> Argument:
        kind = self._value_type(number)
        whole = kind or ValueType(ValueClass.BYTES, self._size(number))
        if isinstance(passed, NotReadable):
            return _lost_argument(name, whole, passed.reason, returned=returned)
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
                return _lost_argument(name, kind, pieces[0].problem, returned=returned)
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
            return _lost_argument(name, whole, reason, returned=returned)
        fetch = AtFunctionReturn(register) if returned else register
        return Argument(name, whole, fetch, type_ref=InRegisters(number, pieces, returned=returned))

    def _size(self, number: int) -> int:
        try:
            return self.debug.btf.size_of(number)
        except BtfError:  # only declared
            return 0

    def _is_unknown(self, number: int) -> bool:
        # True for an unknown type; such a result is read as a word, as without debug information.
        return isinstance(self.debug.btf.type(number), btf_types.Unknown)

    def _is_pointer(self, number: int) -> bool:
        return isinstance(self.debug.btf.resolve(number), btf_types.Pointer)

    def _names(self, number: int) -> Any:
        return enum_names(self.debug.btf.resolve(number))

    def _value_type(self, number: int) -> ValueType | None:
        # The type of a number; None for other types.
        found = self.debug.btf.resolve(number)
        if isinstance(found, btf_types.Pointer):
            return ValueType(ValueClass.UNSIGNED, self.debug.btf.size_of(number))
        if isinstance(found, btf_types.Float) and found.size in (4, 8):
            return ValueType(ValueClass.FLOAT, found.size)
        return value_type(self.debug.btf, number)


def _lost_argument(name: str, kind: ValueType, reason: str, *, returned: bool) -> Argument:
    # An unreadable result keeps its location, so that the probe fires at the return.
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


def _where(argument: Argument, passed: Passed) -> str:
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
