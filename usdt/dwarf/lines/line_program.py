"""Line number programs: the source line of each address of a unit.

A program is executed once; its rows become two sorted arrays that are searched by bisection.
Source: DWARF 2 to 5, chapter 6.2.
"""

from __future__ import annotations

import bisect
import itertools
import posixpath
from array import array
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from usdt.dwarf.units.constants import At, Form
from usdt.dwarf.units.forms import (
    MalformedDwarf,
    UnitEncoding,
    read_form,
    read_sleb128,
    read_string,
    read_uleb128,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.dwarf.units.forms import Bytes, FormValue
    from usdt.dwarf.units.units import Unit

__all__ = ("FileTable", "LineRow", "LineTable", "file_name", "table_of")

_MAX_PROGRAM = 32 << 20  # bytes of one unit's program; real ones are below 3 MiB
_MAX_ROWS = 1 << 22
_MAX_NAMES = 1 << 18  # files and folders of a unit
_MAX_LINE = (1 << 31) - 1
_LNCT_PATH, _LNCT_DIRECTORY = 1, 2  # DW_LNCT_…
_END = (1 << 64) - 1  # the row after the end of a sequence: no line
# A row is file << 32 | line, with two flags in the bits that neither uses.
_STATEMENT, _PROLOGUE_END = 1 << 63, 1 << 31
_FILE, _LINE = (1 << 31) - 1, _MAX_LINE


class LineRow(NamedTuple):
    """A row of a line table.

    Attributes:
        address: the address of an instruction.
        file: number of the source file.
        line: the line; 0 if the code belongs to no line.
        statement: whether a statement begins here, as far as the compiler knows (is_stmt).
        prologue_end: whether a breakpoint at the function's entry belongs here.
    """

    address: int
    file: int
    line: int
    statement: bool
    prologue_end: bool


class _Opcodes(NamedTuple):
    # Fields of a program's header, under the standard's names.
    minimum_instruction_length: int
    default_is_stmt: int
    line_base: int
    line_range: int
    standard_opcode_lengths: list[int]


class FileTable:
    """The source files of one unit: the header of its line number program.

    Args:
        data: the section ``.debug_line``.
        at: the position of the unit's program.
        encoding: the encoding of the unit.
        folder: the directory in which the compiler ran.
        text: returns the string that a form refers to, for version 5.

    Raises:
        MalformedDwarf: the program is damaged.
        IndexError: the program ends early.
        ValueError: likewise.
    """

    def __init__(
        self,
        data: Bytes,
        at: int,
        encoding: UnitEncoding,
        folder: str,
        text: Callable[[FormValue, UnitEncoding], str],
    ) -> None:
        self._folder = folder
        self._text = text
        self._folders: list[str] = []
        self._files: list[tuple[str, int]] = []  # name, number of its folder
        length = encoding.number(data, at, 4)
        at += 4
        offset_size = 4
        if length == 0xFFFFFFFF:
            length, offset_size, at = encoding.number(data, at, 8), 8, at + 8
        if length > min(_MAX_PROGRAM, len(data) - at):
            raise MalformedDwarf(f"a line number program of {length} bytes")
        program = bytes(data[at : at + length])
        version = encoding.number(program, 0, 2)
        if not 2 <= version <= 5:
            raise MalformedDwarf(f"a line number program of version {version}")
        self._version = version
        self._encoding = UnitEncoding(
            encoding.byteorder, encoding.address_size, offset_size, version
        )
        self._read(program)

    def file(self, number: int) -> str:
        """Return the path of a file by its number; "" if there is no such number."""
        index = number if self._version >= 5 else number - 1
        if not 0 <= index < len(self._files):
            return ""
        name, folder = self._files[index]
        if name.startswith("/"):
            return name
        # Before version 5, folder 0 is the compiler's directory, which is not listed.
        index = folder if self._version >= 5 else folder - 1
        where = self._folders[index] if 0 <= index < len(self._folders) else ""
        if not where.startswith("/") and (index or self._version < 5) and self._folder:
            where = f"{self._folder}/{where}" if where else self._folder
        return f"{where}/{name}" if where else name

    def path(self, number: int) -> str:
        """Return the path of a file by its number, without ``.`` and ``..``; "" if unknown."""
        found = self.file(number)
        return posixpath.normpath(found) if found else ""

    def numbers_of(self, last: str) -> Iterator[tuple[int, str]]:
        """Yield number and path of the files with a name, which is the last part of their paths."""
        first = 0 if self._version >= 5 else 1
        for number, (name, _) in enumerate(self._files, first):
            if name == last or name.endswith(f"/{last}"):
                yield number, self.path(number)

    # ------------------------------------------------------------ header

    def _read(self, program: bytes) -> None:
        encoding = self._encoding
        at = 2 if self._version < 5 else 4
        length = encoding.number(program, at, encoding.offset_size)
        at += encoding.offset_size
        start = at + length
        if start > len(program):
            raise MalformedDwarf("the header of a line number program is longer than the program")
        min_length = program[at]
        at += 1 if self._version < 4 else 2  # maximum_operations_per_instruction: VLIW only
        is_stmt, line_base, line_range, opcodes = program[at : at + 4]
        line_base = line_base - 256 if line_base > 127 else line_base
        at += 4
        lengths = [0, *program[at : at + opcodes - 1]]
        at += max(0, opcodes - 1)
        if not line_range or not opcodes or len(lengths) < opcodes:
            raise MalformedDwarf("the header of a line number program has no opcodes")
        if self._version < 5:
            self._read_names(program, at)
        else:
            self._read_names_5(program, at)
        self._run(program, start, _Opcodes(min_length, is_stmt, line_base, line_range, lengths))

    def _read_names(self, program: bytes, at: int) -> None:
        while True:
            name, at = read_string(program, at)
            if not name:
                break
            self._folders.append(name)
        while True:
            name, at = read_string(program, at)
            if not name:
                break
            folder, at = read_uleb128(program, at)
            _, at = read_uleb128(program, at)
            _, at = read_uleb128(program, at)
            self._files.append((name, folder))
        if len(self._files) + len(self._folders) > _MAX_NAMES:
            raise MalformedDwarf(f"more than {_MAX_NAMES} files in a unit")

    def _read_names_5(self, program: bytes, at: int) -> None:
        folders, at = self._read_entries(program, at)
        self._folders = [name for name, _ in folders]
        self._files, at = self._read_entries(program, at)

    def _read_entries(self, program: bytes, at: int) -> tuple[list[tuple[str, int]], int]:
        formats = []
        at += 1
        for _ in range(program[at - 1]):
            kind, at = read_uleb128(program, at)
            form, at = read_uleb128(program, at)
            formats.append((kind, form))
        count, at = read_uleb128(program, at)
        if count > min(_MAX_NAMES, len(program) - at) or (count and not formats):
            raise MalformedDwarf(f"{count} files in a unit")
        found = []
        for _ in range(count):
            name, folder = "", 0
            for kind, form in formats:
                raw, at = read_form(program, at, form, 0, self._encoding)
                if kind == _LNCT_PATH:
                    is_inline = raw.form == Form.STRING
                    name = (
                        read_string(program, raw.value)[0]
                        if is_inline
                        else self._text(raw, self._encoding)
                    )
                elif kind == _LNCT_DIRECTORY:
                    folder = raw.value
            found.append((name, folder))
        return found, at

    def _run(self, data: bytes, at: int, header: _Opcodes) -> None:
        pass  # only the names are needed


class LineTable(FileTable):
    """The line table of one unit. Arguments and errors are those of :class:`FileTable`."""

    def __init__(
        self,
        data: Bytes,
        at: int,
        encoding: UnitEncoding,
        folder: str,
        text: Callable[[FormValue, UnitEncoding], str],
    ) -> None:
        self._sequences: list[_Rows] = []
        super().__init__(data, at, encoding, folder, text)
        self._addresses, self._rows = _joined(self._sequences)
        self._sequences.clear()

    def __len__(self) -> int:
        return len(self._addresses)

    def find(self, address: int) -> tuple[int, int] | None:
        """Return the file number and the line of an address; None if unknown.

        Line 0 means that the code belongs to no line.
        """
        at = bisect.bisect_right(self._addresses, address) - 1
        row = self._rows[at] if at >= 0 else _END
        return None if row == _END else (row >> 32 & _FILE, row & _LINE)

    def rows(self) -> Iterator[LineRow]:
        """Yield the rows that have a line number, sorted by address."""
        for address, row in zip(self._addresses, self._rows, strict=True):
            if row != _END and row & _LINE:
                yield _unpacked(address, row)

    def after(self, address: int, end: int) -> Iterator[LineRow]:
        """Yield the rows behind an address and before another."""
        first = bisect.bisect_right(self._addresses, address)
        for at in range(first, bisect.bisect_left(self._addresses, end)):
            if self._rows[at] != _END:
                yield _unpacked(self._addresses[at], self._rows[at])

    def _run(self, data: bytes, at: int, header: _Opcodes) -> None:
        # The state machine. Columns, views and instruction sets are ignored.
        min_length, is_stmt, _, _, lengths = header
        default, opcodes, steps = (_STATEMENT if is_stmt else 0), len(lengths), _steps(header)
        addresses, rows = array("Q"), array("Q")
        address, file, line, flags = 0, 1, 1, default
        end = len(data)
        total = 0
        while at < end:
            code = data[at]
            at += 1
            if code >= opcodes:
                ahead, lines = steps[code - opcodes]
                address += ahead
                line += lines
            elif code == 2:
                ahead, at = read_uleb128(data, at)
                address += ahead * min_length
                continue
            elif code == 3:
                lines, at = read_sleb128(data, at)
                line += lines
                continue
            elif code == 0:
                size, at = read_uleb128(data, at)
                kind = data[at] if size else 0
                if kind == 1:
                    total += len(addresses)
                    self._sequence(addresses, rows, address)
                    addresses, rows = array("Q"), array("Q")
                    address, file, line, flags = 0, 1, 1, default
                elif kind == 2:
                    address = self._encoding.number(data, at + 1, min(size - 1, 8))
                at += size
                continue
            elif code == 8:
                address += steps[255 - opcodes][0]  # const_add_pc
                continue
            elif code == 4:
                file, at = read_uleb128(data, at)
                continue
            elif code == 9:
                address += self._encoding.number(data, at, 2)
                at += 2
                continue
            elif code == 6:
                flags ^= _STATEMENT
                continue
            elif code == 10:
                flags |= _PROLOGUE_END
                continue
            elif code != 1:
                for _ in range(lengths[code]):
                    _, at = read_uleb128(data, at)
                continue
            addresses.append(address)
            rows.append((file & _FILE) << 32 | (line if 0 <= line <= _LINE else 0) | flags)
            flags &= _STATEMENT
            if total + len(rows) > _MAX_ROWS:
                raise MalformedDwarf(f"a line number program of more than {_MAX_ROWS} rows")

    def _sequence(self, addresses: array[int], rows: array[int], end: int) -> None:
        # Code that the linker dropped is at address 0.
        if addresses and addresses[0]:
            addresses.append(end)
            rows.append(_END)
            if any(a > b for a, b in itertools.pairwise(addresses)):
                order = sorted(range(len(rows)), key=addresses.__getitem__)
                addresses = array("Q", [addresses[index] for index in order])
                rows = array("Q", [rows[index] for index in order])
            self._sequences.append((addresses, rows))


def _steps(header: _Opcodes) -> list[tuple[int, int]]:
    # How far each special opcode advances the address and the line.
    min_length, _, line_base, line_range, lengths = header
    return [
        (code // line_range * min_length, line_base + code % line_range)
        for code in range(256 - len(lengths))
    ]


def _unpacked(address: int, row: int) -> LineRow:
    statement, prologue_end = bool(row & _STATEMENT), bool(row & _PROLOGUE_END)
    return LineRow(address, row >> 32 & _FILE, row & _LINE, statement, prologue_end)


_Rows = tuple["array[int]", "array[int]"]  # addresses; rows


_Table = TypeVar("_Table", bound=FileTable)


def _joined(sequences: list[_Rows]) -> _Rows:
    # Join the sequences into one table. Of overlapping sequences, the first is used.
    addresses, rows = array("Q"), array("Q")
    sequences.sort(key=lambda one: one[0][0])
    for starts, values in sequences:
        if not addresses or starts[0] >= addresses[-1]:
            addresses.extend(starts)
            rows.extend(values)
    return addresses, rows


def table_of(unit: Unit, kind: type[_Table]) -> _Table | None:
    """Return the source files of a unit, or its whole line table; None if it has none.

    Args:
        unit: the unit.
        kind: FileTable or LineTable.

    Raises:
        DwarfError: the table is damaged.
        LookupError: likewise.
    """
    owner = unit.skeleton or unit
    at = owner.integer(owner.root, At.STMT_LIST)
    if at is None:
        return None

    def text(raw: FormValue, _: UnitEncoding) -> str:
        return owner.file.text(raw)

    folder = owner.text(owner.root, At.COMP_DIR) or unit.text(unit.root, At.COMP_DIR)
    return kind(owner.file.sections[".debug_line"], at, owner.encoding, folder, text)


def file_name(unit: Unit, number: int) -> str:
    """Return the path of a source file of a unit by its number; "" if it is not known.

    Raises:
        DwarfError: the table is damaged.
    """
    table = table_of(unit, FileTable)
    return "" if table is None else table.file(number)
