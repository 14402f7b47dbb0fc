"""One pass over a unit: where its functions begin, and which types it names.

Only what is at the top or in namespaces is looked at; everything below another entry is passed
over, by DW_AT_sibling where the compiler wrote it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.dwarf.constants import At, Form, Tag
from usdt.dwarf.errors import DwarfError
from usdt.dwarf.lines_format import UNIT_REFERENCES, read_raw, unsigned
from usdt.dwarf.lines_units import Entry
from usdt.dwarf.scopes import ANONYMOUS, Scopes
from usdt.dwarf.shapes import (
    BLOCK,
    BLOCK1,
    BLOCK2,
    FUNCTION,
    INDIRECT,
    KINDS,
    LEB,
    OTHER,
    SCOPE,
    STRING,
    TYPE,
)

if TYPE_CHECKING:
    from usdt.dwarf.lines_units import Unit
    from usdt.dwarf.shapes import Shape, Shapes

__all__ = ("Scanner",)

_DEEPEST = 1 << 10


class Scanner:
    """Collects functions and types of units.

    Args:
        shapes: of the file that the units are in.

    Attributes:
        functions: (address, position of the entry in its unit, number given for the unit).
        types: (kind and qualified name, position, number of the unit).
    """

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = self._own = shapes
        self.functions: list[tuple[int, int, int]] = []
        self.types: list[tuple[str, int, int]] = []
        self._seen: set[tuple[str, str, int | bytes]] = set()
        self._named: set[str] = set()
        self._data = b""  # of the unit at hand
        self._scopes: tuple[Unit, Scopes] | None = None

    def use(self, shapes: Shapes | None) -> None:
        """Take the shapes of another file, or its own again: of a split unit."""
        if self._shapes is not (shapes or self._own):
            self._shapes = shapes or self._own
            self._seen.clear()  # offsets of strings mean others there

    def scan(self, unit: Unit, number: int) -> None:
        """Look through a unit.

        Raises:
            DwarfError: it is damaged.
            IndexError: likewise.
        """
        data, encoding = bytes(unit.data), unit.encoding  # bytes are faster than views of them
        self._data = data
        offset = unit.header.abbreviations + unit.file.bases.get("abbrev", 0)
        table = self._shapes.table(offset, encoding)
        reference = struct.Struct(unit.file.sections.mark + "I").unpack_from
        at, end = unit.header.first, len(data)
        prefixes = [""]
        prefix = ""
        hidden = 0  # levels of entries without siblings that are passed over
        while at < end:
            start = at
            code = data[at]
            at += 1
            if code > 127:
                code, at = unsigned(data, start)
            if not code:
                if hidden:
                    hidden -= 1
                elif len(prefixes) > 1:
                    prefixes.pop()
                    prefix = prefixes[-1]
                continue
            shape = table[code]
            interest = shape.interest
            if interest != OTHER and not hidden:
                if interest == TYPE:
                    self._type(unit, shape, (start, at), prefix, number)
                elif interest == FUNCTION:
                    self._function(unit, shape, start, at, number)
                elif shape.children:
                    prefix = self._scope(unit, shape, start, prefix)
                    prefixes.append(prefix)
                    if len(prefixes) > _DEEPEST:
                        raise DwarfError(f"{unit.file.sections.name}: namespaces without an end")
            steps = shape.steps
            if shape.children and interest != SCOPE:
                sibling = shape.sibling
                if sibling is not None:
                    place = at + sibling[1]
                    if sibling[0]:
                        place = _passed(data, at, steps[: sibling[0]], unit) + sibling[1]
                    following = reference(data, place)[0]
                    if following > place:
                        at = following
                        continue
                hidden += 1
            at = (_passed(data, at, steps, unit) if steps else at) + shape.fixed

    def _type(
        self, unit: Unit, shape: Shape, places: tuple[int, int], prefix: str, number: int
    ) -> None:
        start, at = places
        kind = KINDS[shape.tag]
        if shape.completes:
            self._keep(kind + self._declared_name(unit, start), start, number)
            return
        name = None
        key: int | bytes
        if shape.name is not None:
            place, form = shape.name
            if form == Form.STRP:
                size = unit.encoding.offset_size
                key = unit.encoding.number(self._data, at + place, size)
                if (kind, prefix, key) in self._seen:
                    return
                self._seen.add((kind, prefix, key))
            elif form == Form.STRING:
                end = self._data.index(b"\0", at + place)
                key = self._data[at + place : end]
                if (kind, prefix, key) in self._seen:
                    return
                self._seen.add((kind, prefix, key))
                name = key.decode("utf-8", "surrogateescape")
        if name is None:
            name = unit.text(Entry(unit, start), At.NAME)
        self._keep(f"{kind}{prefix}{name}", start, number)

    def _keep(self, full: str, start: int, number: int) -> None:
        if len(full) > 1 and full not in self._named and full.isprintable():
            self._named.add(full)
            self.types.append((full, start, number))

    def _declared_name(self, unit: Unit, start: int) -> str:
        # The name of a type that is defined outside of the scope in which it was declared.
        entry = Entry(unit, start)
        raw = entry.values.get(At.SPECIFICATION)
        if raw is None or raw.form not in UNIT_REFERENCES:
            return ""
        name = unit.text(entry, At.NAME) or unit.text(Entry(unit, raw.value), At.NAME)
        if self._scopes is None or self._scopes[0] is not unit:
            self._scopes = unit, Scopes(unit)
        return f"{self._scopes[1].prefix(raw.value)}{name}" if name else ""

    def _function(self, unit: Unit, shape: Shape, start: int, at: int, number: int) -> None:
        if shape.low is not None and shape.low[1] == Form.ADDR:
            place = at + shape.low[0]
            address = unit.encoding.number(self._data, place, unit.encoding.address_size)
        else:
            address = _entry_address(unit, start)
        if address:
            self.functions.append((address, start, number))

    def _scope(self, unit: Unit, shape: Shape, start: int, prefix: str) -> str:
        if shape.tag != Tag.NAMESPACE:
            return prefix
        entry = Entry(unit, start)
        return f"{prefix}{unit.text(entry, At.NAME) or ANONYMOUS}::"


def _entry_address(unit: Unit, start: int) -> int:
    # Where a function begins whose code is in several pieces, or whose address is an index; or 0.
    entry = Entry(unit, start)
    for name in (At.ENTRY_PC, At.LOW_PC):
        raw = entry.values.get(name)
        if raw is not None:
            address = unit.address(raw)
            is_offset = name == At.ENTRY_PC and raw.form in (
                *(Form.DATA1, Form.DATA2, Form.DATA4, Form.DATA8, Form.UDATA),
            )
            if not is_offset:
                return address
    ranges = unit.ranges(entry)
    return ranges[0][0] if ranges else 0


def _passed(data: bytes, at: int, steps: tuple[tuple[int, int], ...], unit: Unit) -> int:
    # The position behind some steps.
    for fixed, kind in steps:
        at += fixed
        if kind == BLOCK:
            size = data[at]
            at += 1
            if size > 127:
                size, at = unsigned(data, at - 1)
            at += size
        elif kind == LEB:
            while data[at] > 127:
                at += 1
            at += 1
        elif kind == STRING:
            at = data.find(b"\0", at) + 1
            if not at:
                raise IndexError("a string without an end")
        elif kind == BLOCK1:
            at += 1 + data[at]
        elif kind == INDIRECT:
            _, at = read_raw(data, at, Form.INDIRECT, 0, unit.encoding)
        else:
            width = 2 if kind == BLOCK2 else 4
            at += width + unit.encoding.number(data, at, width)
    return at
