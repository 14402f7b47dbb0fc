"""Decode BTF records, given as 32-bit words, into :mod:`usdt.btf.types`. Does no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

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

    #: Offset → string.
    Strings: TypeAlias = Callable[[int], str]

__all__ = ("decode",)

_FLAG = 1 << 31


def decode(strings: Strings, type_id: int, words: Sequence[int], start: int, end: int) -> Type:
    """Return the type whose record is ``words[start:end]``.

    Raises:
        BtfError: a string offset lies outside the strings.
    """
    name_offset, info, size_or_type = words[start : start + 3]
    name = strings(name_offset) if name_offset else ""
    kind = kind_of(info)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        return Unknown(type_id, name, kind)
    return decoder(strings, (type_id, name, info, size_or_type), words[start + 3 : end])


# ID, name, info word, and the word that is a size or a type ID.
_Head = tuple[int, str, int, int]


def _int(_: Strings, head: _Head, extra: Sequence[int]) -> Type:
    type_id, name, _info, size = head
    word = extra[0]
    return Int(type_id, name, size, word >> 24 & 0xF, word & 0xFF, word >> 16 & 0xFF)


def _pointer(_: Strings, head: _Head, __: Sequence[int]) -> Type:
    return Pointer(head[0], head[1], head[3])


def _array(_: Strings, head: _Head, extra: Sequence[int]) -> Type:
    element, index, count = extra
    return Array(head[0], head[1], element, index, count)


def _composite(strings: Strings, head: _Head, extra: Sequence[int]) -> Type:
    type_id, name, info, size = head
    flag = bool(info & _FLAG)
    members = []
    for at in range(0, len(extra), 3):
        label, target, offset = extra[at : at + 3]
        bits = offset >> 24 if flag else 0
        bit_offset = offset & 0xFFFFFF if flag else offset
        members.append(Member(strings(label) if label else "", target, bit_offset, bits))
    return Composite(type_id, Kind(kind_of(info)), name, size, tuple(members), flag)


def _enum(strings: Strings, head: _Head, extra: Sequence[int]) -> Type:
    type_id, name, info, size = head
    signed = bool(info & _FLAG)
    values = []
    for at in range(0, len(extra), 2):
        label, value = extra[at : at + 2]
        value -= (value & 1 << 31) << 1 if signed else 0
        values.append(Enumerator(strings(label), value))
    return Enum(type_id, Kind.ENUM, name, size, signed, tuple(values))


def _enum64(strings: Strings, head: _Head, extra: Sequence[int]) -> Type:
    type_id, name, info, size = head
    signed = bool(info & _FLAG)
    values = []
    for at in range(0, len(extra), 3):
        label, low, high = extra[at : at + 3]
        value = high << 32 | low
        value -= (value & 1 << 63) << 1 if signed else 0
        values.append(Enumerator(strings(label), value))
    return Enum(type_id, Kind.ENUM64, name, size, signed, tuple(values))


def _forward(_: Strings, head: _Head, __: Sequence[int]) -> Type:
    return Forward(head[0], head[1], bool(head[2] & _FLAG))


def _typedef(_: Strings, head: _Head, __: Sequence[int]) -> Type:
    return Typedef(head[0], head[1], head[3])


def _modifier(_: Strings, head: _Head, __: Sequence[int]) -> Type:
    type_id, name, info, target = head
    return Modifier(type_id, Kind(kind_of(info)), name, target, bool(info & _FLAG))


def _function(_: Strings, head: _Head, __: Sequence[int]) -> Type:
    type_id, name, info, target = head
    return Function(type_id, name, target, info & 0xFFFFFF)


def _prototype(strings: Strings, head: _Head, extra: Sequence[int]) -> Type:
    parameters = tuple(
        Parameter(strings(extra[at]) if extra[at] else "", extra[at + 1])
        for at in range(0, len(extra), 2)
    )
    return FunctionProto(head[0], head[1], head[3], parameters)


def _variable(_: Strings, head: _Head, extra: Sequence[int]) -> Type:
    return Variable(head[0], head[1], head[3], extra[0])


def _section(_: Strings, head: _Head, extra: Sequence[int]) -> Type:
    items = tuple(SectionItem(*extra[at : at + 3]) for at in range(0, len(extra), 3))
    return DataSection(head[0], head[1], head[3], items)


def _float(_: Strings, head: _Head, __: Sequence[int]) -> Type:
    return Float(head[0], head[1], head[3])


def _tag(_: Strings, head: _Head, extra: Sequence[int]) -> Type:
    type_id, name, info, target = head
    component = extra[0] - ((extra[0] & 1 << 31) << 1)
    return DeclTag(type_id, name, target, component, bool(info & _FLAG))


_DECODERS: dict[int, Callable[[Strings, _Head, Sequence[int]], Type]] = {
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
