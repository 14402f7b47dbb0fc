"""Parameters of functions by name and type, from debug information."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.arch.abi import NotReadable, Passed, Value, passing_of
from usdt.arch.locations import Unreadable
from usdt.base.errors import BtfError, TracingError
from usdt.base.frozen import frozen, replace
from usdt.btf import types as btf_types
from usdt.engine.compiler.arguments import Argument
from usdt.uprobes.dwarf_types import DwarfTypeProvider
from usdt.uprobes.places.place_variables import PlaceVariables
from usdt.uprobes.typed_arguments import (
    ParameterInfo,
    TypedArguments,
    location_text,
    problem_of,
)

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


_WITHOUT = "arg0… and return work without names"


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

    Attributes:
        typed: makes the arguments.
    """

    def __init__(self, debug: Debug) -> None:
        self.debug = debug
        self._types = {
            rust: DwarfTypeProvider(lambda: debug, debug.machine, rust=rust)
            for rust in (False, True)
        }
        self._known: dict[tuple[int, str], FunctionDebug | None] = {}
        self.typed = TypedArguments(debug)
        self._places = PlaceVariables(debug, self.typed)

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

    def unknown_reason(self, function: ProbeFunction) -> str:
        """Return why the parameters of a function are not known; "" if they are.

        Raises:
            TracingError: its description is damaged.
        """
        if self.missing_reason:
            return self.missing_reason
        if function.is_go:
            return f"those of Go functions are not read by name; {_WITHOUT}"
        if self.described(function) is not None:
            return ""
        if self.debug.function(function.start, function.symbol) is not None:
            return f"it is assembler code; {_WITHOUT}"
        return f"no debug information describes it; {_WITHOUT}"

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
        if function.inside:
            return self._places.variables(function)
        if found is None or function.is_go:
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

    def _parameters(self, function: ProbeFunction, found: FunctionDebug) -> list[ParameterInfo]:
        locations, result = self._locations(found)
        shown = []
        for number, (one, passed) in enumerate(zip(found.parameters, locations, strict=True)):
            name = one.name or f"arg{number}"
            argument = self.typed.argument(name, one.type_id, passed, returned=False)
            declared = self._declared(one, found.language)
            where = location_text(argument, passed)
            shown.append(ParameterInfo(name, declared, where, argument))
        if found.returns and not self._is_unknown(found.returns):
            argument = self.typed.argument("return", found.returns, result, returned=True)
            if function.no_return:
                result = NotReadable(function.no_return)
                argument = Argument("return", argument.type, Unreadable(function.no_return))
            kind = self.debug.text(found.returns, found.language)
            argument = replace(argument, hidden=True)  # only shown if an item names it
            shown.append(ParameterInfo("return", kind, location_text(argument, result), argument))
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

    def _is_unknown(self, number: int) -> bool:
        # True for an unknown type; such a result is read as a word, as without debug information.
        return isinstance(self.debug.btf.type(number), btf_types.Unknown)
