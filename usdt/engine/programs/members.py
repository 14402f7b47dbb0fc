"""The types of members and elements, by type information, as types of values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen, replace
from usdt.btf.format import Encoding
from usdt.btf.types import Array, Composite, Enum, Int, Pointer
from usdt.engine.compiler.resolve.btf_types import BtfTypes, enum_names
from usdt.engine.programs.types import (
    BOOLEAN,
    NOTHING,
    ArrayType,
    IntegerType,
    PointerType,
    StringType,
    StructType,
)

if TYPE_CHECKING:
    from usdt.engine.programs.types import Type

__all__ = ("Member", "members_of", "type_of")

_SIZES = (1, 2, 4, 8)


@frozen
class Member:
    """A member of a structure or union.

    Attributes:
        name: its name.
        type: its type; NoType for what has no value here, such as a floating-point number.
        bit: the bits of the structure before it.
        width: the bits of a bit field; 0 for other members.
    """

    name: str
    type: Type
    bit: int
    width: int


def type_of(types: BtfTypes, number: int) -> Type:
    """Return the type of values of a type that type information has.

    Raises:
        BtfError: types contain one another.
    """
    btf = types.btf
    btf.align_of(number)  # raises for types that contain one another: data of a process's file
    match btf.resolve(number):
        case Int(size=1, encoding=encoding) if encoding & Encoding.BOOL:
            return BOOLEAN
        case Int(size=size, signed=signed) if size in _SIZES:
            return IntegerType(size, signed)
        case Enum(size=size, signed=signed) as found if size in _SIZES:
            return IntegerType(size, signed, names=enum_names(found))
        case Pointer(type_id=target):
            return PointerType(type_id=target, types=types)
        case Array(id=own, type_id=element, count=count):
            inner = btf.resolve(element)
            if isinstance(inner, Int) and inner.size == 1 and inner.name == "char":
                return StringType(count)
            return ArrayType(type_of(types, element), count, own, types)
        case Composite(id=own, size=size, name=name):
            return StructType(size, own, types, f"struct {name}")
    return NOTHING


def members_of(type_: StructType) -> tuple[Member, ...]:
    """Return the members of a structure or union, with those of unnamed ones in it, in order."""
    return _members(type_.types, type_.type_id) if isinstance(type_.types, BtfTypes) else ()


def _members(types: BtfTypes, number: int) -> tuple[Member, ...]:
    found = types.btf.resolve(number)
    made: list[Member] = []
    for one in found.members if isinstance(found, Composite) else ():
        kind = type_of(types, one.type_id)
        if one.name or not isinstance(kind, StructType):
            made.append(Member(one.name, kind, one.bit_offset, one.bitfield_size))
            continue
        inner = _members(types, kind.type_id)
        made += (replace(each, bit=one.bit_offset + each.bit) for each in inner)
    return tuple(made)
