"""Following children: programs on the scheduler's tracepoints maintain the set of traced tasks.

The set has two kinds of keys:

    a process ID       in the tracer's PID namespace, times two plus one: the processes that
                       tracing started with, added from user space
    a task's address   even: every thread and process descended from one in the set

``sched_process_fork`` runs in the parent, after the child exists and before it may run (see
kernel_clone() in kernel/fork.c), so no hit of a child precedes its key. ``sched_process_exit`` runs
in the task itself when it will not return to user space. The task has then ended, but stays in the
set, so that probes on its exit are still traced. ``sched_process_free`` removes it, after its last
context switch. An address belongs to one task at a time. If a removal is ever missed, the next task
at that address corrects it, because a fork by a task outside the set removes the child's address.

The set has addresses because they are what the tracepoints pass. No field of ``struct task_struct``
is read, whose layout differs between kernels. No trace event of tracefs is needed. A reused process
ID is not mistaken for its former owner. In PID namespaces nothing must be translated.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.base.errors import SyscallError, TracingError
from usdt.base.frozen import frozen
from usdt.bpf._uapi import MapType, ProgType
from usdt.bpf.link import Link, attach_raw_tracepoint
from usdt.bpf.maps import Map, MapSpec
from usdt.bpf.objects import object_info
from usdt.bpf.program import Program, ProgramSpec
from usdt.engine.compiler.codegen.task_filter import (
    ALIVE,
    ENDED,
    FOLLOWED,
    UNFOLLOWED,
    exit_program,
    fork_program,
    free_program,
)

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Code

__all__ = (
    "MAX_TASKS",
    "FollowLosses",
    "TaskSet",
)

MAX_TASKS = 1 << 16  # tasks alive at the same time

_KEY = struct.Struct("=Q")
_MISSES = 208  # struct bpf_prog_info: recursion_misses (Linux 5.12, commit 9ed9e9ba2337)


@frozen
class FollowLosses:
    """The numbers of tasks, hits and events that following children missed.

    Attributes:
        full: tasks that did not fit into the set; they and their children were not traced.
        no_number: ignored hits of tasks in PID namespaces below the tracer's: the kernel
            provides no ID for them unless the tracer is in the initial namespace.
        missed: forks and exits that the kernel did not report.
    """

    full: int
    no_number: int
    missed: int


class TaskSet(Closeable):
    """The set of traced tasks and the programs that maintain it; a context manager.

    Args:
        namespace: see :class:`usdt.engine.compiler.codegen.model.TaskFilter`.
        max_tasks: capacity of the set.

    Raises:
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
        NotSupported: the kernel was built without tracepoints.
    """

    def __init__(
        self, namespace: tuple[int, int] | None = None, *, max_tasks: int = MAX_TASKS
    ) -> None:
        self.max_tasks = max_tasks
        self._programs: list[Program] = []
        self._links: list[Link] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self.maps: dict[str, Map] = {}
            self.maps[FOLLOWED] = MapSpec(MapType.HASH, 8, 1, max_tasks, FOLLOWED).create()
            self.maps[UNFOLLOWED] = MapSpec(MapType.ARRAY, 4, 8, 2, UNFOLLOWED).create()
            # Attach the removal first: a task that is added must be removed again.
            self._attach("sched_process_free", free_program())
            self._attach("sched_process_exit", exit_program())
            self._attach("sched_process_fork", fork_program(namespace))
            undo.pop_all()

    def _attach(self, name: str, code: Code) -> None:
        program = ProgramSpec(code, type=ProgType.RAW_TRACEPOINT, name=name).load(self.maps)
        self._programs.append(program)
        self._links.append(attach_raw_tracepoint(program, name))

    def add(self, pid: int) -> None:
        """Add a process and everything that it forks from now on.

        ``pid`` is its ID in the tracer's PID namespace.

        Raises:
            TracingError: the set is full.
        """
        try:
            self.maps[FOLLOWED].set(_process_key(pid), bytes((ALIVE,)))
        except SyscallError as err:
            if err.errno != errno.E2BIG:
                raise
            raise TracingError(
                f"more than {self.max_tasks} processes and threads to follow"
            ) from err

    def remove(self, pid: int) -> None:
        """Remove a process given to add(); its children stay."""
        self.maps[FOLLOWED].delete(_process_key(pid))

    @property
    def empty(self) -> bool:
        """Whether every task in the set has ended."""
        return all(value[0] == ENDED for _, value in self.maps[FOLLOWED].items())

    def losses(self) -> FollowLosses:
        """Return the losses so far."""
        counts = [self.maps[UNFOLLOWED].get(struct.pack("=I", index)) for index in range(2)]
        full, no_number = (_KEY.unpack(value or bytes(8))[0] for value in counts)
        infos = [object_info(program.fd, _MISSES + 8) for program in self._programs]
        return FollowLosses(
            full, no_number, sum(_KEY.unpack_from(info, _MISSES)[0] for info in infos)
        )

    def close(self) -> None:
        """Detach and free everything. Idempotent."""
        with contextlib.ExitStack() as stack:
            for table in self.maps.values():
                stack.callback(table.close)
            for program in self._programs:
                stack.callback(program.close)
            for link in self._links:
                stack.callback(link.close)


def _process_key(pid: int) -> bytes:
    return _KEY.pack(pid << 1 | 1)
