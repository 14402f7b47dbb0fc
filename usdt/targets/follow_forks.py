"""Following forks: the processes in the set at the start, and the files they map later.

The kernel side is :class:`usdt.engine.runtime.follow.TaskSet`. This module does the rest:

*   It finds existing children by their parents in /proc. It adds a process to the set first and
    looks for its children afterwards, so that a child forked in between is seen twice, not missed.
*   It reports every file that any process of this machine maps (:mod:`usdt.bpf.perf.sideband`): a
    program that a child executes, or a library it loads. Probes in it are attached for all
    processes, because a child may map files that its parent does not. Hits in the first
    milliseconds, until a probe is attached, are missed. Naming the file (``PATH:provider:name``)
    avoids this gap.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable, allow_descriptors
from usdt.base.errors import SyscallError, TargetError
from usdt.base.text import plural
from usdt.bpf.perf.sideband import MmapRecord, PerfSideband
from usdt.engine.runtime.follow import MAX_TASKS, TaskSet
from usdt.procfs.mapped_files import FileId, MappedFile, file_identity, mapped_files, same_file
from usdt.procfs.namespaces import pid_visible_to_bpf
from usdt.procfs.process import parent, processes
from usdt.targets.traced_files import TracedFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from usdt.engine.runtime.follow import FollowLosses

__all__ = ("ForkFollower",)

_MAX_FILES = 1 << 17  # files with a stored state
_ROUNDS = 64  # maximum scans for children; each scan finds those forked since the last one


class ForkFollower(Closeable):
    """A set of processes and their descendants, now and later; a context manager.

    Args:
        pids: process IDs.
        namespace: that of :class:`usdt.engine.compiler.codegen.model.TaskFilter`.
        max_tasks: maximum number of tasks followed at the same time.

    Attributes:
        pids: the given processes and their descendants at the start.
        followed: the set in the kernel.
        notices: messages for the user.

    Raises:
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
    """

    def __init__(
        self, pids: Sequence[int], namespace: tuple[int, int] | None, *, max_tasks: int = MAX_TASKS
    ) -> None:
        self.notices: list[str] = []
        self._events: PerfSideband | None = None
        self._met: dict[FileId, tuple[int, int]] = {}
        self.followed = TaskSet(namespace, max_tasks=max_tasks)
        try:
            self.pids = tuple(self._take_in(pids))
            self._watch()
        except BaseException:
            self.close()
            raise

    def _take_in(self, given: Sequence[int]) -> dict[int, None]:
        own = os.getpid()  # tracing this process, every event would cause others
        members = dict.fromkeys(given)
        fresh: Collection[int] = members
        for _ in range(_ROUNDS):
            for pid in fresh:
                self.followed.add(pid)
            fresh = [pid for pid in descendants(members) if pid not in members and pid != own]
            if not fresh:
                break
            unnumbered = [pid for pid in fresh if not _numbered(pid)]
            if unnumbered:
                self.notices.append(_unnumbered_note(unnumbered))
            members.update(dict.fromkeys(fresh))
        allow_descriptors(len(members))
        return members

    def _watch(self) -> None:
        try:
            self._events = PerfSideband()
        except SyscallError as err:
            self.notices.append(
                f"cannot find programs and libraries that children load later: {err}"
            )

    @property
    def descriptors(self) -> list[int]:
        """File descriptors that are readable when :meth:`fresh` has files to report."""
        return [] if self._events is None else self._events.descriptors

    def fresh(self) -> Iterator[TracedFile | None]:
        """Yield the files mapped since the last call by any process; None: scan all processes."""
        if self._events is None:
            return
        for event in self._events.take():
            if not isinstance(event, MmapRecord):  # records were lost
                yield None
                continue
            if not event.inode:  # the vDSO, or memory
                continue
            identity = event.device, event.inode
            if len(self._met) > _MAX_FILES:
                self._met.clear()  # they are then reported once more
            known, now = self._met.get(identity), (event.generation, _written(event))
            self._met[identity] = now
            if known != now:
                yield from _look(event, renewed=known is not None)

    def empty(self) -> bool:
        """Return True if all have ended; the given processes end with :meth:`forget`."""
        return self.followed.empty

    def forget(self, pid: int) -> None:
        """Remove a process of ``pids`` that has ended."""
        self.followed.remove(pid)

    def loss_notes(self) -> Iterator[str]:
        """Yield messages about what could not be followed."""
        yield from loss_notes(self.followed.losses(), self.followed.max_tasks)

    def close(self) -> None:
        """Release all resources; idempotent."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.followed.close)
            if self._events is not None:
                stack.callback(self._events.close)


def loss_notes(losses: FollowLosses, max_tasks: int) -> Iterator[str]:
    """Yield messages about what a set of so many tasks could not follow."""
    if losses.full:
        children, their = f"{losses.full} children were", "their"
        if losses.full == 1:
            children, their = "1 child was", "its"
        tasks = plural(max_tasks, "task")
        yield f"the set of {tasks} was full: {children} not traced, nor {their} own children"
    if losses.no_number:
        yield (
            f"left out {plural(losses.no_number, 'hit')} in child PID namespaces: run in the "
            "initial PID namespace"
        )
    if losses.missed:
        missed = "1 fork or exit" if losses.missed == 1 else f"{losses.missed} forks or exits"
        yield f"the kernel missed {missed}: children may not be traced"


def descendants(pids: Collection[int]) -> Iterator[int]:
    """Yield all descendants of ``pids``, as far as /proc shows them.

    A child whose parent has ended has another parent, so it is no longer a descendant.
    """
    children: dict[int, list[int]] = {}
    for pid in processes():
        with contextlib.suppress(TargetError):  # ended meanwhile
            children.setdefault(parent(pid), []).append(pid)
    ahead, seen = list(pids), set(pids)
    while ahead:
        for pid in children.get(ahead.pop(), ()):
            if pid not in seen:
                seen.add(pid)
                ahead.append(pid)
                yield pid


def _unnumbered_note(pids: Sequence[int]) -> str:
    if len(pids) == 1:
        who = f"child {pids[0]} is in a child PID namespace and is"
    else:
        who = f"{len(pids)} children, {pids[0]} for one, are in child PID namespaces and are"
    return f"{who} not traced: run in the initial PID namespace"


def _numbered(pid: int) -> bool:
    try:
        return pid_visible_to_bpf(pid)
    except TargetError:
        return True  # ended


def _written(event: MmapRecord) -> int:
    # Modification time of a file; 0 if this process does not find the file at its path.
    try:
        found = os.stat(event.path)  # noqa: PTH116 - done for every mapping of the machine
    except OSError:
        return 0
    return found.st_mtime_ns if found.st_ino == event.inode else 0


def _look(event: MmapRecord, *, renewed: bool) -> Iterator[TracedFile]:
    # By name, which outlives the process; else through the process, if it still exists.
    path = os.fsdecode(event.path)
    named = MappedFile(path, path, event.device, event.inode, deleted=False)
    with contextlib.suppress(TargetError):
        if path.startswith("/") and same_file(path, named):
            yield TracedFile(path, path, file_identity(path), renewed=renewed)
        elif event.pid:
            for file in mapped_files(event.pid):
                if file.open_path is not None:
                    yield TracedFile(file.path, file.open_path, file.identity, renewed=renewed)
