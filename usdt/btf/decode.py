"""Records of BTF as words → the types of :mod:`usdt.btf.types`. No I/O, and no trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.btf.format import Kind, kind_of
from usdt.btf.types import (
    Array,
    Composite,
    DataSection,
    DeclTag,
    Enum,
    Enumerator,
    Float,
    Forward,
    Function,
    FunctionProto,
    Int,
    Member,
    Modifier,
    Parameter,
    Pointer,
    SectionItem,
    Type,
    Typedef,
    Unknown,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.btf.reader import Btf

__all__ = ("decode",)

_FLAG = 1 << 31


def decode(btf: Btf, number: int, words: Sequence[int], place: int, end: int) -> Type:
    """The type of the record in ``words[place:end]``.

    Raises:
        BtfError: a string of it is not there.
    """
    name_offset, info, third = words[place : place + 3]
    name = btf.string(name_offset) if name_offset else ""
    kind = kind_of(info)
    make = _MAKERS.get(kind)
    if make is None:
        return Unknown(number, name, kind)
    return make(btf, (number, name, info, third), words[place + 3 : end])


_Head = tuple[int, str, int, int]


def _int(_: Btf, head: _Head, extra: Sequence[int]) -> Type:
    number, name, _info, size = head
    word = extra[0]
    return Int(number, name, size, word >> 24 & 0xF, word & 0xFF, word >> 16 & 0xFF)


def _pointer(_: Btf, head: _Head, __: Sequence[int]) -> Type:
    return Pointer(head[0], head[1], head[3])


def _array(_: Btf, head: _Head, extra: Sequence[int]) -> Type:
    element, index, count = extra
    return Array(head[0], head[1], element, index, count)


def _composite(btf: Btf, head: _Head, extra: Sequence[int]) -> Type:
    number, name, info, size = head
    flag = bool(info & _FLAG)
    string = btf.string
    members = []
    for at in range(0, len(extra), 3):
        label, target, offset = extra[at : at + 3]
        bits = offset >> 24 if flag else 0
        place = offset & 0xFFFFFF if flag else offset
        members.append(Member(string(label) if label else "", target, place, bits))
    return Composite(number, Kind(kind_of(info)), name, size, tuple(members), flag)


def _enum(btf: Btf, head: _Head, extra: Sequence[int]) -> Type:
    number, name, info, size = head
    signed = bool(info & _FLAG)
    values = []
    for at in range(0, len(extra), 2):
        label, value = extra[at : at + 2]
        value -= (value & 1 << 31) << 1 if signed else 0
        values.append(Enumerator(btf.string(label), value))
    return Enum(number, Kind.ENUM, name, size, signed, tuple(values))


def _enum64(btf: Btf, head: _Head, extra: Sequence[int]) -> Type:
    number, name, info, size = head
    signed = bool(info & _FLAG)
    values = []
    for at in range(0, len(extra), 3):
        label, low, high = extra[at : at + 3]
        value = high << 32 | low
        value -= (value & 1 << 63) << 1 if signed else 0
        values.append(Enumerator(btf.string(label), value))
    return Enum(number, Kind.ENUM64, name, size, signed, tuple(values))


def _forward(_: Btf, head: _Head, __: Sequence[int]) -> Type:
    return Forward(head[0], head[1], bool(head[2] & _FLAG))


def _typedef(_: Btf, head: _Head, __: Sequence[int]) -> Type:
    return Typedef(head[0], head[1], head[3])


def _modifier(_: Btf, head: _Head, __: Sequence[int]) -> Type:
    number, name, info, target = head
    return Modifier(number, Kind(kind_of(info)), name, target, bool(info & _FLAG))


def _function(_: Btf, head: _Head, __: Sequence[int]) -> Type:
    number, name, info, target = head
    return Function(number, name, target, info & 0xFFFFFF)


def _prototype(btf: Btf, head: _Head, extra: Sequence[int]) -> Type:
    string = btf.string
    parameters = tuple(
        Parameter(string(extra[at]) if extra[at] else "", extra[at + 1])
        for at in range(0, len(extra), 2)
    )
    return FunctionProto(head[0], head[1], head[3], parameters)


def _variable(_: Btf, head: _Head, extra: Sequence[int]) -> Type:
    return Variable(head[0], head[1], head[3], extra[0])


def _section(_: Btf, head: _Head, extra: Sequence[int]) -> Type:
    items = tuple(SectionItem(*extra[at : at + 3]) for at in range(0, len(extra), 3))
    return DataSection(head[0], head[1], head[3], items)


def _float(_: Btf, head: _Head, __: Sequence[int]) -> Type:
    return Float(head[0], head[1], head[3])


def _tag(_: Btf, head: _Head, extra: Sequence[int]) -> Type:
    number, name, info, target = head
    component = extra[0] - ((extra[0] & 1 << 31) << 1)
    return DeclTag(number, name, target, component, bool(info & _FLAG))


_MAKERS: dict[int, Callable[[Btf, _Head, Sequence[int]], Type]] = {
    Kind.INT: _int,
    Kind.PTR: _pointer,
    Kind.ARRAY: _array,
    Kind.STRUCT: _composite,
    Kind.UNION: _composite,
    Kind.ENUM: _enum,
    Kind.FWD: _forward,
    Kind.TYPEDEF: _typedef,
    Kind.VOLATILE: _modifier,
    Kind.CONST: _modifier,
    Kind.RESTRICT: _modifier,
    Kind.FUNC: _function,
    Kind.FUNC_PROTO: _prototype,
    Kind.VAR: _variable,
    Kind.DATASEC: _section,
    Kind.FLOAT: _float,
    Kind.DECL_TAG: _tag,
    Kind.TYPE_TAG: _modifier,
    Kind.ENUM64: _enum64,
}
