"""Following children: the set of tasks that count, kept by programs on the scheduler's tracepoints.

The set holds two kinds of keys:

    a process's ID     as the tracer sees it, doubled and one more: those the tracing began with,
                       added from user space
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
from usdt.bpf._uapi import Helper, MapType, ProgType
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R7, R9, R10, Alu, Jump
from usdt.bpf.link import Link, attach_raw_tracepoint
from usdt.bpf.maps import Map, MapSpec
from usdt.bpf.objects import object_info
from usdt.bpf.program import Program, ProgramSpec
from usdt.engine.compiler.codegen.expressions import KEY_SLOT, PIDNS_SLOT, READ_SLOT

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Code
    from usdt.bpf.asm.insn import Reg

__all__ = (
    "ROOM",
    "Followed",
    "Unfollowed",
    "write_current_process",
    "write_membership",
)

ROOM = 1 << 16  # tasks alive at the same time

FOLLOWED = "followed"  # hash: u64 of a process or a task → _ALIVE or _ENDED
UNFOLLOWED = "unfollowed"  # array of u64: see Unfollowed
_ALIVE, _ENDED = 1, 2
_NO_ROOM, _NO_NUMBER = 0, 1
_EXIST = 2  # BPF_EXIST: only what is there is changed
_KEY = struct.Struct("=Q")
_MISSES = 208  # struct bpf_prog_info: recursion_misses (Linux 5.12, commit 9ed9e9ba2337)


@frozen
class Unfollowed:
    """What following children could not do.

    Attributes:
        no_room: tasks for which the set had no room; they and theirs were not traced.
        no_number: hits of tasks in PID namespaces below the tracer's, left out: the kernel gives
            them no number there unless the tracer is in the initial namespace.
        missed: forks and exits that the kernel did not report to us.
    """

    no_room: int
    no_number: int
    missed: int


class Followed:
    """The set and the programs that keep it; a context manager.

    Args:
        namespace: as :class:`usdt.engine.compiler.codegen.program.Filter` has it.
        room: how many tasks can be in the set.

    Raises:
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
        NotSupported: the kernel was built without tracepoints.
    """

    def __init__(self, namespace: tuple[int, int] | None = None, *, room: int = ROOM) -> None:
        self.room = room
        self._programs: list[Program] = []
        self._links: list[Link] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self.maps: dict[str, Map] = {}
            self.maps[FOLLOWED] = MapSpec(MapType.HASH, 8, 1, room, FOLLOWED).create()
            self.maps[UNFOLLOWED] = MapSpec(MapType.ARRAY, 4, 8, 2, UNFOLLOWED).create()
            # Ends first: a task that is added must be taken out again.
            self._attach("sched_process_free", _free_program())
            self._attach("sched_process_exit", _exit_program())
            self._attach("sched_process_fork", _fork_program(namespace))
            undo.pop_all()

    def _attach(self, name: str, code: Code) -> None:
        program = ProgramSpec(code, type=ProgType.RAW_TRACEPOINT, name=name).load(self.maps)
        self._programs.append(program)
        self._links.append(attach_raw_tracepoint(program, name))

    def add(self, pid: int) -> None:
        """Take in a process, by its ID as the tracer sees it, and all that it forks from now on.

        Raises:
            TracingError: there is no room.
        """
        try:
            self.maps[FOLLOWED].set(_process_key(pid), bytes((_ALIVE,)))
        except SyscallError as err:
            if err.errno != errno.E2BIG:
                raise
            raise TracingError(f"more than {self.room} processes and threads to follow") from err

    def remove(self, pid: int) -> None:
        """Forget a process given to add(); its children stay."""
        self.maps[FOLLOWED].delete(_process_key(pid))

    @property
    def empty(self) -> bool:
        """Whether nobody is left in the set who has not ended."""
        return all(value[0] == _ENDED for _, value in self.maps[FOLLOWED].items())

    def unfollowed(self) -> Unfollowed:
        """What could not be followed so far."""
        counts = [self.maps[UNFOLLOWED].get(struct.pack("=I", index)) for index in range(2)]
        no_room, no_number = (_KEY.unpack(value or bytes(8))[0] for value in counts)
        infos = [object_info(program.fd, _MISSES + 8) for program in self._programs]
        return Unfollowed(
            no_room, no_number, sum(_KEY.unpack_from(info, _MISSES)[0] for info in infos)
        )

    def close(self) -> None:
        """Detach and free everything; again is fine."""
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


def write_current_process(asm: Assembler, namespace: tuple[int, int] | None, outside: str) -> None:
    """r9 = pid_tgid as ``namespace`` (None: the initial one) sees it; else go to ``outside``."""
    if namespace is None:
        asm.call(Helper.GET_CURRENT_PID_TGID)
        asm.mov(R9, R0)
        return
    device, inode = namespace
    asm.mov(R1, device)
    asm.mov(R2, inode)
    asm.mov(R3, R10)
    asm.add(R3, PIDNS_SLOT)
    asm.mov(R4, 8)
    asm.call(Helper.GET_NS_CURRENT_PID_TGID)
    asm.jump(Jump.NE, R0, 0, outside)
    asm.load(R9, R10, PIDNS_SLOT + 4, 4)
    asm.alu(Alu.LSH, R9, 32)
    asm.load(R1, R10, PIDNS_SLOT, 4)
    asm.alu(Alu.OR, R9, R1)


def write_membership(asm: Assembler, *, outside: str, exit_label: str) -> None:
    """Go on if the process of r9 or the current task is in the set, to ``exit_label`` if not.

    At ``outside`` arrive those that :func:`write_current_process` found no number for: of them,
    the hits of tasks in the set are counted.
    """
    _process_lookup(asm, "followed")
    _task_lookup(asm, "followed")
    asm.goto(exit_label)
    asm.label(outside)
    _task_lookup(asm, "unnumbered")
    asm.goto(exit_label)
    asm.label("unnumbered")
    _count(asm, _NO_NUMBER, exit_label)
    asm.label("followed")


def _process_key(pid: int) -> bytes:
    return _KEY.pack(pid << 1 | 1)


def _process_lookup(asm: Assembler, found: str) -> None:
    asm.mov(R0, R9)
    asm.alu(Alu.RSH, R0, 32)
    asm.alu(Alu.LSH, R0, 1)
    asm.alu(Alu.OR, R0, 1)
    _lookup(asm, found)


def _task_lookup(asm: Assembler, found: str) -> None:
    asm.call(Helper.GET_CURRENT_TASK)
    _one_form(asm, R0)
    _lookup(asm, found)


def _one_form(asm: Assembler, task: Reg) -> None:
    # Of 32-bit kernels, the helper extends an address by its sign (bpf_get_current_task() in
    # kernel/trace/bpf_trace.c) and tracepoints by zeros (__CAST_TO_U64() in trace/bpf_probe.h).
    done = asm.new_label("task")
    asm.mov(R1, task)
    asm.alu(Alu.ARSH, R1, 32)
    asm.jump(Jump.NE, R1, -1, done)
    asm.alu(Alu.LSH, task, 32)
    asm.alu(Alu.RSH, task, 32)
    asm.label(done)


def _lookup(asm: Assembler, found: str) -> None:
    # Whether r0 is in the set.
    asm.store(R10, KEY_SLOT, R0)
    _key(asm)
    asm.call(Helper.MAP_LOOKUP_ELEM)
    asm.jump(Jump.NE, R0, 0, found)


def _key(asm: Assembler) -> None:
    # r1, r2: the set, and the key in its slot.
    asm.load_map(R1, FOLLOWED)
    asm.mov(R2, R10)
    asm.add(R2, KEY_SLOT)


def _count(asm: Assembler, index: int, done: str) -> None:
    asm.store(R10, KEY_SLOT, index, 4)
    asm.load_map(R1, UNFOLLOWED)
    asm.mov(R2, R10)
    asm.add(R2, KEY_SLOT)
    asm.call(Helper.MAP_LOOKUP_ELEM)
    asm.jump(Jump.EQ, R0, 0, done)
    asm.mov(R1, 1)
    asm.atomic_add(R0, 0, R1)
    asm.goto(done)


def _fork_program(namespace: tuple[int, int] | None) -> Code:
    # Arguments of the tracepoint: parent, who is the current task, and child.
    asm = Assembler()
    asm.load(R7, R1, 8)
    _one_form(asm, R7)
    write_current_process(asm, namespace, "task")
    _process_lookup(asm, "followed")
    asm.label("task")
    _task_lookup(asm, "followed")
    asm.store(R10, KEY_SLOT, R7)
    _key(asm)
    asm.call(Helper.MAP_DELETE_ELEM)
    asm.goto("exit")
    asm.label("followed")
    _update(asm, _ALIVE, 0)
    asm.jump(Jump.EQ, R0, 0, "exit")
    _count(asm, _NO_ROOM, "exit")
    return _finished(asm)


def _update(asm: Assembler, state: int, flags: int) -> None:
    # Of the task in r7.
    asm.store(R10, KEY_SLOT, R7)
    asm.store(R10, READ_SLOT, state, 1)
    _key(asm)
    asm.mov(R3, R10)
    asm.add(R3, READ_SLOT)
    asm.mov(R4, flags)
    asm.call(Helper.MAP_UPDATE_ELEM)


def _exit_program() -> Code:
    # The tracepoint's first argument is the task that ends, the current one.
    asm = Assembler()
    asm.load(R7, R1, 0)
    _one_form(asm, R7)
    _update(asm, _ENDED, _EXIST)
    return _finished(asm)


def _free_program() -> Code:
    # The tracepoint's argument is the task that nobody runs or waits for any more.
    asm = Assembler()
    asm.load(R7, R1, 0)
    _one_form(asm, R7)
    asm.store(R10, KEY_SLOT, R7)
    _key(asm)
    asm.call(Helper.MAP_DELETE_ELEM)
    return _finished(asm)


def _finished(asm: Assembler) -> Code:
    asm.label("exit")
    asm.mov(R0, 0)
    asm.exit()
    return asm.assemble()
