"""User stacks that programs walk in the kernel by unwind tables: the maps, and their contents.

    unwind.rows     rows of the files, each file once, whichever processes have it
    unwind.ranges   executable mappings of the processes, sorted: which rows they have
    unwind.procs    process → its ranges
    unwind.wanted   processes of which a walk has met something unknown

Rows and ranges are written through shared memory. The ranges of a process are written anew when
they change, and only then is the process's entry replaced. The old ones are kept for a while,
because walks may be under way; a walk that ends looks whether the entry is the same.
"""

from __future__ import annotations

import bisect
import mmap
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from usdt.arch.unwind_rows import ROW
from usdt.base.closeable import Closeable
from usdt.base.text import plural
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import Map, MapSpec, possible_cpus
from usdt.engine.walks.find_file import FILE, FILES, file_key
from usdt.engine.walks.walk_state import (
    RANGE,
    RANGE_BITS,
    RANGES,
    ROW_BITS,
    ROWS,
    SLICE,
    SLICES,
    STATE_SIZE,
    STATES_PER_CPU,
    WALKS,
    WANTED,
)
from usdt.engine.walks.walk_step import RangeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from usdt.arch.unwind_rows import CodeRange, CompactTable
    from usdt.engine.output.stacks import CodeSource

__all__ = ("StackWalks",)

_MMAPABLE = 1 << 10  # BPF_F_MMAPABLE
_PROCESSES = 1 << 14
_WANTED = 1 << 12
_MAX_FILES = 1 << 12
# Blocks of ranges and of rows: for processes that are given, and for all.
_FEW, _MANY = (2, 4), (8, 16)
_REUSE_AFTER = 2.0  # seconds; a walk takes microseconds, if nobody preempts it
_FEWEST = 16  # ranges: the smallest space of a process
_MASK = (1 << 64) - 1
_ROWS_IN_BLOCK, _RANGES_IN_BLOCK = 1 << ROW_BITS, 1 << RANGE_BITS


class _Piece(NamedTuple):
    # Rows of a file in one block: the first one's address, where it is, and their number.
    address: int
    row: int
    number: int


class _Process(NamedTuple):
    # A process: the block of its ranges, the position in it and their number; and the ranges.
    place: tuple[int, int, int]
    ranges: bytes


class StackWalks(Closeable):
    """The maps of walks; a context manager.

    Args:
        code: knows the code of processes.
        every: whether any process may be walked.

    Attributes:
        maps: the maps, by name.
        notices: messages for the user.
    """

    def __init__(self, code: CodeSource, *, every: bool) -> None:
        self.notices: list[str] = []
        self.maps: dict[str, Map] = {}
        self._code = code
        range_blocks, row_blocks = _MANY if every else _FEW
        states = STATES_PER_CPU * possible_cpus()
        self._make(MapSpec(MapType.ARRAY, 4, STATE_SIZE, states, WALKS))
        self._make(MapSpec(MapType.HASH, 4, SLICE.size, _PROCESSES, SLICES))
        self._make(MapSpec(MapType.LRU_HASH, 4, 8, _WANTED, WANTED))
        self._make(MapSpec(MapType.HASH, 16, FILE.size, _MAX_FILES, FILES))
        self._rows = _Rows(self._shared(ROWS, ROW.size << ROW_BITS, row_blocks))
        self._ranges = _Ranges(self._shared(RANGES, RANGE.size << RANGE_BITS, range_blocks))
        self._known: dict[int, _Process] = {}
        self._files: dict[bytes, bytes] = {}
        self._seconds = 0.0
        self._reported: list[str] = []

    def close(self) -> None:
        """Free the maps; idempotent."""
        for memory in (self._rows.memory, self._ranges.memory):
            memory.close()
        for made in self.maps.values():
            made.close()

    def _make(self, spec: MapSpec) -> Map:
        made = self.maps[spec.name] = spec.create()
        return made

    def _shared(self, name: str, size: int, blocks: int) -> mmap.mmap:
        made = self._make(MapSpec(MapType.ARRAY, 4, size, blocks, name, _MMAPABLE))
        return mmap.mmap(made.fd.fileno(), size * blocks)

    # ------------------------------------------------------------ processes

    def update(self, pids: Iterable[int] = ()) -> None:
        """Load the code of processes: of those given, and of those that have changed."""
        changed = self._code.take_changed()
        known = set(self._known)
        wanted = set(pids) | self._wanted() | (known if changed is None else known & changed)
        began = time.monotonic()
        for pid in wanted:
            self._describe(pid)
        self._seconds += time.monotonic() - began

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that are readable when :meth:`update` has something to do."""
        return self._code.descriptors

    def load_files(self, paths: Iterable[str]) -> None:
        """Load the tables of files that processes will map."""
        began = time.monotonic()
        for path in paths:
            one = self._code.file_code(path)
            if one is not None:
                deque(self._pieces(one), maxlen=0)
        self._seconds += time.monotonic() - began

    def _wanted(self) -> set[int]:
        found = {struct.unpack("=I", key)[0] for key in list(self.maps[WANTED].keys())}
        for pid in found:
            self.maps[WANTED].delete(struct.pack("=I", pid))
        return found

    def _describe(self, pid: int) -> None:
        code = sorted(self._code.code(pid), key=lambda one: one.start)
        known, key = self._known.get(pid), struct.pack("=I", pid)
        if not code:  # it has ended, or is a thread of the kernel
            if known is not None:
                self.maps[SLICES].delete(key)
                self._ranges.free(self._known.pop(pid).place)
            return
        ranges = [row for one in code for row in self._pieces(one)][:_RANGES_IN_BLOCK]
        data = b"".join(ranges)
        if known is not None and known.ranges == data:
            return
        place = self._ranges.place(data) if known or len(self._known) < _PROCESSES else None
        if place is None:
            self._full("executable mappings")
            return
        self.maps[SLICES].set(key, SLICE.pack(*place, 0))
        self._known[pid] = _Process(place, data)
        if known is not None:
            self._ranges.free(known.place)

    def _pieces(self, one: CodeRange) -> Iterator[bytes]:
        # The ranges of a mapping: one for each block that its rows are in.
        pieces = None
        if one.table is not None:
            pieces = self._rows.place(one.table)
            if pieces is None:
                self._full("rows of unwind tables")
        if one.table is None or not pieces:
            yield RANGE.pack(one.start, one.end, 0, _kind_of(one), 0)
            return
        base = one.bias + one.table.base
        if one.inode and len(pieces) == 1:
            self._know_file(one, base - one.start + one.offset, pieces[0])
        starts = [base + piece.address for piece in pieces]
        first = max(0, bisect.bisect_right(starts, one.start) - 1)
        for index in range(first, len(pieces)):
            start = one.start if index == first else starts[index]
            end = starts[index + 1] if index + 1 < len(pieces) else one.end
            if start >= one.end:
                return
            piece = pieces[index]
            yield RANGE.pack(start, min(end, one.end), base & _MASK, piece.row, piece.number)

    def _know_file(self, one: CodeRange, shift: int, piece: _Piece) -> None:
        # Let walks find the table by the file, in processes that are not known.
        key = file_key(one.device, one.inode)
        value = FILE.pack(shift & _MASK, piece.row, piece.number)
        known = self._files.get(key)
        if known is None and len(self._files) < _MAX_FILES:
            self._files[key] = value
            self.maps[FILES].set(key, value)
        elif known not in (None, value):  # its segments differ: only mappings tell which one it is
            self.maps[FILES].delete(key)

    def _full(self, what: str) -> None:
        text = f"no more space for {what}: user stacks of some programs end early"
        if text not in self._reported:
            self._reported.append(text)
            self.notices.append(text)

    # ------------------------------------------------------------ results

    @property
    def report(self) -> str:
        """What was loaded, for ``-v``."""
        tables = self._rows.tables
        cached = sum(table.cached for table in tables)
        return (
            f"user stacks by unwind tables in the kernel: {plural(len(tables), 'table')} ({cached}"
            f" from the cache), {plural(self._rows.used, 'row')}, {self._seconds:.2f} s"
        )


def _kind_of(one: CodeRange) -> int:
    # What a range without rows is.
    if one.table is not None:
        return RangeKind.NO_SPACE
    if one.return_probes:
        return RangeKind.RETURN_PROBES
    return RangeKind.NO_TABLE if one.inode else RangeKind.ANONYMOUS


class _Rows:
    # The rows of all tables, one behind another in blocks.
    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.used = 0
        self._places: dict[int, tuple[CompactTable, list[_Piece]]] = {}

    @property
    def tables(self) -> list[CompactTable]:
        return [table for table, _ in self._places.values()]

    def place(self, table: CompactTable) -> list[_Piece] | None:
        """Return where the rows of a table are, after writing them; None: they do not fit."""
        found = self._places.get(id(table))
        if found is None:
            pieces = self._write(table)
            if pieces is None:
                return None
            found = self._places[id(table)] = table, pieces
        return found[1]

    def _write(self, table: CompactTable) -> list[_Piece] | None:
        number = len(table.rows) // ROW.size
        left = -self.used % _ROWS_IN_BLOCK
        if left < number <= _ROWS_IN_BLOCK:  # so that it is in one block
            self.used += left
        start = self.used * ROW.size
        if start + len(table.rows) > len(self.memory):
            return None
        self.memory[start : start + len(table.rows)] = table.rows
        pieces, row, last = [], self.used, self.used + len(table.rows) // ROW.size
        while row < last:
            end = min(last, (row // _ROWS_IN_BLOCK + 1) * _ROWS_IN_BLOCK)
            address, *_ = ROW.unpack_from(self.memory, row * ROW.size)
            pieces.append(_Piece(address, row, end - row))
            row = end
        self.used = last
        return pieces


class _Ranges:
    # The ranges of all processes, in spaces of a power of two.
    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self._used = 0
        self._free: dict[int, deque[tuple[float, int]]] = {}

    def place(self, ranges: bytes) -> tuple[int, int, int] | None:
        """Write ranges; return their block, the position in it and their number, or None."""
        number = len(ranges) // RANGE.size
        start = self._space(_size_of(number))
        if start is None:
            return None
        self.memory[start * RANGE.size : start * RANGE.size + len(ranges)] = ranges
        block, index = divmod(start, _RANGES_IN_BLOCK)
        return block, index, number

    def free(self, place: tuple[int, int, int]) -> None:
        """Reuse a space, but not yet."""
        block, index, number = place
        free = self._free.setdefault(_size_of(number), deque())
        free.append((time.monotonic(), block * _RANGES_IN_BLOCK + index))

    def _space(self, size: int) -> int | None:
        free = self._free.get(size)
        if free and free[0][0] + _REUSE_AFTER < time.monotonic():
            return free.popleft()[1]
        start = -(-self._used // size) * size  # so that it does not cross the end of a block
        if (start + size) * RANGE.size > len(self.memory):
            return None
        self._used = start + size
        return start


def _size_of(number: int) -> int:
    return max(_FEWEST, 1 << (number - 1).bit_length())
