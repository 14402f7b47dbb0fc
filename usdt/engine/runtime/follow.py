"""Following children: the set of traced tasks, kept by programs on the scheduler's tracepoints.

The set holds two kinds of keys:

    a process's ID     as the tracer sees it, times two plus one: the processes that tracing began
                       with, added from user space
    a task's address   even: every thread and process that came from one in the set

``sched_process_fork`` runs in the parent, after the child exists and before it may run (see
kernel_clone() in kernel/fork.c), so no hit of a child comes too early. ``sched_process_exit`` runs
in the task itself when it will not return to user space any more: it has ended then, but stays in
the set, as others want to see its end, too. ``sched_process_free`` takes it out, after its last
switch. An address stands for one task at a time; should a removal ever be missed, the next task at
that address sets it right, because a child of a stranger is taken out.

Addresses rather than process IDs, because they are what the tracepoints hand over: no field of
``struct task_struct`` is read, whose layout differs from kernel to kernel, no event of tracefs is
needed, an ID that is used again is not mistaken for its former owner, and in PID namespaces nothing
has to be translated.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from typing import TYPE_CHECKING, Self

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
    """Counts of what following children missed.

    Attributes:
        no_room: tasks that did not fit into the set; they and their children were not traced.
        no_number: hits of tasks in PID namespaces below the tracer's, left out: the kernel gives
            them no number there unless the tracer is in the initial namespace.
        missed: forks and exits that the kernel did not report to us.
    """

    no_room: int
    no_number: int
    missed: int


class TaskSet:
    """The set and the programs that keep it; a context manager.

    Args:
        namespace: as :class:`usdt.engine.compiler.codegen.model.TaskFilter` has it.
        max_tasks: how many tasks the set can hold.

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
            # Ends first: a task that is added must be taken out again.
            self._attach("sched_process_free", free_program())
            self._attach("sched_process_exit", exit_program())
            self._attach("sched_process_fork", fork_program(namespace))
            undo.pop_all()

    def _attach(self, name: str, code: Code) -> None:
        program = ProgramSpec(code, type=ProgType.RAW_TRACEPOINT, name=name).load(self.maps)
        self._programs.append(program)
        self._links.append(attach_raw_tracepoint(program, name))

    def add(self, pid: int) -> None:
        """Add a process, by its ID as the tracer sees it, and all that it forks from now on.

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
        """Return what could not be followed so far."""
        counts = [self.maps[UNFOLLOWED].get(struct.pack("=I", index)) for index in range(2)]
        no_room, no_number = (_KEY.unpack(value or bytes(8))[0] for value in counts)
        infos = [object_info(program.fd, _MISSES + 8) for program in self._programs]
        return FollowLosses(
            no_room, no_number, sum(_KEY.unpack_from(info, _MISSES)[0] for info in infos)
        )

    def close(self) -> None:
        """Detach and free everything; idempotent."""
        with contextlib.ExitStack() as stack:
            for table in self.maps.values():
                stack.callback(table.close)
            for program in self._programs:
                stack.callback(program.close)
            for link in self._links:
                stack.callback(link.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _process_key(pid: int) -> bytes:
    return _KEY.pack(pid << 1 | 1)
