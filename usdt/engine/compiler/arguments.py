"""What a provider of probes tells the engine about an argument of a site."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from usdt.arch.locations import Location, ValueType
    from usdt.engine.compiler.value_names import ValueNames

__all__ = ("Argument", "Display")


class Display(enum.Enum):
    """How a value is shown where the item does not say how."""

    INTEGER = enum.auto()
    BOOL = enum.auto()
    HEX = enum.auto()
    STRING = enum.auto()  # in the event's record, or at the address that the value is
    USER_SYMBOL = enum.auto()  # an address of the process
    KERNEL_SYMBOL = enum.auto()
    STRUCT = enum.auto()  # the value itself, or what it points at; also a list of values
    BUFFER = enum.auto()  # the string in a C++ or Rust container
    ARRAY = enum.auto()  # the integers in one
    TAGGED_UNION = enum.auto()  # an enum with data


@frozen
class Argument:
    """One argument of a probe site.

    Attributes:
        name: ``arg0``…, a name from BTF or DWARF, or ``return``.
        hidden: whether it is left out where all arguments are shown for want of items.
        display: how it is shown: INTEGER, HEX, KERNEL_SYMBOL or STRING.
        names: of its values, if they have some.
        element: of an array in the record, what it is made of.
        handle: its type as the probe's :class:`usdt.engine.compiler.resolve.TypeProvider` knows it.
    """

    name: str
    type: ValueType
    fetch: Location
    hidden: bool = False
    display: Display = Display.INTEGER
    names: ValueNames | None = None
    element: ValueType | None = None
    handle: object = None
