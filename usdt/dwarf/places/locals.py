"""The parameters and local variables of a place, and the locations that debug information gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.dwarf.places.location_lists import expression_at, is_list
from usdt.dwarf.types import functions as fn
from usdt.dwarf.types.variables import location_of
from usdt.dwarf.units.constants import At, Tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.dwarf.index.files import DiePosition
    from usdt.dwarf.places.scopes import CodePlace
    from usdt.dwarf.types.dwarf_btf import DwarfTypes
    from usdt.dwarf.units.dies import Die
    from usdt.dwarf.units.units import Unit

__all__ = ("OPTIMIZED_OUT", "LocalDebug", "LocalFinder")

OPTIMIZED_OUT = "optimized out here"
_MAX_LOCALS = 1 << 12  # of a place


@frozen
class LocalDebug:
    """A parameter or a local variable at a place, from debug information.

    Attributes:
        name: its name.
        type_id: its type; 0 if the type is not known.
        parameter: whether it is a parameter of the place's function.
        language: the language of the source, as in ``FunctionDebug``.
        expression: the DWARF expression of its location; None if it has none here.
        listed: whether the expression is that of these addresses alone, from a location list.
        value: its value, if it is a constant.
        static: whether its location is the same at all places.
        problem: why its value is not known here; "" if it is.
        frame_base: the expression of the frame base; b"" if there is none.
        unit: the unit of its entry, for the addresses in expressions.
    """

    name: str
    type_id: int
    parameter: bool
    language: str
    expression: bytes | None
    listed: bool
    value: int | None
    static: bool
    problem: str
    frame_base: bytes
    unit: Unit


class LocalFinder:
    """Finds the local variables of places.

    Args:
        types: the program's types.
        die: returns the entry at a position.
        bias: difference between addresses in the debug information and those in the program.
    """

    def __init__(self, types: DwarfTypes, die: Callable[[DiePosition], Die], bias: int) -> None:
        self._types = types
        self._die = die
        self._bias = bias

    def find(self, place: CodePlace) -> list[LocalDebug]:
        """Return the variables in scope at a place: parameters in order, then inner blocks first.

        An inner variable hides outer ones of its name.

        Raises:
            DwarfError: an entry is damaged.
            LookupError: likewise.
        """
        address = place.address + self._bias
        base = expression_at(self._die(place.frame), address, At.FRAME_BASE) or b""
        found: dict[str, LocalDebug] = {}
        for position in place.scopes:
            for name, die in self._entries(self._die(position)):
                if name not in found and len(found) < _MAX_LOCALS:
                    found[name] = self._read(name, die, address, base)
        outermost = self._die(place.scopes[-1])
        order = [name for name, _ in _named(outermost, Tag.PARAMETER)]
        order = [name for name in order if name in found and found[name].parameter]
        return [found[name] for name in dict.fromkeys((*order, *found))]

    def _entries(self, scope: Die) -> Iterator[tuple[str, Die]]:
        # What the compiler has removed may only be in the scope that this one is a copy of.
        seen = set()
        for one in scope.origins():
            named = list(_named(one, Tag.PARAMETER, Tag.VARIABLE))
            for name, die in sorted(named, key=lambda pair: pair[1].raw(At.LOCATION) is None):
                if name not in seen:
                    seen.add(name)
                    yield name, die

    def _read(self, name: str, die: Die, address: int, base: bytes) -> LocalDebug:
        located = fn.first(die, At.LOCATION)
        constant = fn.first(die, At.CONST_VALUE)
        static = located is not None and location_of(located) is not None
        expression = None
        if located is not None:
            expression = expression_at(located, address)
        value = None if constant is None or expression else self._constant(constant)
        problem = "" if expression or value is not None else OPTIMIZED_OUT
        if constant is not None and not expression and value is None:
            problem = "a constant of an unsupported form"
        return LocalDebug(
            name,
            self._type_of(die),
            die.tag == Tag.PARAMETER,
            fn.language_of(die),
            expression or None,
            located is not None and is_list(located),
            value,
            static and bool(expression),
            problem,
            base,
            die.unit,
        )

    def _type_of(self, die: Die) -> int:
        typed = fn.first(die, At.TYPE)
        target = None if typed is None else typed.target(At.TYPE)
        return 0 if target is None else self._types.id_of(target)

    def _constant(self, die: Die) -> int | None:
        return die.number(At.CONST_VALUE)


def _named(scope: Die, *tags: int) -> Iterator[tuple[str, Die]]:
    for child in scope.children(*tags):
        name = fn.text(child, At.NAME)
        if name and fn.first(child, At.DECLARATION) is None:
            yield name, child
