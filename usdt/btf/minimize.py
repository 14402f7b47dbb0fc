"""Copy the types that a value consists of into BTF of their own, for recordings.

Types within the value are copied in full. Targets of its pointers are copied without members, only
as far as C needs them to name the pointer; characters and prototypes are copied in full.
A structure can be copied without the larger structures within it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.format import MAX_NESTING, Encoding, Kind, nesting_error
from usdt.btf.types import (
    Array,
    Composite,
    Enum,
    Float,
    Forward,
    FunctionProto,
    Int,
    Modifier,
    Pointer,
    Type,
    Typedef,
)
from usdt.btf.writer import BtfWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.btf.reader import Btf
    from usdt.btf.types import Member

__all__ = ("minimize",)

_MAX_TYPES = 1 << 14  # within one value
_WORD = 8  # bytes of the largest structure that is copied as a member of one in short


def minimize(btf: Btf, type_id: int, *, in_short: bool = False) -> tuple[bytes, int]:
    """Return BTF with a type and all types within its values, and the type's ID there.

    Args:
        btf: the types.
        type_id: ID of the type.
        in_short: leave out members that are structures, or arrays of them, of more than 8 bytes.
            Members of anonymous structures count as members of the structure around them.

    Raises:
        BtfError: the type has too many types within it, or they contain one another.
    """
    return _Minimizer(btf, in_short=in_short).made(type_id)


class _Minimizer:
    def __init__(self, btf: Btf, *, in_short: bool) -> None:
        self._btf = btf
        self._in_short = in_short
        self._ids: dict[int, int] = {0: 0}  # old ID → new ID, in the order of the new ones
        self._whole: set[int] = set()  # old IDs of the types that are copied in full

    def made(self, type_id: int) -> tuple[bytes, int]:
        self._collect(type_id, 0, whole=True)
        writer = BtfWriter(self._btf.order)
        for known in list(self._ids)[1:]:
            self._write(writer, self._btf.type(known))
        if self._btf.pointer_size == 4:  # readers take it from the size of long
            writer.integer("long int", 4, Encoding.SIGNED)
        return writer.data(), self._ids[type_id]

    def _collect(self, type_id: int, depth: int, *, whole: bool) -> None:
        new = type_id not in self._ids
        if not (new or (whole and type_id not in self._whole)):
            return
        if depth > MAX_NESTING:
            raise nesting_error(self._btf.name, type_id)
        if len(self._ids) > _MAX_TYPES:
            raise BtfError(
                f"{self._btf.name}: BTF type {type_id} consists of more than {_MAX_TYPES} types"
            )
        if new:
            self._ids[type_id] = len(self._ids)
        if whole:
            self._whole.add(type_id)
        for inner, its in self._inner(self._btf.type(type_id), whole=whole):
            self._collect(inner, depth + 1, whole=its)

    def _inner(self, found: Type, *, whole: bool) -> Iterator[tuple[int, bool]]:
        # The types that a type refers to, and whether to copy them in full.
        if isinstance(found, Composite):
            for member in self._members(found) if whole else ():
                yield member.type_id, True
        elif isinstance(found, Array):
            yield found.type_id, whole
            yield found.index_type_id, whole
        elif isinstance(found, Pointer):
            yield found.type_id, False
        elif isinstance(found, FunctionProto):
            yield found.return_type_id, False
            for parameter in found.parameters:
                yield parameter.type_id, False
        elif isinstance(found, Typedef | Modifier):
            yield found.type_id, whole

    def _members(self, found: Composite) -> list[Member]:
        if not self._in_short:
            return [*found.members]
        return [
            member for member in found.members if not member.name or self._is_short(member.type_id)
        ]

    def _is_short(self, type_id: int) -> bool:
        inner = self._btf.resolve(type_id)
        while isinstance(inner, Array):
            inner = self._btf.resolve(inner.type_id)
        return not isinstance(inner, Composite) or self._btf.size_of(type_id) <= _WORD

    def _write(self, writer: BtfWriter, found: Type) -> None:
        ids, name, kind = self._ids, found.name, found.kind
        if isinstance(found, Int):
            word = found.encoding << 24 | found.bit_offset << 16 | found.bits
            writer.record(Kind.INT, name, found.size, [word])
        elif isinstance(found, Array):
            words = [ids[found.type_id], ids[found.index_type_id], found.count]
            writer.record(Kind.ARRAY, name, 0, words)
        elif isinstance(found, Pointer | Typedef | Modifier):
            flag = isinstance(found, Modifier) and found.flag
            writer.record(kind, name, ids[found.type_id], flag=flag)
        elif isinstance(found, FunctionProto):
            rows = [(one.name, ids[one.type_id]) for one in found.parameters]
            writer.prototype(ids[found.return_type_id], rows)
        elif isinstance(found, Float | Forward):
            union = isinstance(found, Forward) and found.union
            writer.record(kind, name, getattr(found, "size", 0), flag=union)
        elif isinstance(found, Enum):
            self._enum(writer, found)
        elif isinstance(found, Composite):
            self._composite(writer, found)
        else:
            raise BtfError(f"{self._btf.name}: BTF type {found.id} cannot be part of a value")

    def _enum(self, writer: BtfWriter, found: Enum) -> None:
        values = found.values if found.id in self._whole else ()
        rows = [(one.name, one.value) for one in values]
        make = writer.enum if found.kind is Kind.ENUM else writer.enum64
        make(found.name, found.size, rows, signed=found.signed)

    def _composite(self, writer: BtfWriter, found: Composite) -> None:
        words: list[int] = []
        members = self._members(found) if found.id in self._whole else []
        for member in members:
            packed_offset = member.bit_offset | (member.bitfield_size << 24 if found.flag else 0)
            words += [writer.string(member.name), self._ids[member.type_id], packed_offset]
        size = found.size if found.id in self._whole else 0
        writer.record(found.kind, found.name, size, words, items=len(members), flag=found.flag)
