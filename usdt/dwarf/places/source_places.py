"""Source lines → places: the instructions at which the statements of a line begin.

A line may begin at several addresses: once in each function that contains a copy of it, and
several times in one function, because compilers move and repeat instructions. As in gdb, the
lowest address in each block counts, and a function's first line begins after its prologue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import ProbeNotFound
from usdt.base.terminal import progress
from usdt.dwarf.lines.line_program import FileTable, LineTable, table_of
from usdt.dwarf.units.constants import At, UnitType
from usdt.dwarf.units.errors import DAMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.dwarf.index.files import DebugFiles
    from usdt.dwarf.lines.line_program import LineRow
    from usdt.dwarf.places.scopes import CodePlace, CodeScopes
    from usdt.dwarf.units.units import Unit

__all__ = ("SourcePlaces",)

_MAX_ROWS = 1 << 16  # rows of one line
_MAX_SHOWN = 4  # files that a message names


class _Matches:
    # The rows of the files with a name.
    def __init__(self, line: int) -> None:
        self.line = line
        self.rows: list[tuple[LineRow, str]] = []
        self.paths: set[str] = set()  # those with code
        self.lines: dict[str, set[int]] = {}

    def add(self, unit: Unit, files: dict[int, str]) -> None:
        table = table_of(unit, LineTable)
        for row in () if table is None else table.rows():
            path = files.get(row.file)
            if path is None or not row.statement:
                continue
            self.lines.setdefault(path, set()).add(row.line)
            if row.line == self.line and len(self.rows) < _MAX_ROWS:
                self.rows.append((row, path))


class SourcePlaces:
    """The source lines of a program.

    Args:
        files: the files with its debug information.
        scopes: its functions and blocks.
    """

    def __init__(self, files: DebugFiles, scopes: CodeScopes) -> None:
        self._files = files
        self._scopes = scopes

    def find(self, source: str, line: int) -> list[CodePlace]:
        """Return the places of a source line, sorted by address.

        Args:
            source: the path of the source file, or the last parts of it.
            line: the line.

        Raises:
            ProbeNotFound: no file matches, or several do, or the line has no code.
            DwarfError: the debug information is damaged.
            LookupError: likewise.
        """
        matches = self._matches(source, line)
        path = self._only(source, matches)
        if not matches.rows:
            raise ProbeNotFound(_no_code(source, line, matches.lines[path]))
        found: dict[int, CodePlace] = {}
        blocks = set()
        for row, _ in sorted(matches.rows):
            address = row.address - self._files.bias
            chain = self._scopes.chain(address)
            block = None if chain is None else (chain[0], chain[1][0].at)
            if block is not None and block in blocks:
                continue
            blocks.add(block)
            if chain is not None:
                own = self._scopes.prologues.behind(chain[1][-1], row.address)
                address = own - self._files.bias
            place = self._scopes.place(address, (path, line))
            if place is not None:
                found.setdefault(address, place)
        if not found:
            raise ProbeNotFound(f"{source}:{line} is in no function that is known")
        return [found[address] for address in sorted(found)]

    def _matches(self, source: str, line: int) -> _Matches:
        matches = _Matches(line)
        last = source.rpartition("/")[2]
        for unit in self._units():
            table = table_of(unit, FileTable)
            named = () if table is None else table.numbers_of(last)
            files = {number: path for number, path in named if _matches_path(path, source)}
            if files:
                matches.paths.update(files.values())
                matches.add(unit, files)
        return matches

    def _units(self) -> Iterator[Unit]:
        # The units with line tables; units may share one.
        seen = set()
        main = self._files.main
        what = f"reading line tables of {self._files.name}"
        for header in progress.through(main.headers, what, len(main.headers)):
            if header.kind not in (UnitType.COMPILE, UnitType.SKELETON):
                continue
            try:
                unit = main.unit(header)
                at = unit.integer(unit.root, At.STMT_LIST)
            except DAMAGE:
                continue  # the index has reported it
            if at is not None and at not in seen:
                seen.add(at)
                yield self._files.full_unit(unit)

    def _only(self, source: str, matches: _Matches) -> str:
        # The path of the one source file that matches.
        paths = sorted(matches.lines)
        if source in paths:
            matches.rows = [one for one in matches.rows if one[1] == source]
            return source
        if len(paths) == 1:
            return paths[0]
        if paths:
            shown = ", ".join(paths[:_MAX_SHOWN]) + (", …" if len(paths) > _MAX_SHOWN else "")
            raise ProbeNotFound(
                f"{len(paths)} source files are named {source}: write more of the path ({shown})"
            )
        if matches.paths:
            raise ProbeNotFound(f"the source file {min(matches.paths)} has no code here")
        raise ProbeNotFound(f"no source file {source}")


def _matches_path(path: str, source: str) -> bool:
    return path == source or path.endswith(f"/{source.removeprefix('./')}")


def _no_code(source: str, line: int, lines: set[int]) -> str:
    later = [one for one in lines if one > line]
    if later:
        return f"{source}:{line} has no code; the next line with code is {min(later)}"
    return f"{source}:{line} has no code; the last line with code is {max(lines)}"
