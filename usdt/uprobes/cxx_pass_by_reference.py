"""Decide whether C++ passes an object by value or by the address of a copy.

By the Itanium C++ ABI (3.1.1, "non-trivial for the purposes of calls"), a class is passed by
address if it has a copy or move constructor or a destructor of its own, a base class or member of
such a class, or anything virtual. clang records this in DW_AT_calling_convention; otherwise it
follows from the class's functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import At, Tag

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.dwarf.types.dwarf_btf import DwarfTypes
    from usdt.dwarf.units.dies import Die

    Whole = Callable[[Die], Die | None]

__all__ = ("passed_by_reference", "virtual_bases")

_CALLING_CONVENTION, _DEFAULTED, _DELETED = 0x36, 0x8B, 0x8A  # DW_AT_…
_BY_REFERENCE, _BY_VALUE = 4, 5  # DW_CC_pass_by_…
_IN_CLASS = 1  # DW_DEFAULTED_in_class
_CLASSES = (Tag.STRUCTURE, Tag.CLASS, Tag.UNION)
_THROUGH = (Tag.TYPEDEF, Tag.CONST, Tag.VOLATILE, Tag.ARRAY)
_CXX = frozenset((0x0004, 0x001A, 0x0021, 0x002B, 0x003A))
_KNOWN = ("basic_string<",)  # classes that clang only declares; the library has their definition
_MAX_NESTING = 16
_MAX_MEMBERS = 1 << 12  # entries of a class


def passed_by_reference(types: DwarfTypes, number: int, whole: Whole) -> bool:
    """Return True if an argument of a type is passed as the address of a copy.

    Args:
        types: the program's types.
        number: ID of the type.
        whole: returns the definition of a class that an entry only declares.
    """
    die = types.die(number)
    if die is None or die.unit.integer(die.unit.root, At.LANGUAGE) not in _CXX:
        return False
    return _by_reference(die, 0, whole, set())


def _by_reference(die: Die, depth: int, whole: Whole, seen: set[object]) -> bool:
    # ``seen`` has the classes that were looked at: damaged ones contain one another many times.
    for _ in range(_MAX_NESTING):
        if die.tag not in _THROUGH:
            break
        target = die.target(At.TYPE)
        if target is None:
            return False
        die = target
    if die.tag not in _CLASSES or depth > _MAX_NESTING or die.key in seen:
        return False
    seen.add(die.key)
    if die.flag(At.DECLARATION):
        defined = whole(die)
        if defined is None:
            return die.text().startswith(_KNOWN)
        die = defined
    convention = die.number(_CALLING_CONVENTION)
    if convention in (_BY_REFERENCE, _BY_VALUE):
        return convention == _BY_REFERENCE
    name = die.text().partition("<")[0]
    for count, one in enumerate(die.children(Tag.SUBPROGRAM, Tag.MEMBER, Tag.INHERITANCE)):
        if count > _MAX_MEMBERS:
            return False
        if one.tag == Tag.SUBPROGRAM:
            if _own(die, one, name):
                return True
        elif At.VIRTUALITY in one and one.number(At.VIRTUALITY):
            return True
        elif At.DATA_MEMBER_LOCATION in one or die.tag == Tag.UNION:
            target = one.target(At.TYPE)
            if one.text().startswith("_vptr") or (
                target is not None and _by_reference(target, depth + 1, whole, seen)
            ):
                return True
    return False


def virtual_bases(die: Die | None, whole: Whole) -> list[str]:
    """Return the names of the virtual base classes of a class and of its bases.

    Args:
        die: the class.
        whole: returns the definition of a class that an entry only declares.
    """
    found: dict[str, None] = {}
    _add_virtual_bases(die, whole, 0, found, set())
    return list(found)


def _add_virtual_bases(
    die: Die | None, whole: Whole, depth: int, found: dict[str, None], seen: set[object]
) -> None:
    if die is not None and die.flag(At.DECLARATION):
        die = whole(die)
    if die is None or depth > _MAX_NESTING or die.key in seen:
        return
    seen.add(die.key)
    for one in die.children(Tag.INHERITANCE):
        base = one.target(At.TYPE)
        if base is not None and At.VIRTUALITY in one and one.number(At.VIRTUALITY):
            found[base.text()] = None
        _add_virtual_bases(base, whole, depth + 1, found, seen)
        if len(found) > _MAX_NESTING:
            return


def _own(die: Die, function: Die, name: str) -> bool:
    # True for a virtual function, or a destructor, copy or move constructor that is neither
    # implicit nor defaulted.
    if function.number(At.VIRTUALITY):
        return True
    called = function.text().partition("<")[0]
    implicit = function.flag(At.ARTIFICIAL) or function.number(_DEFAULTED) == _IN_CLASS
    if called == f"~{name}":
        return not implicit
    if called != name or implicit or function.flag(_DELETED):
        return False
    parameters = [one for one in function.children(Tag.PARAMETER) if not one.flag(At.ARTIFICIAL)]
    if len(parameters) != 1:
        return False
    kind = parameters[0].target(At.TYPE)
    if kind is None or kind.tag not in (Tag.REFERENCE, Tag.RVALUE_REFERENCE):
        return False
    target = kind.target(At.TYPE)
    if target is not None and target.tag == Tag.CONST:
        target = target.target(At.TYPE)
    return target is not None and target.key == die.key
