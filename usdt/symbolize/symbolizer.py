"""Symbolize addresses of processes: address → ``function+0x12 [module]``.

    address → mapping (:mod:`.maps_history`) → file (:mod:`.file_cache`: one
    :class:`.file_symbols.FileSymbols` for each device, inode and time of change, whichever process
    has it) → link-time address → symbol → demangled

The first time that a process is seen, its mappings are stored and its files are opened. Names
therefore remain known after the process has ended, after a file is deleted or replaced, and after
a mount namespace has disappeared with its last process.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from usdt.arch.unwind_rows import CodeRange
from usdt.base.closeable import Closeable
from usdt.elf.debug_files import DEBUG_ROOT
from usdt.engine.language.tree import MAX_FRAMES
from usdt.engine.output.frames import Frame, Stack
from usdt.engine.output.python_processes import PythonProcesses
from usdt.procfs.mapped_files import MappedFile
from usdt.procfs.process import processes
from usdt.symbolize.file_cache import FileCache
from usdt.symbolize.maps_history import is_jit_code
from usdt.symbolize.mmap_tracker import MmapTracker
from usdt.symbolize.process_maps import ProcessMaps, module_name
from usdt.symbolize.sources.build_id_files import BuildIdFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from usdt.procfs.maps import Mapping
    from usdt.symbolize.file_symbols import FileSymbols
    from usdt.symbolize.process_maps import FrameCache, MappedSymbols
    from usdt.symbolize.python_stacks import PythonStacks

__all__ = ("Symbolizer",)

_MAX_PROCESSES = 1 << 14  # beyond this, the least recently used process is dropped
_MAX_RESTORED = 1 << 20  # mappings and JIT-compiled functions of all restored processes
_MAX_CACHED = 1 << 16  # cached addresses of all processes
_KEPT = 1 << 29  # of random numbers of 32 bits: an eighth
_MAX_REPORTED = 10  # processes that ended early and are named in messages


class Symbolizer(Closeable):
    """A symbolizer for addresses of processes; a context manager.

    Args:
        debug_root: the system's directory of debug files.
        track_mappings: True to record new mappings of all processes, for processes that end before
            their mappings can be read. This needs CAP_PERFMON; without it, a message is added.
        lines: see the attribute.
        jit_map: True to let Java virtual machines write their perf maps.
        sources: finds further files by build ID.

    Attributes:
        notices: messages for the user; the caller removes them.
        lines: True to add source lines, if files have debug information, and frames for inlined
            functions.
    """

    def __init__(
        self,
        *,
        debug_root: str = DEBUG_ROOT,
        track_mappings: bool = False,
        lines: bool = False,
        jit_map: bool = False,
        sources: BuildIdFiles | None = None,
    ) -> None:
        self._cache = FileCache(debug_root, sources or BuildIdFiles())
        self.notices = self._cache.notices
        self.lines = lines
        self._jit_map = jit_map
        self._processes: dict[int, ProcessMaps] = {}
        self._restored_size = 0
        self._cached = 0
        self._chance = 0
        self._ended = 0
        self._tracker = MmapTracker(self._cache.mapped) if track_mappings else None
        self._python: PythonStacks | None = None

    def close(self) -> None:
        """Unmap every file; idempotent."""
        if self._python is not None:
            self._python.close()
        if self._tracker is not None:
            self._tracker.close()
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        self._cache.close()

    def observe(self, pid: int) -> bool:
        """Update the mappings of a process and open their files; return True if anything changed.

        This reads /proc/PID/maps, at most once in 50 ms.
        """
        self.look()
        process = self._process(pid)
        changed = self._refresh(process)
        if self._python is not None:
            self._python.observe(pid, changed=changed)
        self._request_map(process)
        renewed, process.renewed = process.renewed, False
        return renewed or changed

    def renew_maps(self) -> set[int]:
        """Let every virtual machine write its perf map a last time; return those that did."""
        return {
            pid for pid, process in self._processes.items() if self._request_map(process, now=True)
        }

    def frames(
        self, pid: int, addresses: Sequence[int], exact: AbstractSet[int] = frozenset((0,))
    ) -> list[Frame]:
        """Return the frames of a stack, given innermost first.

        All addresses are return addresses, but those at the positions ``exact``. With ``lines``,
        there may be more frames than addresses: see :class:`Frame`.
        """
        if not addresses:  # a thread of the kernel has no mappings
            return []
        process = self._current(pid)
        history = process.history
        if history.has_jit_code and any(is_jit_code(history.find(one)) for one in addresses):
            process.java.suggest_frame_pointers()
        if len(exact) == 1 and 0 in exact:
            found = [*self._exact_frames(process, addresses[0])]
            return found + self._return_frames(process, addresses[1:])
        found = []
        for depth, address in enumerate(addresses):
            if depth in exact:
                found += self._exact_frames(process, address)
            else:
                found += self._return_frames(process, (address,))
        return found

    def frame(self, pid: int, address: int) -> Frame:
        """Return the frame of the function at an address, not of functions inlined there."""
        return self._exact_frames(self._current(pid), address)[-1]

    def unwind(self, pid: int, machine: str, registers: bytes, stack: bytes) -> Stack:
        """Return the user stack of a thread, by unwind tables and frame pointers.

        Args:
            pid: the process.
            machine: the kernel's CPU.
            registers: the bytes of ``struct pt_regs``.
            stack: the top of the stack; see :class:`usdt.unwind.thread_state.ThreadState`.
        """
        from usdt.symbolize.process_code import ProcessCode  # noqa: PLC0415 - only for user stacks
        from usdt.unwind.thread_state import ThreadState  # noqa: PLC0415
        from usdt.unwind.unwinder import unwind  # noqa: PLC0415

        thread = ThreadState.of(machine, registers, stack)
        if thread is None:
            return Stack((), "stacks of this CPU cannot be unwound; use --unwind fp")
        process = self._current(pid)
        code = ProcessCode(functools.partial(self._locate, process))
        found = unwind(thread, code, max_frames=MAX_FRAMES)
        if found.reason and is_jit_code(process.history.find(found.addresses[-1])):
            process.java.suggest_frame_pointers()
        return Stack(self.frames(pid, found.addresses, found.exact), found.reason)

    def code(self, pid: int) -> list[CodeRange]:
        """Return the executable mappings of a process now, with their unwind tables."""
        process = self._process(pid)
        process.refresh(at_once=True)
        return process.code()

    def file_code(self, path: str) -> CodeRange | None:
        """Return a file's executable part as if it were mapped at 0; None if there is none."""
        try:
            found = os.stat(path)  # noqa: PTH116 - paths are text
        except OSError:
            return None
        device = os.major(found.st_dev), os.minor(found.st_dev)
        mapped = MappedFile(path, path, device, found.st_ino, deleted=False)
        file = self._cache.mapped(mapped, os.getpid())
        place = None if file is None else file.code_start
        if file is None or place is None or file.compact_table is None:
            return None
        offset, address = place
        code = (0, 0, -address, file.compact_table, offset, device, found.st_ino)
        return CodeRange(*code)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that are readable when mappings have changed."""
        return () if self._tracker is None else tuple(self._tracker.descriptors)

    def take_changed(self) -> set[int] | None:
        """Return the processes whose mappings have changed since the last call; None: unknown."""
        if self._tracker is None:
            return None
        self.look()
        found, self._tracker.changed = self._tracker.changed, set()
        return found

    def python_processes(self, pids: Sequence[int]) -> PythonProcesses:
        """Let programs know the Python processes, now and later.

        Args:
            pids: the only processes that are traced; empty for all.
        """
        python = self._python_stacks()
        maps = python.open(pids)
        for pid in pids or processes():
            python.examine(pid)
        return PythonProcesses(maps, self.descriptors, self.look)

    def python_stack(self, pid: int, data: bytes, length: int, order: str = "=") -> Stack:
        """Return a Python stack; see :meth:`usdt.symbolize.python_stacks.PythonStacks.stack`."""
        return self._python_stacks().stack(pid, data, length, order)

    def python_snapshots(self) -> list[tuple[int, dict[str, Any]]]:
        """Return processes with what Python stacks need and was not returned before."""
        return self._python_stacks().snapshots()

    def restore_python(self, pid: int, snapshot: object) -> None:
        """Add what python_snapshots() has returned of a process.

        Raises:
            ValueError: ``snapshot`` is malformed.
        """
        self._python_stacks().restore(pid, snapshot)

    def _python_stacks(self) -> PythonStacks:
        if self._python is None:
            from usdt.symbolize.python_stacks import PythonStacks  # noqa: PLC0415 - only for these

            self._python = PythonStacks(self._cache)
        return self._python

    def look(self) -> None:
        """Record the mappings that processes have created since the last call."""
        if self._tracker is not None:
            executed = self._tracker.update()
            for pid in executed:
                if pid in self._processes:
                    self._processes[pid].execute()
            if self._python is not None:
                self._python.follow(executed, self._tracker.mapped, self._tracker.forked)
            for pid in self._tracker.reported:
                if pid in self._processes:
                    self._processes[pid].suspect = True
            self.notices += self._tracker.notices
            self._tracker.notices.clear()

    def snapshot(self, pid: int) -> dict[str, Any]:
        """Return the data to symbolize a process's addresses later, as a JSON object.

        ``mappings`` lists for each executable mapping: start, end, the link-time address of the
        start (the file offset if the file is not ELF), path, build ID or None, and the file's size
        or 0. A mapping comes after those that it replaced. ``perf_map`` contains the JIT-compiled
        functions.
        """
        process = self._current(pid)
        mappings = []
        # Later mappings hide earlier ones.
        for one, file in (*process.executable(), *self._tracked(pid)):
            # Offsets in a debug file differ from those in its program; link-time addresses do not.
            link = one.offset if file is None else file.address_of(one.offset)
            build_id, size = (None, 0) if file is None else (file.build_id, file.size)
            mappings.append([one.start, one.end, link, one.path, build_id, size])
        jit = process.jit.dump().decode("utf-8", "backslashreplace")
        return {"mappings": mappings, "perf_map": jit}

    def restore(self, pid: int, snapshot: dict[str, Any]) -> None:
        """Restore a process from a result of :meth:`snapshot`; its files are found by build ID.

        This replaces all data about the process. Beyond a limit, the oldest processes are dropped.

        Raises:
            ValueError: ``snapshot`` is malformed.
        """
        made = ProcessMaps.from_snapshot(pid, self._cache, snapshot)
        self.forget(pid)
        self._restored_size += made.size
        while self._processes and (
            self._restored_size > _MAX_RESTORED or len(self._processes) >= _MAX_PROCESSES
        ):
            self.forget(next(iter(self._processes)))
        self._processes[pid] = made

    def forget(self, pid: int) -> None:
        """Drop all data about a process."""
        found = self._processes.pop(pid, None)
        if found is not None:
            self._restored_size -= found.size

    # ------------------------------------------------------------ processes

    def _process(self, pid: int) -> ProcessMaps:
        found = self._processes.pop(pid, None)
        if found is None:
            found = ProcessMaps(pid, self._cache)
            while len(self._processes) >= _MAX_PROCESSES:
                self.forget(next(iter(self._processes)))
        self._processes[pid] = found  # move to the end: recently used
        return found

    def _current(self, pid: int) -> ProcessMaps:
        self.look()
        process = self._process(pid)
        self._refresh(process, watched=self._tracker is not None and self._tracker.reliable)
        known = process.history.generation or process.reported
        if not known and not (self._tracker is not None and self._tracker.knows(pid)):
            process.reported = True
            self._report_ended(pid)
        return process

    def _refresh(self, process: ProcessMaps, *, watched: bool = False) -> bool:
        changed = process.refresh(watched=watched)
        self.notices += process.take_notices()
        return changed

    def _request_map(
        self, process: ProcessMaps, *, missing: bool = False, now: bool = False
    ) -> bool:
        # Whether the process has written its perf map, and this was read.
        if not self._jit_map or process.restored or not process.history.alive:
            return False
        written = process.java.request_map(missing=missing, now=now)
        if written:
            process.reread_map()
        self.notices += process.take_notices()
        return written

    def _report_ended(self, pid: int) -> None:
        # Name only the first processes, because there may be very many.
        self._ended += 1
        if self._ended < _MAX_REPORTED:
            self.notices.append(
                f"process {pid} ended before its mappings could be read;"
                " its addresses are shown as numbers"
            )
        elif self._ended == _MAX_REPORTED:
            self.notices.append("more processes ended before their mappings could be read")

    def _find_tracked(self, pid: int, address: int) -> MappedSymbols | None:
        # The tracked mapping of an address of a process or of its ancestors.
        if self._tracker is None:
            return None
        found = self._tracker.find(pid, address)
        for parent in () if found else self._tracker.ancestors(pid):
            found = found or self._tracker.find(parent, address) or self._of_parent(parent, address)
        return found

    def _of_parent(self, pid: int, address: int) -> MappedSymbols | None:
        parent = self._process(pid)
        self._refresh(parent)
        mapping = parent.history.find(address, before=True)
        return None if mapping is None else (mapping, parent.symbols(mapping))

    def _tracked(self, pid: int) -> list[MappedSymbols]:
        # All known mappings of a process's ancestors, then the tracked ones of the process, the
        # latest last.
        if self._tracker is None:
            return []
        found = []
        for number in reversed(self._tracker.ancestors(pid)):
            parent = self._process(number)
            self._refresh(parent)
            found += parent.executable()
            found += self._tracker.mappings(number)
        return [*found, *self._tracker.mappings(pid)]

    # ------------------------------------------------------------ addresses

    def _exact_frames(self, process: ProcessMaps, address: int) -> tuple[Frame, ...]:
        cached = process.exact_frames
        found = cached.get(address)
        if found is None:
            frame = None if self.lines else process.frame(address)
            found = self._look_up(process, address, address) if frame is None else (frame,)
            if frame is None or self._is_chosen():
                self._keep(cached, address, found)
        return found

    def _return_frames(self, process: ProcessMaps, addresses: Sequence[int]) -> list[Frame]:
        cached = process.frames

        def missing(address: int) -> tuple[Frame, ...]:
            found = self._look_up(process, address, address - 1)
            self._keep(cached, address, found)
            return found

        if self.lines:
            return [frame for one in addresses for frame in cached.get(one) or missing(one)]
        return process.frames_of(addresses, missing, self._keep if self._is_chosen() else None)

    def _is_chosen(self) -> bool:
        # To keep frames whose addresses never come again takes longer than to make them. So those
        # of every eighth stack are kept, at random: soon all that come again and again.
        self._chance = (self._chance * 69069 + 1) & 0xFFFFFFFF
        return self._chance < _KEPT

    def _keep(self, cached: FrameCache, address: int, found: tuple[Frame, ...]) -> None:
        if self._cached >= _MAX_CACHED:
            self._forget_frames()
        self._cached += 1
        cached[address] = found

    def _forget_frames(self) -> None:
        self._cached = 0
        for process in self._processes.values():
            process.forget_frames()

    def _look_up(self, process: ProcessMaps, address: int, within: int) -> tuple[Frame, ...]:
        place = process.place(within)
        if place is None and self._refresh(process):
            place = process.place(within)
        if place is not None:
            return self._in_file(address, place.file, within - place.bias, place.module, within)
        found = self._elsewhere(process, address, within)
        if within != address and not found[-1].symbol and not found[-1].file_id:
            # A signal's trampoline, as in _in_file(), in memory without a file.
            exact = self._elsewhere(process, address, address)
            found = exact if exact[-1].symbol else found
        return found

    def _elsewhere(self, process: ProcessMaps, address: int, within: int) -> tuple[Frame, ...]:
        # The same for an address that is in no file of a current mapping.
        mapping, file, link = self._locate(process, within)
        if mapping is None:
            return (Frame(address),)
        if file is not None:
            return self._in_file(address, file, link, module_name(mapping.path), within)
        if is_jit_code(mapping) and process.jit.find(within) is None:
            self._request_map(process, missing=True)
        return (process.frame_without_symbols(mapping, address, within),)

    def _in_file(
        self, address: int, file: FileSymbols, link: int, module: str, within: int
    ) -> tuple[Frame, ...]:
        exact = link + address - within
        _, end, name, start = file.span(link)
        if not name and exact >= end:
            # A signal handler returns to the first instruction of its trampoline.
            _, _, name, start = file.span(exact)
            link = exact if name else link
        at = exact - start
        frame = Frame(address, name, at, module, file_id=file.file_id, link_address=exact)
        if not self.lines:
            return (frame,)
        found = file.with_lines(frame, link)
        self.notices += file.take_notices()
        return found

    def _locate(
        self, process: ProcessMaps, address: int
    ) -> tuple[Mapping | None, FileSymbols | None, int]:
        # Return the mapping of an address, its file, and the link-time address in the file.
        place = process.place(address)
        if place is not None:
            return place.mapping, place.file, address - place.bias
        file = None
        mapping = process.history.find(address)
        if mapping is None:
            mapping, file = self._find_earlier(process, address)
        elif mapping.inode:
            tracked = self._find_tracked(process.history.pid, address)
            file = None if tracked is None else tracked[1]
        if mapping is None or file is None:
            return mapping, None, 0
        link = address - mapping.start + mapping.offset
        return mapping, file, link if process.restored else file.address_of(link)

    def _find_earlier(
        self, process: ProcessMaps, address: int
    ) -> tuple[Mapping | None, FileSymbols | None]:
        # The address has no current mapping: use a tracked or an earlier one.
        tracked = self._find_tracked(process.history.pid, address)
        if tracked is not None and tracked[0].path != "[vdso]":
            return tracked
        mapping = tracked[0] if tracked else process.history.find(address, before=True)
        if mapping is None:
            return None, None
        if tracked is not None and mapping.start >> 32:  # a 32-bit process has another vDSO
            return mapping, self._cache.own_vdso(None)
        return mapping, process.symbols(mapping)
