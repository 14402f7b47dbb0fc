"""All symbol tables of one ELF file, wherever they are kept.

    .symtab              in the file itself
    separate debug file  see :mod:`usdt.elf.debug_files`
    .gnu_debugdata       an ELF file of what .dynsym lacks, xz-compressed, in the file itself
    .dynsym              what other files link to: all that a stripped library has

The first three exclude one another in practice and are tried in this order; .dynsym is searched
when they do not know a name or an address.
"""

from __future__ import annotations

import contextlib
import functools
from itertools import chain
from typing import TYPE_CHECKING, Self

from usdt.base.errors import ElfError
from usdt.elf import debug_files
from usdt.elf.debug_files import DEBUG_ROOT
from usdt.elf.file import ElfFile
from usdt.elf.format import (
    PF_X,
    PT_LOAD,
    SHT_DYNSYM,
    SHT_NOBITS,
    SHT_SYMTAB,
    STT_FUNC,
    STT_GNU_IFUNC,
    STT_NOTYPE,
)
from usdt.elf.symbol_table import ALL_ADDRESSES, SymbolTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from usdt.elf.debug_files import Finder
    from usdt.elf.format import Section
    from usdt.elf.symbol_table import ElfSymbol, Span

__all__ = ("SymbolTables",)

_MAX_DEBUGDATA = 256 << 20  # bytes of a decompressed .gnu_debugdata
_MAX_LZMA_MEMORY = 128 << 20  # bytes its decompression may take
_MAX_TABLES = 4  # of one file


class SymbolTables:
    """The symbols of a file; a context manager.

    Args:
        elf: the file; closed with this.
        roots: directories that stand for "/" when debug files are looked for: "" is ours.
        debug_root: where systems keep debug files.
        more: finds further debug files by build ID.
    """

    def __init__(
        self,
        elf: ElfFile,
        *,
        roots: Sequence[str] = ("",),
        debug_root: str = DEBUG_ROOT,
        more: Finder | None = None,
    ) -> None:
        self.elf = elf
        self._find = functools.partial(
            debug_files.find, elf, roots=tuple(roots), debug_root=debug_root, more=more
        )
        self._richer: ElfFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file; idempotent."""
        self.__dict__.pop("_tables", None)
        richer, self._richer = self._richer, None
        if richer is not None:
            richer.close()
        self.elf.close()

    @functools.cached_property
    def _tables(self) -> list[SymbolTable]:
        # The richest first.
        sections = [(self.elf, section) for section in _sections(self.elf)]
        if all(section.type != SHT_SYMTAB for _, section in sections):
            self._richer = self._find_richer()
            if self._richer is not None:
                sections[:0] = [
                    (self._richer, section)
                    for section in _sections(self._richer)
                    if section.type == SHT_SYMTAB
                ]
        found = []
        for elf, section in sections:
            bias = elf.first_address - self.elf.first_address
            with contextlib.suppress(ElfError):  # a damaged table: the others may do
                found.append(SymbolTable(elf, section, bias))
        return found

    def _find_richer(self) -> ElfFile | None:
        # A file with a .symtab that belongs to this one.
        for elf in chain(self._find(), self._embedded()):
            if any(section.type == SHT_SYMTAB for section in _sections(elf)):
                return elf
            elf.close()
        return None

    def _embedded(self) -> Iterator[ElfFile]:
        section = self.elf.section(".gnu_debugdata")
        if section is None or section.type == SHT_NOBITS:
            return
        import lzma  # noqa: PLC0415 - only for these

        try:
            inflate = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_LZMA_MEMORY)
            data = inflate.decompress(self.elf.contents(section), _MAX_DEBUGDATA)
            yield ElfFile.from_bytes(data, f"{self.elf.path} (.gnu_debugdata)")
        except (lzma.LZMAError, EOFError, ElfError):
            return

    @property
    def stripped(self) -> bool:
        """Whether only the symbols that other files link to are known."""
        return all(table.dynamic for table in self._tables)

    def named(self, name: str) -> list[ElfSymbol]:
        """Return the symbols with exactly this name, each address once."""
        return _distinct(found for table in self._tables for found in table.named(name))

    def variables(self, name: str) -> list[ElfSymbol]:
        """Return the symbols of data with exactly this name, each address once."""
        return _distinct(found for table in self._tables for found in table.variables(name))

    def exported_at(self, address: int) -> list[ElfSymbol]:
        """Return the symbols of data at an address of which another definition may precede it."""
        tables = (table for table in self._tables if table.dynamic)
        return [one for table in tables for one in table.data_at(address) if one.exported]

    def matching(self, wanted: Callable[[str], bool], text: str = "") -> list[ElfSymbol]:
        """Return the symbols whose names ``wanted`` accepts, each name and address once.

        Args:
            wanted: returns whether a symbol of a name is wanted.
            text: what all these names contain; with it, only such names are looked at.
        """
        return _distinct(found for table in self._tables for found in table.matching(wanted, text))

    def code_names(self) -> list[str]:
        """Return the names of all functions that this file has code of, each once."""
        segments = self.elf.segments
        code = [one for one in segments if one.type == PT_LOAD and one.flags & PF_X]
        spans = [(one.address, one.address + one.filesz) for one in code]
        tables = (table.names_of((STT_FUNC, STT_NOTYPE), spans) for table in self._tables)
        return list(dict.fromkeys(chain.from_iterable(tables)))

    def starting_at(self, address: int) -> list[ElfSymbol]:
        """Return the functions that begin at a link-time address."""
        found = _distinct(found for table in self._tables for found in table.starting_at(address))
        return sorted(found, key=_order)

    def containing(self, address: int) -> ElfSymbol | None:
        """Return the innermost function that contains a link-time address, by its size."""
        found = _distinct(found for table in self._tables for found in table.containing(address))
        return max(reversed(found), key=_order, default=None)

    def find(self, address: int) -> ElfSymbol | None:
        """Return the symbol that covers a link-time address, as a stack trace names it."""
        return self.span(address)[2]

    def span(self, address: int) -> Span:
        """Return the same with addresses around it that have the same answer."""
        low, high, symbol = ALL_ADDRESSES
        for table in self._tables:
            first, end, symbol = table.span(address)
            low, high = max(low, first), min(high, end)
            if symbol is not None:
                break
        return low, high, symbol


def _order(symbol: ElfSymbol) -> tuple[int, bool, int]:
    return symbol.address, symbol.type not in (STT_FUNC, STT_GNU_IFUNC), symbol.size


def _sections(elf: ElfFile) -> list[Section]:
    try:
        found = [one for one in elf.sections if one.type in (SHT_SYMTAB, SHT_DYNSYM) and one.size]
    except ElfError:
        return []
    return sorted(found, key=lambda one: one.type)[:_MAX_TABLES]


def _distinct(symbols: Iterable[ElfSymbol]) -> list[ElfSymbol]:
    # The first of each name and address; the tables come richest first.
    found: dict[tuple[str, int, bool], ElfSymbol] = {}
    for one in symbols:
        found.setdefault((one.name, one.address, one.imported), one)
    return [*found.values()]
