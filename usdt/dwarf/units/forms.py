"""Encodings of numbers, attributes and entries: LEB128, forms, abbreviations.

All functions read from memory at a position. Invalid bytes raise :class:`MalformedDwarf`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from usdt.base.frozen import frozen
from usdt.dwarf.units.constants import At, Form
from usdt.dwarf.units.errors import MalformedDwarf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.elf.file_bytes import FileBytes

    Bytes = bytes | memoryview | FileBytes

__all__ = (
    "Abbreviation",
    "AbbreviationTable",
    "EntryLayout",
    "FormValue",
    "MalformedDwarf",
    "UnitEncoding",
    "read_declaration",
    "read_form",
    "read_sleb128",
    "read_string",
    "read_uleb128",
    "skip_steps",
)

ADDRESS_INDEXES = frozenset(
    (Form.ADDRX, Form.ADDRX1, Form.ADDRX2, Form.ADDRX3, Form.ADDRX4, Form.GNU_ADDR_INDEX)
)
STRING_INDEXES = frozenset(
    (Form.STRX, Form.STRX1, Form.STRX2, Form.STRX3, Form.STRX4, Form.GNU_STR_INDEX)
)
UNIT_REFERENCES = frozenset((Form.REF1, Form.REF2, Form.REF4, Form.REF8, Form.REF_UDATA))
ALT_REFERENCES = frozenset((Form.REF_SUP4, Form.REF_SUP8, Form.GNU_REF_ALT))
# Forms of a fixed size → bytes; UnitEncoding adds those whose size depends on the unit.
_FIXED = {
    **dict.fromkeys((Form.FLAG_PRESENT, Form.IMPLICIT_CONST), 0),
    **dict.fromkeys((Form.DATA1, Form.FLAG, Form.REF1, Form.STRX1, Form.ADDRX1), 1),
    **dict.fromkeys((Form.DATA2, Form.REF2, Form.STRX2, Form.ADDRX2), 2),
    **dict.fromkeys((Form.STRX3, Form.ADDRX3), 3),
    **dict.fromkeys((Form.DATA4, Form.REF4, Form.STRX4, Form.ADDRX4, Form.REF_SUP4), 4),
    **dict.fromkeys((Form.DATA8, Form.REF8, Form.REF_SIG8, Form.REF_SUP8), 8),
    Form.DATA16: 16,
}
_OFFSETS = frozenset(
    (Form.SEC_OFFSET, Form.STRP, Form.LINE_STRP, Form.STRP_SUP, Form.GNU_REF_ALT, Form.GNU_STRP_ALT)
)
# Ways to skip a form without a fixed size.
_LEB, _STRING, _BLOCK, _BLOCK1, _BLOCK2, _BLOCK4, _INDIRECT = range(7)
_VARIABLE = {
    **dict.fromkeys((Form.SDATA, Form.UDATA, Form.REF_UDATA, Form.STRX, Form.ADDRX), _LEB),
    **dict.fromkeys((Form.LOCLISTX, Form.RNGLISTX, Form.GNU_ADDR_INDEX, Form.GNU_STR_INDEX), _LEB),
    Form.STRING: _STRING,
    **dict.fromkeys((Form.BLOCK, Form.EXPRLOC), _BLOCK),
    Form.BLOCK1: _BLOCK1,
    Form.BLOCK2: _BLOCK2,
    Form.BLOCK4: _BLOCK4,
    Form.INDIRECT: _INDIRECT,
}
_LENGTH_SIZES = {Form.BLOCK1: 1, Form.BLOCK2: 2, Form.BLOCK4: 4}  # of a block's length, in bytes
_MAX_LEB = 16  # bytes; real ones have ten
_MAX_ATTRIBUTES = 1 << 10  # per abbreviation
_MAX_ABBREVIATIONS = 1 << 20
_LONGEST = 1 << 16  # bytes of an abbreviation
_PIECE = 1 << 17  # bytes of a table that are read at once
_MAX_STRING = 1 << 16


class FormValue(NamedTuple):
    """The raw value of an attribute.

    Attributes:
        form: ``DW_FORM_…``.
        value: the number, offset or index; the position of a string or of a block's bytes.
    """

    form: int
    value: int


def read_uleb128(data: Bytes, at: int) -> tuple[int, int]:
    """Return an unsigned LEB128 number and the position after it."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for count in range(1, _MAX_LEB):
        byte = data[at + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise MalformedDwarf(f"a number of more than {_MAX_LEB} bytes")


def read_sleb128(data: Bytes, at: int) -> tuple[int, int]:
    """Return a signed LEB128 number and the position after it."""
    value, end = read_uleb128(data, at)
    bits = 7 * (end - at)
    return value - (1 << bits) if value >> bits - 1 else value, end


def read_string(data: Bytes, at: int) -> tuple[str, int]:
    """Return a NUL-terminated string and the position after it."""
    size = 256
    while size <= _MAX_STRING:
        raw = bytes(data[at : at + size])
        end = raw.find(b"\0")
        if end >= 0:
            return raw[:end].decode("utf-8", "surrogateescape"), at + end + 1
        if len(raw) < size:
            break
        size *= 4
    raise MalformedDwarf(f"a string at {at:#x} does not end")


@frozen
class UnitEncoding:
    """The encoding of numbers in a unit.

    Attributes:
        byteorder: "little" or "big".
        address_size: size of an address in bytes.
        offset_size: size of an offset in bytes: 4, or 8 for 64-bit DWARF.
        version: the DWARF version.
    """

    byteorder: str
    address_size: int
    offset_size: int
    version: int

    def size_of(self, form: int) -> int | None:
        """Return the size of a form in bytes; None if it is not fixed."""
        if form == Form.ADDR:
            return self.address_size
        if form == Form.REF_ADDR:
            return self.address_size if self.version == 2 else self.offset_size
        return self.offset_size if form in _OFFSETS else _FIXED.get(form)

    def number(self, data: Bytes, at: int, size: int) -> int:
        """Return an unsigned number of ``size`` bytes."""
        raw = data[at : at + size]
        if len(raw) < size:
            raise MalformedDwarf(f"expected {size} bytes at {at:#x}, found {len(raw)}")
        return int.from_bytes(raw, self.byteorder)  # type: ignore[arg-type]


class EntryLayout(NamedTuple):
    """Where the attributes of an entry are, without reading it.

    Attributes:
        varlen_steps: (fixed bytes, way to skip the form after them), once for each
            variable-length attribute.
        fixed_size: size in bytes of the attributes after the last variable-length one.
        positions: ``DW_AT_…`` → (steps, fixed bytes after them, form).
    """

    varlen_steps: tuple[tuple[int, int], ...]
    fixed_size: int
    positions: dict[int, tuple[int, int, int]]

    @classmethod
    def of(cls, attributes: list[tuple[int, int, int]], encoding: UnitEncoding) -> EntryLayout:
        """Return the layout of attributes as :func:`read_declaration` returns them."""
        fixed = 0
        steps: list[tuple[int, int]] = []
        positions = {}
        for name, form, _ in attributes:
            positions[name] = len(steps), fixed, form
            size = encoding.size_of(form)
            if size is not None:
                fixed += size
            elif form in _VARIABLE:
                steps.append((fixed, _VARIABLE[form]))
                fixed = 0
            else:
                raise MalformedDwarf(f"DW_FORM {form:#x} is not known")
        return cls(tuple(steps), fixed, positions)


def skip_steps(
    data: bytes | memoryview, at: int, steps: tuple[tuple[int, int], ...], encoding: UnitEncoding
) -> int:
    """Return the position after some of an entry's :attr:`EntryLayout.varlen_steps`."""
    for fixed, step in steps:
        at += fixed
        if step == _BLOCK:
            size = data[at]
            at += 1
            if size > 127:
                size, at = read_uleb128(data, at - 1)
            at += size
        elif step == _LEB:
            while data[at] > 127:
                at += 1
            at += 1
        elif step == _STRING:
            at = _string_end(data, at)
        elif step == _BLOCK1:
            at += 1 + data[at]
        elif step == _INDIRECT:
            _, at = read_form(data, at, Form.INDIRECT, 0, encoding)
        else:
            width = 2 if step == _BLOCK2 else 4
            at += width + encoding.number(data, at, width)
    return at


def _string_end(data: bytes | memoryview, at: int) -> int:
    if isinstance(data, memoryview):
        return read_string(data, at)[1]
    end = data.find(b"\0", at)
    if end < 0:
        raise MalformedDwarf(f"a string at {at:#x} does not end")
    return end + 1


def read_form(
    data: bytes | memoryview, at: int, form: int, constant: int, encoding: UnitEncoding
) -> tuple[FormValue, int]:
    """Return an attribute and the position after it; ``constant`` is its implicit constant."""
    size = encoding.size_of(form)
    if size is not None:
        if form == Form.IMPLICIT_CONST:
            return FormValue(form, constant), at
        return FormValue(form, encoding.number(data, at, size) if size else 1), at + size
    if form == Form.SDATA:
        value, at = read_sleb128(data, at)
        return FormValue(form, value), at
    if form == Form.STRING:
        return FormValue(form, at), read_string(data, at)[1]
    if form == Form.INDIRECT:
        form, at = read_uleb128(data, at)
        if form in (Form.INDIRECT, Form.IMPLICIT_CONST):
            raise MalformedDwarf("DW_FORM_indirect that leads to itself or to a constant")
        return read_form(data, at, form, 0, encoding)
    if form in _LENGTH_SIZES:
        length, at = encoding.number(data, at, _LENGTH_SIZES[form]), at + _LENGTH_SIZES[form]
        return FormValue(form, at), at + length
    if form not in _VARIABLE:
        raise MalformedDwarf(f"DW_FORM {form:#x} is not known")
    value, at = read_uleb128(data, at)
    return (
        (FormValue(form, at), at + value)
        if _VARIABLE[form] == _BLOCK
        else (FormValue(form, value), at)
    )


def read_declaration(data: bytes, at: int) -> tuple[int, bool, list[tuple[int, int, int]], int]:
    """Read an abbreviation declaration, without its code.

    Returns:
        ``DW_TAG_…``; True if such an entry may have children; (``DW_AT_…``, ``DW_FORM_…``,
        implicit constant) of each attribute; and the position after the declaration.
    """
    tag, at = read_uleb128(data, at)
    children = bool(data[at])
    at += 1
    attributes: list[tuple[int, int, int]] = []
    while len(attributes) <= _MAX_ATTRIBUTES:
        name, at = read_uleb128(data, at)
        form, at = read_uleb128(data, at)
        constant = 0
        if form == Form.IMPLICIT_CONST:
            constant, at = read_sleb128(data, at)
        if name == form == 0:
            return tag, children, attributes, at
        attributes.append((name, form, constant))
    raise MalformedDwarf(f"an abbreviation of more than {_MAX_ATTRIBUTES} attributes")


class Abbreviation:
    """The attributes of one kind of entry (DIE).

    Attributes:
        tag: ``DW_TAG_…``.
        children: True if such an entry may have children.
        attributes: (``DW_AT_…``, ``DW_FORM_…``, implicit constant) in order.
        code: True if such entries have addresses of code.
        varlen_steps: see :class:`EntryLayout`.
        fixed_size: see :class:`EntryLayout`.
        sibling_size: size of DW_AT_sibling in bytes, if that is the last attribute; else 0.
    """

    __slots__ = (
        "attributes",
        "children",
        "code",
        "fixed_size",
        "sibling_size",
        "tag",
        "varlen_steps",
    )

    def __init__(self, data: bytes, at: int, encoding: UnitEncoding) -> None:
        self.tag, self.children, attributes, _ = read_declaration(data, at)
        self.attributes = tuple(attributes)
        self.varlen_steps, self.fixed_size, positions = EntryLayout.of(attributes, encoding)
        self.code = At.LOW_PC in positions or At.RANGES in positions
        last, form, _ = attributes[-1] if attributes else (0, 0, 0)
        # gcc writes DW_AT_sibling last; clang does not write it.
        sibling = last == At.SIBLING and form in UNIT_REFERENCES
        self.sibling_size = _FIXED.get(form, 0) if sibling else 0


class AbbreviationTable:
    """A table of abbreviations, decoded on demand.

    Args:
        section: ``.debug_abbrev``.
        at: the position of the table.
        encoding: the encoding of the unit that uses it.

    Attributes:
        known: code → decoded abbreviation.
    """

    def __init__(self, section: Bytes, at: int, encoding: UnitEncoding) -> None:
        self.known: dict[int, Abbreviation] = {}
        self._section = section
        # Of the section, what was read so far from the table's start on.
        self._data, self._at = (section, at) if isinstance(section, bytes) else (b"", 0)
        self._next = at
        self._encoding = encoding
        self._positions: dict[int, int] = {}
        self._ended = False

    def __getitem__(self, code: int) -> Abbreviation:
        found = self.known.get(code)
        if found is not None:
            return found
        while code not in self._positions and not self._ended:
            self._skip_one()
        if code not in self._positions:
            raise MalformedDwarf(f"no abbreviation {code}")
        made = Abbreviation(self._data, self._positions[code], self._encoding)
        self.known[code] = made
        return made

    def every(self, most: int) -> Iterator[Abbreviation]:
        """Yield the abbreviations with the codes from 1 on, as compilers number them."""
        for code in range(1, most):
            try:
                yield self[code]
            except MalformedDwarf:
                return

    def _skip_one(self) -> None:
        # Most abbreviations are never needed: keep only their positions.
        if self._at + _LONGEST > len(self._data) and self._next < len(self._section):
            self._read_more()
        data = self._data
        code, at = read_uleb128(data, self._at)
        if code == 0 or len(self._positions) >= _MAX_ABBREVIATIONS:
            self._ended = True
            return
        self._positions.setdefault(code, at)
        _, attributes = read_uleb128(data, at)
        end = data.find(b"\0\0", attributes + 1)
        # If a third zero follows, the first may belong to a constant: decode to find the end.
        if end < 0 or data[end + 2 : end + 3] == b"\0":
            self._at = read_declaration(data, at)[3]
        else:
            self._at = end + 2

    def _read_more(self) -> None:
        # A table has some kilobytes, the section megabytes.
        if self._data is not self._section:
            size = max(_PIECE, len(self._data))
            self._data += bytes(self._section[self._next : self._next + size])
            self._next += size
