"""Abbreviation tables prepared for skipping millions of entries.

The index reads every unit of a file. Each unit has a table of some hundred abbreviations; most of
them occur in other tables too, under other codes. A regular expression splits a table into its
declarations, and each distinct declaration is decoded once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import TYPE_KINDS, At, Form, Tag, VariableKind
from usdt.dwarf.units.errors import DwarfError
from usdt.dwarf.units.forms import EntryLayout, UnitEncoding, read_declaration, read_uleb128

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

__all__ = (
    "FUNCTION",
    "OTHER",
    "SCOPE",
    "TYPE",
    "VARIABLE",
    "AbbrevDecl",
    "AbbrevSection",
    "AbbrevTable",
)

OTHER, SCOPE, TYPE, FUNCTION, VARIABLE = range(5)  # the index's interest in an entry

_SCOPES = frozenset((Tag.NAMESPACE, Tag.COMPILE_UNIT, Tag.PARTIAL_UNIT, Tag.TYPE_UNIT))

# The grammar is unambiguous, so quantifiers are possessive: nothing is tried twice. Groups are
# atomic instead, because Python before 3.11.5 fails on possessive groups with branches (its issue
# 106052).
_LEB128 = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
#: A declaration: its code, then tag, children, pairs of attribute and form, two zeros.
_CODE = rb"[\x80-\xff]{0,9}+[\x01-\x7f]"
_PLAIN = rb"[\x01-\x7f][\x01-\x20\x22-\x7f]"  # most pairs; a constant follows form 0x21
_PAIR = rb"(?!\0\0)" + _LEB128 + rb"(?:\x21" + _LEB128 + rb"|(?!\x21)" + _LEB128 + rb")"
_REST = _LEB128 + rb"[\0\1](?>(?:(?>(?:" + _PLAIN + rb"){1,1024})|" + _PAIR + rb"){0,1024})\0\0"
_DECLARATION = re.compile(b"(" + _CODE + b")(" + _REST + b")", re.DOTALL)
_TABLE = re.compile(b"(?>(?:" + _CODE + _REST + b"){1,65536})(?=\0)", re.DOTALL)


def _next_of(tags: Iterable[int]) -> re.Pattern[bytes]:
    # Declarations of other entries, then one with one of the tags or the end of the table.
    wanted = b"[" + re.escape(bytes(sorted(tags))) + b"]"
    return re.compile(
        rb"(?>(?:" + _CODE + rb"(?!" + wanted + rb")" + _REST + rb"){0,65536})"
        rb"(?:(" + _CODE + rb")(" + _REST + rb")|(?=\0))",
        re.DOTALL,
    )


_TYPES = _next_of(TYPE_KINDS)
_VARIABLES = _next_of((Tag.VARIABLE, Tag.MEMBER))
_MAX_TYPES = 1 << 16
_MAX_TABLE = 1 << 20  # bytes, where only types are of interest
_MAX_DECLARATIONS = 1 << 18
_EXPRESSIONS = frozenset((Form.EXPRLOC, Form.BLOCK, Form.BLOCK1, Form.BLOCK2, Form.BLOCK4))


class AbbrevDecl:
    """An abbreviation declaration, with the layout needed to skip entries and find their names.

    Attributes:
        tag: ``DW_TAG_…``.
        children: True if such an entry may have children.
        interest: OTHER, SCOPE, TYPE, FUNCTION or VARIABLE.
        kind: the letter of the kind of a type, variable or static member, or "".
        varlen_steps: see :class:`EntryLayout`.
        fixed_size: see :class:`EntryLayout`.
        sibling: (steps, fixed bytes after them) before a four-byte DW_AT_sibling; or None.
        name: (steps, fixed bytes after them, form) of the name; or None.
        low_pc: the same for DW_AT_low_pc.
        name_offset: bytes before a name that is a four-byte offset, if no step comes before it;
            else None.
        sibling_offset: bytes before DW_AT_sibling in an entry of interest OTHER, if no step comes
            before it; else None.
        split: True for the root of a skeleton unit (split DWARF).
        has_specification: True if it defines what is declared elsewhere in the unit.
    """

    __slots__ = (
        "children",
        "fixed_size",
        "has_specification",
        "interest",
        "kind",
        "low_pc",
        "name",
        "name_offset",
        "sibling",
        "sibling_offset",
        "split",
        "tag",
        "varlen_steps",
    )

    def __init__(self, raw: bytes, encoding: UnitEncoding) -> None:
        self.tag, self.children, attributes, _ = read_declaration(raw, 0)
        self.varlen_steps, self.fixed_size, positions = EntryLayout.of(attributes, encoding)
        kind = TYPE_KINDS.get(self.tag)
        self.kind = kind.value if kind else ""
        self.name = positions.get(At.NAME)
        self.low_pc = positions.get(At.LOW_PC)
        self.name_offset: int | None = None
        if self.name and encoding.offset_size == 4:
            steps, fixed, form = self.name
            self.name_offset = fixed if not steps and form == Form.STRP else None
        self.has_specification = At.SPECIFICATION in positions
        self.interest = self._interest(positions)
        if self.tag == Tag.VARIABLE:
            found = _variable_kind(positions)
            self.kind = "" if found is None else found.value
            self.interest = VARIABLE if found else OTHER
        elif self.tag == Tag.MEMBER and At.DECLARATION in positions:
            self.kind = VariableKind.UNLOCATED.value  # a static member, before DWARF 5
        self.split = At.DWO_NAME in positions or At.GNU_DWO_NAME in positions
        self.sibling: tuple[int, int] | None = None
        self.sibling_offset: int | None = None
        steps, fixed, form = positions.get(At.SIBLING, (0, 0, 0))
        if form == Form.REF4:
            self.sibling = steps, fixed
            if self.interest == OTHER and self.children and not steps:
                self.sibling_offset = fixed

    @property
    def skip(self) -> AbbrevDecl | int:
        """The size of an entry with its code, if that suffices to skip it; else the declaration."""
        skippable = self.interest == OTHER and not self.children and not self.varlen_steps
        return 1 + self.fixed_size if skippable else self

    def _interest(self, names: Container[int]) -> int:
        if self.tag in _SCOPES:
            return SCOPE
        if self.tag in TYPE_KINDS:
            declared = At.DECLARATION in names and At.SIGNATURE not in names
            return OTHER if declared or not (self.has_specification or At.NAME in names) else TYPE
        if self.tag == Tag.SUBPROGRAM:
            code = At.LOW_PC in names or At.RANGES in names
            return FUNCTION if code else OTHER
        return OTHER


def _variable_kind(positions: Mapping[int, tuple[int, int, int]]) -> VariableKind | None:
    # None for a local variable, as far as its attributes tell.
    if positions.get(At.LOCATION, (0, 0, 0))[2] in _EXPRESSIONS:
        own = At.NAME in positions or At.SPECIFICATION in positions
        return VariableKind.LOCATED if own else VariableKind.INSTANCE
    plain = At.NAME in positions and At.LOCATION not in positions
    return VariableKind.UNLOCATED if plain else None


class AbbrevSection:
    """The abbreviation declarations of one ``.debug_abbrev``.

    Args:
        data: the section.
        name: the file's name in messages.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._known: dict[UnitEncoding, dict[bytes, AbbrevDecl]] = {}
        self._last: tuple[int, UnitEncoding, AbbrevTable] | None = None

    def table(self, offset: int, encoding: UnitEncoding) -> AbbrevTable:
        """Return the table at an offset.

        Raises:
            DwarfError: it is damaged.
        """
        if self._last is not None and self._last[:2] == (offset, encoding):
            return self._last[2]
        whole = _TABLE.match(self._data, offset)
        if whole is None:
            raise self._damaged(offset)
        known = self._known.setdefault(encoding, {})
        found = AbbrevTable()
        short, long = found.short, found.long
        # If several declarations have the same code, the first one is used.
        for code, raw in reversed(_DECLARATION.findall(whole[0])):
            decl = known.get(raw) or self._decode(known, raw, encoding)
            if len(code) == 1:
                short[code[0]] = decl.skip
            else:
                long[read_uleb128(code, 0)[0]] = decl.skip
        self._last = (offset, encoding, found)
        return found

    def types(self, offset: int, encoding: UnitEncoding) -> Iterator[tuple[bytes, AbbrevDecl]]:
        """Yield the declarations of types with a name in the table at an offset, with their codes.

        Nothing is decoded of other declarations, which are most. A code that occurs twice is
        yielded twice.

        Raises:
            DwarfError: the table is damaged, or longer than 1 MiB.
        """
        found = self._each(_TYPES, offset, encoding)
        return (one for one in found if one[1].interest == TYPE)

    def variables(self, offset: int, encoding: UnitEncoding) -> Iterator[tuple[bytes, AbbrevDecl]]:
        """Yield the declarations of variables that may be global and of static members."""
        return (one for one in self._each(_VARIABLES, offset, encoding) if one[1].kind)

    def _each(
        self, pattern: re.Pattern[bytes], offset: int, encoding: UnitEncoding
    ) -> Iterator[tuple[bytes, AbbrevDecl]]:
        known = self._known.setdefault(encoding, {})
        at, end = offset, offset + _MAX_TABLE
        for _ in range(_MAX_TYPES):
            match = pattern.match(self._data, at, end)
            if match is None:
                break
            at = match.end()
            code, raw = match.groups()
            if code is None:
                return
            yield code, known.get(raw) or self._decode(known, raw, encoding)
        raise self._damaged(offset)

    @staticmethod
    def _decode(known: dict[bytes, AbbrevDecl], raw: bytes, encoding: UnitEncoding) -> AbbrevDecl:
        if len(known) >= _MAX_DECLARATIONS:
            known.clear()
        found = known[raw] = AbbrevDecl(raw, encoding)
        return found

    def _damaged(self, offset: int) -> DwarfError:
        return DwarfError(f"{self._name}: damaged table of abbreviations at {offset:#x}")


class AbbrevTable:
    """Declarations by code.

    Attributes:
        short: first byte of an entry → its declaration, or the entry's size if that suffices to
            skip it; None for 0 and for the first byte of longer codes.
        long: the same for codes of several bytes.
    """

    __slots__ = ("long", "short")

    def __init__(self) -> None:
        self.short: dict[int, AbbrevDecl | int | None] = _NOT_SHORT.copy()
        self.long: dict[int, AbbrevDecl | int] = {}

    def __getitem__(self, code: int) -> AbbrevDecl | int | None:
        return self.short[code] if code < 128 else self.long[code]


_NOT_SHORT: dict[int, AbbrevDecl | int | None] = dict.fromkeys((0, *range(128, 256)))
