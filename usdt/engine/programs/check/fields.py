"""The fields of tracepoints, in the record that is the context of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import ContextArea, Unreadable, ValueClass, ValueType
from usdt.base.errors import BtfError
from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import U64, ArgumentValue, Convert
from usdt.engine.programs.check.nodes import value_of
from usdt.engine.programs.check.site import kernel_types, process_types
from usdt.engine.programs.typed import Read, ReadText, Scalar
from usdt.engine.programs.types import ArrayType, IntegerType, PointerType, StringType

if TYPE_CHECKING:
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.programs.typed import Value

__all__ = ("field_value",)

_ADDRESS = ValueType(ValueClass.UNSIGNED, KERNEL_WORD_SIZE)
_IN_RECORD = PointerType(kernel=True)
_QUALIFIERS = ("const ", "volatile ")


def field_value(argument: Argument, max_string: int, *, of_process: bool) -> Value | None:
    """Return the value of a field that is in the record, or a pointer to a type; else None.

    Args:
        argument: the field.
        max_string: the most bytes of a string, with its NUL.
        of_process: whether pointers are addresses of the process, as in system calls.
    """
    fetch = argument.fetch
    if isinstance(fetch, ContextArea):
        return _in_record(argument, fetch, max_string)
    if isinstance(fetch, Unreadable) or not argument.spelling.endswith("*"):
        return None
    return _pointer(argument, max_string, of_process=of_process)


def _in_record(argument: Argument, fetch: ContextArea, max_string: int) -> Value:
    address = Scalar(ArgumentValue(fetch, U64), _IN_RECORD)
    if argument.type.kind is ValueClass.STRING:
        fixed = fetch.location == "here"
        return ReadText(
            address, StringType(min(fetch.size + 1, max_string) if fixed else max_string)
        )
    element = argument.element or ValueType(ValueClass.UNSIGNED, 1)
    if fetch.location != "here":  # of a length that is known at the hit: where it begins
        return Scalar(address.node, PointerType(element, kernel=True))
    kind = IntegerType(element.size, element.signed)
    return Read(address, ArrayType(kind, fetch.size // element.size))


def _pointer(argument: Argument, max_string: int, *, of_process: bool) -> Value | None:
    # A pointer with the type of its target, if the kernel's types have it.
    node = fold(Convert(ArgumentValue(argument.fetch, argument.type), U64))
    if argument.spelling.count("*") > 1:  # such as const char *const *: to addresses
        return Scalar(node, PointerType(_ADDRESS, kernel=not of_process))
    types = process_types() if of_process else kernel_types()
    if types is None:
        return None
    from usdt.btf.lookup import find_type  # noqa: PLC0415 - few programs follow such pointers

    name = argument.spelling[:-1].strip()
    for word in _QUALIFIERS:
        name = name.removeprefix(word)
    try:
        number = find_type(types.btf, name)
    except BtfError:
        return None  # an address, as without types
    return value_of(types.pointer(node, number), types, (), max_string)
