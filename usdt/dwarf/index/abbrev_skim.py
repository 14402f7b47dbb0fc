"""Abbreviation tables in bulk, for passing over millions of entries.

The index looks at every unit of a file, each with a table of its own of some hundred abbreviations,
most of which are the same ones under other numbers. A regular expression cuts a table into its
declarations; each distinct one is understood once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import At, Form, Tag
from usdt.dwarf.units.errors import DwarfError
from usdt.dwarf.units.forms import Encoding, unsigned

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("FUNCTION", "KINDS", "OTHER", "SCOPE", "TYPE", "Shape", "Shapes", "Table")

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

# Nothing here has two readings: possessive, so that nothing is tried again. Groups are atomic
# instead: Python before 3.11.5 fails on possessive ones with branches (its issue 106052).
_LEB = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
#: Of a declaration its number, and the rest: tag, children, pairs of attribute and form, two zeros.
_NUMBER = rb"[\x80-\xff]{0,9}+[\x01-\x7f]"
_PLAIN = rb"[\x01-\x7f][\x01-\x20\x22-\x7f]"  # most pairs; 0x21 has a constant behind it
_PAIR = rb"(?!\0\0)" + _LEB + rb"(?:\x21" + _LEB + rb"|(?!\x21)" + _LEB + rb")"
_REST = _LEB + rb"[\0\1](?>(?:(?>(?:" + _PLAIN + rb"){1,1024})|" + _PAIR + rb"){0,1024})\0\0"
_DECLARATION = re.compile(b"(" + _NUMBER + b")(" + _REST + b")", re.DOTALL)
_TABLE = re.compile(b"(?>(?:" + _NUMBER + _REST + b"){1,65536})(?=\0)", re.DOTALL)
_MOST_ATTRIBUTES = 1 << 10
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
        name: (steps before it, fixed bytes behind them, form) of its name; or None.
        low: the same of ``DW_AT_low_pc``.
        kind: the letter of a type's kind, or "".
        direct: bytes from the start to a name that is an offset of four bytes; -1 if it is none.
        jump: the same of ``sibling`` in an entry that is of no interest; -1 if it has steps before.
        split: whether such a unit stands for one in a file of its own.
        completes: whether it defines a type that was declared elsewhere in the unit.
    """

    __slots__ = (
        "children",
        "completes",
        "direct",
        "fixed",
        "interest",
        "jump",
        "kind",
        "low",
        "name",
        "sibling",
        "split",
        "steps",
        "tag",
    )

    def __init__(self, raw: bytes, encoding: Encoding) -> None:
        self.tag, at = unsigned(raw, 0)
        self.children = bool(raw[at])
        self.completes = False
        self.steps: tuple[tuple[int, int], ...] = ()
        self.sibling: tuple[int, int] | None = None
        self.name: tuple[int, int, int] | None = None
        self.low: tuple[int, int, int] | None = None
        self.kind = KINDS.get(self.tag, "")
        self.direct = -1
        names = self._lay_out(_attributes(raw, at + 1), encoding)
        self.interest = self._interest(names)
        self.split = At.DWO_NAME in names or At.GNU_DWO_NAME in names
        self.jump = -1
        if self.interest == OTHER and self.children and self.sibling and not self.sibling[0]:
            self.jump = self.sibling[1]

    @property
    def step(self) -> Shape | int:
        """Bytes of an entry with its number, where nothing else is to be known; else the shape."""
        passed = self.interest == OTHER and not self.children and not self.steps
        return 1 + self.fixed if passed else self

    def _lay_out(self, attributes: Iterable[tuple[int, int]], encoding: Encoding) -> set[int]:
        fixed, names = 0, set()
        steps: list[tuple[int, int]] = []
        for name, form in attributes:
            names.add(name)
            if name == At.SIBLING and form == Form.REF4:
                self.sibling = (len(steps), fixed)
            elif name == At.NAME:
                self.name = (len(steps), fixed, form)
                if not steps and form == Form.STRP and encoding.offset_size == 4:
                    self.direct = fixed
            elif name == At.LOW_PC:
                self.low = (len(steps), fixed, form)
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
        self._last: tuple[int, Encoding, Table] | None = None

    def table(self, offset: int, encoding: Encoding) -> Table:
        """The table at an offset.

        Raises:
            DwarfError: it is damaged.
        """
        if self._last is not None and self._last[:2] == (offset, encoding):
            return self._last[2]
        whole = _TABLE.match(self._data, offset)
        if whole is None:
            raise DwarfError(f"{self._name}: damaged table of abbreviations at {offset:#x}")
        known = self._known.setdefault(encoding, {})
        found = Table()
        near, far = found.near, found.far
        # The first of a number counts.
        for number, raw in reversed(_DECLARATION.findall(whole[0])):
            shape = known.get(raw)
            if shape is None:
                if len(known) >= _MOST_SHAPES:
                    known.clear()
                shape = known[raw] = Shape(raw, encoding)
            if len(number) == 1:
                near[number[0]] = shape.step
            else:
                far[unsigned(number, 0)[0]] = shape.step
        self._last = (offset, encoding, found)
        return found


class Table:
    """Shapes by number.

    Attributes:
        near: by the first byte of an entry: its shape, or how many bytes it has if there is no more
            to it; None if that byte does not say it.
        far: the same by numbers of several bytes.
    """

    __slots__ = ("far", "near")

    def __init__(self) -> None:
        self.near: dict[int, Shape | int | None] = _UNSAID.copy()
        self.far: dict[int, Shape | int] = {}

    def __getitem__(self, code: int) -> Shape | int | None:
        return self.near[code] if code < 128 else self.far[code]


_UNSAID: dict[int, Shape | int | None] = dict.fromkeys((0, *range(128, 256)))
