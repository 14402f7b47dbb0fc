"""Processes that are traced with all that they fork: who is in at the start, what they map later.

The kernel's side is :class:`usdt.engine.runtime.follow.TaskSet`. What is done here:

*   Children that are there already are found by their parents in /proc. A process is taken into
    the set first and its children looked for afterwards: those forked in between are seen twice,
    none is missed.
*   Probes are attached for every process that maps a file, as a child may map what its parent does
    not. Files come to light when anybody on this machine maps them
    (:mod:`usdt.bpf.perf_sideband`): a program that a child executes, a library it loads. Its hits
    of the first milliseconds, until the probe is attached, are missed; naming the file
    (``PATH:provider:name``) leaves no such gap.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Self

from usdt.base.closeable import allow_descriptors
from usdt.base.errors import SyscallError, TargetError
from usdt.base.frozen import frozen
from usdt.bpf.perf_sideband import MmapRecord, PerfSideband
from usdt.engine.runtime.follow import MAX_TASKS, TaskSet
from usdt.procfs.mapped_files import MappedFile, file_identity, mapped_files, same_file
from usdt.procfs.namespaces import pid_visible_to_bpf
from usdt.procfs.process import parent, processes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


__all__ = ("ForkFollower", "NewFile")

_MAX_FILES = 1 << 17  # remembered
_ROUNDS = 64  # of looking for children; each finds another generation that was just forked


@frozen
class NewFile:
    """A file that came to light.

    Attributes:
        file: as its process has it mapped.
        renewed: device and inode are those of an earlier file, which is gone or was overwritten.
    """

    file: MappedFile
    renewed: bool


class ForkFollower:
    """The processes given, their descendants now and later; a context manager.

    Args:
        pids: process IDs.
        namespace: as :class:`usdt.engine.compiler.codegen.model.TaskFilter` has it.
        room: how many tasks can be followed at the same time.

    Attributes:
        pids: those that are there now: the given ones and their descendants.
        followed: the kernel's set.
        notices: lines for people.

    Raises:
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
    """

    def __init__(
        self, pids: Sequence[int], namespace: tuple[int, int] | None, *, room: int = MAX_TASKS
    ) -> None:
        self.notices: list[str] = []
        self._events: PerfSideband | None = None
        self._met: dict[tuple[tuple[int, int], int], tuple[int, int]] = {}
        self.followed = TaskSet(namespace, max_tasks=room)
        try:
            self.pids = tuple(self._take_in(pids))
            self._watch()
        except BaseException:
            self.close()
            raise

    def _take_in(self, given: Sequence[int]) -> dict[int, None]:
        own = os.getpid()  # tracing ourselves, every event would be the cause of others
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
                self.notices.append(
                    f"{len(unnumbered)} children, {unnumbered[0]} for one, are in PID namespaces "
                    "below this one and are not traced: run in the initial PID namespace"
                )
            members.update(dict.fromkeys(fresh))
        allow_descriptors(len(members))
        return members

    def _watch(self) -> None:
        try:
            self._events = PerfSideband()
        except SyscallError as err:
            self.notices.append(
                f"programs and libraries that children load later will not be found: {err}"
            )

    @property
    def descriptors(self) -> list[int]:
        """Readable when :meth:`fresh` has something to look at."""
        return [] if self._events is None else self._events.descriptors

    def fresh(self) -> Iterator[NewFile | None]:
        """Files mapped since the last call, by anybody; None: look at every process instead."""
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
                self._met.clear()  # looked at again, and found to be known
            known, now = self._met.get(identity), (event.generation, _written(event))
            self._met[identity] = now
            if known != now:
                renewed = known is not None
                yield from (NewFile(file, renewed) for file in _look(event))

    def empty(self) -> bool:
        """Whether all have ended, but for those given, whom forget() takes out."""
        return self.followed.empty

    def forget(self, pid: int) -> None:
        """Take out a process of ``pids`` that has ended."""
        self.followed.remove(pid)

    def loss_notes(self) -> Iterator[str]:
        """What could not be followed, in words."""
        state = self.followed.losses()
        if state.no_room:
            yield (
                f"{state.no_room} children found no room beside {self.followed.max_tasks} others: "
                "they and their children were not traced"
            )
        if state.no_number:
            yield (
                f"{state.no_number} hits in PID namespaces below this one were left out: run in "
                "the initial PID namespace"
            )
        if state.missed:
            yield f"the kernel missed {state.missed} forks or ends: children may not be traced"

    def close(self) -> None:
        """Free everything; again is fine."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.followed.close)
            if self._events is not None:
                stack.callback(self._events.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def descendants(pids: Collection[int]) -> Iterator[int]:
    """Every process that one of ``pids`` is an ancestor of, as far as /proc shows.

    A child that lost its parent belongs to another one: it is nobody's descendant any more.
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


def _numbered(pid: int) -> bool:
    try:
        return pid_visible_to_bpf(pid)
    except TargetError:
        return True  # ended


def _written(event: MmapRecord) -> int:
    # When a file got its content, where its name leads us to it; 0 elsewhere.
    try:
        found = os.stat(event.path)  # noqa: PTH116 - done for every mapping of the machine
    except OSError:
        return 0
    return found.st_mtime_ns if found.st_ino == event.inode else 0


def _look(event: MmapRecord) -> Iterator[MappedFile]:
    # By its name, which outlives the process; else as the process has it, if that is still there.
    path = os.fsdecode(event.path)
    named = MappedFile(path, path, event.device, event.inode, deleted=False)
    with contextlib.suppress(TargetError):
        if path.startswith("/") and same_file(path, named):
            device, inode = file_identity(path)
            yield MappedFile(path, path, device, inode, deleted=False)
        elif event.pid:
            yield from mapped_files(event.pid)
