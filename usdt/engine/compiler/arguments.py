"""What a provider of probes tells the engine about an argument of a site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from usdt.arch.locations import Location, ValueType
    from usdt.engine.compiler.value_names import ValueNames

__all__ = ("Argument",)


@frozen
class Argument:
    """One argument of a probe site.

    Attributes:
        name: ``arg0``…, a name from BTF or DWARF, or ``return``.
        hidden: whether it is left out where all arguments are shown for want of items.
        form: how it is shown where it is no plain number: ``hex``, ``ksym``, or ``string``: text,
            in the record or at the address that it is.
        names: of its values, if they have some.
        element: of an array in the record, what it is made of.
        handle: its type as the probe's :class:`usdt.engine.compiler.resolve.TypeProvider` knows it.
    """

    name: str
    type: ValueType
    fetch: Location
    hidden: bool = False
    form: str = ""
    names: ValueNames | None = None
    element: ValueType | None = None
    handle: object = None
