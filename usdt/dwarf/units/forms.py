"""Encodings of numbers, attributes and entries: LEB128, forms, abbreviations.

All functions read from memory at a position. Invalid bytes raise :class:`MalformedDwarf`.
"""

from __future__ import annotations

from typing import NamedTuple

from usdt.base.frozen import frozen
from usdt.dwarf.units.constants import At, Form
from usdt.dwarf.units.errors import DwarfError

__all__ = (
    "Abbreviation",
    "AbbreviationTable",
    "FormValue",
    "MalformedDwarf",
    "UnitEncoding",
    "read_form",
    "read_sleb128",
    "read_string",
    "read_uleb128",
    "skip_attributes",
)

ADDRESS_INDEXES = frozenset((0x1B, 0x29, 0x2A, 0x2B, 0x2C, 0x1F01))  # addrx…, GNU_addr_index
STRING_INDEXES = frozenset((0x1A, 0x25, 0x26, 0x27, 0x28, Form.GNU_STR_INDEX))
UNIT_REFERENCES = frozenset((0x11, 0x12, 0x13, 0x14, 0x15))  # ref1 … ref_udata
_SIBLINGS = frozenset((0x11, 0x12, 0x13, 0x14))
ALT_REFERENCES = frozenset((0x1C, 0x24, 0x1F20))  # ref_sup4, ref_sup8, GNU_ref_alt
# Forms of a fixed size → bytes; UnitEncoding adds those whose size depends on the unit.
_FIXED = {
    **dict.fromkeys((0x0B, 0x0C, 0x11, 0x25, 0x29), 1),  # data1 flag ref1 strx1 addrx1
    **dict.fromkeys((0x05, 0x12, 0x26, 0x2A), 2),
    **dict.fromkeys((0x27, 0x2B), 3),
    **dict.fromkeys((0x06, 0x13, 0x28, 0x2C, 0x1C), 4),
    **dict.fromkeys((0x07, 0x14, 0x20, 0x24), 8),
    Form.DATA16: 16,
    **dict.fromkeys((0x19, Form.IMPLICIT_CONST), 0),  # flag_present
}
_OFFSETS = (Form.SEC_OFFSET, Form.STRP, Form.LINE_STRP, Form.STRP_SUP, 0x1F20, Form.GNU_STRP_ALT)
_LEB, _STRING, _BLOCK, _INDIRECT = -1, -2, -3, -4  # steps of a variable size
_VARIABLE = {
    # sdata udata ref_udata strx addrx loclistx rnglistx GNU_addr_index GNU_str_index
    **dict.fromkeys((Form.SDATA, Form.UDATA, 0x15, 0x1A, 0x1B, 0x22, 0x23, 0x1F01, 0x1F02), _LEB),
    Form.STRING: _STRING,
    **dict.fromkeys((0x09, 0x18), _BLOCK),  # block exprloc
    Form.INDIRECT: _INDIRECT,
}
_COUNTED = {0x0A: 1, 0x03: 2, 0x04: 4}  # block1 block2 block4 → bytes of the length field
_MAX_LEB = 16  # bytes; real ones have ten
_MAX_ATTRIBUTES = 1 << 10  # per abbreviation
_MAX_ABBREVIATIONS = 1 << 20
_MAX_STRING = 1 << 16


class MalformedDwarf(DwarfError):  # noqa: N818 - what it is
    """Debug information with invalid bytes."""


class FormValue(NamedTuple):
    """The raw value of an attribute.

    Attributes:
        form: ``DW_FORM_…``.
        value: the number, offset or index; the position of a string or of a block's bytes.
    """

    form: int
    value: int


def read_uleb128(data: bytes | memoryview, at: int) -> tuple[int, int]:
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


def read_sleb128(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return a signed LEB128 number and the position after it."""
    value, end = read_uleb128(data, at)
    bits = 7 * (end - at)
    return value - (1 << bits) if value >> bits - 1 else value, end


def read_string(data: bytes | memoryview, at: int) -> tuple[str, int]:
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

    def number(self, data: bytes | memoryview, at: int, size: int) -> int:
        """Return an unsigned number of ``size`` bytes."""
        raw = data[at : at + size]
        if len(raw) < size:
            raise MalformedDwarf(f"expected {size} bytes at {at:#x}, found {len(raw)}")
        return int.from_bytes(raw, self.byteorder)  # type: ignore[arg-type]


class Abbreviation:
    """The attributes of one kind of entry (DIE).

    Attributes:
        tag: ``DW_TAG_…``.
        children: True if such an entry may have children.
        attributes: (``DW_AT_…``, ``DW_FORM_…``, implicit constant) in order.
        code: True if such entries have addresses of code.
        steps: steps that skip the attributes: numbers of bytes, and negative numbers for forms
            without a fixed size.
        fixed_size: size of all attributes in bytes; None if it is not fixed.
        sibling_size: size of DW_AT_sibling in bytes, if that is the last attribute; else 0.
    """

    __slots__ = ("attributes", "children", "code", "fixed_size", "sibling_size", "steps", "tag")

    def __init__(
        self,
        tag: int,
        attributes: list[tuple[int, int, int]],
        encoding: UnitEncoding,
        *,
        children: bool,
    ) -> None:
        self.tag = tag
        self.children = children
        self.attributes = tuple(attributes)
        self.code = any(one[0] in (At.LOW_PC, At.RANGES) for one in attributes)
        last, form, _ = attributes[-1] if attributes else (0, 0, 0)
        # gcc writes DW_AT_sibling last; clang does not write it.
        self.sibling_size = _FIXED[form] if last == At.SIBLING and form in _SIBLINGS else 0
        steps: list[int] = []
        for _, form, _ in attributes:
            step = _step(form, encoding)
            if step >= 0 and steps and steps[-1] >= 0:
                steps[-1] += step
            else:
                steps.append(step)
        self.steps = tuple(steps)
        self.fixed_size = sum(steps) if all(step >= 0 for step in steps) else None


def _step(form: int, encoding: UnitEncoding) -> int:
    size = encoding.size_of(form)
    if size is not None:
        return size
    if form in _COUNTED:
        return _BLOCK - 8 * _COUNTED[form]
    found = _VARIABLE.get(form)
    if found is None:
        raise MalformedDwarf(f"DW_FORM {form:#x} is not known")
    return found


def skip_attributes(
    data: bytes | memoryview, at: int, abbreviation: Abbreviation, encoding: UnitEncoding
) -> int:
    """Return the position after the attributes of an entry."""
    for step in abbreviation.steps:
        if step >= 0:
            at += step
        elif step == _LEB:
            while data[at] >= 0x80:
                at += 1
            at += 1
        elif step == _STRING:
            at = read_string(data, at)[1]
        elif step == _BLOCK:
            size, at = read_uleb128(data, at)
            at += size
        elif step == _INDIRECT:
            _, at = read_form(data, at, Form.INDIRECT, 0, encoding)
        else:
            width = (_BLOCK - step) // 8
            at += width + encoding.number(data, at, width)
    return at


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
    if form in _COUNTED:
        length, at = encoding.number(data, at, _COUNTED[form]), at + _COUNTED[form]
        return FormValue(form, at), at + length
    if form not in _VARIABLE:
        raise MalformedDwarf(f"DW_FORM {form:#x} is not known")
    value, at = read_uleb128(data, at)
    return (
        (FormValue(form, at), at + value)
        if _VARIABLE[form] == _BLOCK
        else (FormValue(form, value), at)
    )


class AbbreviationTable:
    """A table of abbreviations, decoded on demand.

    Args:
        data: the section ``.debug_abbrev``.
        at: the position of the table.
        encoding: the encoding of the unit that uses it.

    Attributes:
        known: code → decoded abbreviation.
    """

    def __init__(self, data: bytes, at: int, encoding: UnitEncoding) -> None:
        self.known: dict[int, Abbreviation] = {}
        self._data = data
        self._at = at
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
        made = self.known[code] = self._read(self._positions[code])[0]
        return made

    def _skip_one(self) -> None:
        # Most abbreviations are never needed: keep only their positions.
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
            self._at = self._read(at)[1]
        else:
            self._at = end + 2

    def _read(self, at: int) -> tuple[Abbreviation, int]:
        data = self._data
        tag, at = read_uleb128(data, at)
        children = bool(data[at])
        at += 1
        attributes: list[tuple[int, int, int]] = []
        while True:
            name, at = read_uleb128(data, at)
            form, at = read_uleb128(data, at)
            constant = 0
            if form == Form.IMPLICIT_CONST:
                constant, at = read_sleb128(data, at)
            if name == form == 0:
                return Abbreviation(tag, attributes, self._encoding, children=children), at
            attributes.append((name, form, constant))
            if len(attributes) > _MAX_ATTRIBUTES:
                raise MalformedDwarf(f"an abbreviation of more than {_MAX_ATTRIBUTES} attributes")
