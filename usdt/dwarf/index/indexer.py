"""One pass over a unit: where its functions begin, and which types it names.

Only what is at the top or in namespaces is looked at; everything below another entry is passed
over, by DW_AT_sibling where the compiler wrote it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.dwarf.index.abbrev_skim import (
    BLOCK,
    BLOCK1,
    BLOCK2,
    FUNCTION,
    INDIRECT,
    LEB,
    SCOPE,
    STRING,
    TYPE,
    Shape,
)
from usdt.dwarf.units.constants import At, Form, Tag
from usdt.dwarf.units.errors import DwarfError
from usdt.dwarf.units.forms import UNIT_REFERENCES, read_raw, unsigned
from usdt.dwarf.units.scopes import ANONYMOUS, Scopes
from usdt.dwarf.units.units import Entry

if TYPE_CHECKING:
    from usdt.dwarf.index.abbrev_skim import Shapes, Table
    from usdt.dwarf.units.units import Unit

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
        self._seen: set[tuple[int, str, str]] = set()  # offsets of names
        self._named: set[str] = set()
        self._unit: _Bytes
        self._number = self._begin = 0
        self._prefixes = [""]
        self._scopes: tuple[Unit, Scopes] | None = None

    def use(self, shapes: Shapes | None) -> None:
        """Take the shapes of another file, or its own again: of a split unit."""
        if self._shapes is not (shapes or self._own):
            self._shapes = shapes or self._own
            self._seen.clear()  # offsets of strings mean others there

    def is_split(self, unit: Unit) -> bool:
        """Whether a unit stands for one in a file of its own.

        Raises:
            DwarfError: it is damaged.
            LookupError: likewise.
        """
        code, _ = unsigned(unit.data, unit.header.first)
        root = self._table(unit)[code]
        return not isinstance(root, Shape) or root.split

    def _table(self, unit: Unit) -> Table:
        offset = unit.header.abbreviations + unit.file.bases.get("abbrev", 0)
        return self._shapes.table(offset, unit.encoding)

    def scan(self, unit: Unit, number: int, begin: int = 0) -> None:
        """Look through a unit.

        Args:
            unit: the unit.
            number: given for it.
            begin: what positions in it are counted from.

        Raises:
            DwarfError: it is damaged.
            IndexError: likewise.
        """
        self._unit = _Bytes(unit, bytes(unit.data))  # faster than views of them
        self._number, self._begin = number, begin
        self._prefixes = [""]
        self._walk(self._unit.data, self._table(unit), unit.header.first)

    def _walk(self, data: bytes, table: Table, at: int) -> None:
        near, far, reference = table.near, table.far, self._unit.reference
        end = len(data)
        hidden = 0  # levels of entries without siblings that are passed over
        while at < end:
            shape = near[data[at]]
            if isinstance(shape, int):  # two thirds of all
                at += shape
                continue
            start = at
            at += 1
            if shape is None:
                code = data[start]
                if not code:
                    if hidden:
                        hidden -= 1
                    elif len(self._prefixes) > 1:
                        self._prefixes.pop()
                    continue
                if data[at] < 128:  # of two bytes; this is most of the others
                    code, at = code & 127 | data[at] << 7, at + 1
                else:
                    code, at = unsigned(data, start)
                shape = far[code]
                if isinstance(shape, int):
                    at += shape - 1
                    continue
            jump = shape.jump
            if jump < 0:
                if shape.interest and not hidden:
                    self._look(shape, start, at)
                jump = self._unit.jump(shape, at)
            if jump >= 0:
                following = reference(data, at + jump)[0]
                if following > at + jump:
                    at = following
                    continue
            if shape.children and shape.interest != SCOPE:
                hidden += 1
            at = self._unit.passed(shape, at)

    def _look(self, shape: Shape, start: int, at: int) -> None:
        prefix, interest = self._prefixes[-1], shape.interest
        if interest == TYPE:
            direct = shape.direct
            if direct >= 0:
                key = (self._unit.reference(self._unit.data, at + direct)[0], shape.kind, prefix)
                if key in self._seen:
                    return
                self._seen.add(key)
            self._type(shape, start, at, prefix)
        elif interest == FUNCTION:
            address = self._unit.address(shape, start, at)
            if address:
                self.functions.append((address, self._begin + start, self._number))
        elif shape.children:
            if shape.tag == Tag.NAMESPACE:
                prefix = f"{prefix}{self._unit.name(shape, at) or ANONYMOUS}::"
            self._prefixes.append(prefix)
            if len(self._prefixes) > _DEEPEST:
                name = self._unit.unit.file.sections.name
                raise DwarfError(f"{name}: namespaces without an end")

    def _type(self, shape: Shape, start: int, at: int, prefix: str) -> None:
        if shape.completes:
            full = self._declared_name(self._unit.unit, start)
        else:
            name = self._unit.name(shape, at)
            full = name and prefix + name
        if full and full.isprintable():
            full = shape.kind + full
            if full not in self._named:
                self._named.add(full)
                self.types.append((full, self._begin + start, self._number))

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


class _Bytes:
    # What is read of single entries of a unit, without making an Entry of each.
    def __init__(self, unit: Unit, data: bytes) -> None:
        self.unit = unit
        self.data = data
        mark = unit.file.sections.mark
        self.reference = struct.Struct(f"{mark}I").unpack_from
        width = unit.encoding.address_size
        self._address = struct.Struct(f"{mark}{'Q' if width == 8 else 'I'}").unpack_from

    def _place(self, at: int, steps: int, fixed: int, shape: Shape) -> int:
        return (_passed(self.data, at, shape.steps[:steps], self.unit) if steps else at) + fixed

    def passed(self, shape: Shape, at: int) -> int:
        """The position behind the attributes of an entry."""
        return (_passed(self.data, at, shape.steps, self.unit) if shape.steps else at) + shape.fixed

    def jump(self, shape: Shape, at: int) -> int:
        """Bytes to what says what follows the children of an entry; -1 if nothing does."""
        sibling = shape.sibling
        if sibling is None or shape.interest == SCOPE or not shape.children:
            return -1
        if not sibling[0]:
            return sibling[1]
        return self._place(at, *sibling, shape) - at

    def address(self, shape: Shape, start: int, at: int) -> int:
        """Where the code of an entry begins; 0 where that is not known."""
        if shape.low is not None and shape.low[2] == Form.ADDR:
            found: int = self._address(self.data, self._place(at, *shape.low[:2], shape))[0]
            return found
        return _entry_address(self.unit, start)

    def name(self, shape: Shape, at: int) -> str:
        """The name of an entry; "" where it has none."""
        if shape.name is None:
            return ""
        steps, fixed, form = shape.name
        place = self._place(at, steps, fixed, shape)
        return self.unit.string(read_raw(self.data, place, form, 0, self.unit.encoding)[0])


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
