"""Python stacks: which processes run Python, and the names of their frames.

Programs find the frames, if they know the process. :meth:`PythonStacks.examine` tells them. A
program copies each code object when it first meets it, so that names are known after the end of the
process, and of functions that are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.closeable import Closeable
from usdt.base.errors import SyscallError, TargetError
from usdt.cpython.code_objects import copy_key, key_of_copy
from usdt.cpython.layouts import Unsupported
from usdt.cpython.stack_record import IDLE, NO_THREAD, NOT_KNOWN, UNREADABLE, ending, slots_in
from usdt.engine.compiler.codegen.python_frames import CODES, PYTHON_MAPS, RUNTIMES
from usdt.engine.output.frames import Frame, Stack
from usdt.procfs.mapped_files import mapped_file
from usdt.procfs.maps import read_maps
from usdt.symbolize.python_process import PythonProcess, may_be_python
from usdt.symbolize.python_snapshots import checked_snapshot, snapshot_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from usdt.bpf.maps import Map
    from usdt.cpython.code_objects import CodeObject
    from usdt.cpython.stack_record import CodeKey, Slot
    from usdt.procfs.maps import Mapping
    from usdt.symbolize.file_cache import FileCache

__all__ = ("PythonStacks",)

_MAX_PROCESSES = 1 << 14
_MAX_CODES = 1 << 16
_CODES_PER_SNAPSHOT = 256
_NOT_PYTHON = "not a Python process"
_WHY = {
    NO_THREAD: "the thread is unknown to Python",
    IDLE: "the thread runs no Python function",
    UNREADABLE: "Python's memory cannot be read",
}


class PythonStacks(Closeable):
    """The Python processes that programs know, and the code objects of their frames.

    Args:
        cache: opens files.
    """

    def __init__(self, cache: FileCache) -> None:
        self._cache = cache
        self.maps: dict[str, Map] = {}
        self._processes: dict[int, PythonProcess | str] = {}
        self._codes: dict[tuple[int, CodeKey], CodeObject | None] = {}
        self._told: set[tuple[int, CodeKey | str]] = set()  # what a recording has
        self._restored = 0  # code objects from a recording
        self._only: frozenset[int] = frozenset()  # the processes that are traced; empty for all

    def open(self, pids: Iterable[int] = ()) -> dict[str, Map]:
        """Return the maps that programs use, by name; make them at the first call.

        ``pids`` are the only processes that are traced; empty for all.
        """
        only = frozenset(pids)
        if not self.maps:
            self.maps = {spec.name: spec.create() for spec in PYTHON_MAPS}
            self._only = only
        self._only = self._only | only if self._only and only else frozenset()
        return self.maps

    def close(self) -> None:
        """Free the maps; idempotent."""
        for made in self.maps.values():
            made.close()
        self.maps = {}

    def observe(self, pid: int, *, changed: bool) -> None:
        """Let programs know a process that they do not know, or that has changed."""
        if changed or pid not in self._processes:
            self.examine(pid)

    def examine(self, pid: int) -> None:
        """Let programs know a process, if it runs Python."""
        if isinstance(self._processes.get(pid), PythonProcess):
            return
        found: PythonProcess | str | None = None
        try:
            for mapping in _candidates(pid):
                file = self._cache.mapped(mapped_file(pid, mapping), pid)
                found = None if file is None else PythonProcess.find(pid, mapping, file)
                if found is not None:
                    break
        except Unsupported as err:
            found = str(err)
        except (OSError, TargetError):
            return  # it has ended, or belongs to another user
        self._know(pid, found or _NOT_PYTHON)

    def follow(
        self, executed: Iterable[int], mapped: Iterable[int], forked: Iterable[tuple[int, int]]
    ) -> None:
        """Let programs know processes that have changed, if they are traced.

        To look at a process takes milliseconds, in which those that are traced run on.

        Args:
            executed: they run another program.
            mapped: they have mapped files.
            forked: (process, parent).
        """
        for pid, parent in forked:
            self.forked(pid, parent)
        for pid in executed:
            self.forget(pid)
        for pid in mapped:
            if not self._only or pid in self._only:
                self.examine(pid)

    def forked(self, pid: int, parent: int) -> None:
        """Let programs know a child, which has the memory of its parent."""
        found = self._processes.get(parent)
        if isinstance(found, PythonProcess):
            try:
                self._know(pid, PythonProcess(pid, found.layout, found.runtime))
            except OSError:
                return  # it has ended

    def forget(self, pid: int) -> None:
        """Forget a process, which executes another program."""
        self._processes.pop(pid, None)
        if self.maps:
            self.maps[RUNTIMES].delete(pid.to_bytes(4, "little"))

    def _know(self, pid: int, found: PythonProcess | str) -> None:
        if len(self._processes) >= _MAX_PROCESSES:
            self.forget(next(iter(self._processes)))
        self._processes[pid] = found
        if isinstance(found, PythonProcess) and self.maps:
            try:
                self.maps[RUNTIMES].set(pid.to_bytes(4, "little"), found.entry)
            except SyscallError:  # the map is full
                self._processes[pid] = "more Python processes than are followed"

    def stack(self, pid: int, data: bytes, length: int, order: str = "=") -> Stack:
        """Return the frames of a recorded stack; without frames, with the reason.

        Args:
            pid: the process.
            data: the slots.
            length: the number before them.
            order: their byte order.
        """
        if length < 0:
            return Stack((), self._why(pid, length))
        size = length & ~7
        frames = [self._frame(pid, slot) for slot in slots_in(data[:size], order)]
        return Stack(frames, ending(length) if frames else ending(length) or _WHY[IDLE])

    def _why(self, pid: int, reason: int) -> str:
        if reason != NOT_KNOWN:
            return _WHY.get(reason, "no Python stack was recorded")
        found = self._processes.get(pid)
        return found if isinstance(found, str) else "the process was not known yet"

    def _frame(self, pid: int, slot: Slot) -> Frame:
        code, address, direct = self._code(pid, slot.code), slot.code.address, not slot.outermost
        if code is None:
            return Frame(address, inlined=direct, python=True)
        line = code.line(slot.offset)
        offset = slot.offset
        return Frame(address, code.name, offset, "", code.file, line, inlined=direct, python=True)

    def _code(self, pid: int, key: CodeKey) -> CodeObject | None:
        known = (pid, key)
        if known not in self._codes:
            if len(self._codes) >= 2 * _MAX_CODES:
                self._codes.clear()
            process = self._processes.get(pid)
            found = None
            if isinstance(process, PythonProcess):
                copy = self.maps[CODES].get(copy_key(pid, key)) if self.maps else None
                found = process.code(key, copy)
            self._codes[known] = found
        return self._codes[known]

    # ------------------------------------------------------------ recordings

    def snapshots(self) -> list[tuple[int, dict[str, Any]]]:
        """Return what a recording must have of processes, if it is new, for :meth:`restore`."""
        told: list[tuple[int, dict[str, Any]]] = []
        new: dict[int, dict[CodeKey, CodeObject]] = {}
        for data in self.maps[CODES].keys() if self.maps else ():
            pid, key = key_of_copy(data)
            process = self._processes.get(pid)
            if (pid, key) in self._told or not isinstance(process, PythonProcess):
                continue
            found = process.code(key, self.maps[CODES].get(data))
            if found is not None:
                self._told.add((pid, key))
                codes = new.setdefault(pid, {})
                codes[key] = found
                if len(codes) >= _CODES_PER_SNAPSHOT:
                    told.append((pid, snapshot_of(new.pop(pid))))
        told += [(pid, snapshot_of(codes)) for pid, codes in new.items()]
        for pid, reason in self._processes.items():
            if isinstance(reason, str) and (pid, reason) not in self._told:
                self._told.add((pid, reason))
                told.append((pid, snapshot_of({}, reason)))
        return told

    def restore(self, pid: int, snapshot: object) -> None:
        """Add what :meth:`snapshots` has returned of a process.

        Raises:
            ValueError: ``snapshot`` is malformed.
        """
        reason, found = checked_snapshot(snapshot)
        self._restored += len(found)
        if self._restored > _MAX_CODES:  # of a hostile recording
            self._codes.clear()
            self._restored = len(found)
        self._codes.update(((pid, key), code) for key, code in found.items())
        if reason:
            self._processes[pid] = reason


def _candidates(pid: int) -> Iterator[Mapping]:
    # The first executable mappings of the program and of files that are named after Python.
    seen: set[int] = set()
    for mapping in read_maps(pid):
        if not mapping.executable or not mapping.inode or mapping.inode in seen:
            continue
        if not seen or may_be_python(mapping.path):
            yield mapping
        seen.add(mapping.inode)
