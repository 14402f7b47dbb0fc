"""Locations of variables that differ from address to address: DWARF 5, section 2.6.2.

``.debug_loc`` of DWARF 2 to 4, GNU's ``.debug_loc.dwo`` and ``.debug_loclists`` of DWARF 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import At, Form
from usdt.dwarf.units.forms import MalformedDwarf, read_uleb128

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.dwarf.units.dies import Die
    from usdt.dwarf.units.forms import FormValue
    from usdt.dwarf.units.units import Unit

__all__ = ("expression_at", "is_list")

_MAX_ENTRIES = 1 << 14  # of a list
_MAX_EXPRESSION = 1 << 12  # bytes
_DEFAULT = (0, (1 << 64) - 1)  # DW_LLE_default_location: everywhere
_PLAIN = frozenset((Form.DATA4, Form.DATA8))

_Entry = tuple[tuple[int, int], bytes]  # start and end, expression


def is_list(die: Die, name: int = At.LOCATION) -> bool:
    """Return whether an attribute is a location list."""
    raw = die.raw(name)
    return raw is not None and (raw.form in (Form.SEC_OFFSET, Form.LOCLISTX) or raw.form in _PLAIN)


def expression_at(die: Die, address: int, name: int = At.LOCATION) -> bytes | None:
    """Return the expression of a location at an address; None if there is none there.

    Args:
        die: the entry of a variable or function.
        address: an address in the file of the debug information.
        name: the attribute.

    Raises:
        DwarfError: the list is damaged.
        LookupError: likewise.
    """
    raw = die.raw(name)
    if raw is None:
        return None
    if not is_list(die, name):
        return die.block(name)
    for (start, end), expression in _entries(die.unit, raw):
        if start <= address < end:
            return expression
    return None


def _entries(unit: Unit, raw: FormValue) -> Iterator[_Entry]:
    if unit.encoding.version >= 5:
        return _of_version_5(unit, raw)
    if unit.skeleton is not None:
        return _of_gnu_split(unit, raw.value)
    return _of_version_4(unit, raw.value)


def _expression(unit: Unit, section: str, at: int, size: int) -> tuple[bytes, int]:
    data = unit.file.sections[section]
    if size > _MAX_EXPRESSION or at + size > len(data):
        raise MalformedDwarf(f"a location of {size} bytes in {section}")
    return bytes(data[at : at + size]), at + size


def _of_version_4(unit: Unit, at: int) -> Iterator[_Entry]:
    section, encoding = ".debug_loc", unit.encoding
    data, size = unit.file.sections[section], encoding.address_size
    highest, base = (1 << 8 * size) - 1, unit.base
    for _ in range(_MAX_ENTRIES):
        start, end = encoding.number(data, at, size), encoding.number(data, at + size, size)
        at += 2 * size
        if start == end == 0:
            return
        if start == highest:
            base = end
            continue
        length = encoding.number(data, at, 2)
        expression, at = _expression(unit, section, at + 2, length)
        yield (base + start, base + end), expression
    raise MalformedDwarf(f"a list of more than {_MAX_ENTRIES} locations")


def _of_gnu_split(unit: Unit, at: int) -> Iterator[_Entry]:
    section, encoding = ".debug_loc", unit.encoding
    data, base = unit.file.sections[section], unit.base
    at += unit.file.bases.get("loclists", 0)
    for _ in range(_MAX_ENTRIES):
        kind, at = data[at], at + 1
        if not kind:
            return
        if kind not in (1, 2, 3, 4):
            raise MalformedDwarf(f"DW_LLE_GNU {kind:#x} is not known")
        if kind == 4:  # offset_pair
            start, end = encoding.number(data, at, 4), encoding.number(data, at + 4, 4)
            span, at = (base + start, base + end), at + 8
        else:
            index, at = read_uleb128(data, at)
            first = unit.indexed_address(index)
            if kind == 1:
                base = first
                continue
            if kind == 2:  # startx_endx
                index, at = read_uleb128(data, at)
                span = first, unit.indexed_address(index)
            else:  # startx_length
                span, at = (first, first + encoding.number(data, at, 4)), at + 4
        length = encoding.number(data, at, 2)
        expression, at = _expression(unit, section, at + 2, length)
        yield span, expression
    raise MalformedDwarf(f"a list of more than {_MAX_ENTRIES} locations")


def _of_version_5(unit: Unit, raw: FormValue) -> Iterator[_Entry]:
    section = ".debug_loclists"
    data, at, base = unit.file.sections[section], _position(unit, raw), unit.base
    for _ in range(_MAX_ENTRIES):
        kind, at = data[at], at + 1
        if kind == 0:  # end_of_list
            return
        if kind in (1, 6):  # base_addressx, base_address
            base, at = _address(unit, at, indexed=kind == 1)
            continue
        if kind == 9:  # GNU_view_pair
            _, at = read_uleb128(data, at)
            _, at = read_uleb128(data, at)
            continue
        span, at = _span(unit, kind, at, base)
        length, at = read_uleb128(data, at)
        expression, at = _expression(unit, section, at, length)
        yield span, expression
    raise MalformedDwarf(f"a list of more than {_MAX_ENTRIES} locations")


def _span(unit: Unit, kind: int, at: int, base: int) -> tuple[tuple[int, int], int]:
    data = unit.file.sections[".debug_loclists"]
    if kind == 5:  # default_location
        return _DEFAULT, at
    if kind == 4:  # offset_pair
        start, at = read_uleb128(data, at)
        end, at = read_uleb128(data, at)
        return (base + start, base + end), at
    if kind not in (2, 3, 7, 8):
        raise MalformedDwarf(f"DW_LLE {kind:#x} is not known")
    start, at = _address(unit, at, indexed=kind in (2, 3))
    if kind == 2:  # startx_endx
        end, at = _address(unit, at, indexed=True)
    elif kind == 7:  # start_end
        end, at = _address(unit, at, indexed=False)
    else:  # startx_length, start_length
        length, at = read_uleb128(data, at)
        end = start + length
    return (start, end), at


def _address(unit: Unit, at: int, *, indexed: bool) -> tuple[int, int]:
    data = unit.file.sections[".debug_loclists"]
    if indexed:
        index, at = read_uleb128(data, at)
        return unit.indexed_address(index), at
    size = unit.encoding.address_size
    return unit.encoding.number(data, at, size), at + size


def _position(unit: Unit, raw: FormValue) -> int:
    if raw.form != Form.LOCLISTX:
        return raw.value
    size = unit.encoding.offset_size
    base = unit.integer(unit.root, At.LOCLISTS_BASE)
    if base is None:
        base = unit.file.bases.get("loclists", 0) + (12 if size == 4 else 20)
    data = unit.file.sections[".debug_loclists"]
    return base + unit.encoding.number(data, base + raw.value * size, size)
