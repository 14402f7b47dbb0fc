"""Abbreviation tables in bulk, for passing over millions of entries.

The index looks at every unit of a file, each with a table of its own of some hundred abbreviations,
most of which are the same ones under other numbers. A regular expression cuts a table into its
declarations; each distinct one is understood once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.dwarf.constants import At, Form, Tag
from usdt.dwarf.errors import DwarfError
from usdt.dwarf.lines_format import Encoding, unsigned

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("FUNCTION", "OTHER", "SCOPE", "TYPE", "Shape", "Shapes")

OTHER, SCOPE, TYPE, FUNCTION = range(4)  # what is of interest in an entry

#: Tag → the letter of its kind in the index.
KINDS = {
    Tag.STRUCTURE: "s",
    Tag.CLASS: "s",
    Tag.INTERFACE: "s",
    Tag.UNION: "u",
    Tag.ENUMERATION: "e",
    Tag.TYPEDEF: "t",
    Tag.TEMPLATE_ALIAS: "t",
    Tag.BASE: "b",
}
_SCOPES = frozenset((Tag.NAMESPACE, Tag.COMPILE_UNIT, Tag.PARTIAL_UNIT, Tag.TYPE_UNIT))

_LEB = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
#: A declaration: its number, and the rest: tag, children, pairs of attribute and form, two zeros.
_DECLARATION = re.compile(
    rb"([\x80-\xff]{0,9}[\x01-\x7f])"
    rb"("
    + _LEB
    + rb"[\0\1](?:(?!\0\0)"
    + _LEB
    + rb"(?:\x21"
    + _LEB
    + rb"|(?!\x21)"
    + _LEB
    + rb"))*"
    rb"\0\0)",
    re.DOTALL,
)
_MOST_ATTRIBUTES = 1 << 10
_MOST_DECLARATIONS = 1 << 16
_MOST_SHAPES = 1 << 18

# Steps over what has no fixed size.
LEB, STRING, BLOCK, BLOCK1, BLOCK2, BLOCK4, INDIRECT = range(7)
_VARIABLE = {
    Form.STRING: STRING,
    Form.BLOCK: BLOCK,
    Form.EXPRLOC: BLOCK,
    Form.BLOCK1: BLOCK1,
    Form.BLOCK2: BLOCK2,
    Form.BLOCK4: BLOCK4,
    Form.INDIRECT: INDIRECT,
    **dict.fromkeys((Form.SDATA, Form.UDATA, Form.REF_UDATA, Form.STRX, Form.ADDRX), LEB),
    **dict.fromkeys((Form.LOCLISTX, Form.RNGLISTX, Form.GNU_ADDR_INDEX, Form.GNU_STR_INDEX), LEB),
}


class Shape:
    """What entries of one abbreviation look like.

    Attributes:
        tag: ``DW_TAG_…``.
        children: whether entries below it follow.
        interest: OTHER, SCOPE, TYPE or FUNCTION.
        fixed: bytes of its attributes; of those behind the last step where there are steps.
        steps: fixed bytes, then what to pass over, several times; () if all is fixed.
        sibling: (steps before it, fixed bytes behind them) of a four-byte reference; or None.
        name: (bytes from the start, form) of its name if only fixed bytes precede it; or None.
        low: the same of ``DW_AT_low_pc``.
        completes: whether it defines a type that was declared elsewhere in the unit.
    """

    __slots__ = (
        "children",
        "completes",
        "fixed",
        "interest",
        "low",
        "name",
        "sibling",
        "steps",
        "tag",
    )

    def __init__(self, raw: bytes, encoding: Encoding) -> None:
        self.tag, at = unsigned(raw, 0)
        self.children = bool(raw[at])
        self.completes = False
        self.steps: tuple[tuple[int, int], ...] = ()
        self.sibling: tuple[int, int] | None = None
        self.name: tuple[int, int] | None = None
        self.low: tuple[int, int] | None = None
        names = self._lay_out(_attributes(raw, at + 1), encoding)
        self.interest = self._interest(names)

    def _lay_out(self, attributes: Iterable[tuple[int, int]], encoding: Encoding) -> set[int]:
        fixed, names = 0, set()
        steps: list[tuple[int, int]] = []
        for name, form in attributes:
            names.add(name)
            if name == At.SIBLING and form == Form.REF4:
                self.sibling = (len(steps), fixed)
            elif not steps and name == At.NAME:
                self.name = (fixed, form)
            elif not steps and name == At.LOW_PC:
                self.low = (fixed, form)
            size = encoding.size_of(form)
            if size is not None:
                fixed += size
            elif form in _VARIABLE:
                steps.append((fixed, _VARIABLE[form]))
                fixed = 0
            else:
                raise DwarfError(f"DW_FORM {form:#x} is not known")
        self.fixed, self.steps = fixed, tuple(steps)
        return names

    def _interest(self, names: set[int]) -> int:
        if self.tag in _SCOPES:
            return SCOPE
        if self.tag in KINDS:
            declared = At.DECLARATION in names and At.SIGNATURE not in names
            self.completes = At.SPECIFICATION in names
            return OTHER if declared or not (self.completes or At.NAME in names) else TYPE
        if self.tag == Tag.SUBPROGRAM:
            code = At.LOW_PC in names or At.RANGES in names
            return FUNCTION if code else OTHER
        return OTHER


def _attributes(raw: bytes, at: int) -> Iterable[tuple[int, int]]:
    for _ in range(_MOST_ATTRIBUTES):
        name, at = unsigned(raw, at)
        form, at = unsigned(raw, at)
        if not name and not form:
            return
        if form == Form.IMPLICIT_CONST:
            _, at = unsigned(raw, at)
        yield name, form
    raise DwarfError(f"an abbreviation of more than {_MOST_ATTRIBUTES} attributes")


class Shapes:
    """The shapes of one ``.debug_abbrev``.

    Args:
        data: the section.
        name: what messages call the file.
    """

    def __init__(self, data: memoryview, name: str) -> None:
        self._data = data
        self._name = name
        self._known: dict[Encoding, dict[bytes, Shape]] = {}
        self._last: tuple[int, Encoding, dict[int, Shape]] | None = None

    def table(self, offset: int, encoding: Encoding) -> dict[int, Shape]:
        """The table at an offset: number → shape.

        Raises:
            DwarfError: it is damaged.
        """
        if self._last is not None and self._last[:2] == (offset, encoding):
            return self._last[2]
        found: dict[int, Shape] = {}
        known = self._known.setdefault(encoding, {})
        at = offset
        for match in _DECLARATION.finditer(self._data, offset):
            if match.start() != at:
                break
            at = match.end()
            number, raw = match.groups()
            code = number[0] if len(number) == 1 else unsigned(number, 0)[0]
            shape = known.get(raw)
            if shape is None:
                if len(known) >= _MOST_SHAPES:
                    known.clear()
                shape = known[raw] = Shape(raw, encoding)
            found.setdefault(code, shape)
            if len(found) > _MOST_DECLARATIONS:
                break
            if at < len(self._data) and not self._data[at]:
                self._last = (offset, encoding, found)
                return found
        raise DwarfError(f"{self._name}: damaged table of abbreviations at {offset:#x}")
