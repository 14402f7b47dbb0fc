"""Attaching to the kernel's events: grouping of targets that share a program, and links.

A cookie identifies the target that was hit, if the kernel has cookies. A system call is identified
by its number.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from usdt.arch.locations import Constant
from usdt.base.closeable import allow_descriptors
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.base.frozen import frozen, replace
from usdt.base.text import plural
from usdt.bpf import features
from usdt.bpf._uapi import Helper, ProgType
from usdt.bpf.asm.insn import R0, R1, R2, R3, R6, R10, Alu, Jump
from usdt.bpf.link import attach_raw_tracepoint, attach_tracepoint
from usdt.bpf.perf.breakpoints import attach_breakpoint
from usdt.bpf.perf.counters import attach_counter
from usdt.engine.compiler.codegen.model import EXIT
from usdt.engine.compiler.codegen.stack_slots import STRING_SLOT
from usdt.engine.compiler.ir import ArgumentValue, children
from usdt.engine.runtime.attach.attach_points import (
    TS_COMPAT,
    BreakpointTarget,
    CounterTarget,
    EventTarget,
    RawTracepointTarget,
    SyscallRegisters,
    SyscallTarget,
    compat_status,
    syscall_registers,
)
from usdt.engine.runtime.attach.requests import (
    MAX_VARIANTS,
    AttachFailure,
    AttachRequest,
    bisect_load,
    chunks,
    explain,
    variants_of,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.link import Link
    from usdt.bpf.program import Program
    from usdt.engine.compiler.ir import Node
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.runtime.attach.attach_points import KernelTarget
    from usdt.engine.runtime.attach.loader import ProgramLoader

__all__ = ("attach_kernel_events", "reads_context")

_MAX_SYSCALLS = 512  # system calls in one program: few comparisons find the variant of a number
_HINTS = {
    errno.EACCES: "the program reads beyond the event's record",
    errno.EINVAL: "the kernel has no such event any more, or lets no program read so much of it",
}

_NOT_WATCHED = (
    "this cannot be watched: an address is a multiple of its length; x86-64 watches reads only "
    "together with writes (rw), execution only with a length of 8, and that of kernel code only "
    "where kprobes may be"
)


@frozen
class _DispatchByNumber:
    # Finds the variant by the system call's number.
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
        # Copies 8 bytes at an offset from the address in r3 to the stack.
        asm.mov(R1, R10)
        asm.add(R1, slot)
        asm.mov(R2, 8)
        asm.add(R3, offset)
        asm.call(Helper.PROBE_READ_KERNEL)
        asm.jump(Jump.NE, R0, 0, EXIT)


def reads_context(plan: ProbePlan) -> bool:
    """Return whether any value of a plan is read from the context."""
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
    loader: ProgramLoader, requests: Sequence[AttachRequest]
) -> list[AttachFailure]:
    """Attach to events, raw tracepoints and system calls; return the failures.

    Raises:
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
        NotSupported: system calls cannot be traced on this CPU.
    """
    allow_descriptors(2 * len(requests))
    attacher = _EventAttacher(loader)
    attacher.attach(requests)
    return attacher.failures


class _EventAttacher:
    # Groups the requests that can share a program, then loads and attaches each group.
    def __init__(self, loader: ProgramLoader) -> None:
        self.loader = loader
        self.cookies = features.have_cookies()
        self.failures: list[AttachFailure] = []

    def attach(self, requests: Sequence[AttachRequest]) -> None:
        groups: dict[Hashable, list[AttachRequest]] = {}
        seen: dict[tuple[Hashable, KernelTarget | None], int] = {}
        for request in requests:
            family = self._family(request)
            target = request.point.kernel_target
            # A program attaches to a target once: a second request for it needs another program.
            times = seen[family, target] = seen.get((family, target), 0) + 1
            groups.setdefault((family, times), []).append(request)
        # Returns first, so that no entry is traced whose return would be missed.
        for group in sorted(groups.values(), key=lambda group: not _at_return(group[0])):
            is_syscall = isinstance(group[0].point.kernel_target, SyscallTarget)
            for part in chunks(group, _MAX_SYSCALLS if is_syscall else MAX_VARIANTS):
                bisect_load(part, self._attach, lambda request: request.point.probe)

    def _family(self, request: AttachRequest) -> Hashable:
        # Returns a key: requests with equal keys can share a program.
        variant = request.variant
        match request.point.kernel_target:
            case CounterTarget() | BreakpointTarget() as target:
                return "counter", variant.number, target
            case SyscallTarget():
                # all entry states of a program have the same size
                size = 0 if variant.call is None else variant.call.size
                return "syscall", _at_return(request), size
            case EventTarget(size=size) if self.cookies:
                return "event", size
            case RawTracepointTarget(name=name):
                free = features.have_raw_cookies() and not reads_context(variant.plan)
                return "raw", "" if free else name
        return "event", variant.number, request.point.kernel_target

    def _attach(self, requests: Sequence[AttachRequest]) -> None:
        first = requests[0].point.kernel_target
        if isinstance(first, SyscallTarget):
            self._attach_syscalls(requests, "sys_exit" if _at_return(requests[0]) else "sys_enter")
            return
        if isinstance(first, CounterTarget):
            self._attach_counter(requests, first)
            return
        if isinstance(first, BreakpointTarget):
            self._attach_breakpoint(requests, first)
            return
        variants = variants_of(requests)
        raw = isinstance(first, RawTracepointTarget)
        kind = ProgType.RAW_TRACEPOINT if raw else ProgType.TRACEPOINT
        program = self.loader.load(variants, kind)
        attached, others = 0, []
        for request in requests:
            target = request.point.kernel_target
            try:
                cookie = request.variant.number if len(variants) > 1 else 0
                self.loader.add_link(self._link(program, target, cookie))
                attached += 1
            except (NotSupported, SyscallError) as err:
                if isinstance(err, SyscallError) and err.errno == errno.EPERM:
                    raise
                if isinstance(target, RawTracepointTarget) and target.fallback is not None:
                    others.append(_at_event(request, target.fallback))
                else:
                    error = explain(err, request.point.probe, _HINTS)
                    self.failures.append(AttachFailure((request.point,), error))
        name = "raw tracepoints" if raw else "perf events of tracepoints"
        self.loader.attach_log.append(f"{attached} {name}")
        if others:
            self.attach(others)

    def _link(self, program: Program, target: KernelTarget | None, cookie: int) -> Link:
        match target:
            case RawTracepointTarget(name=name):
                return attach_raw_tracepoint(program, name, cookie=cookie)
            case EventTarget(number=number):
                return attach_tracepoint(program, number, cookie=cookie if self.cookies else None)
        raise TypeError(f"neither an event nor a raw tracepoint: {target}")

    def _attach_counter(self, requests: Sequence[AttachRequest], target: CounterTarget) -> None:
        program = self.loader.load(
            variants_of(requests), ProgType.PERF_EVENT, any_task=target.any_task
        )
        point = requests[0].point
        try:
            link = attach_counter(program, target.counter, self.loader.common_start)
        except NotSupported:
            reason = "this machine does not count them; virtual machines often do not"
            error = TracingError(f"{target.name}: {reason}")
            self.failures.append(AttachFailure((point,), error))
            return
        self.loader.add_link(link)
        self.loader.attach_log.append(plural(link.detach_steps, "perf counter"))

    def _attach_breakpoint(
        self, requests: Sequence[AttachRequest], target: BreakpointTarget
    ) -> None:
        program = self.loader.load(variants_of(requests), ProgType.PERF_EVENT)
        try:
            link = attach_breakpoint(program, target.breakpoint, self.loader.pids)
        except NotSupported:
            reason = _NOT_WATCHED
        except SyscallError as err:
            if err.errno != errno.ENOSPC:
                raise
            reason = "all breakpoints of the CPU are in use"
        except TracingError as err:
            reason = str(err)
        else:
            self.loader.add_link(link)
            self.loader.attach_log.append(f"{link.detach_steps} hardware breakpoints")
            return
        error = TracingError(f"{target.name}: {reason}")
        self.failures.append(AttachFailure((requests[0].point,), error))

    def _attach_syscalls(self, requests: Sequence[AttachRequest], name: str) -> None:
        targets = ((one.point.kernel_target, one.variant.number) for one in requests)
        keys = [(at.number, variant) for at, variant in targets if isinstance(at, SyscallTarget)]
        registers = syscall_registers()
        paired = [one.variant.number for one in requests if one.variant.call is not None]
        replaced = registers.replaced
        if paired and _at_return(requests[0]) and replaced >= 0 and replaced not in dict(keys):
            # Calls without an entry state are ignored there.
            keys.append((replaced, paired[0]))
        program = self.loader.load(
            variants_of(requests),
            ProgType.RAW_TRACEPOINT,
            _DispatchByNumber(registers, tuple(keys)),
            excluded=os.getpid(),
        )
        self.loader.add_link(attach_raw_tracepoint(program, name))
        calls = plural(len(requests), "system call")
        self.loader.attach_log.append(f"{calls}: one raw tracepoint {name}")


def _at_return(request: AttachRequest) -> bool:
    # The entry variant of a pair belongs to sys_enter, even if its attach point is a return.
    target, role = request.point.kernel_target, request.variant.call
    at_entry = role is not None and role.entry
    return isinstance(target, SyscallTarget) and target.returns and not at_entry


def _at_event(request: AttachRequest, event: EventTarget) -> AttachRequest:
    return replace(request, point=replace(request.point, kernel_target=event))
