"""The arguments of a probe site, as probe providers describe them to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import Names, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.arch.locations import Location, ValueType
    from usdt.engine.compiler.ir import Node, TypeRef
    from usdt.engine.compiler.value_names import ValueNames

__all__ = ("Argument", "Display", "known_names", "numbered")


class Display(Names):
    """How a value is shown if the item does not specify it."""

    INTEGER = 1
    BOOL = 2
    HEX = 3
    STRING = 4  # in the tracepoint's record, or the value is its address
    USER_SYMBOL = 5  # an address in the process
    KERNEL_SYMBOL = 6
    STRUCT = 7  # the value itself or its target; also a list of values
    BUFFER = 8  # the string in a C++ or Rust container
    ARRAY = 9  # the integers in a C++ or Rust container
    TAGGED_UNION = 10  # an enum with data
    SOCKET_ADDRESS = 11  # the value is the address of a struct sockaddr


@frozen
class Argument:
    """One argument of a probe site.

    Attributes:
        name: ``arg0``…, a name from BTF or DWARF, or ``return``.
        type: its class and size.
        fetch: where it is when the probe fires.
        hidden: whether it is left out when all arguments are shown because no item is given.
        display: how it is shown: INTEGER, HEX, KERNEL_SYMBOL, STRING or SOCKET_ADDRESS.
        names: the names of its values, if they have any.
        element: the type of an element, if it is an array in the tracepoint's record.
        type_ref: its type for the probe's :class:`usdt.engine.compiler.scope.TypeProvider`, if
            ``type`` does not say everything; else None.
        length: for SOCKET_ADDRESS, the number of bytes there.
        part_of: bytes of the value of which ``type`` is only the low part; 0 if it is all.
        spelling: its type in C, if that is all that is known of it: that of a tracepoint's field.
    """

    name: str
    type: ValueType
    fetch: Location
    hidden: bool = False
    display: Display = Display.INTEGER
    names: ValueNames | None = None
    element: ValueType | None = None
    type_ref: TypeRef | None = None
    length: Node | None = None
    part_of: int = 0
    spelling: str = ""


def numbered(arguments: Sequence[Argument]) -> int:
    """Return how many ``arg0``… a site has: the highest number and one."""
    numbers = (one.name[3:] for one in arguments if one.name.startswith("arg"))
    return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)


def known_names(arguments: Sequence[Argument]) -> set[str]:
    """Return the names of arguments and of their values."""
    values = (name for one in arguments if one.names for _, name in one.names.every)
    return {*(one.name for one in arguments), *values}
