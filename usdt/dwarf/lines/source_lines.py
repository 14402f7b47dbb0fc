"""The source lines of a file's addresses, and the functions inlined there.

    address → unit (.debug_info's first entries, .debug_aranges) → line (.debug_line)
                                                                 → function → inlined functions

A unit is read when one of its addresses is looked up. After that, lines and inlined functions are
found by bisection. The number of units in memory is limited: those not used for the longest time
are dropped. Files may be hostile: damaged debug information results in one message, and no line.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.dwarf.lines.inlining import read_functions, read_inline_tree
from usdt.dwarf.lines.line_program import LineTable, table_of
from usdt.dwarf.units.constants import At, UnitType
from usdt.dwarf.units.forms import UnitEncoding
from usdt.dwarf.units.ranges import RangeMap, read_aranges
from usdt.dwarf.units.sections import DebugSections
from usdt.dwarf.units.split_dwarf import SplitUnits, find_alternative
from usdt.dwarf.units.units import DebugFile
from usdt.elf.debug_files import DEBUG_ROOT

if TYPE_CHECKING:
    from usdt.dwarf.lines.inlining import InlinedCall, InlineTree
    from usdt.dwarf.units.split_dwarf import Opener
    from usdt.dwarf.units.units import Unit, UnitHeader
    from usdt.elf.file import ElfFile

__all__ = ("SourceLines", "SourceLocation", "has_lines")

_MAX_KEPT = 6 << 20  # rows of lines and ranges of all units in memory: some 100 MiB
_MAX_NAMES = 1 << 16
# The sections that the first lookup needs; each may have to be decompressed.
_PACKED = (
    *(".debug_info", ".debug_line", ".debug_str", ".debug_abbrev"),
    *(".debug_rnglists", ".debug_ranges"),
)
_MAX_FUNCTIONS = 1 << 14  # cached inline trees per unit
# Errors that reading damaged bytes raises.
_DAMAGE = (TracingError, IndexError, ValueError, OverflowError)


@frozen
class SourceLocation:
    """The source location of an address.

    Attributes:
        function: the function's linkage name (mangled) if it has one, else its name; "" if
            unknown.
        file: path of the source file; "" if unknown.
        line: line in the file; 0 if the code belongs to no line.
    """

    function: str
    file: str
    line: int


def has_lines(elf: ElfFile) -> bool:
    """Return True if a file has debug information with lines."""
    sections = DebugSections(elf)
    return ".debug_info" in sections and ".debug_line" in sections


class SourceLines:
    """The source lines of one file; a context manager.

    Args:
        elf: a file with debug information; the caller closes it.
        opener: opens paths; yields the ELF files among them.
        path: path of the program, if ``elf`` is its debug file; "" if ``elf`` is the program.
        debug_root: the system's directory of debug files.

    Attributes:
        elf: the file.
        notices: messages for the user about damaged and missing debug information.
    """

    def __init__(
        self,
        elf: ElfFile,
        opener: Opener = lambda _: iter(()),
        *,
        path: str = "",
        debug_root: str = DEBUG_ROOT,
    ) -> None:
        self.notices: list[str] = []
        self.elf = elf
        self._file = DebugFile(DebugSections(elf))
        self._split = SplitUnits(path or elf.path, opener)
        self._opener = opener
        self._debug_root = debug_root
        self._loaded: dict[int, _UnitLines] = {}
        self._kept = 0
        self._names: dict[tuple[int, int, int], str] = {}
        self._reported: set[str] = set()

    def close(self) -> None:
        """Close every file that was opened; idempotent."""
        self._loaded.clear()
        self._split.close()
        alternative = self._file.alternative
        for file in (self._file, alternative):
            if file is not None:
                file.close()
        if alternative is not None:
            alternative.sections.elf.close()
            self._file.alternative = None

    def at(self, address: int) -> list[SourceLocation]:
        """Return the functions that contain an address, innermost first; empty if none is known.

        Each function but the last is inlined into the next one. The first has the line of the
        address; each other one has the line of the inlined call.
        """
        try:
            number = self._units.find(address)
            return [] if number is None else self._locations(number, address)
        except _DAMAGE as err:
            self._report(f"{self.elf.path}: damaged debug information: {err}")
            return []

    def _locations(self, number: int, address: int) -> list[SourceLocation]:
        lines = self._unit(number)
        file, line = lines.line(address)
        found = []
        try:
            function, chain = lines.function(address)
            for scope in chain:
                found.append(SourceLocation(self._name(lines.unit, scope.at), file, line))
                file, line = lines.file(scope.file), scope.line
            name = "" if function is None else self._name(lines.unit, function.at)
        except _DAMAGE as err:
            self._report(f"{self.elf.path}: damaged debug information: {err}")
            name = ""
        self._kept += lines.grown()
        while self._kept > _MAX_KEPT and len(self._loaded) > 1:
            self._kept -= len(self._loaded.pop(next(iter(self._loaded))))
        return [*found, SourceLocation(name, file, line)] if file or name else found

    # ------------------------------------------------------------ units

    @functools.cached_property
    def _units(self) -> RangeMap:
        # Address → number of the unit.
        file = self._file
        file.sections.prepare(*_PACKED)
        file.alternative = find_alternative(self.elf, self._opener, self._debug_root)
        rows: list[tuple[int, int, int, int]] = []
        without: dict[int, int] = {}
        for number, header in enumerate(file.headers):
            if header.kind not in (UnitType.COMPILE, UnitType.SKELETON):
                continue
            try:
                unit = file.unit(header)
                ranges = unit.ranges(unit.root)
            except _DAMAGE as err:
                self._report(f"{self.elf.path}: damaged debug information: {err}")
                continue
            rows += [(low, high, 0, number) for low, high in ranges]
            if not ranges and At.STMT_LIST in unit.root.values:
                without[header.at] = number
        if without:
            rows += self._by_aranges(without)
        if file.damage:
            self._report(f"{self.elf.path}: damaged debug information: {file.damage}")
        return RangeMap(rows)

    def _by_aranges(self, units: dict[int, int]) -> list[tuple[int, int, int, int]]:
        # The ranges of units whose root entry has none.
        found: list[tuple[int, int, int, int]] = []
        plain = UnitEncoding(self._file.byteorder, 8, 4, 0)
        try:
            for low, high, at in read_aranges(self._file.sections[".debug_aranges"], plain):
                if at in units:
                    found.append((low, high, 0, units[at]))
        except _DAMAGE:
            pass  # keep the ranges before the damage
        return found

    def _unit(self, number: int) -> _UnitLines:
        found = self._loaded.pop(number, None)
        if found is None:
            found = _UnitLines(self._file, self._file.headers[number], self._split)
            if self._split.missing is not None:
                self._report(
                    f"{self.elf.path}: {self._split.missing} was not found, nor a package (.dwp):"
                    " inlined functions are not shown"
                )
        self._loaded[number] = found
        return found

    def _name(self, unit: Unit, at: int) -> str:
        key = (id(unit.file), unit.header.at, at)
        found = self._names.get(key)
        if found is None:
            if len(self._names) >= _MAX_NAMES:
                self._names.clear()
            found = self._names[key] = unit.name(at)
        return found

    def _report(self, notice: str) -> None:
        if not self._reported:  # one message per file
            self._reported.add(notice)
            self.notices.append(notice)


class _UnitLines:
    # One unit: its lines, its functions, and the functions inlined into those that were looked up.
    def __init__(self, file: DebugFile, header: UnitHeader, split: SplitUnits) -> None:
        self.unit = split.full_unit(file.unit(header))
        self._nested = False
        self._read: dict[int, InlineTree] = {}
        self._functions: tuple[list[int], RangeMap] | None = None
        self._weight = self._counted = 0

    def __len__(self) -> int:
        return self._counted

    def grown(self) -> int:
        """Return the number of rows added since the last call."""
        grown = self._weight - self._counted
        self._counted = self._weight
        return grown

    @functools.cached_property
    def _table(self) -> LineTable | None:
        made = table_of(self.unit, LineTable)
        if made is None:
            return None
        self._weight += len(made)
        return made

    def line(self, address: int) -> tuple[str, int]:
        """Return the file and line of an address; ("", 0) if it has none."""
        row = None if self._table is None else self._table.find(address)
        return ("", 0) if row is None else (self.file(row[0]), row[1])

    def file(self, number: int) -> str:
        """Return the path of a file by its number; "" if it is not known."""
        return "" if self._table is None else self._table.file(number)

    def function(self, address: int) -> tuple[InlineTree | None, list[InlinedCall]]:
        """Return the function of an address, and the functions inlined there, innermost first."""
        at = self._function_at(address)
        if at is None:
            return None, []
        found = self._read.get(at)
        if found is None:
            if len(self._read) >= _MAX_FUNCTIONS:
                self._read.clear()
            found = self._read[at] = read_inline_tree(self.unit, at)
            self._weight += len(found)
        return found, found.chain(address)

    def _function_at(self, address: int) -> int | None:
        while True:
            if self._functions is None:
                self._functions = read_functions(self.unit, nested=self._nested)
                self._weight += len(self._functions[1])
            number = self._functions[1].find(address)
            if number is not None:
                return self._functions[0][number]
            if self._nested:
                return None
            self._nested, self._functions = True, None  # search nested functions, too
