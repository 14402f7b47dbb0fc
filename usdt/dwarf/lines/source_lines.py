"""Source lines of a file's addresses, and the functions inlined there.

    address → unit (.debug_info's first entries, .debug_aranges) → line (.debug_line)
                                                                 → function → inlined functions

Only units that are asked for are read: then a line is a bisection in two arrays, and so is a
chain of inlined functions. What has been read is kept within bounds and forgotten from the oldest
on. Files are hostile: whatever cannot be believed is one notice, and no line.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.dwarf.lines.inlining import functions_of, inlined_into
from usdt.dwarf.lines.line_program import LineTable
from usdt.dwarf.units import forms as dw
from usdt.dwarf.units.forms import Encoding
from usdt.dwarf.units.ranges import RangeMap, read_aranges
from usdt.dwarf.units.sections import DebugSections
from usdt.dwarf.units.split_dwarf import Split, alternative_of
from usdt.dwarf.units.units import UT_COMPILE, UT_SKELETON, DebugFile

if TYPE_CHECKING:
    from usdt.dwarf.lines.inlining import Function, Scope
    from usdt.dwarf.units.forms import Raw
    from usdt.dwarf.units.split_dwarf import Opener
    from usdt.dwarf.units.units import Header, Unit
    from usdt.elf.file import ElfFile

__all__ = ("Place", "SourceLines", "has_lines")

_DEBUG_ROOT = "/usr/lib/debug"
_MAX_KEPT = 6 << 20  # rows of lines and ranges, over all units: some 100 MiB
_MAX_NAMES = 1 << 16
# What the first address takes, and each of which may have to be decompressed.
_PACKED = (
    *(".debug_info", ".debug_line", ".debug_str", ".debug_abbrev"),
    *(".debug_rnglists", ".debug_ranges"),
)
_MAX_FUNCTIONS = 1 << 14  # of a unit, with what was inlined into them
# What reading bytes that are not what they should be raises.
_DAMAGE = (TracingError, IndexError, ValueError, OverflowError)


@frozen
class Place:
    """Where an address comes from.

    Attributes:
        function: the name of the function as it stands in the file, mangled if the symbol's is;
            "" where none is known.
        file: path of the source; "" where it is not known.
        line: in it; 0 where the code is of no line.
    """

    function: str
    file: str
    line: int


def has_lines(elf: ElfFile) -> bool:
    """Whether a file has debug information with lines."""
    sections = DebugSections(elf)
    return ".debug_info" in sections and ".debug_line" in sections


class SourceLines:
    """The source lines of one file; a context manager.

    Args:
        elf: a file with debug information; stays its owner's.
        opener: yields those of some paths that can be opened as ELF files.
        path: where the program lies that ``elf`` is the debug information of.
        debug_root: where systems keep debug files.

    Attributes:
        notices: lines for people: what was damaged, what was not found.
    """

    def __init__(
        self,
        elf: ElfFile,
        opener: Opener = lambda _: iter(()),
        *,
        path: str = "",
        debug_root: str = _DEBUG_ROOT,
    ) -> None:
        self.notices: list[str] = []
        self.elf = elf
        self._file = DebugFile(DebugSections(elf))
        self._split = Split(path or elf.path, opener)
        self._opener = opener
        self._debug_root = debug_root
        self._loaded: dict[int, _UnitLines] = {}
        self._kept = 0
        self._names: dict[tuple[int, int, int], str] = {}
        self._told: set[str] = set()

    def close(self) -> None:
        """Let go of every file that was opened; again is fine."""
        self._loaded.clear()
        self._split.close()
        alternative = self._file.alternative
        for file in (self._file, alternative):
            if file is not None:
                file.close()
        if alternative is not None:
            alternative.sections.elf.close()
            self._file.alternative = None

    def at(self, address: int) -> list[Place]:
        """The functions an address is in, innermost first: inlined ones, then the one they are in.

        Each but the last was inlined into the next; the first has the address's own line, each
        other one that of the call. Nothing is known: an empty list.
        """
        try:
            number = self._units.find(address)
            return [] if number is None else self._places(number, address)
        except _DAMAGE as err:
            self._tell(f"{self.elf.path}: damaged debug information: {err}")
            return []

    def _places(self, number: int, address: int) -> list[Place]:
        lines = self._unit(number)
        file, line = lines.line(address)
        found = []
        try:
            function, chain = lines.function(address)
            for scope in chain:
                found.append(Place(self._name(lines.unit, scope.at), file, line))
                file, line = lines.file(scope.file), scope.line
            name = "" if function is None else self._name(lines.unit, function.at)
        except _DAMAGE as err:
            self._tell(f"{self.elf.path}: damaged debug information: {err}")
            name = ""
        self._kept += lines.grown()
        while self._kept > _MAX_KEPT and len(self._loaded) > 1:
            self._kept -= len(self._loaded.pop(next(iter(self._loaded))))
        return [*found, Place(name, file, line)] if file or name else found

    # ------------------------------------------------------------ units

    @functools.cached_property
    def _units(self) -> RangeMap:
        # Which unit each address is in, by number.
        file = self._file
        file.sections.prepare(*_PACKED)
        file.alternative = alternative_of(self.elf, self._opener, self._debug_root)
        rows: list[tuple[int, int, int, int]] = []
        without: dict[int, int] = {}
        for number, header in enumerate(file.headers):
            if header.kind not in (UT_COMPILE, UT_SKELETON):
                continue
            try:
                unit = file.unit(header)
                ranges = unit.ranges(unit.root)
            except _DAMAGE as err:
                self._tell(f"{self.elf.path}: damaged debug information: {err}")
                continue
            rows += [(low, high, 0, number) for low, high in ranges]
            if not ranges and dw.AT_STMT_LIST in unit.root.values:
                without[header.at] = number
        if without:
            rows += self._by_aranges(without)
        if file.damage:
            self._tell(f"{self.elf.path}: damaged debug information: {file.damage}")
        return RangeMap(rows)

    def _by_aranges(self, units: dict[int, int]) -> list[tuple[int, int, int, int]]:
        # Units that do not say where their code is.
        found: list[tuple[int, int, int, int]] = []
        plain = Encoding(self._file.byteorder, 8, 4, 0)
        try:
            for low, high, at in read_aranges(self._file.sections[".debug_aranges"], plain):
                if at in units:
                    found.append((low, high, 0, units[at]))
        except _DAMAGE:
            pass  # what came before is right; nothing else is known of these
        return found

    def _unit(self, number: int) -> _UnitLines:
        found = self._loaded.pop(number, None)
        if found is None:
            found = _UnitLines(self._file, self._file.headers[number], self._split)
            if self._split.missing is not None:
                self._tell(
                    f"{self.elf.path}: {self._split.missing} is not here, nor a package (.dwp):"
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

    def _tell(self, notice: str) -> None:
        if not self._told:  # one is enough to know
            self._told.add(notice)
            self.notices.append(notice)


class _UnitLines:
    # What is known of one unit: its lines, its functions, and what is inlined into those asked for.
    def __init__(self, file: DebugFile, header: Header, split: Split) -> None:
        self._skeleton = file.unit(header)
        self.unit = split.of(self._skeleton)
        self._nested = False
        self._read: dict[int, Function] = {}
        self._functions: tuple[list[int], RangeMap] | None = None
        self._weight = self._counted = 0

    def __len__(self) -> int:
        return self._counted

    def grown(self) -> int:
        """How much longer it has become since the last call."""
        grown = self._weight - self._counted
        self._counted = self._weight
        return grown

    @functools.cached_property
    def _table(self) -> LineTable | None:
        unit = self._skeleton
        at = unit.integer(unit.root, dw.AT_STMT_LIST)
        if at is None:
            return None

        def text(raw: Raw, _encoding: Encoding) -> str:
            return unit.file.text(raw)

        folder = unit.text(unit.root, dw.AT_COMP_DIR)
        if not folder and self.unit is not unit:
            folder = self.unit.text(self.unit.root, dw.AT_COMP_DIR)
        data = unit.file.sections[".debug_line"]
        made = LineTable(data, at, unit.encoding, folder, text)
        self._weight += len(made)
        return made

    def line(self, address: int) -> tuple[str, int]:
        """The file and line of an address; ("", 0) if it has none."""
        row = None if self._table is None else self._table.find(address)
        return ("", 0) if row is None else (self.file(row[0]), row[1])

    def file(self, number: int) -> str:
        """The path of a file by its number."""
        return "" if self._table is None else self._table.file(number)

    def function(self, address: int) -> tuple[Function | None, list[Scope]]:
        """The function that an address is in, and what was inlined there, innermost first."""
        at = self._function_at(address)
        if at is None:
            return None, []
        found = self._read.get(at)
        if found is None:
            if len(self._read) >= _MAX_FUNCTIONS:
                self._read.clear()
            found = self._read[at] = inlined_into(self.unit, at)
            self._weight += len(found)
        return found, found.chain(address)

    def _function_at(self, address: int) -> int | None:
        while True:
            if self._functions is None:
                self._functions = functions_of(self.unit, nested=self._nested)
                self._weight += len(self._functions[1])
            number = self._functions[1].find(address)
            if number is not None:
                return self._functions[0][number]
            if self._nested:
                return None
            self._nested, self._functions = True, None  # look more closely
