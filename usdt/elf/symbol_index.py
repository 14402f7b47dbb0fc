"""The functions of one ELF file by address: made once, then a bisection for each question.

Only numbers are kept: a name is read from the file, and demangled, when it is shown.
"""

from __future__ import annotations

import bisect
from array import array
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError
from usdt.base.frozen import frozen
from usdt.elf.format import LAYOUTS, SHN_COMMON, SHN_UNDEF, SHT_NOBITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from usdt.elf.file import ElfFile
    from usdt.elf.format import Section

__all__ = ("Symbol", "SymbolIndex")

STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_GNU_IFUNC = 0, 1, 2, 10  # elf.h
_WANTED = frozenset((STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_GNU_IFUNC))
_STB_GLOBAL, _STB_WEAK = 1, 2
_NUMBER_BITS = 22
_MAX_SYMBOLS = 1 << _NUMBER_BITS
_MAX_NAME = 1 << 14  # bytes; C++ has names of thousands
_NESTED = 64  # symbols that may begin between an address and the start of its function
_EM_ARM = 40
_SHN_ABS = 0xFFF1


@frozen
class Symbol:
    """A function: its link-time address, size (0: unknown) and name as it stands in the file."""

    address: int
    size: int
    name: str


class SymbolIndex:
    """The symbols of one table, sorted by address.

    Args:
        elf: the file; stays open as long as names are asked for.
        table: a section of type SHT_SYMTAB or SHT_DYNSYM.

    Raises:
        ElfError: the table or its strings lie outside the file, or are larger than real ones.
    """

    def __init__(self, elf: ElfFile, table: Section) -> None:
        sections = elf.sections
        if not 0 < table.link < len(sections) or sections[table.link].type == SHT_NOBITS:
            raise ElfError(f"{elf.path}: a symbol table without strings")
        layout = LAYOUTS[elf.bits, elf.byteorder].sym
        count = table.size // layout.size
        if count > _MAX_SYMBOLS:
            raise ElfError(f"{elf.path}: {count} symbols, at most {_MAX_SYMBOLS} are read")
        self._strings = elf.contents(sections[table.link])
        self._table = elf.contents(table)[: count * layout.size]
        self._layout = layout
        self._wide = elf.bits == 64
        # Bit 0 of a function's address says Thumb on ARM.
        self._mask = ~1 if elf.machine == _EM_ARM else ~0
        # Twelve bytes are kept of each symbol; a browser has a million of them.
        packed = sorted(self._addresses())
        self._starts = array("Q", [one >> _NUMBER_BITS for one in packed])
        self._numbers = array("I", [one & (1 << _NUMBER_BITS) - 1 for one in packed])
        self._ends = sorted(
            (one.address, one.address + one.size) for one in sections if one.address and one.size
        )

    def __len__(self) -> int:
        return len(self._starts)

    def close(self) -> None:
        """Let the file's memory go."""
        self._strings.release()
        self._table.release()

    def _addresses(self) -> Iterator[int]:
        # Of each symbol its address, and in the low bits its number.
        rows = enumerate(self._layout.iter_unpack(self._table))
        if self._wide:
            for number, (name, info, _, section, value, _) in rows:
                if info & 15 in _WANTED and value and name and section not in _NOWHERE:
                    yield value << _NUMBER_BITS | number
        else:
            for number, (name, value, _, info, _, section) in rows:
                if info & 15 in _WANTED and value and name and section not in _NOWHERE:
                    yield (value & self._mask) << _NUMBER_BITS | number

    def _row(self, index: int) -> _Row:
        fields = self._layout.unpack_from(self._table, self._numbers[index] * self._layout.size)
        if self._wide:
            name, info, _, _, _, size = fields
        else:
            name, _, size, info, _, _ = fields
        return self._starts[index], size, info, name

    def _rows(self, last: int) -> list[_Row]:
        # The symbols that begin where that one does, up to it.
        first = bisect.bisect_left(self._starts, self._starts[last])
        return [self._row(index) for index in range(max(first, last - _NESTED), last + 1)]

    def find(self, address: int) -> Symbol | None:
        """The function that a link-time address lies in; None where no symbol covers it."""
        at = bisect.bisect_right(self._starts, address) - 1
        for index in range(at, max(-1, at - _NESTED), -1):
            start, size, _, _ = self._row(index)
            if address < start + size:
                return self._best(index, address)
        return self._unsized(at, address)

    def _best(self, index: int, address: int) -> Symbol | None:
        # Of several symbols at one address, what a person would call it.
        start = self._starts[index]
        rows = [row for row in self._rows(index) if address < start + row[1]]
        return min(
            (
                (_rank(info, name), Symbol(start, size, name))
                for _, size, info, name in _named(self, rows)
            ),
            key=lambda pair: pair[0],
            default=(None, None),
        )[1]

    def _unsized(self, at: int, address: int) -> Symbol | None:
        # Assembly often gives no size: such a symbol reaches to the next, within its section.
        if at < 0 or self._row(at)[1]:
            return None
        start = self._starts[at]
        section = bisect.bisect_right(self._ends, (start, 1 << 64)) - 1
        if section < 0 or not start <= address < self._ends[section][1]:
            return None
        found = _named(self, [row for row in self._rows(at) if not row[1]])
        return next((Symbol(start, 0, name) for _, _, _, name in found), None)

    def name(self, position: int) -> str:
        """The string at a position of the string table; "" if it does not end."""
        raw = bytes(self._strings[position : position + _MAX_NAME])
        name, end, _ = raw.partition(b"\0")
        # A version, memcpy@@GLIBC_2.14, is no part of the name.
        return name.partition(b"@")[0].decode("utf-8", "surrogateescape") if end else ""


_Row = tuple[int, int, int, int]  # address, size, info, name
_NOWHERE = frozenset((SHN_UNDEF, SHN_COMMON, _SHN_ABS))


def _named(index: SymbolIndex, rows: Iterable[_Row]) -> Iterator[tuple[int, int, int, str]]:
    for address, size, info, position in rows:
        name = index.name(position)
        # $x, $t, $d: where code and data of ARM and RISC-V begin.
        if name and not name.startswith("$"):
            yield address, size, info, name


def _rank(info: int, name: str) -> tuple[bool, int, int, int, str]:
    binding = {_STB_GLOBAL: 0, _STB_WEAK: 1}.get(info >> 4, 2)
    kind = info & 15
    underscores = len(name) - len(name.lstrip("_")) if not name.startswith(("_Z", "_R")) else 0
    return kind not in (STT_FUNC, STT_GNU_IFUNC), binding, underscores, len(name), name
