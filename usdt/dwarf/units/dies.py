"""Entries of debug information (DIEs): values, references and children.

:mod:`usdt.dwarf.units.units` reads the bytes. This module follows references, converts values and
walks over children, each within a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import At, Form
from usdt.dwarf.units.errors import DwarfError
from usdt.dwarf.units.forms import read_form, read_uleb128, skip_steps
from usdt.dwarf.units.units import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.dwarf.units.forms import FormValue, UnitEncoding
    from usdt.dwarf.units.units import Unit

    Follow = Callable[[Unit, FormValue], "tuple[Unit, int] | None"]

__all__ = ("Die", "child_offsets")

_MAX_ENTRIES = 1 << 22  # children per walk
_MAX_HOPS = 16
_PLUS_UCONST = 0x23  # DW_OP_plus_uconst
_MAX_EXPRESSION = 256  # bytes
_MAX_OPERATIONS = 64
_CONSTANTS = frozenset(
    (Form.DATA1, Form.DATA2, Form.DATA4, Form.DATA8, Form.SDATA, Form.UDATA, Form.IMPLICIT_CONST)
)
_BITS = {Form.DATA1: 8, Form.DATA2: 16, Form.DATA4: 32, Form.DATA8: 64}
_BLOCKS = frozenset((Form.BLOCK, Form.BLOCK1, Form.BLOCK2, Form.BLOCK4, Form.EXPRLOC))
_REFERENCES = frozenset(
    (
        *(Form.REF1, Form.REF2, Form.REF4, Form.REF8, Form.REF_UDATA, Form.REF_ADDR),
        *(Form.REF_SIG8, Form.REF_SUP4, Form.REF_SUP8, Form.GNU_REF_ALT),
    )
)


class Die:
    """An entry (DIE), with methods that follow its references.

    Attributes:
        unit: the unit that contains it.
        at: its position in the unit.
        tag: ``DW_TAG_…``.
    """

    __slots__ = ("_entry", "_follow", "at", "tag", "unit")

    def __init__(self, unit: Unit, at: int, follow: Follow) -> None:
        self.unit = unit
        self.at = at
        self._follow = follow
        self._entry = Entry(unit, at)
        self.tag: int = self._entry.abbreviation.tag

    @property
    def key(self) -> tuple[int, int]:
        """A key that is unique among the entries of all open files."""
        return id(self.unit.file), self.unit.header.at + self.at

    @property
    def where(self) -> str:
        """The entry's name in messages."""
        return f"the entry at {self.unit.header.at + self.at:#x}"

    def __contains__(self, name: int) -> bool:
        return name in self._entry.values

    def raw(self, name: int) -> FormValue | None:
        """Return an attribute's raw value; None if there is none."""
        return self._entry.values.get(name)

    def text(self, name: int = At.NAME) -> str:
        """Return a string, by default the name; "" if there is none."""
        raw = self._entry.values.get(name)
        return "" if raw is None else self.unit.text(self._entry, name)

    def flag(self, name: int) -> bool:
        """Return True if a flag is set."""
        raw = self._entry.values.get(name)
        return raw is not None and bool(raw.value)

    def number(self, name: int, *, signed: int = 0) -> int | None:
        """Return a constant; None if there is none, or it must be computed.

        Args:
            name: the attribute.
            signed: size in bytes of a signed number, 0 for an unsigned one; forms of a fixed size
                have no sign.
        """
        raw = self._entry.values.get(name)
        if raw is None or raw.form not in _CONSTANTS:
            return None
        bits = _BITS.get(raw.form)
        if signed and bits == 8 * signed and raw.value >> bits - 1:
            return raw.value - (1 << bits)
        return raw.value

    def block(self, name: int) -> bytes | None:
        """Return the bytes of a block or expression; None if there is none."""
        raw = self._entry.values.get(name)
        if raw is None or raw.form not in _BLOCKS:
            return None
        start = raw.value
        return bytes(self.unit.data[start : self._block_end(name)])

    def ranges(self) -> list[tuple[int, int]]:
        """Return the address ranges of its code as (start, end)."""
        return self.unit.ranges(self._entry)

    def member_offset(self, name: int) -> int | None:
        """Return the offset of a member in bytes; None if it depends on the running program.

        Args:
            name: the attribute: a number, or an expression with the structure's address as input.
        """
        if name not in self:
            return 0
        offset = self.number(name)
        expression = None if offset is not None else self.block(name)
        if expression is None:
            return offset
        return _constant_offset(expression, self.unit.encoding)

    def _block_end(self, wanted: int) -> int:
        # Entry has only the start of a block; the block ends where the next attribute starts.
        _, at = read_uleb128(self.unit.data, self.at)
        for name, form, constant in self._entry.abbreviation.attributes:
            _, at = read_form(self.unit.data, at, form, constant, self.unit.encoding)
            if name == wanted:
                break
        if at > len(self.unit.data):
            raise DwarfError(f"{self.unit.file.sections.name}: {self.where}: a block does not end")
        return at

    def target(self, name: int) -> Die | None:
        """Return the entry that an attribute refers to; None if it is absent or not found."""
        raw = self._entry.values.get(name)
        if raw is None or raw.form not in _REFERENCES:
            return None
        found = self._follow(self.unit, raw)
        return None if found is None else Die(found[0], found[1], self._follow)

    def origins(self) -> Iterator[Die]:
        """Yield this entry, then its abstract origin or specification, and so on."""
        found: Die | None = self
        for _ in range(_MAX_HOPS):
            if found is None:
                return
            yield found
            name = At.ABSTRACT_ORIGIN if At.ABSTRACT_ORIGIN in found else At.SPECIFICATION
            found = found.target(name)

    def children(self, *tags: int) -> Iterator[Die]:
        """Yield its children, those with some tags or all."""
        for at, tag in child_offsets(self.unit, self._entry):
            if not tags or tag in tags:
                yield Die(self.unit, at, self._follow)


def child_offsets(unit: Unit, entry: Entry) -> Iterator[tuple[int, int]]:
    """Yield position and tag of each child of an entry.

    Raises:
        DwarfError: the number of children is implausibly large.
    """
    if not entry.abbreviation.children:
        return
    data, table, encoding = unit.data, unit.abbreviations, unit.encoding
    known = table.known
    at, depth, end = entry.end, 0, len(unit.data)
    for _ in range(_MAX_ENTRIES):
        if at >= end:  # files often omit the final null entries
            return
        code, body = data[at], at + 1
        if code > 127:
            code, body = read_uleb128(data, at)
        if not code:
            if not depth:
                return
            depth -= 1
            at = body
            continue
        found = known.get(code) or table[code]
        if not depth:
            yield at, found.tag
        if found.varlen_steps:
            body = skip_steps(data, body, found.varlen_steps, encoding)
        after = body + found.fixed_size
        if found.children:
            following = 0
            size = found.sibling_size
            if size:
                following = encoding.number(data, after - size, size)
            if following > after:
                after = following
            else:
                depth += 1
        at = after
    name = unit.file.sections.name
    raise DwarfError(f"{name}: more than {_MAX_ENTRIES} entries below one of {unit.header.at:#x}")


def _constant_offset(expression: bytes, encoding: UnitEncoding) -> int | None:
    # The offset that an expression adds to an address; None if it needs memory or registers.
    if len(expression) > _MAX_EXPRESSION:
        return None
    if expression[:1] == bytes((_PLUS_UCONST,)) and len(expression) == 2 and expression[1] < 0x80:
        return expression[1]  # gcc's form for DWARF 2, decoded without a library
    return _computed(expression, encoding)


def _computed(expression: bytes, encoding: UnitEncoding) -> int | None:
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - seldom, and costs 50 ms
    from elftools.dwarf.dwarf_expr import DWARFExprParser  # noqa: PLC0415
    from elftools.dwarf.structs import DWARFStructs  # noqa: PLC0415

    structs = DWARFStructs(
        little_endian=encoding.byteorder == "little",
        dwarf_format=8 * encoding.offset_size,
        address_size=encoding.address_size,
        dwarf_version=encoding.version,
    )
    try:
        steps = DWARFExprParser(structs).parse_expr(expression)
    except (ELFError, KeyError, IndexError, TypeError, ValueError):
        return None
    stack = [0]  # the address of the structure
    for step in steps[:_MAX_OPERATIONS]:
        name = step.op_name
        if name == "DW_OP_plus_uconst":
            stack[-1] += step.args[0]
        elif name.startswith(("DW_OP_const", "DW_OP_lit")):
            stack.append(step.args[0] if step.args else step.op - 0x30)
        elif name in ("DW_OP_plus", "DW_OP_minus") and len(stack) > 1:
            value = stack.pop()
            stack[-1] += value if name == "DW_OP_plus" else -value
        else:
            return None
    return stack[-1] if len(stack) == 1 and stack[0] >= 0 else None
