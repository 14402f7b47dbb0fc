"""DWARF's encodings, as far as source lines need them: LEB128, forms, abbreviations.

Everything is read from memory at a position; what cannot be is :class:`Malformed`. The numbers are
those of the DWARF standard, version 5, and of GNU's extensions for split and shared debug
information.
"""

from __future__ import annotations

from typing import NamedTuple

from usdt.base.frozen import frozen
from usdt.dwarf.units.errors import DwarfError

__all__ = (
    "Abbreviation",
    "Abbreviations",
    "Encoding",
    "Malformed",
    "Raw",
    "read_raw",
    "signed",
    "skip",
    "string_at",
    "unsigned",
)

# DW_AT_…
AT_SIBLING, AT_NAME, AT_STMT_LIST, AT_LOW_PC, AT_HIGH_PC = 0x01, 0x03, 0x10, 0x11, 0x12
AT_COMP_DIR, AT_ABSTRACT_ORIGIN, AT_SPECIFICATION = 0x1B, 0x31, 0x47
AT_RANGES, AT_CALL_FILE, AT_CALL_LINE, AT_LINKAGE_NAME = 0x55, 0x58, 0x59, 0x6E
AT_STR_OFFSETS_BASE, AT_ADDR_BASE, AT_RNGLISTS_BASE, AT_DWO_NAME = 0x72, 0x73, 0x74, 0x76
AT_MIPS_LINKAGE_NAME, AT_GNU_DWO_NAME, AT_GNU_DWO_ID = 0x2007, 0x2130, 0x2131
AT_GNU_RANGES_BASE, AT_GNU_ADDR_BASE = 0x2132, 0x2133
# DW_FORM_…
FORM_ADDR, FORM_STRING, FORM_INDIRECT, FORM_REF_ADDR, FORM_IMPLICIT_CONST = 1, 8, 0x16, 0x10, 0x21
FORM_SDATA, FORM_UDATA, FORM_STRP, FORM_SEC_OFFSET, FORM_LINE_STRP = 0x0D, 0x0F, 0x0E, 0x17, 0x1F
FORM_DATA16, FORM_RNGLISTX, FORM_STRP_SUP = 0x1E, 0x23, 0x1D
FORM_GNU_STRP_ALT, FORM_GNU_STR_INDEX = 0x1F21, 0x1F02
ADDRESS_INDEXES = frozenset((0x1B, 0x29, 0x2A, 0x2B, 0x2C, 0x1F01))  # addrx…, GNU_addr_index
STRING_INDEXES = frozenset((0x1A, 0x25, 0x26, 0x27, 0x28, FORM_GNU_STR_INDEX))
UNIT_REFERENCES = frozenset((0x11, 0x12, 0x13, 0x14, 0x15))  # ref1 … ref_udata
_SIBLINGS = frozenset((0x11, 0x12, 0x13, 0x14))
ALT_REFERENCES = frozenset((0x1C, 0x24, 0x1F20))  # ref_sup4, ref_sup8, GNU_ref_alt
# Forms of a fixed size; those that depend on the unit are added by Encoding.
_FIXED = {
    **dict.fromkeys((0x0B, 0x0C, 0x11, 0x25, 0x29), 1),  # data1 flag ref1 strx1 addrx1
    **dict.fromkeys((0x05, 0x12, 0x26, 0x2A), 2),
    **dict.fromkeys((0x27, 0x2B), 3),
    **dict.fromkeys((0x06, 0x13, 0x28, 0x2C, 0x1C), 4),
    **dict.fromkeys((0x07, 0x14, 0x20, 0x24), 8),
    FORM_DATA16: 16,
    **dict.fromkeys((0x19, FORM_IMPLICIT_CONST), 0),  # flag_present
}
_OFFSETS = (FORM_SEC_OFFSET, FORM_STRP, FORM_LINE_STRP, FORM_STRP_SUP, 0x1F20, FORM_GNU_STRP_ALT)
_LEB, _STRING, _BLOCK, _INDIRECT = -1, -2, -3, -4  # steps of a variable size
_VARIABLE = {
    # sdata udata ref_udata strx addrx loclistx rnglistx GNU_addr_index GNU_str_index
    **dict.fromkeys((FORM_SDATA, FORM_UDATA, 0x15, 0x1A, 0x1B, 0x22, 0x23, 0x1F01, 0x1F02), _LEB),
    FORM_STRING: _STRING,
    **dict.fromkeys((0x09, 0x18), _BLOCK),  # block exprloc
    FORM_INDIRECT: _INDIRECT,
}
_COUNTED = {0x0A: 1, 0x03: 2, 0x04: 4}  # block1 block2 block4: bytes of their length
_MAX_LEB = 16  # bytes; real ones have ten
_MAX_ATTRIBUTES = 1 << 10  # of one abbreviation
_MAX_ABBREVIATIONS = 1 << 20
_MAX_STRING = 1 << 16


class Malformed(DwarfError):  # noqa: N818 - what it is
    """Debug information that cannot be believed."""


class Raw(NamedTuple):
    """An attribute as it is written.

    Attributes:
        form: ``DW_FORM_…``.
        value: the number, offset or index; the position of a string or of a block's bytes.
    """

    form: int
    value: int


def unsigned(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number and the position behind it."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for count in range(1, _MAX_LEB):
        byte = data[at + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise Malformed(f"a number of more than {_MAX_LEB} bytes")


def signed(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A signed LEB128 number and the position behind it."""
    value, end = unsigned(data, at)
    bits = 7 * (end - at)
    return value - (1 << bits) if value >> bits - 1 else value, end


def string_at(data: bytes | memoryview, at: int) -> tuple[str, int]:
    """A string that ends in NUL and the position behind that."""
    size = 256
    while size <= _MAX_STRING:
        raw = bytes(data[at : at + size])
        end = raw.find(b"\0")
        if end >= 0:
            return raw[:end].decode("utf-8", "surrogateescape"), at + end + 1
        if len(raw) < size:
            break
        size *= 4
    raise Malformed(f"a string at {at:#x} without an end")


@frozen
class Encoding:
    """How the numbers of a unit are written."""

    byteorder: str
    address_size: int
    offset_size: int
    version: int

    def size_of(self, form: int) -> int | None:
        """Bytes of a form; None where that is not fixed."""
        if form == FORM_ADDR:
            return self.address_size
        if form == FORM_REF_ADDR:
            return self.address_size if self.version == 2 else self.offset_size
        return self.offset_size if form in _OFFSETS else _FIXED.get(form)

    def number(self, data: bytes | memoryview, at: int, size: int) -> int:
        """An unsigned number of ``size`` bytes."""
        raw = data[at : at + size]
        if len(raw) < size:
            raise Malformed(f"{size} bytes expected at {at:#x}, {len(raw)} are there")
        return int.from_bytes(raw, self.byteorder)  # type: ignore[arg-type]


class Abbreviation:
    """What one kind of entry (DIE) consists of.

    Attributes:
        tag: ``DW_TAG_…``.
        children: whether entries below it follow.
        attributes: (``DW_AT_…``, ``DW_FORM_…``, implicit constant) in order.
        code: whether such entries may have code.
        steps: how to pass over one: bytes, or a negative number for what has no fixed size.
        fixed: bytes of the whole; -1 where that is not fixed.
        sibling: bytes of a reference to what follows its children, if that comes last; else 0.
    """

    __slots__ = ("attributes", "children", "code", "fixed", "sibling", "steps", "tag")

    def __init__(
        self,
        tag: int,
        attributes: list[tuple[int, int, int]],
        encoding: Encoding,
        *,
        children: bool,
    ) -> None:
        self.tag = tag
        self.children = children
        self.attributes = tuple(attributes)
        self.code = any(one[0] in (AT_LOW_PC, AT_RANGES) for one in attributes)
        last, form, _ = attributes[-1] if attributes else (0, 0, 0)
        # gcc writes it last; clang writes none.
        self.sibling = _FIXED[form] if last == AT_SIBLING and form in _SIBLINGS else 0
        steps: list[int] = []
        for _, form, _ in attributes:
            step = _step(form, encoding)
            if step >= 0 and steps and steps[-1] >= 0:
                steps[-1] += step
            else:
                steps.append(step)
        self.steps = tuple(steps)
        self.fixed = sum(steps) if all(step >= 0 for step in steps) else -1


def _step(form: int, encoding: Encoding) -> int:
    size = encoding.size_of(form)
    if size is not None:
        return size
    if form in _COUNTED:
        return _BLOCK - 8 * _COUNTED[form]
    found = _VARIABLE.get(form)
    if found is None:
        raise Malformed(f"DW_FORM {form:#x} is not known")
    return found


def skip(data: bytes | memoryview, at: int, abbreviation: Abbreviation, encoding: Encoding) -> int:
    """The position behind the attributes of an entry."""
    for step in abbreviation.steps:
        if step >= 0:
            at += step
        elif step == _LEB:
            while data[at] >= 0x80:
                at += 1
            at += 1
        elif step == _STRING:
            at = string_at(data, at)[1]
        elif step == _BLOCK:
            size, at = unsigned(data, at)
            at += size
        elif step == _INDIRECT:
            _, at = read_raw(data, at, FORM_INDIRECT, 0, encoding)
        else:
            width = (_BLOCK - step) // 8
            at += width + encoding.number(data, at, width)
    return at


def read_raw(
    data: bytes | memoryview, at: int, form: int, constant: int, encoding: Encoding
) -> tuple[Raw, int]:
    """An attribute and the position behind it; ``constant`` is the implicit one."""
    size = encoding.size_of(form)
    if size is not None:
        if form == FORM_IMPLICIT_CONST:
            return Raw(form, constant), at
        return Raw(form, encoding.number(data, at, size) if size else 1), at + size
    if form == FORM_SDATA:
        value, at = signed(data, at)
        return Raw(form, value), at
    if form == FORM_STRING:
        return Raw(form, at), string_at(data, at)[1]
    if form == FORM_INDIRECT:
        form, at = unsigned(data, at)
        if form in (FORM_INDIRECT, FORM_IMPLICIT_CONST):
            raise Malformed("a form that refers to itself")
        return read_raw(data, at, form, 0, encoding)
    if form in _COUNTED:
        length, at = encoding.number(data, at, _COUNTED[form]), at + _COUNTED[form]
        return Raw(form, at), at + length
    if form not in _VARIABLE:
        raise Malformed(f"DW_FORM {form:#x} is not known")
    value, at = unsigned(data, at)
    return (Raw(form, at), at + value) if _VARIABLE[form] == _BLOCK else (Raw(form, value), at)


class Abbreviations:
    """A table of abbreviations, decoded as far as it is asked for.

    Args:
        data: the whole of ``.debug_abbrev``.
        at: where the table begins.
        encoding: of the unit that uses it.

    Attributes:
        known: those that were asked for, by code.
    """

    def __init__(self, data: bytes, at: int, encoding: Encoding) -> None:
        self.known: dict[int, Abbreviation] = {}
        self._data = data
        self._at = at
        self._encoding = encoding
        self._places: dict[int, int] = {}
        self._ended = False

    def __getitem__(self, code: int) -> Abbreviation:
        found = self.known.get(code)
        if found is not None:
            return found
        while code not in self._places and not self._ended:
            self._pass()
        if code not in self._places:
            raise Malformed(f"no abbreviation {code}")
        made = self.known[code] = self._read(self._places[code])[0]
        return made

    def _pass(self) -> None:
        # Most are never asked for: of these only where they are.
        data = self._data
        code, at = unsigned(data, self._at)
        if code == 0 or len(self._places) >= _MAX_ABBREVIATIONS:
            self._ended = True
            return
        self._places.setdefault(code, at)
        _, attributes = unsigned(data, at)
        end = data.find(b"\0\0", attributes + 1)
        # A third zero: the first may be a constant's, so the two behind it are the end.
        if end < 0 or data[end + 2 : end + 3] == b"\0":
            self._at = self._read(at)[1]
        else:
            self._at = end + 2

    def _read(self, at: int) -> tuple[Abbreviation, int]:
        data = self._data
        tag, at = unsigned(data, at)
        children = bool(data[at])
        at += 1
        attributes: list[tuple[int, int, int]] = []
        while True:
            name, at = unsigned(data, at)
            form, at = unsigned(data, at)
            constant = 0
            if form == FORM_IMPLICIT_CONST:
                constant, at = signed(data, at)
            if name == form == 0:
                return Abbreviation(tag, attributes, self._encoding, children=children), at
            attributes.append((name, form, constant))
            if len(attributes) > _MAX_ATTRIBUTES:
                raise Malformed(f"an abbreviation of more than {_MAX_ATTRIBUTES} attributes")
