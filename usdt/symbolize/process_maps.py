"""The mappings of one process, the mapped files, and its JIT map.

A process is read from /proc, or restored from a snapshot in a recording. Recordings may be hostile,
so every field of a snapshot is checked.
"""

from __future__ import annotations

import functools
import os
import re
import time
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from usdt.arch.unwind_rows import CodeRange
from usdt.base.errors import TargetError
from usdt.demangle.demangle import demangle
from usdt.engine.output.frames import Frame
from usdt.procfs.mapped_files import mapped_files
from usdt.procfs.maps import Mapping
from usdt.procfs.memory import read_memory
from usdt.runtimes.jit_maps import JavaProcess
from usdt.symbolize.file_cache import MAX_VDSO
from usdt.symbolize.file_symbols import BLOCK_BITS
from usdt.symbolize.maps_history import MAX_GENERATIONS, MapsHistory
from usdt.symbolize.perfmap import PerfMap
from usdt.unwind.unwinder import RETURN_PROBES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from usdt.procfs.mapped_files import FileId
    from usdt.symbolize.file_cache import FileCache
    from usdt.symbolize.file_symbols import FileSymbols

__all__ = ("FrameCache", "MappedSymbols", "Place", "ProcessMaps", "module_name")

_REFRESH_INTERVAL = 0.05  # seconds between two reads of a process
_QUIET_INTERVAL = 1.0  # the same if its changes are reported, and none was
_MAX_MODULES = 1 << 10  # paths of files whose names are kept
_MAX_RECORDED = 1 << 16  # mappings of a snapshot
_MAX_ADDRESS = 1 << 64
_VDSO = ((0, 0), 0)  # the key of the vDSO, in place of a file's device and inode

_make = tuple.__new__  # Frame's own __new__ takes twice as long
FrameCache = dict[int, tuple[Frame, ...]]
MappedSymbols = tuple[Mapping, "FileSymbols | None"]


class Place:
    """Addresses of a process that differ from link-time addresses of a file by the same number.

    Attributes:
        start, end: the addresses.
        bias: what to subtract from them.
        mapping: the current mapping that they are in.
        file: its symbols.
        file_id: what identifies the file.
        module: its name in frames.
    """

    __slots__ = ("bias", "end", "file", "file_id", "mapping", "module", "start")

    def __init__(
        self, bounds: tuple[int, int], bias: int, mapping: Mapping, file: FileSymbols
    ) -> None:
        self.start, self.end = bounds
        self.bias = bias
        self.mapping = mapping
        self.file = file
        self.file_id = file.file_id
        self.module = module_name(mapping.path)


# Follows the other places, so that it is found where no place begins before an address.
_NO_PLACE = Place.__new__(Place)
_NO_PLACE.start = _NO_PLACE.end = 0


@functools.lru_cache(maxsize=_MAX_MODULES)
def module_name(path: str) -> str:
    """Return the name in frames of the file at a path."""
    return os.path.basename(path) or path  # noqa: PTH119 - paths are text


class ProcessMaps:
    """The mappings of a process, and the symbols of each mapped file.

    Args:
        pid: the process ID in this process's PID namespace.
        cache: opens files.

    Attributes:
        history: its current and earlier mappings.
        jit: its JIT-compiled functions.
        java: the Java virtual machine that it perhaps is.
        frames: cached results of the symbolizer, by return address; dropped when the mappings
            change.
        exact_frames: the same by address.
        restored: True if it comes from a recording: nothing is read from /proc.
        size: for a restored process, the number of its mappings and JIT-compiled functions.
        renewed: True if its perf map was written since the last observe().
        reported: True if a message has reported that the process ended too early.
        suspect: True if its mappings may have changed since they were read.
    """

    def __init__(self, pid: int, cache: FileCache) -> None:
        self.history = MapsHistory(pid)
        self.jit = PerfMap(pid)
        self.java = JavaProcess(pid)
        self.frames: FrameCache = {}
        self.exact_frames: FrameCache = {}
        self.restored = False
        self.size = 0
        self.renewed = False
        self.reported = False
        self.suspect = True
        self._cache = cache
        self._files: dict[FileId, FileSymbols | None] = {}
        self._starts: list[int] = []
        self._places: list[Place] = [_NO_PLACE]  # sorted by these, but the last
        # Of a restored process:
        self._file_ids: dict[FileId, str] = {}
        self._recorded: dict[FileId, tuple[str, str | None]] = {}  # path and build ID
        self._read_at = 0.0

    @classmethod
    def from_snapshot(cls, pid: int, cache: FileCache, snapshot: dict[str, Any]) -> ProcessMaps:
        """Restore a process from a result of :meth:`Symbolizer.snapshot`.

        Each file of the snapshot is searched at its path, then among the debug files; a file with
        another build ID is not used.

        Raises:
            ValueError: the snapshot is malformed.
        """
        rows = snapshot.get("mappings") if isinstance(snapshot, dict) else None
        if not isinstance(rows, list) or len(rows) > _MAX_RECORDED:
            raise ValueError("a snapshot of a process has a list of mappings")
        made = cls(pid, cache)
        made.restored = True
        inodes: dict[tuple[str, str | None], int] = {}
        mappings = []
        for row in rows:
            start, end, link, path, build_id, size = _checked(row)
            inode = 0
            if path and not path.startswith("["):
                inode = inodes.setdefault((path, build_id), len(inodes) + 1)
            mappings.append(Mapping(start, end, "r-xp", link, (0, 0), inode, path, deleted=False))
            if build_id or size:
                file = _VDSO if path == "[vdso]" else ((0, 0), inode)
                made._file_ids[file] = build_id or f"{path}:{size}"
        made._recorded = {((0, 0), inode): file for file, inode in inodes.items()}
        vdso = next((row[4] for row in rows if row[3] == "[vdso]"), None)
        made._files[_VDSO] = cache.own_vdso(vdso) if vdso else None
        for layer in _layers(mappings):
            made.history.remember(layer)
        jit = snapshot.get("perf_map")
        if isinstance(jit, str):
            made.jit.load(jit.encode("utf-8", "surrogateescape"))
            made.size = jit.count("\n")
        made.size += len(mappings)
        return made

    def close(self) -> None:
        """Unmap the files; idempotent."""
        for file in self._files.values():
            if file is not None:
                file.close()

    def refresh(self, *, at_once: bool = False, watched: bool = False) -> bool:
        """Read the process again; return True if anything has changed.

        This reads at most once in 50 ms, unless it is wanted ``at_once``. If its changes are
        reported (``watched``), this reads once in a second, and when it is suspect. Newly mapped
        files are opened at once, before they disappear.
        """
        now = time.monotonic()
        pause = _QUIET_INTERVAL if watched and not self.suspect else _REFRESH_INTERVAL
        if self.restored or (now - self._read_at < pause and not at_once):
            return False
        self.suspect = False
        self._read_at = now
        changed = self.history.refresh()
        if changed:
            self._open_files()
        if self.history.generation and self.history.alive and self.jit.refresh():
            changed = True
        if changed:
            self._forget_addresses()
        return changed

    def execute(self) -> None:
        """Take the current mappings for earlier ones: the process executes another program."""
        self.history.outdated = True
        self.suspect = True
        self._forget_addresses()

    def _forget_addresses(self) -> None:
        self.forget_frames()
        self._starts.clear()
        self._places[:] = [_NO_PLACE]

    def forget_frames(self) -> None:
        """Drop the cached frames."""
        self.frames.clear()
        self.exact_frames.clear()

    def reread_map(self) -> None:
        """Read the perf map, which has just been written."""
        self.jit.refresh(at_once=True)
        self.forget_frames()
        self.renewed = True

    def take_notices(self) -> list[str]:
        """Return the messages about its JIT compiler since the last call."""
        found = [*self.jit.notices, *self.java.notices]
        self.jit.notices.clear()
        self.java.notices.clear()
        return found

    def _open_files(self) -> None:
        pid = self.history.pid
        try:
            mapped = mapped_files(pid)
        except TargetError:
            return
        for file in mapped:
            if self._files.get(file.identity) is None:
                self._files[file.identity] = self._cache.mapped(file, pid)
        for mapping in self.history.mappings:
            if mapping.path == "[vdso]" and mapping.end - mapping.start <= MAX_VDSO:
                image = read_memory(pid, mapping.start, mapping.end - mapping.start)
                self._files[_VDSO] = self._cache.vdso(image)

    def symbols(self, mapping: Mapping) -> FileSymbols | None:
        """Return the symbols of a mapping's file; None if it has none, or it cannot be read."""
        if not mapping.inode:
            return self._files.get(_VDSO) if mapping.path == "[vdso]" else None
        file = mapping.device, mapping.inode
        if self._recorded and file in self._recorded:  # looked for when it is first needed
            self._files[file] = self._cache.recorded(*self._recorded.pop(file))
        return self._files.get(file)

    def frames_of(
        self,
        addresses: Iterable[int],
        missing: Callable[[int], tuple[Frame, ...]],
        keep: Callable[[FrameCache, int, tuple[Frame, ...]], None] | None,
    ) -> list[Frame]:
        """Return the frames of return addresses, innermost first.

        Args:
            addresses: the return addresses.
            missing: returns the frames of one that takes more than a file of a current mapping.
            keep: keeps frames in a cache; None: they are not kept.
        """
        # This is what a frame costs that has not come before. So it is one loop, with the searches
        # of place() and FileSymbols.span() in it.
        found: list[Frame] = []
        cached, starts, places = self.frames, self._starts, self._places
        for address in addresses:
            known = cached.get(address)
            if known is not None:
                found += known
                continue
            place = places[bisect_right(starts, address) - 1]
            if place.start < address < place.end:
                file, link = place.file, address - place.bias
                # The call is before the address. At the end of its function it takes more.
                span = file.blocks[link >> BLOCK_BITS & file.mask]
                if not span[0] < link < span[1]:
                    span = file.span(link - 1)
                if link < span[1]:
                    values = (address, span[2], link - span[3], place.module, "", 0, False,
                              place.file_id, link, False, "")  # fmt: skip
                    frame = _make(Frame, values)
                    found.append(frame)
                    if keep is not None:
                        keep(cached, address, (frame,))
                    continue
            found += missing(address)
        return found

    def frame(self, address: int) -> Frame | None:
        """Return the frame of an address in a file of a current mapping; None if it takes more."""
        place = self._places[bisect_right(self._starts, address) - 1]
        if address >= place.end:
            made = self.place(address)
            if made is None:
                return None
            place = made
        file, link = place.file, address - place.bias
        span = file.blocks[link >> BLOCK_BITS & file.mask]
        if not span[0] <= link < span[1]:
            span = file.span(link)
        values = (address, span[2], link - span[3], place.module, "", 0, False,
                  place.file_id, link, False, "")  # fmt: skip
        return _make(Frame, values)

    def place(self, address: int) -> Place | None:
        """Return where an address is in the file of its current mapping; None if it is in none."""
        found = self._places[bisect_right(self._starts, address) - 1]
        if address < found.end:
            return found
        mapping = self.history.find(address)
        file = None if mapping is None else self.symbols(mapping)
        if mapping is None or file is None:
            return None
        low, high, difference = mapping.offset, mapping.offset + mapping.end - mapping.start, 0
        if not self.restored:
            first, end, difference = file.part(address - mapping.start + low)
            low, high = max(low, first), min(high, end)
        base = mapping.start - mapping.offset
        made = Place((base + low, base + high), base - difference, mapping, file)
        at = bisect_right(self._starts, made.start)
        self._starts.insert(at, made.start)
        self._places.insert(at, made)
        return made

    def file_id(self, mapping: Mapping) -> str:
        """Return what identifies the file of a mapping; see :attr:`Frame.file_id`."""
        file = self.symbols(mapping)
        if file is not None or not self.restored:
            return "" if file is None else file.file_id
        vdso = mapping.path == "[vdso]"
        return self._file_ids.get(_VDSO if vdso else (mapping.device, mapping.inode), "")

    def frame_without_symbols(self, mapping: Mapping, address: int, within: int) -> Frame:
        """Return the frame of an address in JIT-compiled code, or in a file that has no symbols.

        ``within`` is what is looked up: for a return address, the byte before it.
        """
        found = self.jit.find(within)
        if found is not None:
            return Frame(address, demangle(found[1]), address - found[0], self.jit.name)
        file_id = self.file_id(mapping)
        at = address - mapping.start + mapping.offset
        link = at if file_id else 0
        if mapping.inode:
            module = module_name(mapping.path)
            return Frame(address, "", at, module, file_id=file_id, link_address=link)
        special = mapping.path if mapping.path.startswith("[") else "[anon]"
        return Frame(address, "", 0, special, file_id=file_id, link_address=link)

    def code(self) -> list[CodeRange]:
        """Return the current executable mappings, with their unwind tables."""
        found = []
        for one in self.history.mappings if self.history.alive else ():
            if not one.executable or one.start >> 63:  # [vsyscall] is above all programs
                continue
            file = self.symbols(one)
            table = None if file is None else file.compact_table
            bias = 0 if file is None else one.start - file.address_of(one.offset)
            place = (one.start, one.end, bias, table, one.offset, one.device, one.inode)
            found.append(CodeRange(*place, return_probes=one.path == RETURN_PROBES))
        return found

    def executable(self) -> list[MappedSymbols]:
        """Return the current and earlier executable mappings, the latest last."""
        return [(one, self.symbols(one)) for one in self.history.known() if one.executable]


def _layers(mappings: list[Mapping]) -> list[list[Mapping]]:
    # Simultaneous mappings do not overlap. A mapping that overlaps is therefore a later one.
    layers: list[list[Mapping]] = [[]]
    taken: list[tuple[int, int]] = []
    for one in mappings:
        at = bisect_left(taken, (one.end, 0))
        if at and taken[at - 1][1] > one.start and len(layers) < MAX_GENERATIONS:
            layers.append([])
            taken.clear()
            at = 0
        layers[-1].append(one)
        taken.insert(at, (one.start, one.end))
    return layers


def _checked(row: object) -> tuple[int, int, int, str, str | None, int]:
    # Recordings of before have no size.
    if isinstance(row, list) and len(row) in (5, 6):
        start, end, link, path, build_id = row[:5]
        numbers = (*row[:3], *row[5:])
        whole = all(type(one) is int and 0 <= one < _MAX_ADDRESS for one in numbers)
        named = isinstance(path, str) and (build_id is None or _is_build_id(build_id))
        if whole and named and start < end:
            return start, end, link, path, build_id, (*row[5:], 0)[0]
    raise ValueError(
        f"a mapping of a snapshot is [start, end, address, path, build ID, size], not {row!r}"
    )


def _is_build_id(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]+", text) is not None
