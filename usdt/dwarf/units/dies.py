"""Entries of debug information (DIEs) as types and functions need them, and walks over them.

The bytes are read by :mod:`usdt.dwarf.units.units`; here are references followed, values made
numbers, and children stepped through, each with a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import At, Form
from usdt.dwarf.units.errors import DwarfError
from usdt.dwarf.units.forms import skip, unsigned
from usdt.dwarf.units.units import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.dwarf.units.forms import Raw
    from usdt.dwarf.units.units import Unit

    Follow = Callable[[Unit, Raw], "tuple[Unit, int] | None"]

__all__ = ("Die", "child_places")

_MOST_ENTRIES = 1 << 22  # that one walk passes over
_MOST_HOPS = 16
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
    """An entry.

    Attributes:
        unit: whose it is.
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
    def place(self) -> tuple[int, int]:
        """What tells it from any other entry: whose it is, and where it is there."""
        return id(self.unit.file), self.unit.header.at + self.at

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"the entry at {self.unit.header.at + self.at:#x}"

    def __contains__(self, name: int) -> bool:
        return name in self._entry.values

    def raw(self, name: int) -> Raw | None:
        """An attribute as it is written."""
        return self._entry.values.get(name)

    def text(self, name: int = At.NAME) -> str:
        """A string, by default the name; "" where there is none."""
        raw = self._entry.values.get(name)
        return "" if raw is None else self.unit.text(self._entry, name)

    def flag(self, name: int) -> bool:
        """Whether a flag is set."""
        raw = self._entry.values.get(name)
        return raw is not None and bool(raw.value)

    def number(self, name: int, *, signed: int = 0) -> int | None:
        """A constant; None where there is none, or it must be computed.

        Args:
            name: the attribute.
            signed: one that fills so many bytes is signed: forms of a fixed size do not say.
        """
        raw = self._entry.values.get(name)
        if raw is None or raw.form not in _CONSTANTS:
            return None
        bits = _BITS.get(raw.form)
        if signed and bits == 8 * signed and raw.value >> bits - 1:
            return raw.value - (1 << bits)
        return raw.value

    def block(self, name: int) -> bytes | None:
        """The bytes of a block or expression; None where there is none."""
        raw = self._entry.values.get(name)
        if raw is None or raw.form not in _BLOCKS:
            return None
        start = raw.value
        return bytes(self.unit.data[start : self._block_end(name)])

    def _block_end(self, wanted: int) -> int:
        # Entry keeps where a block starts; where it ends is where the next attribute starts.
        from usdt.dwarf.units.forms import read_raw  # noqa: PLC0415 - seldom needed

        _, at = unsigned(self.unit.data, self.at)
        for name, form, constant in self._entry.abbreviation.attributes:
            _, at = read_raw(self.unit.data, at, form, constant, self.unit.encoding)
            if name == wanted:
                break
        if at > len(self.unit.data):
            raise DwarfError(
                f"{self.unit.file.sections.name}: {self.where}: a block without an end"
            )
        return at

    def target(self, name: int) -> Die | None:
        """The entry that an attribute refers to; None where it refers to none that is here."""
        raw = self._entry.values.get(name)
        if raw is None or raw.form not in _REFERENCES:
            return None
        found = self._follow(self.unit, raw)
        return None if found is None else Die(found[0], found[1], self._follow)

    def origins(self) -> Iterator[Die]:
        """This entry, and those it completes (its specification, its abstract origin), in turn."""
        found: Die | None = self
        for _ in range(_MOST_HOPS):
            if found is None:
                return
            yield found
            name = At.ABSTRACT_ORIGIN if At.ABSTRACT_ORIGIN in found else At.SPECIFICATION
            found = found.target(name)

    def children(self, *tags: int) -> Iterator[Die]:
        """The entries below it, of some tags or of all."""
        for at, tag in child_places(self.unit, self._entry):
            if not tags or tag in tags:
                yield Die(self.unit, at, self._follow)


def child_places(unit: Unit, entry: Entry) -> Iterator[tuple[int, int]]:
    """Position and tag of each entry right below one.

    Raises:
        DwarfError: they do not end.
    """
    if not entry.abbreviation.children:
        return
    data, table, encoding = unit.data, unit.abbreviations, unit.encoding
    known = table.known
    at, depth, end = entry.end, 0, len(unit.data)
    for _ in range(_MOST_ENTRIES):
        if at >= end:  # the last ends of children are often left out
            return
        code, body = data[at], at + 1
        if code > 127:
            code, body = unsigned(data, at)
        if not code:
            if not depth:
                return
            depth -= 1
            at = body
            continue
        found = known.get(code) or table[code]
        if not depth:
            yield at, found.tag
        after = body + found.fixed if found.fixed >= 0 else skip(data, body, found, encoding)
        if found.children:
            following = 0
            if found.sibling:
                following = encoding.number(data, after - found.sibling, found.sibling)
            if following > after:
                after = following
            else:
                depth += 1
        at = after
    name = unit.file.sections.name
    raise DwarfError(f"{name}: more than {_MOST_ENTRIES} entries below one of {unit.header.at:#x}")
