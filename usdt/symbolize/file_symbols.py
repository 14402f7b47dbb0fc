"""The symbols and source lines of one file.

:mod:`usdt.elf.symbol_tables` has the symbols. Source lines come from the file itself or from its
debug file, whichever has them.
"""

from __future__ import annotations

import bisect
import functools
from itertools import chain
from typing import TYPE_CHECKING, Self

from usdt.base.closeable import Closeable
from usdt.base.errors import ElfError
from usdt.demangle.demangle import demangle
from usdt.elf import debug_files
from usdt.elf.debug_files import DEBUG_ROOT
from usdt.elf.file import ElfFile
from usdt.elf.format import PT_LOAD
from usdt.elf.symbol_table import ALL_ADDRESSES
from usdt.elf.symbol_tables import SymbolTables
from usdt.symbolize.sources.build_id_files import has_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.arch.unwind_rows import CompactTable
    from usdt.dwarf.lines.source_lines import SourceLines, SourceLocation
    from usdt.elf.format import Segment
    from usdt.elf.symbol_table import ElfSymbol, Span
    from usdt.engine.output.frames import Frame
    from usdt.symbolize.sources.build_id_files import BuildIdFiles
    from usdt.unwind.frame_table import FrameTable

__all__ = ("FileSymbols", "NamedSpan")

_PAGE = 4096
_MAX_SPANS = 1 << 16  # functions, and gaps between them, that are kept
#: Addresses that differ only in these low bits are of one block.
BLOCK_BITS = 5
_FIRST_BLOCKS = 1 << 8  # places for blocks
_MAX_BLOCKS = 1 << 18
_BLOCKS_PER_SPAN = 16  # places, at least: functions have some hundred bytes
_MAX_FILLED = 1 << 12  # blocks of one span, which may be a gap without an end

# Addresses from the first to below the second have this demangled name, or "". The last is the
# symbol's address, or 0. The garbage collector passes over tuples of numbers and text.
NamedSpan = tuple[int, int, str, int]

_NOWHERE: NamedSpan = (0, 0, "", 0)


class FileSymbols(Closeable):
    """Functions of a file by link-time address; a context manager.

    Args:
        path: the path to open.
        name: the file's name, for messages and for the search for debug files; None for ``path``.
        roots: directories to search debug files in, in place of "/"; "" is this process's root.
        debug_root: the system's directory of debug files.
        sources: finds further files with the same build ID.

    Attributes:
        spans: what :meth:`span` has found, sorted by the first addresses.
        starts: these addresses.
        blocks: for each block of addresses the span that was found there last, if any. Blocks whose
            numbers have the same bits of ``mask`` share a place.
        mask: the number of places less one.

    Raises:
        ElfError: the file is not an ELF file, or damaged.
        TargetError: the file cannot be opened.
    """

    def __init__(
        self,
        path: str,
        name: str | None = None,
        *,
        roots: Sequence[str] = ("",),
        debug_root: str = DEBUG_ROOT,
        sources: BuildIdFiles | None = None,
    ) -> None:
        self._open(ElfFile(path, name=name), roots, debug_root, sources)

    @classmethod
    def of(cls, elf: ElfFile, *, debug_root: str, sources: BuildIdFiles) -> Self:
        """Return the symbols of an open file, which is closed with them."""
        made = cls.__new__(cls)
        made._open(elf, ("",), debug_root, sources)  # noqa: SLF001
        return made

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """Open an ELF image in memory.

        Raises:
            ElfError: ``data`` is not an ELF image, or damaged.
        """
        made = cls.__new__(cls)
        made._open(ElfFile.from_bytes(data, name), ("",), DEBUG_ROOT)  # noqa: SLF001
        return made

    def _open(
        self,
        elf: ElfFile,
        roots: Sequence[str],
        debug_root: str,
        sources: BuildIdFiles | None = None,
    ) -> None:
        self._elf = elf
        self._sources = sources
        self._more = None if sources is None else sources.debug_files
        self._symbols = SymbolTables(elf, roots=roots, debug_root=debug_root, more=self._more)
        self._roots = tuple(roots)
        self._debug_root = debug_root
        # Frames of all processes that run the file are of fewer functions than addresses.
        self.starts: list[int] = []
        self.spans: list[NamedSpan] = []
        self.blocks: list[NamedSpan] = [_NOWHERE] * _FIRST_BLOCKS
        self.mask = _FIRST_BLOCKS - 1

    def close(self) -> None:
        """Unmap every file; idempotent."""
        lines = self.__dict__.pop("_lines", None)
        if lines is not None:
            lines[0].close()
            if lines[0].elf is not self._elf:
                lines[0].elf.close()
        code = self.__dict__.pop("_code", self._elf)
        if code is not self._elf:
            code.close()
        self._symbols.close()

    @property
    def build_id(self) -> str | None:
        """The GNU build ID in hexadecimal."""
        return self._elf.build_id

    @functools.cached_property
    def file_id(self) -> str:
        """The build ID, or path and size of a file that has none."""
        return self._elf.build_id or f"{self._elf.path}:{self._elf.size}"

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._elf.size

    def address_of(self, offset: int) -> int:
        """Return the link-time address of a file offset; the offset if no segment contains it.

        The kernel maps whole pages, so bytes before and after a segment in its pages belong to it.
        """
        return offset + self.part(offset)[2]

    def part(self, offset: int) -> tuple[int, int, int]:
        """Return offsets around one that differ from link-time addresses by the same number.

        These are the first, the one after the last, and what to add.
        """
        low, high, _ = ALL_ADDRESSES
        for start, end, difference in self._parts:
            if start <= offset < end:
                return max(low, start), min(high, end), difference
            if end <= offset:
                low = max(low, end)
            else:
                high = min(high, start)
        return low, high, 0

    @functools.cached_property
    def _parts(self) -> list[tuple[int, int, int]]:
        # The first that contains an offset counts.
        exact, whole = [], []
        for one in self._loads:
            end, difference = one.offset + one.filesz, one.address - one.offset
            exact.append((one.offset, end, difference))
            whole.append((one.offset & -_PAGE, end + _PAGE - 1 & -_PAGE, difference))
        return exact + whole

    @property
    def code_start(self) -> tuple[int, int] | None:
        """File offset and link-time address of the executable part; None if there is not one."""
        found = [(one.offset, one.address) for one in self._loads if one.flags & 1]
        return found[0] if len(found) == 1 else None

    @functools.cached_property
    def _loads(self) -> list[Segment]:
        loads = [one for one in self._elf.segments if one.type == PT_LOAD and one.filesz]
        return sorted(loads, key=lambda one: not one.flags & 1)  # executable ones first

    def find(self, address: int) -> ElfSymbol | None:
        """Return the symbol that covers a link-time address."""
        return self._symbols.find(address)

    def span(self, address: int) -> NamedSpan:
        """Return its name and start, with the addresses around that have the same answer."""
        at = bisect.bisect_right(self.starts, address) - 1
        found = self.spans[at] if at >= 0 else _NOWHERE
        if address >= found[1]:
            found = self._add(self._symbols.span(address))
        self.blocks[address >> BLOCK_BITS & self.mask] = found
        return found

    def _add(self, span: Span) -> NamedSpan:
        low, high, symbol = span
        name, start = ("", 0) if symbol is None else (demangle(symbol.name), symbol.address)
        found = low, high, name, start
        if len(self.starts) >= _MAX_SPANS:
            self.starts.clear()
            self.spans.clear()
        at = bisect.bisect_right(self.starts, low)
        self.starts.insert(at, low)
        self.spans.insert(at, found)
        if len(self.spans) * _BLOCKS_PER_SPAN > len(self.blocks) < _MAX_BLOCKS:
            self.blocks = [_NOWHERE] * (2 * len(self.blocks))
            self.mask = len(self.blocks) - 1
            for one in self.spans:
                self._fill(one)
        else:
            self._fill(found)
        return found

    def _fill(self, span: NamedSpan) -> None:
        # Where two spans meet, one has the block, and the other is searched for.
        first, last = span[0] >> BLOCK_BITS, span[1] - 1 >> BLOCK_BITS
        blocks, mask = self.blocks, self.mask
        number = min(last - first, mask >> 1, _MAX_FILLED) + 1
        first &= mask
        rest = max(first + number - mask - 1, 0)  # behind the last place
        blocks[first : first + number - rest] = (span,) * (number - rest)
        blocks[:rest] = (span,) * rest

    def variable(self, name: str) -> int | None:
        """Return the link-time address of a variable that the file exports."""
        found = [one for one in self._symbols.variables(name) if not one.imported]
        return found[0].address if found else None

    def code(self, address: int, size: int) -> bytes:
        """Return instructions at a link-time address; b"" if there are none."""
        offset = self._code.offset_of(address, executable=True)
        return b"" if offset is None else self._code.bytes_at(offset, size)

    @functools.cached_property
    def _code(self) -> ElfFile:
        # The file with instructions and unwind tables: a debug file has neither.
        if self._sources is None or self._elf.build_id is None or has_code(self._elf):
            return self._elf
        return next(self._sources.programs(self._elf.build_id), self._elf)

    @functools.cached_property
    def frame_table(self) -> FrameTable | None:
        """The unwind table; None if the file has none, or one of another word size than 64 bits.

        Raises:
            ElfError, MalformedDwarf: the table is damaged.
        """
        from usdt.unwind.frame_table import FrameTable  # noqa: PLC0415 - only for user stacks

        table = FrameTable(self._code) if self._elf.bits == 64 else None
        return table or None

    @functools.cached_property
    def compact_table(self) -> CompactTable | None:
        """The unwind table as programs in the kernel read it; None if there is none."""
        from usdt.unwind.compact_files import table_of  # noqa: PLC0415 - only for user stacks

        return table_of(self._elf)

    def locations(self, address: int) -> list[SourceLocation]:
        """Return the source locations of a link-time address: inlined functions first."""
        if self._lines is None:
            return []
        lines, bias = self._lines
        return lines.at(address + bias)

    def with_lines(self, frame: Frame, address: int) -> tuple[Frame, ...]:
        """Return a frame with its source line, after those of functions inlined there.

        ``address`` is the link-time address whose line is wanted.
        """
        locations = self.locations(address)
        if not locations:
            return (frame,)
        *inlined, own = locations
        return (
            *(
                frame._replace(
                    symbol=demangle(one.function) or "??",  # as addr2line prints it
                    file=one.file,
                    line=one.line,
                    inlined=True,
                )
                for one in inlined
            ),
            frame._replace(file=own.file, line=own.line),
        )

    def take_notices(self) -> list[str]:
        """Return the messages about the debug information since the last call."""
        lines = self.__dict__.get("_lines")
        if lines is None or not lines[0].notices:
            return []
        found = list(lines[0].notices)
        lines[0].notices.clear()
        return found

    @functools.cached_property
    def _lines(self) -> tuple[SourceLines, int] | None:
        # The source lines, and the offset to add to addresses of this file.
        from usdt.dwarf.lines.source_lines import SourceLines, has_lines  # noqa: PLC0415 - only for --lines

        separate = debug_files.find(
            self._elf, roots=self._roots, debug_root=self._debug_root, more=self._more
        )
        for elf in chain((self._elf,), separate):
            try:
                found = has_lines(elf)
            except ElfError:
                found = False
            if found:
                opener = functools.partial(_open_below, self._roots)  # must not refer to self
                lines = SourceLines(elf, opener, path=self._elf.path, debug_root=self._debug_root)
                return lines, elf.first_address - self._elf.first_address
            if elf is not self._elf:
                elf.close()
        return None


def _open_below(roots: Sequence[str], paths: Sequence[str]) -> Iterator[ElfFile]:
    return debug_files.open_existing(root + path for path in paths for root in roots)
