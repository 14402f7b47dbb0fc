"""Attaching to the kernel's own places: which targets share a program, and how each is linked.

Cookies say which target was hit, where the kernel has them; system calls have numbers.
"""

from __future__ import annotations

import errno
import os
from itertools import islice
from typing import TYPE_CHECKING

from usdt.arch.locations import Constant
from usdt.base.closeable import allow_descriptors
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.base.frozen import frozen
from usdt.bpf import features
from usdt.bpf._uapi import Helper, ProgType
from usdt.bpf.asm.assembler import CodeTooLarge
from usdt.bpf.asm.insn import R0, R1, R2, R3, R6, R10, Alu, Jump
from usdt.bpf.link import attach_raw_tracepoint, attach_tracepoint
from usdt.engine.compiler.codegen.model import EXIT
from usdt.engine.compiler.codegen.stack_slots import STRING_SLOT
from usdt.engine.compiler.ir import ArgumentValue, children
from usdt.engine.runtime.attach.attach_points import (
    TS_COMPAT,
    AttachPoint,
    EventTarget,
    RawTracepointTarget,
    SyscallRegisters,
    SyscallTarget,
    compat_status,
    syscall_registers,
)
from usdt.engine.runtime.attach.requests import AttachFailure, AttachRequest, program_too_large

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.link import Link
    from usdt.bpf.program import Program
    from usdt.engine.compiler.ir import Node
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.runtime.attach.attach_points import KernelTarget
    from usdt.engine.runtime.attach.loader import ProgramLoader

__all__ = ("attach_kernel_events", "reads_context")

_CASES = 256  # in one program
_CASES_BY_NUMBER = 512  # of system calls, whose number is found by a few comparisons


@frozen
class _ByNumber:
    # Selects the case by the system call's number.
    registers: SyscallRegisters
    keys: tuple[tuple[int, int], ...]

    def emit(self, asm: Assembler) -> None:
        registers = self.registers
        self._read(asm, registers.number, STRING_SLOT)
        if registers.mode >= 0:
            self._read(asm, registers.mode, STRING_SLOT + 8)
            asm.load(R1, R10, STRING_SLOT + 8)
            asm.alu(Alu.AND, R1, registers.mask)
            asm.jump(Jump.NE, R1, registers.wide, EXIT)
        if (status := compat_status()) >= 0:
            asm.call(Helper.GET_CURRENT_TASK)
            asm.mov(R3, R0)
            self._copy(asm, status, STRING_SLOT + 8)
            asm.load(R1, R10, STRING_SLOT + 8)
            asm.alu(Alu.AND, R1, TS_COMPAT)
            asm.jump(Jump.NE, R1, 0, EXIT)
        asm.load(R0, R10, STRING_SLOT, registers.width)

    def _read(self, asm: Assembler, offset: int, slot: int) -> None:
        asm.load(R3, R6, 0)  # both tracepoints have struct pt_regs * first
        self._copy(asm, offset, slot)

    def _copy(self, asm: Assembler, offset: int, slot: int) -> None:
        # From what R3 points at.
        asm.mov(R1, R10)
        asm.add(R1, slot)
        asm.mov(R2, 8)
        asm.add(R3, offset)
        asm.call(Helper.PROBE_READ_KERNEL)
        asm.jump(Jump.NE, R0, 0, EXIT)


def reads_context(plan: ProbePlan) -> bool:
    """Whether anything of a plan comes from the context."""
    nodes = [*plan.predicates]
    for output in plan.outputs:
        nodes.append(output.node)
        nodes += [output.length] if output.length is not None else []
    return any(map(_reads, nodes))


def _reads(node: Node) -> bool:
    if isinstance(node, ArgumentValue) and not isinstance(node.fetch, Constant):
        return True
    return any(map(_reads, children(node)))


def attach_kernel_events(
    loader: ProgramLoader, placed: Sequence[AttachRequest]
) -> list[AttachFailure]:
    """Attach points whose target is an event, a raw tracepoint or a system call.

    Raises:
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
        NotSupported: system calls of this CPU.
    """
    allow_descriptors(2 * len(placed))
    return _Attaching(loader).all(placed)


class _Attaching:
    def __init__(self, loader: ProgramLoader) -> None:
        self.loader = loader
        self.cookies = features.have_cookies()

    def all(self, placed: Sequence[AttachRequest]) -> list[AttachFailure]:
        groups: dict[Hashable, list[AttachRequest]] = {}
        seen: dict[tuple[Hashable, KernelTarget | None], int] = {}
        for item in placed:
            family = self._family(item)
            target = item.point.kernel_target
            # One program is attached to a place once: what is there again goes into another.
            times = seen[family, target] = seen.get((family, target), 0) + 1
            groups.setdefault((family, times), []).append(item)
        failures: list[AttachFailure] = []
        # Returns first: so no begin is followed whose return would be missed.
        for group in sorted(groups.values(), key=lambda group: not _at_return(group[0])):
            limit = (
                _CASES_BY_NUMBER
                if isinstance(group[0].point.kernel_target, SyscallTarget)
                else _CASES
            )
            for part in _chunks(group, limit):
                failures += self._part(part)
        return failures

    def _family(self, item: AttachRequest) -> Hashable:
        # Points of one family can share a program.
        match item.point.kernel_target:
            case SyscallTarget():
                # Frames are of one size in a program.
                frame = 0 if item.case.call is None else item.case.call.size
                return "syscall", _at_return(item), frame
            case EventTarget(size=size) if self.cookies:
                return "event", size
            case RawTracepointTarget(name=name):
                free = features.have_raw_cookies() and not reads_context(item.case.plan)
                return "raw", "" if free else name
        return "event", item.case.number, item.point.kernel_target

    def _part(self, placed: list[AttachRequest]) -> list[AttachFailure]:
        try:
            return self._attach(placed)
        except CodeTooLarge as err:
            if len(placed) == 1:
                raise program_too_large(placed[0]) from err
        middle = len(placed) // 2
        return self._part(placed[:middle]) + self._part(placed[middle:])

    def _attach(self, placed: list[AttachRequest]) -> list[AttachFailure]:
        first = placed[0].point.kernel_target
        if isinstance(first, SyscallTarget):
            return self._syscalls(placed, "sys_exit" if _at_return(placed[0]) else "sys_enter")
        cases = list(dict.fromkeys(item.case for item in placed))
        raw = isinstance(first, RawTracepointTarget)
        program = self.loader.load(cases, ProgType.RAW_TRACEPOINT if raw else ProgType.TRACEPOINT)
        failures, others = [], []
        for item in placed:
            target = item.point.kernel_target
            try:
                cookie = item.case.number if len(cases) > 1 else 0
                self.loader.add_link(self._link(program, target, cookie))
            except (NotSupported, SyscallError) as err:
                if isinstance(err, SyscallError) and err.errno == errno.EPERM:
                    raise
                if isinstance(target, RawTracepointTarget) and target.fallback is not None:
                    others.append(_moved(item, target.fallback))
                else:
                    failures.append(AttachFailure((item.point,), _explained(err, item.point.probe)))
        way = "raw tracepoints" if raw else "perf events of tracepoints"
        self.loader.attach_log.append(f"{len(placed) - len(failures) - len(others)} {way}")
        return failures + (self.all(others) if others else [])

    def _link(self, program: Program, target: KernelTarget | None, cookie: int) -> Link:
        match target:
            case RawTracepointTarget(name=name):
                return attach_raw_tracepoint(program, name, cookie=cookie)
            case EventTarget(number=number):
                return attach_tracepoint(program, number, cookie=cookie if self.cookies else None)
        raise TypeError(f"no place for one link: {target}")

    def _syscalls(self, placed: list[AttachRequest], name: str) -> list[AttachFailure]:
        targets = ((item.point.kernel_target, item.case.number) for item in placed)
        keys = [
            (target.number, case) for target, case in targets if isinstance(target, SyscallTarget)
        ]
        registers = syscall_registers()
        kept = [item.case.number for item in placed if item.case.call is not None]
        replaced = registers.replaced
        if kept and _at_return(placed[0]) and replaced >= 0 and replaced not in dict(keys):
            # Calls without a frame from their begin are passed over there.
            keys.append((replaced, kept[0]))
        cases = list(dict.fromkeys(item.case for item in placed))
        select = _ByNumber(registers, tuple(keys))
        kind = ProgType.RAW_TRACEPOINT
        program = self.loader.load(cases, kind, select, excluded=os.getpid())
        self.loader.add_link(attach_raw_tracepoint(program, name))
        self.loader.attach_log.append(f"{len(placed)} system calls: one raw tracepoint {name}")
        return []


def _at_return(item: AttachRequest) -> bool:
    # Of a pair the entry's case is of the begin, whatever its point says.
    target, call = item.point.kernel_target, item.case.call
    return (
        isinstance(target, SyscallTarget)
        and target.returns
        and not (call is not None and call.entry)
    )


def _moved(item: AttachRequest, target: EventTarget) -> AttachRequest:
    point = item.point
    there = AttachPoint(
        point.probe, "", "", 0, 0, point.arguments, kernel_target=target, types=point.types
    )
    return AttachRequest(there, item.case)


def _chunks(items: list[AttachRequest], size: int) -> Iterator[list[AttachRequest]]:
    # Parts with at most so many cases; there is one for each item.
    ahead = iter(items)
    while part := list(islice(ahead, size)):
        yield part


def _explained(err: TracingError, probe: str) -> TracingError:
    if not isinstance(err, SyscallError):
        return TracingError(f"{probe}: {err}")
    number = err.errno or 0
    hint = err.hint
    if number == errno.EACCES:
        hint = "the program reads beyond the event's record"
    elif number == errno.EINVAL:
        hint = "the kernel has no such event any more, or lets no program read so much of it"
    return SyscallError(number, f"attach to {probe}", hint)
