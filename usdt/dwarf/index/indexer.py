"""Index a unit in one pass: addresses of functions, names of types and of global variables.

Only entries at the top level or in namespaces are indexed. The children of other entries are
skipped, by DW_AT_sibling if the compiler wrote it.
"""

from __future__ import annotations

import bisect
import struct
from array import array
from typing import TYPE_CHECKING

from usdt.dwarf.index.abbrev_skim import FUNCTION, SCOPE, TYPE, VARIABLE, AbbrevDecl
from usdt.dwarf.units.constants import At, Form, Tag, VariableKind
from usdt.dwarf.units.errors import DwarfError
from usdt.dwarf.units.forms import UNIT_REFERENCES, read_form, read_uleb128, skip_steps
from usdt.dwarf.units.scopes import ANONYMOUS, Scopes
from usdt.dwarf.units.units import Entry

if TYPE_CHECKING:
    from usdt.dwarf.index.abbrev_skim import AbbrevSection, AbbrevTable
    from usdt.dwarf.index.files import DiePosition
    from usdt.dwarf.units.units import Unit

__all__ = ("UnitIndexer",)

_MAX_DEPTH = 1 << 10
_LOCATED = (VariableKind.LOCATED.value, VariableKind.INSTANCE.value)


class UnitIndexer:
    """A collector of the functions, types and global variables of units.

    Args:
        abbreviations: the abbreviation section of the units' file.
        names: False to collect only functions, which reads no strings.

    Attributes:
        functions: (address, packed :class:`DiePosition`) of each function.
        names: (letter of the kind and qualified name, packed position) of each type and variable.
    """

    def __init__(self, abbreviations: AbbrevSection, *, names: bool = True) -> None:
        self._abbreviations = self._own = abbreviations
        self._wants_names = names
        self.functions: list[tuple[int, int]] = []
        self.names: list[tuple[str, int]] = []
        self._seen: set[tuple[int, str, str]] = set()  # keys begin with the offset of a name
        self._named: set[str] = set()
        self._unit: _Bytes
        self._start = 0  # the packed position of the unit's start
        self._prefixes = [""]
        # Of the unit that is read:
        self._classes = array("Q")  # positions of types at the top level and in namespaces
        self._class_prefixes: list[str] = []
        self._defined: list[tuple[AbbrevDecl, int]] = []  # what is declared elsewhere in the unit

    def use_abbreviations(self, abbreviations: AbbrevSection | None) -> None:
        """Use the abbreviations of a split unit's file; None to return to those of the file."""
        if self._abbreviations is not (abbreviations or self._own):
            self._abbreviations = abbreviations or self._own
            self._seen.clear()  # in another file, string offsets refer to other strings

    def is_split(self, unit: Unit) -> bool:
        """Return True if a unit is a skeleton of a unit in another file (split DWARF).

        Raises:
            DwarfError: the unit is damaged.
            LookupError: likewise.
        """
        code, _ = read_uleb128(unit.data, unit.header.first)
        root = self._table(unit)[code]
        return not isinstance(root, AbbrevDecl) or root.split

    def _table(self, unit: Unit) -> AbbrevTable:
        offset = unit.header.abbreviations + unit.file.bases.get("abbrev", 0)
        return self._abbreviations.table(offset, unit.encoding)

    def add_unit(self, unit: Unit, position: DiePosition) -> None:
        """Read a unit.

        Args:
            unit: the unit.
            position: the position of its start.

        Raises:
            DwarfError: it is damaged.
            IndexError: likewise.
        """
        self._unit = _Bytes(unit, bytes(unit.data))  # faster than a view
        self._start = position.packed
        self._prefixes = [""]
        self._classes, self._class_prefixes, self._defined = array("Q"), [], []
        self._walk(self._unit.data, self._table(unit), unit.header.first)
        scopes = Scopes(unit)
        for decl, start in self._defined:  # a declaration may follow (clang)
            self._add_name(decl, start, self._declared_name(scopes, start))

    def _walk(self, data: bytes, table: AbbrevTable, at: int) -> None:
        short, long, reference = table.short, table.long, self._unit.reference
        end = len(data)
        hidden = 0  # levels of skipped entries without DW_AT_sibling
        while at < end:
            decl = short[data[at]]
            if isinstance(decl, int):  # two thirds of all entries
                at += decl
                continue
            start = at
            at += 1
            if decl is None:
                code = data[start]
                if not code:
                    if hidden:
                        hidden -= 1
                    elif len(self._prefixes) > 1:
                        self._prefixes.pop()
                    continue
                if data[at] < 128:  # a code of two bytes, as most of the others
                    code, at = code & 127 | data[at] << 7, at + 1
                else:
                    code, at = read_uleb128(data, start)
                decl = long[code]
                if isinstance(decl, int):
                    at += decl - 1
                    continue
            sibling = decl.sibling_offset
            if sibling is None:
                if decl.interest and not hidden:
                    self._index(decl, start, at)
                sibling = self._unit.sibling_offset(decl, at)
            if sibling is not None:
                following = reference(data, at + sibling)[0]
                if following > at + sibling:
                    at = following
                    continue
            if decl.children and decl.interest != SCOPE:
                hidden += 1
            at = self._unit.skip(decl, at)

    def _index(self, decl: AbbrevDecl, start: int, at: int) -> None:
        prefix, interest = self._prefixes[-1], decl.interest
        if interest in (TYPE, VARIABLE):
            if not self._wants_names:
                return
            if decl.has_specification:
                self._defined.append((decl, start))
                return
            if decl.children:
                self._classes.append(start)
                self._class_prefixes.append(prefix)
            offset = decl.name_offset
            if offset is not None and decl.kind not in _LOCATED:
                key = (self._unit.reference(self._unit.data, at + offset)[0], decl.kind, prefix)
                if key in self._seen:
                    return
                self._seen.add(key)
            name = self._unit.name(decl, at)
            self._add_name(decl, start, name and prefix + name)
        elif interest == FUNCTION:
            address = self._unit.address(decl, start, at)
            if address:
                self.functions.append((address, self._start + start))
        elif decl.children:
            if decl.tag == Tag.NAMESPACE and self._wants_names:
                prefix = f"{prefix}{self._unit.name(decl, at) or ANONYMOUS}::"
            self._prefixes.append(prefix)
            if len(self._prefixes) > _MAX_DEPTH:
                name = self._unit.unit.file.sections.name
                raise DwarfError(f"{name}: namespaces nested too deeply")

    def _add_name(self, decl: AbbrevDecl, start: int, full: str) -> None:
        located = decl.kind in _LOCATED
        if located and not full:
            self.names.append((VariableKind.INSTANCE.value, self._start + start))
        elif full and full.isprintable():
            full = decl.kind + full
            if located or full not in self._named:  # every static variable counts
                self._named.add(full)
                self.names.append((full, self._start + start))

    def _declared_name(self, scopes: Scopes, start: int) -> str:
        # The name of a type or variable that is defined outside the scope that declares it.
        unit = self._unit.unit
        entry = Entry(unit, start)
        raw = entry.values.get(At.SPECIFICATION)
        if raw is None or raw.form not in UNIT_REFERENCES:
            return ""
        name = unit.text(entry, At.NAME) or unit.text(Entry(unit, raw.value), At.NAME)
        return name and f"{self._prefix_of(scopes, raw.value)}{name}"

    def _prefix_of(self, scopes: Scopes, at: int) -> str:
        index = bisect.bisect_right(self._classes, at) - 1
        if index >= 0:  # nearly all are static members of classes
            found = scopes.prefix_within(at, self._classes[index])
            if found is not None:
                return self._class_prefixes[index] + found
        return scopes.prefix(at)


class _Bytes:
    # Reads single attributes of a unit's entries, without creating Entry objects.
    def __init__(self, unit: Unit, data: bytes) -> None:
        self.unit = unit
        self.data = data
        mark = unit.file.sections.mark
        self.reference = struct.Struct(f"{mark}I").unpack_from
        width = unit.encoding.address_size
        self._address = struct.Struct(f"{mark}{'Q' if width == 8 else 'I'}").unpack_from

    def _position(self, at: int, steps: int, fixed: int, decl: AbbrevDecl) -> int:
        if steps:
            at = skip_steps(self.data, at, decl.varlen_steps[:steps], self.unit.encoding)
        return at + fixed

    def skip(self, decl: AbbrevDecl, at: int) -> int:
        """Return the position after the attributes of an entry."""
        if decl.varlen_steps:
            at = skip_steps(self.data, at, decl.varlen_steps, self.unit.encoding)
        return at + decl.fixed_size

    def sibling_offset(self, decl: AbbrevDecl, at: int) -> int | None:
        """Return the offset of DW_AT_sibling from ``at``; None if absent or children are needed."""
        sibling = decl.sibling
        if sibling is None or decl.interest == SCOPE or not decl.children:
            return None
        if not sibling[0]:
            return sibling[1]
        return self._position(at, *sibling, decl) - at

    def address(self, decl: AbbrevDecl, start: int, at: int) -> int:
        """Return the address of an entry's code; 0 if it is not known."""
        if decl.low_pc is not None and decl.low_pc[2] == Form.ADDR:
            found: int = self._address(self.data, self._position(at, *decl.low_pc[:2], decl))[0]
            return found
        return self.unit.entry_address(start)

    def name(self, decl: AbbrevDecl, at: int) -> str:
        """Return the name of an entry; "" if it has none."""
        if decl.name is None:
            return ""
        steps, fixed, form = decl.name
        position = self._position(at, steps, fixed, decl)
        return self.unit.string(read_form(self.data, position, form, 0, self.unit.encoding)[0])
