"""User addresses to names: ``address in a process → function+0x12 [module]``.

    address → mapping (:mod:`.memory`) → file (one :class:`.files.FileSymbols` for each device,
    inode and time of change, whichever process has it) → link-time address → symbol → demangled

What a process has mapped is remembered from the first sight of it on, and its files are opened
then: names remain known when the process has ended, when a file is deleted or replaced, or in a
mount namespace that has gone with its last process.
"""

# ruff: noqa: PTH116, PTH119

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Self

from usdt.base.errors import ElfError, TargetError
from usdt.demangle.demangle import demangle
from usdt.elf.debug_files import DEBUG_ROOT
from usdt.engine.output.frames import Frame
from usdt.procfs import process
from usdt.symbolize.files import FileSymbols
from usdt.symbolize.maps_history import Memory, read_memory
from usdt.symbolize.mmap_tracker import MapsLog
from usdt.symbolize.perfmap import PerfMap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.procfs.process import Mapping

__all__ = ("Symbolizer",)

_FRESH = 0.05  # seconds for which a look at a process's mappings is believed
_MAX_PROCESSES = 1 << 14  # remembered at a time; the one not asked for the longest is forgotten
_MAX_FILES = 1 << 12
_MAX_FOUND = 1 << 9  # files of recordings that are kept open
_MAX_RESTORED = 1 << 20  # mappings, and functions of JIT compilers, of processes of recordings
_MAX_KNOWN = 1 << 18  # addresses remembered, over all processes
_TOLD = 10  # processes named in notices
_MAX_VDSO = 1 << 18  # bytes

_Key = tuple[int, int, int, int]  # device, inode, size, time of change


class Symbolizer:
    """Names for addresses of processes; a context manager.

    Args:
        debug_root: where systems keep separate debug files.
        noting: note what all processes map from now on, for those that end before they can be
            looked at. Needs CAP_PERFMON; without it there is a notice.
        lines: see the attribute.

    Attributes:
        notices: lines for people that have come up.
        lines: give source lines as well, where files have debug information, and functions that
            were inlined as frames of their own.
    """

    def __init__(
        self, *, debug_root: str = DEBUG_ROOT, noting: bool = False, lines: bool = False
    ) -> None:
        self.notices: list[str] = []
        self.lines = lines
        self._debug_root = debug_root
        self._processes: dict[int, _Process] = {}
        self._restored_rows = 0
        self._files: dict[_Key, FileSymbols | None] = {}
        self._found: dict[tuple[str, str | None], FileSymbols | None] = {}  # of recordings
        self._ended = 0
        self._vdso: dict[bytes, FileSymbols | None] = {}
        self._log: MapsLog | None = MapsLog(self.file) if noting else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap every file; again is fine."""
        if self._log is not None:
            self._log.close()
        files = {*self._files.values(), *self._vdso.values(), *self._found.values()}
        files.update(file for one in self._processes.values() for file in one.files.values())
        self._processes.clear()
        self._files.clear()
        self._found.clear()
        self._vdso.clear()
        for file in files:
            if file is not None:
                file.close()

    def observe(self, pid: int) -> bool:
        """Remember what a process has mapped now, and open those files; whether it is news.

        Costs one read of /proc/PID/maps, and nothing within 50 ms of the last.
        """
        self.look()
        return self._process(pid).refresh()

    def frames(self, pid: int, addresses: Sequence[int]) -> list[Frame]:
        """The frames of a stack, innermost first: all but that are return addresses.

        With ``lines`` there may be more frames than addresses: see :class:`Frame`.
        """
        self.look()
        found = self._process(pid)
        found.refresh()
        return [
            frame
            for depth, address in enumerate(addresses)
            for frame in found.frames(address, address - 1 if depth else address)
        ]

    def frame(self, pid: int, address: int) -> Frame:
        """What is at an address: the function whose code it is, whatever was inlined there."""
        self.look()
        found = self._process(pid)
        found.refresh()
        return found.frames(address, address)[-1]

    def look(self) -> None:
        """Note what processes have mapped since the last call."""
        if self._log is not None:
            for pid in self._log.look():
                if pid in self._processes:
                    self._processes[pid].memory.outdated = True
            self.notices += self._log.notices
            self._log.notices.clear()

    def noted(self, pid: int, address: int) -> tuple[Mapping, FileSymbols | None] | None:
        """What was noted of an address of a process, or of those it was forked from."""
        if self._log is None:
            return None
        found = self._log.find(pid, address)
        for parent in () if found else self._log.ancestors(pid):
            found = found or self._log.find(parent, address) or self._of_parent(parent, address)
        return found

    def _of_parent(self, pid: int, address: int) -> tuple[Mapping, FileSymbols | None] | None:
        parent = self._process(pid)
        parent.refresh()
        mapping = parent.memory.find(address, before=True)
        return None if mapping is None else (mapping, parent.symbols(mapping))

    def all_noted(self, pid: int) -> list[tuple[Mapping, FileSymbols | None]]:
        """Everything noted of a process, the latest last; of its ancestors' what they have now."""
        if self._log is None:
            return []
        found = []
        for parent in reversed(self._log.ancestors(pid)):
            known = self._process(parent)
            known.refresh()
            found += [(one, known.symbols(one)) for one in known.memory.known() if one.executable]
            found += self._log.noted(parent)
        return [*found, *self._log.noted(pid)]

    def tell_ended(self, notice: str) -> None:
        """Say what became of a process; of a great many of them only the first."""
        self._ended += 1
        if self._ended < _TOLD:
            self.notices.append(notice)
        elif self._ended == _TOLD:
            self.notices.append("more processes ended before their mappings could be read")

    def knows(self, pid: int) -> bool:
        """Whether anything was noted of a process."""
        return self._log is not None and self._log.knows(pid)

    def snapshot(self, pid: int) -> dict[str, Any]:
        """What is needed to name a process's addresses later: plain values, fit for JSON.

        ``mappings`` lists start, end, the link-time address of the start (the offset where the file
        is none that has such), path and build ID (or None) of each executable mapping, a later
        one behind one that it replaced; ``perf_map`` the functions of a JIT compiler, if there are.
        """
        return self._process(pid).snapshot()

    def restore(self, pid: int, snapshot: dict[str, Any]) -> None:
        """Take what snapshot() gave for the process; files are then found by their build IDs.

        It takes the place of what was taken before. Of very many processes the oldest is forgotten.

        Raises:
            ValueError: it did not give this.
        """
        from usdt.symbolize.snapshots import restored  # noqa: PLC0415 - for recordings only

        made = _Process(pid, self)
        restored(made, self, snapshot)
        self.forget(pid)
        self._restored_rows += made.rows
        while self._processes and (
            self._restored_rows > _MAX_RESTORED or len(self._processes) >= _MAX_PROCESSES
        ):
            self.forget(next(iter(self._processes)))
        self._processes[pid] = made

    def forget(self, pid: int) -> None:
        """Let go of what is known of a process."""
        found = self._processes.pop(pid, None)
        if found is not None and found.frozen:
            self._restored_rows -= found.rows

    def found_file(self, path: str, build_id: str | None) -> FileSymbols | None:
        """The file that a snapshot names, or the debug file that belongs to it."""
        from usdt.symbolize.snapshots import find_file  # noqa: PLC0415 - for recordings only

        key = (path, build_id)
        if key not in self._found:
            # Processes keep those they have; what nobody has any more goes with the last of them.
            while len(self._found) >= _MAX_FOUND:
                del self._found[next(iter(self._found))]
            self._found[key] = find_file(path, build_id, self._debug_root)
        found = self._found[key] = self._found.pop(key)  # the last asked for stands last
        return found

    def _process(self, pid: int) -> _Process:
        found = self._processes.pop(pid, None)
        if found is None:
            found = _Process(pid, self)
            while len(self._processes) >= _MAX_PROCESSES:
                self.forget(next(iter(self._processes)))
        self._processes[pid] = found  # the last asked for stands last
        return found

    # ------------------------------------------------------------ files

    def file(self, mapped: process.MappedFile, pid: int) -> FileSymbols | None:
        """The symbols of a mapped file; None where it cannot be read."""
        # The first way leads through the process, which may end at any time.
        for path in (mapped.open_path, mapped.path):
            if path is not None and process.same_file(path, mapped):
                try:
                    return self._open(path, mapped.path, pid)
                except (OSError, TargetError):
                    continue
        return None

    def _open(self, path: str, name: str, pid: int) -> FileSymbols | None:
        found = os.stat(path)
        key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if key not in self._files and len(self._files) < _MAX_FILES:
            roots = ("",) if _same_root(pid) else (f"/proc/{pid}/root", "")
            try:
                self._files[key] = FileSymbols(path, name, roots=roots, debug_root=self._debug_root)
            except ElfError:  # a font, a locale: no program
                self._files[key] = None
        return self._files.get(key)

    def own_vdso(self, build_id: str | None) -> FileSymbols | None:
        """That of this process; with a build ID only if it is its own."""
        own = Memory(os.getpid())
        own.refresh()
        for mapping in own.mappings:
            if mapping.path == "[vdso]":
                size = min(mapping.end - mapping.start, _MAX_VDSO)
                found = self.vdso(read_memory(own.pid, mapping.start, size))
                same = found is not None and build_id in (None, found.build_id)
                return found if same else None
        return None

    def vdso(self, image: bytes) -> FileSymbols | None:
        """The symbols of a vDSO; processes of one kind share theirs."""
        if image not in self._vdso:
            try:
                self._vdso[image] = FileSymbols.from_bytes(image, "[vdso]")
            except ElfError:
                self._vdso[image] = None
        return self._vdso[image]


def _same_root(pid: int) -> bool:
    try:
        own, other = os.stat("/"), os.stat(f"/proc/{pid}/root/")
    except OSError:
        return True
    return (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino)


class _Process:
    # One process: its mappings, the symbols behind each, and the frames found so far.
    def __init__(self, pid: int, owner: Symbolizer) -> None:
        self.memory = Memory(pid)
        self.jit = PerfMap(pid)
        self.frozen = False  # of a recording: nothing to look at any more
        self.files: dict[tuple[tuple[int, int], int], FileSymbols | None] = {}
        self.rows = 0  # how much of a recording was restored
        self._owner = owner
        self._looked = 0.0
        self._told = False
        self._known: dict[tuple[int, int], tuple[Frame, ...]] = {}

    def refresh(self) -> bool:
        now = time.monotonic()
        if self.frozen or now - self._looked < _FRESH:
            return False
        self._looked = now
        changed = self.memory.refresh()
        if changed:
            self._open_files()
        if self.memory.generation and self.memory.alive and self.jit.refresh():
            changed = True
            self._owner.notices += self.jit.notices
            self.jit.notices.clear()
        if changed:
            self._known.clear()
        pid = self.memory.pid
        if not self.memory.generation and not self._told and not self._owner.knows(pid):
            self._told = True
            self._owner.tell_ended(
                f"process {pid} ended before its mappings could be read: its addresses stay numbers"
            )
        return changed

    def _open_files(self) -> None:
        # While they can still be reached: indexes are made when the first address is asked for.
        pid = self.memory.pid
        try:
            mapped = process.mapped_files(pid)
        except TargetError:
            return
        for file in mapped:
            if self.files.get((file.device, file.inode)) is None:
                self.files[file.device, file.inode] = self._owner.file(file, pid)
        for mapping in self.memory.mappings:
            if mapping.path == "[vdso]" and mapping.end - mapping.start <= _MAX_VDSO:
                image = read_memory(pid, mapping.start, mapping.end - mapping.start)
                self.files[(0, 0), 0] = self._owner.vdso(image)

    def frames(self, address: int, within: int) -> tuple[Frame, ...]:
        key = (address, within)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._look_up(address, within)
            if not found[-1].symbol and within != address:
                # A signal's trampoline is returned to at its very beginning.
                at_once = self._look_up(address, address)
                found = at_once if at_once[-1].symbol else found
            self._known[key] = found
        return found

    def _look_up(self, address: int, within: int) -> tuple[Frame, ...]:
        mapping = self.memory.find(within)
        if mapping is not None:
            file = self.symbols(mapping)
            if file is None and mapping.inode:
                noted = self._owner.noted(self.memory.pid, within)
                file = None if noted is None else noted[1]
        else:
            mapping, file = self._earlier(within)
        if mapping is None:
            return (Frame(address),)
        if file is None:
            return (self._jit_frame(mapping, address, within),)
        link = within - mapping.start + mapping.offset
        link = link if self.frozen else file.address_of(link)
        symbol = file.find(link)
        offset = address - within + link - (0 if symbol is None else symbol.address)
        name = "" if symbol is None else demangle(symbol.name)
        frame = Frame(address, name, offset, _module(mapping))
        return self._with_lines(frame, file, link) if self._owner.lines else (frame,)

    def _with_lines(self, frame: Frame, file: FileSymbols, link: int) -> tuple[Frame, ...]:
        places = file.places(link)
        self._owner.notices += file.take_notices()
        if not places:
            return (frame,)
        address, offset, module = frame.address, frame.offset, frame.module
        *inlined, own = places
        return (
            *(
                Frame(
                    address,
                    demangle(place.function) or "??",  # as addr2line has it
                    offset,
                    module,
                    place.file,
                    place.line,
                    inlined=True,
                )
                for place in inlined
            ),
            Frame(address, frame.symbol, offset, module, own.file, own.line),
        )

    def _earlier(self, address: int) -> tuple[Mapping | None, FileSymbols | None]:
        # Not mapped now, as far as is known: as it was noted, or as it was seen before.
        noted = self._owner.noted(self.memory.pid, address)
        if noted is not None and noted[0].path != "[vdso]":
            return noted
        mapping = noted[0] if noted else self.memory.find(address, before=True)
        if mapping is None:
            return None, None
        if noted is not None and mapping.start >> 32:  # else a 32-bit process, which has another
            return mapping, self._owner.own_vdso(None)
        return mapping, self.symbols(mapping)

    def symbols(self, mapping: Mapping) -> FileSymbols | None:
        if mapping.path == "[vdso]":
            return self.files.get(((0, 0), 0))
        return self.files.get((mapping.device, mapping.inode)) if mapping.inode else None

    def _jit_frame(self, mapping: Mapping, address: int, within: int) -> Frame:
        found = self.jit.find(within)
        if found is not None:
            return Frame(address, demangle(found[1]), address - found[0], self.jit.name)
        if mapping.inode:
            return Frame(address, "", address - mapping.start + mapping.offset, _module(mapping))
        special = mapping.path if mapping.path.startswith("[") else "[anon]"
        return Frame(address, "", 0, special)

    def snapshot(self) -> dict[str, Any]:
        self._owner.look()
        self.refresh()
        # What comes later hides what comes before it.
        found = [(one, self.symbols(one)) for one in self.memory.known() if one.executable]
        mappings = []
        for one, file in (*found, *self._owner.all_noted(self.memory.pid)):
            # Debug files have other offsets than the files they belong to, but the same addresses.
            link = one.offset if file is None else file.address_of(one.offset)
            build_id = None if file is None else file.build_id
            mappings.append([one.start, one.end, link, one.path, build_id])
        jit = self.jit.dump().decode("utf-8", "backslashreplace")
        return {"mappings": mappings, "perf_map": jit}


def _module(mapping: Mapping) -> str:
    return os.path.basename(mapping.path) or mapping.path
