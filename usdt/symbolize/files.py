"""The symbols of one file, wherever they are kept.

    .symtab              in the file itself
    separate debug file  by build ID (/usr/lib/debug/.build-id/ab/cdef….debug), or by the name and
                         CRC-32 of .gnu_debuglink, beside the file or below /usr/lib/debug
    .gnu_debugdata       an ELF file of what .dynsym lacks, xz-compressed, in the file itself
    .dynsym              what other files link to: all that a stripped library has

The first three exclude one another in practice and are tried in this order; .dynsym is asked when
they know nothing of an address.

Source lines come from the file itself or from its separate debug file, whichever has them.
"""

# Paths are text here, as in usdt/procfs/process.py:
# ruff: noqa: PTH120, PTH123

from __future__ import annotations

import contextlib
import functools
import os
import zlib
from itertools import chain
from typing import TYPE_CHECKING, Self

from usdt.base.errors import ElfError, TargetError
from usdt.elf.file import ElfFile
from usdt.elf.format import PT_LOAD, SHT_DYNSYM, SHT_NOBITS, SHT_SYMTAB
from usdt.elf.symbol_index import Symbol, SymbolIndex
from usdt.elf.symbols import DEBUG_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.dwarf.lines.source_lines import Place, SourceLines
    from usdt.elf.format import Section, Segment

__all__ = ("FileSymbols", "elf_from_bytes")

_MAX_DEBUGDATA = 256 << 20  # bytes of a decompressed .gnu_debugdata
_LZMA_MEMORY = 128 << 20  # bytes its decompression may take
_MAX_DEBUG_FILE = 4 << 30  # bytes whose CRC is computed
_MAX_LINK = 4096  # bytes of a .gnu_debuglink
_PAGE = 4096


class FileSymbols:
    """Functions of a file by link-time address; a context manager.

    Args:
        path: what to open.
        name: the name to show and to look for debug files by.
        roots: directories that stand for "/" when debug files are looked for: "" is ours.
        debug_root: where systems keep debug files.

    Raises:
        ElfError: not an ELF file, or damaged.
        TargetError: it cannot be opened.
    """

    def __init__(
        self,
        path: str,
        name: str | None = None,
        *,
        roots: Sequence[str] = ("",),
        debug_root: str = DEBUG_ROOT,
    ) -> None:
        self.name = name if name is not None else path
        self._roots = tuple(roots)
        self._debug_root = debug_root
        self._files = [ElfFile(path, name=self.name)]
        self._elf = self._files[0]

    @classmethod
    def of_bytes(cls, data: bytes, name: str) -> FileSymbols:
        """Those of an ELF image in memory.

        Raises:
            ElfError: it is none.
        """
        made = cls.__new__(cls)
        made.name, made._roots, made._debug_root = name, ("",), DEBUG_ROOT  # noqa: SLF001
        made._files = [elf_from_bytes(data, name)]  # noqa: SLF001
        made._elf = made._files[0]  # noqa: SLF001
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap every file; again is fine."""
        for index, _ in self.__dict__.pop("_indexes", ()):
            index.close()
        lines = self.__dict__.pop("_lines", None)
        if lines is not None:
            lines[0].close()
        files, self._files = self._files, []
        for file in files:
            file.close()

    @property
    def build_id(self) -> str | None:
        """The GNU build ID in hexadecimal."""
        return self._elf.build_id

    def address_of(self, offset: int) -> int:
        """The link-time address of the byte at a file offset; the offset where no segment has it.

        The kernel maps whole pages, so bytes around a segment are counted with it.
        """
        for segment in self._loads:
            if segment.offset <= offset < segment.offset + segment.filesz:
                return offset - segment.offset + segment.address
        for segment in self._loads:
            end = segment.offset + segment.filesz + _PAGE - 1 & -_PAGE
            if segment.offset & -_PAGE <= offset < end:
                return offset - segment.offset + segment.address
        return offset

    @functools.cached_property
    def _loads(self) -> list[Segment]:
        loads = [one for one in self._elf.segments if one.type == PT_LOAD and one.filesz]
        return sorted(loads, key=lambda one: not one.flags & 1)  # executable ones first

    def find(self, address: int) -> Symbol | None:
        """The symbol that covers a link-time address."""
        for index, bias in self._indexes:
            found = index.find(address + bias)
            if found is not None:
                return Symbol(found.address - bias, found.size, found.name)
        return None

    def places(self, address: int) -> list[Place]:
        """The source lines of a link-time address: of functions inlined there, then of its own."""
        if self._lines is None:
            return []
        lines, bias = self._lines
        return lines.at(address + bias)

    def take_notices(self) -> list[str]:
        """Lines for people about the debug information that have come up since the last call."""
        lines = self.__dict__.get("_lines")
        if lines is None or not lines[0].notices:
            return []
        found = list(lines[0].notices)
        lines[0].notices.clear()
        return found

    @property
    def elf(self) -> ElfFile:
        """The file itself; it is closed with this."""
        return self._elf

    @functools.cached_property
    def tables(self) -> list[tuple[ElfFile, Section, int]]:
        """Symbol tables, the richest first: file, section, what to add to our addresses for it."""
        own = self._tables(self._elf)
        kinds = [table.type for table in own]
        found = []
        if SHT_SYMTAB not in kinds:
            richer = next(self._separate(), None)
            if richer is not None:
                self._files.append(richer)
                tables = [one for one in self._tables(richer) if one.type == SHT_SYMTAB]
                found += [(richer, table) for table in tables]
        found += [(self._elf, table) for table in own]
        return [(elf, table, _base(elf) - _base(self._elf)) for elf, table in found]

    @functools.cached_property
    def _indexes(self) -> list[tuple[SymbolIndex, int]]:
        indexes = []
        for elf, table, bias in self.tables:
            with contextlib.suppress(ElfError):  # a damaged table: the others may do
                indexes.append((SymbolIndex(elf, table), bias))
        return indexes

    @functools.cached_property
    def _lines(self) -> tuple[SourceLines, int] | None:
        # With what to add to our addresses for them.
        from usdt.dwarf.lines.source_lines import SourceLines, has_lines  # noqa: PLC0415 - only for --lines

        opener = functools.partial(_opened_below, self._roots)
        for elf in chain((self._elf,), self._by_build_id(), self._by_link()):
            try:
                found = has_lines(elf)
            except ElfError:
                found = False
            if found:
                if elf is not self._elf:
                    self._files.append(elf)
                lines = SourceLines(elf, opener, path=self.name, debug_root=self._debug_root)
                return lines, _base(elf) - _base(self._elf)
            if elf is not self._elf:
                elf.close()
        return None

    def _tables(self, elf: ElfFile) -> list[Section]:
        try:
            found = [one for one in elf.sections if one.type in (SHT_SYMTAB, SHT_DYNSYM)]
        except ElfError:
            return []
        return sorted((one for one in found if one.size), key=lambda one: one.type)[:4]

    # ------------------------------------------------------------ separate files

    def _separate(self) -> Iterator[ElfFile]:
        # Files with a .symtab that belong to this one, in order of preference.
        for elf in chain(self._by_build_id(), self._by_link(), self._embedded()):
            if any(table.type == SHT_SYMTAB for table in self._tables(elf)):
                yield elf
                return
            elf.close()

    @classmethod
    def separate_files(
        cls, elf: ElfFile, *, roots: Sequence[str] = ("",), debug_root: str = DEBUG_ROOT
    ) -> Iterator[ElfFile]:
        """Separate debug files of a file, the likeliest first; those yielded are the caller's."""
        made = cls.__new__(cls)
        made.name, made._roots, made._debug_root = elf.path, tuple(roots), debug_root  # noqa: SLF001
        made._files, made._elf = [], elf  # noqa: SLF001
        yield from chain(made._by_build_id(), made._by_link())  # noqa: SLF001

    def _by_build_id(self) -> Iterator[ElfFile]:
        wanted = self._elf.build_id
        if not wanted or len(wanted) < 4:
            return
        tail = f"{self._debug_root}/.build-id/{wanted[:2]}/{wanted[2:]}.debug"
        for elf in _opened(root + tail for root in self._roots):
            if elf.build_id == wanted:
                yield elf
                return
            elf.close()

    def _by_link(self) -> Iterator[ElfFile]:
        link = self._debug_link()
        if link is None:
            return
        name, crc = link
        folder = os.path.dirname(os.path.realpath(self.name))
        places = (folder, f"{folder}/.debug", f"{self._debug_root}{folder}")
        for elf in _opened(f"{root}{at}/{name}" for root in self._roots for at in places):
            if _crc32(elf.path) == crc:
                yield elf
                return
            elf.close()

    def _debug_link(self) -> tuple[str, int] | None:
        # A file name, NULs up to a multiple of four, the CRC-32 in the file's byte order.
        section = self._elf.section(".gnu_debuglink")
        if section is None or not 8 <= section.size <= _MAX_LINK:
            return None
        try:
            data = bytes(self._elf.contents(section))
        except ElfError:
            return None
        name, end, _ = data.partition(b"\0")
        crc_at = len(name) + 4 & ~3
        if not end or not name or b"/" in name or name in (b".", b"..") or crc_at + 4 > len(data):
            return None
        return os.fsdecode(name), int.from_bytes(data[crc_at : crc_at + 4], self._elf.byteorder)

    def _embedded(self) -> Iterator[ElfFile]:
        section = self._elf.section(".gnu_debugdata")
        if section is None or section.type == SHT_NOBITS:
            return
        import lzma  # noqa: PLC0415 - only for these

        try:
            inflate = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_MEMORY)
            data = inflate.decompress(bytes(self._elf.contents(section)), _MAX_DEBUGDATA)
            yield elf_from_bytes(data, f"{self.name} (.gnu_debugdata)")
        except (lzma.LZMAError, EOFError, ElfError):
            return


def _opened(paths: Iterator[str]) -> Iterator[ElfFile]:
    for path in dict.fromkeys(paths):
        with contextlib.suppress(ElfError, TargetError):  # absent or damaged
            yield ElfFile(path)


def _opened_below(roots: Sequence[str], paths: Sequence[str]) -> Iterator[ElfFile]:
    return _opened(root + path for path in paths for root in roots)


def _base(elf: ElfFile) -> int:
    # Prelinking moves a file after its debug file was made: what both have is the first segment.
    return min((one.address for one in elf.segments if one.type == PT_LOAD), default=0)


def _crc32(path: str) -> int:
    value = 0
    with open(path, "rb", buffering=0) as file:
        for _ in range(_MAX_DEBUG_FILE >> 20):
            block = file.read(1 << 20)
            if not block:
                return value
            value = zlib.crc32(block, value)
    return -1  # no debug file is so large


def elf_from_bytes(data: bytes, name: str) -> ElfFile:
    """An :class:`ElfFile` of an image in memory.

    Raises:
        ElfError: it is none.
    """
    number = os.memfd_create("elf", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(number, view) :]
        return ElfFile(f"/proc/self/fd/{number}", name=name)
    finally:
        os.close(number)
