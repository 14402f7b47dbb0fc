"""The parameters and the result of a function, from its debug information."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.dwarf.units.constants import At, Tag

if TYPE_CHECKING:
    from usdt.dwarf.types.dwarf_btf import DwarfTypes
    from usdt.dwarf.units.dies import Die

__all__ = ("FunctionDebug", "ParameterDebug", "language_of")

_MAX_PARAMETERS = 1 << 10
#: Suffixes of names that compilers give to copies of functions with changed parameters.
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
    """A parameter of a function, from debug information.

    Attributes:
        name: its name; "" if it has none.
        type_id: its type; 0 if the type is not known.
        problem: why the type is not known, or "".
        artificial: True if the compiler added it, like ``this``.
    """

    name: str
    type_id: int
    problem: str
    artificial: bool


@frozen
class FunctionDebug:
    """A function, from debug information.

    Attributes:
        name: qualified name in the source language: ``ns::Klass::method``.
        declaration: the prototype in the source language.
        file: the source file; "" if unknown.
        line: the line in the file; 0 if unknown.
        parameters: the parameters, in order.
        returns: type ID of its result, 0 for void.
        variadic: True if it takes further arguments.
        language: "c", "c++", "rust", "go"…; "" if unknown.
        problem: why the locations of the parameters do not follow from the prototype, or "".
        address: link-time address of its entry in the program's own file.
        unit: number of the unit that contains it.
    """

    name: str
    declaration: str
    file: str
    line: int
    parameters: tuple[ParameterDebug, ...]
    returns: int
    variadic: bool
    language: str
    problem: str
    address: int
    unit: int


def language_of(die: Die) -> str:
    """Return the language of the unit that contains an entry; "" if unknown."""
    root = die.unit.root
    return _LANGUAGES.get(die.unit.integer(root, At.LANGUAGE) or 0, "")


def read_parameters(die: Die, types: DwarfTypes) -> tuple[tuple[ParameterDebug, ...], bool]:
    """Return the parameters, and True if the function takes further arguments.

    An entry with code may lack parameters that the compiler has removed. This function therefore
    uses the entry or origin with the most parameters. Among equals, it prefers an abstract origin,
    which has the parameters in order; a changed copy (``f.isra.0``) may not.
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
            if len(found) > _MAX_PARAMETERS:
                break
        if len(found) > len(best) or (instance and len(found) == len(best)):
            best = found
        instance = At.ABSTRACT_ORIGIN in one
    return tuple(_parameter(one, types) for one in best), variadic


def _parameter(die: Die, types: DwarfTypes) -> ParameterDebug:
    name, artificial, type_id, problem = "", False, 0, "its type is not in the debug information"
    try:
        for one in die.origins():
            name = name or one.text()
            artificial = artificial or one.flag(At.ARTIFICIAL)
            if not type_id:
                target = one.target(At.TYPE)
                if target is not None:
                    type_id = types.id_of(target)
                    types.type(type_id)
                    problem = ""
    except TracingError as err:
        type_id, problem = 0, str(err)
    if not type_id and types.missing_file():
        problem = f"its type is in {types.missing_file()}, which was not found"
    return ParameterDebug(name, type_id, problem, artificial)


def clone_problem(name: str) -> str:
    """Return why a function of this name does not follow its prototype; "" if it does."""
    for ending in _CLONES:
        if ending in name:
            return f"the compiler has made a copy, {name}, with other parameters ({ending[1:-1]})"
    return ""


def first(die: Die, name: int) -> Die | None:
    """Return the first of an entry and its origins that has an attribute; None if none has."""
    return next((one for one in die.origins() if name in one), None)


def text(die: Die, *names: int) -> str:
    """Return the first string of some attributes of an entry and its origins; "" if none."""
    for one in die.origins():
        for name in names:
            found = one.text(name)
            if found:
                return found
    return ""
