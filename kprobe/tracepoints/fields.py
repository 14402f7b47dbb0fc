"""Arguments of a tracepoint, from the fields of its format."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.arch.locations import ContextArea, Register, Unreadable, ValueClass, ValueType
from usdt.engine.compiler import value_names
from usdt.engine.compiler.arguments import Argument, Display
from usdt.tracefs.format import Flags, named_fields
from usdt.tracefs.format.expression import split_arguments
from usdt.tracefs.format.named_values import split_print_fmt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.compiler.value_names import ValueNames
    from usdt.tracefs.format import EventFormat, FormatField

__all__ = ("arguments_of", "integer", "names_of")

_FIRST = 8  # bytes of struct trace_entry, which programs cannot read
_CODE_ADDRESSES = frozenset(("location", "call_site"))  # even if print fmt has no %pS
# Fields of defined events: where the probe is, or at a return the function and its caller
_PLACES = frozenset(("__probe_ip", "__probe_func", "__probe_ret_ip"))
_REC = re.compile(r"(?:\([^()]*\)|\s|\()*REC->(\w+)\)*\s*")
_DIRECTIVE = re.compile(
    r"%[-+ #0]*(?P<star>\*)?\d*(?:\.(?:\d+|\*))?(?:hh|h|ll|l|L|z|t|j|q)?(?P<what>p[sSB]|.)"
)


def arguments_of(form: EventFormat, *, in_kernel: bool = True) -> tuple[Argument, ...]:
    """Return the event's own fields as arguments, in the order of the record.

    Args:
        form: the format of the event.
        in_kernel: whether the event is in code of the kernel, not of a program.
    """
    names = names_of(form)
    symbols = dict.fromkeys(_kernel_addresses(form), Display.KERNEL_SYMBOL)
    place = Display.KERNEL_SYMBOL if in_kernel else Display.USER_SYMBOL
    symbols |= dict.fromkeys(_PLACES, place)
    return tuple(
        _argument(field, names.get(field.name), symbols.get(field.name))
        for field in form.own
        if field.offset >= _FIRST
    )


def names_of(form: EventFormat) -> dict[str, ValueNames]:
    """Return field → names of its values, from macros like ``__print_flags`` in ``print fmt``."""
    return {
        name: value_names.Flags(tuple(shown.table.names), shown.table.separator or "|")
        if isinstance(shown, Flags)
        else value_names.Enumerators(tuple(shown.table.names))
        for name, shown in named_fields(form).items()
    }


def _argument(
    field: FormatField, names: value_names.ValueNames | None, symbol: Display | None
) -> Argument:
    if field.kind == "string" and field.location == "here":
        kind = ValueType(ValueClass.STRING, field.size)
        return Argument(
            field.name, kind, ContextArea(field.offset, field.size), display=Display.STRING
        )
    if field.location != "here":
        return _away(field)
    if field.kind == "integer":
        return _integer(field, names, symbol)
    element = ValueType(ValueClass.UNSIGNED, 1)
    if field.kind == "array" and field.element in (1, 2, 4, 8):
        element = integer(field.element, signed=field.signed)
    fetch = ContextArea(field.offset, field.size)
    return Argument(field.name, ValueType(ValueClass.BYTES, field.size), fetch, element=element)


def _away(field: FormatField) -> Argument:
    if field.element == 0 or field.size != 4:
        kind = ValueType(ValueClass.UNSIGNED, 8)
        return Argument(field.name, kind, Unreadable("several strings in one field"))
    fetch = ContextArea(field.offset, field.size, field.location)
    if field.kind == "string":
        return Argument(field.name, ValueType(ValueClass.STRING, 0), fetch, display=Display.STRING)
    element = integer(field.element, signed=field.signed)
    return Argument(field.name, ValueType(ValueClass.BYTES, 0), fetch, element=element)


def _integer(field: FormatField, names: ValueNames | None, symbol: Display | None) -> Argument:
    if field.offset % field.element:
        kind = ValueType(ValueClass.BYTES, field.size)
        fetch = ContextArea(field.offset, field.size)
        return Argument(field.name, kind, fetch, element=ValueType(ValueClass.UNSIGNED, 1))
    display = Display.HEX if field.type.endswith("*") else Display.INTEGER
    display = symbol or display
    kind = integer(field.element, signed=field.signed)
    if field.type == "dev_t" and names is None:
        names = value_names.DevT()
    if display is not Display.INTEGER:
        kind = ValueType(ValueClass.UNSIGNED, field.element)
    return Argument(
        field.name,
        kind,
        Register(field.offset, field.element),
        display=display,
        names=names,
        spelling=field.type,
    )


def integer(size: int, *, signed: bool) -> ValueType:
    """Return the type of an integer of ``size`` bytes."""
    return ValueType(ValueClass.SIGNED if signed else ValueClass.UNSIGNED, size)


def _kernel_addresses(form: EventFormat) -> Iterator[str]:
    # Fields that print fmt shows as kernel symbols: %pS, %ps, %pB.
    text, rest = split_print_fmt(form.print_fmt)
    ahead = iter(split_arguments(rest))
    for directive in _DIRECTIVE.finditer(text.replace("%%", "")):
        if directive["star"]:
            next(ahead, None)
        argument = next(ahead, "")
        if directive["what"] in ("pS", "ps", "pB") and (field := _REC.fullmatch(argument)):
            yield field[1]
    # The print fmt of kfree_skb in Linux 6.1 shows its location with %p.
    yield from (field.name for field in form.own if field.name in _CODE_ADDRESSES)
