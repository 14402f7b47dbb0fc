"""What debug information says of a function: its parameters in order, with types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.dwarf.units.constants import At, Tag

if TYPE_CHECKING:
    from usdt.dwarf.types.dwarf_btf import DwarfTypes
    from usdt.dwarf.units.dies import Die

__all__ = ("FunctionDebug", "ParameterDebug", "language_of")

_MOST_PARAMETERS = 1 << 10
#: Names that compilers give to copies of functions that take other parameters than their prototype.
_CLONES = (".isra.", ".constprop.", ".part.", ".cold")
_LANGUAGES = {
    **dict.fromkeys((0x0001, 0x0002, 0x000C, 0x001D, 0x002C), "c"),
    **dict.fromkeys((0x0004, 0x001A, 0x0021, 0x002B, 0x003A), "c++"),
    **dict.fromkeys((0x001C, 0x9000), "rust"),
    0x0016: "go",
    0x0013: "d",
    0x0010: "objective-c",
    0x0011: "objective-c++",
    0x0018: "haskell",
    0x001B: "ocaml",
    0x001E: "swift",
    0x001F: "julia",
    0x0027: "zig",
    **dict.fromkeys((0x0007, 0x0008, 0x000E, 0x0022, 0x0023), "fortran"),
    **dict.fromkeys((0x0003, 0x000D), "ada"),
    **dict.fromkeys((0x0009, 0x000A), "pascal"),
    0x8001: "assembler",
}


@frozen
class ParameterDebug:
    """A parameter.

    Attributes:
        name: "" of one without.
        type_id: its type; 0 if that is not known.
        problem: why not, or "".
        artificial: whether the compiler added it, as ``this``.
    """

    name: str
    type_id: int
    problem: str
    artificial: bool


@frozen
class FunctionDebug:
    """A function.

    Attributes:
        name: in the source language, qualified: ``ns::Klass::method``.
        linkage_name: its symbol's, "" where that is the name itself.
        declaration: as the source language writes it.
        file: where it is written; "" if unknown.
        line: there, 0 if unknown.
        parameters: in order.
        returns: type of its result, 0 for void.
        variadic: whether further arguments may follow.
        language: "c", "c++", "rust", "go"…; "" if unknown.
        producer: the compiler's name and options, "" if unknown.
        problem: why the parameters are not where the prototype says, or "".
        address: its entry in the program's own file.
        optimized: whether the unit says that it was; None if it does not.
    """

    name: str
    linkage_name: str
    declaration: str
    file: str
    line: int
    parameters: tuple[ParameterDebug, ...]
    returns: int
    variadic: bool
    language: str
    producer: str
    problem: str
    address: int
    unit: int


def language_of(die: Die) -> str:
    """The language of the unit that an entry is in."""
    root = die.unit.root
    number = die.unit.integer(root, At.LANGUAGE)
    return _LANGUAGES.get(number or 0, "")


def read_parameters(die: Die, types: DwarfTypes) -> tuple[tuple[ParameterDebug, ...], bool]:
    """The parameters, and whether further ones may follow.

    An entry with code may lack parameters that were optimised away: of it and those it completes,
    the one with the most parameters counts. One that it is an instance of has them in order, which
    that of a changed copy (``f.isra.0``) has not.
    """
    best: list[Die] = []
    variadic = instance = False
    for one in die.origins():
        found: list[Die] = []
        for child in one.children(Tag.PARAMETER, Tag.UNSPECIFIED_PARAMETERS):
            if child.tag == Tag.PARAMETER:
                found.append(child)
            else:
                variadic = True
            if len(found) > _MOST_PARAMETERS:
                break
        if len(found) > len(best) or (instance and len(found) == len(best)):
            best = found
        instance = At.ABSTRACT_ORIGIN in one
    return tuple(_parameter(one, types) for one in best), variadic


def _parameter(die: Die, types: DwarfTypes) -> ParameterDebug:
    name, artificial, number, problem = "", False, 0, "its type is not in the debug information"
    try:
        for one in die.origins():
            name = name or one.text()
            artificial = artificial or one.flag(At.ARTIFICIAL)
            if not number:
                target = one.target(At.TYPE)
                if target is not None:
                    number = types.id_of(target)
                    types.type(number)
                    problem = ""
    except TracingError as err:
        number, problem = 0, str(err)
    if not number and types.absent():
        problem = f"its type is in {types.absent()}, which is not here"
    return ParameterDebug(name, number, problem, artificial)


def clone_problem(name: str) -> str:
    """Why a function of such a name does not take what its prototype says; "" if it does."""
    for ending in _CLONES:
        if ending in name:
            return f"the compiler made {name} of it, which takes other parameters ({ending[1:-1]})"
    return ""


def first(die: Die, name: int) -> Die | None:
    """The first of an entry and those it completes that has an attribute."""
    return next((one for one in die.origins() if name in one), None)


def text(die: Die, *names: int) -> str:
    """The first string under some names of an entry and those it completes."""
    for one in die.origins():
        for name in names:
            found = one.text(name)
            if found:
                return found
    return ""
