"""The functions that the symbol tables of a file name.

Tables are read as they lie in the file: a name is searched for as bytes among the strings, and
only symbols that have it are decoded. Patterns and demangled names take a look at every name.
"""

from __future__ import annotations

import bisect
import functools
from typing import TYPE_CHECKING, Self

from usdt.base.errors import ElfError
from usdt.base.frozen import frozen
from usdt.elf.format import LAYOUTS, SHN_COMMON, SHN_UNDEF, SHT_NOBITS
from usdt.symbolize.files import FileSymbols

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.elf.file import ElfFile
    from usdt.elf.format import Section

__all__ = ("STT_FUNC", "STT_GNU_IFUNC", "STT_NOTYPE", "STT_OBJECT", "Symbol", "SymbolTables")

STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_GNU_IFUNC = 0, 1, 2, 10  # elf.h
_TYPES = frozenset((STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_GNU_IFUNC))
_SHN_ABS = 0xFFF1
_NOWHERE = frozenset((SHN_COMMON, _SHN_ABS))
_EM_PPC64, _EM_ARM = 21, 40
_MAX_SYMBOLS = 1 << 22
_MAX_NAME = 1 << 14  # bytes; C++ has names of thousands
_MAX_MATCHES = 1 << 16  # places of a string table where one name ends a string


@frozen
class Symbol:
    """A symbol.

    Attributes:
        name: as it stands in the table, without a version.
        address: link-time address in the file itself; 0 for one that is imported.
        size: in bytes, 0 if unknown.
        type: STT_….
        binding: STB_….
        imported: whether another file defines it.
        thumb: whether it is Thumb code, of 32-bit ARM.
        local: bytes from the address to where callers in the same file enter, of 64-bit PowerPC;
            those of other files come by there as well.
    """

    name: str
    address: int
    size: int
    type: int
    binding: int
    imported: bool = False
    thumb: bool = False
    local: int = 0


class SymbolTables:
    """The symbols of a file; a context manager.

    Args:
        path: what to open.
        name: the name to show and to look for debug files by.
        roots: directories that stand for "/" when debug files are looked for.

    Raises:
        ElfError: not an ELF file, or damaged.
        TargetError: it cannot be opened.
    """

    def __init__(self, path: str, name: str, *, roots: Sequence[str] = ("",)) -> None:
        self.files = FileSymbols(path, name, roots=roots)
        self.elf = self.files.elf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap every file; again is fine."""
        for table in self.__dict__.pop("_tables", ()):
            table.close()
        self.files.close()

    @functools.cached_property
    def _tables(self) -> list[_Table]:
        found = []
        for elf, section, bias in self.files.tables:
            try:
                found.append(_Table(elf, section, bias))
            except ElfError:  # a damaged table: the others may do
                continue
        return found

    @property
    def stripped(self) -> bool:
        """Whether only symbols that other files link to are known."""
        return all(table.dynamic for table in self._tables)

    def named(self, name: str) -> list[Symbol]:
        """The symbols of that very name; each place once."""
        return _distinct(found for table in self._tables for found in table.named(name))

    def matching(self, wanted: Callable[[str], bool]) -> list[Symbol]:
        """The symbols whose names are wanted; each name and place once."""
        return _distinct(
            table.symbol(row, name)
            for table in self._tables
            for row, name in table.rows()
            if wanted(name)
        )

    @functools.cached_property
    def _functions(self) -> tuple[list[int], list[Symbol]]:
        known = self.matching(lambda _: True)
        found = sorted(
            (one for one in known if one.type != STT_OBJECT and not one.imported),
            key=lambda one: (one.address, one.type not in (STT_FUNC, STT_GNU_IFUNC), one.size),
        )
        return [one.address for one in found], found

    def at(self, address: int) -> list[Symbol]:
        """The functions that begin at a link-time address."""
        starts, found = self._functions
        return found[bisect.bisect_left(starts, address) : bisect.bisect_right(starts, address)]

    def around(self, address: int) -> Symbol | None:
        """The function that an address lies in."""
        starts, found = self._functions
        last = bisect.bisect_right(starts, address)
        for symbol in reversed(found[max(0, last - 64) : last]):
            if symbol.address <= address < symbol.address + symbol.size:
                return symbol
        return None


def _distinct(symbols: Iterator[Symbol | None]) -> list[Symbol]:
    # The first of each name and address; the tables come richest first.
    found: dict[tuple[str, int, bool], Symbol] = {}
    for one in symbols:
        if one is not None:
            found.setdefault((one.name, one.address, one.imported), one)
    return [*found.values()]


_Row = tuple[int, int, int, int, int, int]  # name, address, size, info, section, other


class _Table:
    # One section of symbols.
    def __init__(self, elf: ElfFile, section: Section, bias: int) -> None:
        sections = elf.sections
        if not 0 < section.link < len(sections) or sections[section.link].type == SHT_NOBITS:
            raise ElfError(f"{elf.path}: a symbol table without strings")
        self._layout = LAYOUTS[elf.bits, elf.byteorder].sym
        self._wide = elf.bits == 64
        self._bias = bias
        self._arm = elf.machine == _EM_ARM
        self._ppc64 = elf.machine == _EM_PPC64
        self.dynamic = section.name == ".dynsym"
        count = section.size // self._layout.size
        if count > _MAX_SYMBOLS:
            raise ElfError(f"{elf.path}: {count} symbols, at most {_MAX_SYMBOLS} are read")
        self._rows = elf.contents(section)[: count * self._layout.size]
        self._strings = bytes(elf.contents(sections[section.link]))

    def close(self) -> None:
        """Let the file's memory go."""
        self._rows.release()

    def _decoded(self) -> Iterator[_Row]:
        if self._wide:
            for name, info, other, section, value, size in self._layout.iter_unpack(self._rows):
                yield name, value, size, info, section, other
        else:
            for name, value, size, info, other, section in self._layout.iter_unpack(self._rows):
                yield name, value, size, info, section, other

    def rows(self) -> Iterator[tuple[_Row, str]]:
        """Every symbol that may be of use, with its name."""
        strings = self._strings
        for row in self._decoded():
            if row[3] & 15 in _TYPES and row[0] and row[4] not in _NOWHERE:
                end = strings.find(b"\0", row[0], row[0] + _MAX_NAME)
                raw = strings[row[0] : end] if end > 0 else b""
                # $x, $t, $d: where code and data of ARM and RISC-V begin.
                if raw and raw[0] != 36:
                    yield row, _text(raw)

    def named(self, name: str) -> Iterator[Symbol | None]:
        """The symbols of that name."""
        wanted = name.encode("utf-8", "surrogateescape")
        positions: set[int] = set()
        for ending in (b"\0", b"@"):  # memcpy@@GLIBC_2.14
            at = self._strings.find(wanted + ending)
            while at >= 0 and len(positions) < _MAX_MATCHES:
                positions.add(at)
                at = self._strings.find(wanted + ending, at + 1)
        for row in self._decoded() if positions and wanted else ():
            if row[0] in positions and row[3] & 15 in _TYPES and row[4] not in _NOWHERE:
                yield self.symbol(row, name)

    def symbol(self, row: _Row, name: str) -> Symbol | None:
        """A row as a symbol; None for one that is nowhere."""
        _, value, size, info, section, other = row
        imported = section == SHN_UNDEF
        if not imported and not value:
            return None
        thumb = self._arm and bool(value & 1)
        address = 0 if imported else value - thumb - self._bias
        local = _local_entry(other) if self._ppc64 else 0
        return Symbol(name, address, size, info & 15, info >> 4, imported, thumb, local)


def _local_entry(other: int) -> int:
    # PPC64_LOCAL_ENTRY_OFFSET of elf.h; other ABIs leave the bits 0.
    kind = other >> 5
    return (1 << kind) >> 2 << 2 if kind < 7 else 0


def _text(raw: bytes) -> str:
    # A version is no part of the name.
    return raw.partition(b"@")[0].decode("utf-8", "surrogateescape")
