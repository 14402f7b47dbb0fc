"""Features of the running kernel: found by trying them, never by comparing versions.

Each ``have_…()`` is cached. It returns False only for the errno that means "not supported"; any
other error, above all a missing privilege, is raised and not cached.
"""

from __future__ import annotations

import errno
import functools
import os
from typing import TYPE_CHECKING

from usdt.base.errors import NotSupported, SyscallError, VerifierError
from usdt.base.machine import KERNEL_MACHINE, PROCESS_MACHINE
from usdt.bpf._syscall import uprobe_syscall
from usdt.bpf._uapi import BPF_F_SLEEPABLE, ENOTSUPP, AttachType, Helper, MapType, ProgType
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R6, R10, Alu
from usdt.bpf.capabilities import missing_capabilities
from usdt.bpf.link import UprobeMethod, probe_pmu, reaches_threads, takes_uprobe_multi
from usdt.bpf.maps import MapSpec
from usdt.bpf.privileges import kernel_settings
from usdt.bpf.program import ProgramSpec

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = (
    "best_perf_method",
    "best_uprobe_method",
    "expects_user_writes",
    "have_ancestor_cgroups",
    "have_batch_operations",
    "have_cookies",
    "have_fentry",
    "have_fetching_atomics",
    "have_kprobe_multi",
    "have_kprobes",
    "have_loops",
    "have_raw_cookies",
    "have_ringbuf",
    "have_sleepable_uprobes",
    "have_task_pt_regs",
    "have_uprobe_multi",
    "have_uprobe_pmu",
    "have_user_writes",
    "have_vmlinux_btf",
    "kprobe_session",
    "links_filter_processes",
    "programs_are_preemptible",
    "takes_loads_from_task",
    "uprobe_syscall_error",
)


def _empty(
    *,
    helper: int = 0,
    kind: ProgType = ProgType.KPROBE,
    attach: AttachType = AttachType.NONE,
    flags: int = 0,
    function: int = 0,
) -> ProgramSpec:
    # A program that does nothing but call a helper, if one is given.
    asm = Assembler()
    if helper:
        asm.call(helper)
    asm.mov(R0, 0)
    asm.exit()
    return ProgramSpec(asm.assemble(), kind, attach, flags, "probe", function=function)


@functools.cache
def have_ringbuf() -> bool:
    """BPF_MAP_TYPE_RINGBUF. Linux 5.8, commit 457f44363a88."""
    try:
        MapSpec(MapType.RINGBUF, 0, 0, 1 << 16).create().close()
    except NotSupported:
        return False
    return True


@functools.cache
def have_cookies() -> bool:
    """bpf_get_attach_cookie() and links to perf events. Linux 5.15, commit 7adfc6c9b315."""
    return _loads(_empty(helper=Helper.GET_ATTACH_COOKIE))


@functools.cache
def have_sleepable_uprobes() -> bool:
    """Programs on uprobes that may take page faults. Linux 6.0, commit 8c7dcb84e3b7."""
    return _loads(_empty(flags=BPF_F_SLEEPABLE))


@functools.cache
def have_ancestor_cgroups() -> bool:
    """bpf_get_current_ancestor_cgroup_id() for tracing. Linux 5.16, commit 95b861a7935b."""
    asm = Assembler()
    asm.mov(R1, 1)
    asm.call(Helper.GET_CURRENT_ANCESTOR_CGROUP_ID)
    asm.mov(R0, 0)
    asm.exit()
    return _loads(ProgramSpec(asm.assemble(), name="probe"))


@functools.cache
def takes_loads_from_task(offset: int, size: int = 8) -> bool:
    """Loads of a number from the current task's memory. Linux 5.11, commit 3ca1032ab7ab; needs BTF.

    Args:
        offset: of a member of struct task_struct.
        size: of what is tried, in bytes. With a pointer the verifier lets nobody compute.
    """
    asm = Assembler()
    asm.call(Helper.GET_CURRENT_TASK_BTF)
    asm.load(R1, R0, offset, size)
    asm.alu(Alu.LSH, R1, 1)
    asm.mov(R0, 0)
    asm.exit()
    try:
        return _loads(ProgramSpec(asm.assemble(), ProgType.KPROBE, AttachType.NONE, 0, "probe"))
    except SyscallError as err:
        if err.errno != errno.EACCES:  # the verifier's answer
            raise
        return False


@functools.cache
def uprobe_syscall_error() -> int | None:
    """Return the errno of uprobe(2), which is the call of optimized uprobes; None if unknown.

    Every caller but the kernel's trampoline gets an error, which tells kernels apart: ENXIO since
    Linux 6.18 (commit 56101b69c919), where uprobes on a nop of 5 bytes are optimized; EPROTO since
    Linux 7.2 (commit 554ba38456da), where those on a nop of 10 bytes are; ENOSYS without any.
    """
    if KERNEL_MACHINE != "x86_64" or PROCESS_MACHINE != "x86_64":
        return errno.ENOSYS
    # A seccomp filter may kill for a call that it does not know. Linux 6.18 and newer let this call
    # pass, but that is the question.
    with open("/proc/self/status") as file:  # noqa: PTH123
        if not any(line.split() == ["Seccomp:", "0"] for line in file):
            return None
    try:
        uprobe_syscall()
    except SyscallError as err:
        return err.errno
    return None


@functools.cache
def have_task_pt_regs() -> bool:
    """bpf_task_pt_regs(), which needs BTF. Linux 5.15, commit dd6e10fbd9fb."""
    asm = Assembler()
    asm.call(Helper.GET_CURRENT_TASK_BTF)
    asm.mov(R1, R0)
    asm.call(Helper.TASK_PT_REGS)
    asm.mov(R0, 0)
    asm.exit()
    return _loads(ProgramSpec(asm.assemble(), ProgType.KPROBE, AttachType.NONE, 0, "probe"))


@functools.cache
def have_loops() -> bool:
    """bpf_loop(). Linux 5.17, commit e6f2dd0f8067; needs a JIT compiler of a 64-bit kernel."""

    def leave(asm: Assembler) -> None:
        asm.mov(R0, 1)
        asm.exit()

    asm = Assembler()
    asm.function("step", leave)
    asm.mov(R1, 1)
    asm.load_function(R2, "step")
    asm.mov(R3, 0)
    asm.mov(R4, 0)
    asm.call(Helper.LOOP)
    asm.mov(R0, 0)
    asm.exit()
    return _loads(ProgramSpec(asm.assemble(), name="probe"))


@functools.cache
def have_user_writes() -> bool:
    """bpf_probe_write_user(). Linux 4.8, commit 96ae52279594.

    It needs CAP_SYS_ADMIN, and a kernel that is not locked down (commit 51e1bb9eeaf7). When it is
    tried, older kernels write a warning into their log: see expects_user_writes().
    """
    asm = Assembler()
    asm.store(R10, -8, 0)
    asm.mov(R1, 0)
    asm.mov(R2, R10)
    asm.add(R2, -8)
    asm.mov(R3, 1)
    asm.call(Helper.PROBE_WRITE_USER)
    asm.mov(R0, 0)
    asm.exit()
    return _loads(ProgramSpec(asm.assemble(), name="probe"))


def expects_user_writes() -> bool:
    """Return have_user_writes(), without a trial if the kernel shows that it is not locked down.

    Then only rights decide: every kernel with ring buffers has the helper.

    Raises:
        SyscallError: the kernel loads no programs for this process.
    """
    shown = os.path.ismount("/sys/kernel/security")  # a kernel without lockdown has no file there
    if kernel_settings().get("lockdown", "none" if shown else "") != "none":
        return have_user_writes()
    return _loads(_empty()) and not missing_capabilities("CAP_SYS_ADMIN")


@functools.cache
def have_uprobe_multi() -> bool:
    """BPF_TRACE_UPROBE_MULTI. Linux 6.6, commit 89ae89f53d20.

    A link with a process ID must reach all threads of the process. In Linux 6.6 to 6.9 it reached
    one, unless they have the fix (commit 46ba0e49b642, "bpf: fix multi-uprobe PID filtering
    logic"). Then it is as if there were none.
    """
    if links_filter_processes():  # what it tries is a newer kind of these links
        return True
    with _empty(attach=AttachType.TRACE_UPROBE_MULTI).load({}) as program:
        return takes_uprobe_multi(program) and reaches_threads(program)


@functools.cache
def links_filter_processes() -> bool:
    """Return whether a uprobe_multi link with a process ID leaves a program nothing to compare.

    Such a link runs its program in all threads of that process, and in no other process, since
    Linux 6.12 (commit 900f362e2062, "bpf: Fix uprobe multi pid filter check"). Before, it ran in
    whatever shares the memory of that process, such as a child of vfork(2); and before Linux 6.10
    (commit 46ba0e49b642, "bpf: fix multi-uprobe PID filtering logic"), in one thread only. What
    can be tried without a hit is a session link, which is a little newer: Linux 6.13, commit
    d920179b3d48.
    """
    kind = AttachType.TRACE_UPROBE_SESSION
    with _empty(attach=kind).load({}) as program:
        return takes_uprobe_multi(program, kind)


def _loads(spec: ProgramSpec) -> bool:
    return _accepted(lambda: spec.load({}).close())


def _accepted(ask: Callable[[], object]) -> bool:
    # Whether the kernel accepts a request; EINVAL means that it does not know it.
    try:
        ask()
    except SyscallError as err:
        if err.errno != errno.EINVAL:
            raise
        return False
    return True


@functools.cache
def have_uprobe_pmu() -> bool:
    """perf_event_open(2) for uprobes without tracefs. Linux 4.17, commit e12f03d7031a."""
    return probe_pmu("uprobe") is not None


def best_uprobe_method() -> UprobeMethod:
    """Return the newest method of attaching uprobes that this kernel has.

    Raises:
        NotSupported: it has none.
    """
    if have_uprobe_multi():
        return UprobeMethod.UPROBE_MULTI
    return best_perf_method()


def best_perf_method() -> UprobeMethod:
    """Return the newest method by which each site is a perf event of its own.

    Raises:
        NotSupported: there is none.
    """
    if not have_uprobe_pmu():
        raise NotSupported("the uprobe PMU", (4, 17))
    return UprobeMethod.PERF_LINK if have_cookies() else UprobeMethod.PERF_EVENT


@functools.cache
def have_batch_operations() -> bool:
    """BPF_MAP_LOOKUP_BATCH on hashes. Linux 5.6, commit cb4d03ab499d."""
    with MapSpec(MapType.HASH, 4, 4, 1).create() as table:
        # the call in question
        return _accepted(lambda: list(table._batches()))  # noqa: SLF001


@functools.cache
def have_fetching_atomics() -> bool:
    """Atomic instructions that return the old value. Linux 5.12, commit 5ca419f2864a.

    Compare-and-exchange, too: commit 5ffa25502b5a.
    """
    asm = Assembler()
    asm.store(R10, -8, 0)
    asm.mov(R1, 1)
    asm.fetch_add(R10, -8, R1)
    asm.mov(R0, 1)
    asm.compare_exchange(R10, -8, R1)
    asm.mov(R0, 0)
    asm.exit()
    return _loads(ProgramSpec(asm.assemble(), name="probe"))


@functools.cache
def have_kprobes() -> bool:
    """perf_event_open(2) for kprobes. Linux 4.17, commit e12f03d7031a; CONFIG_KPROBE_EVENTS."""
    return probe_pmu("kprobe") is not None


@functools.cache
def have_kprobe_multi() -> bool:
    """BPF_TRACE_KPROBE_MULTI. Linux 5.18, commit 0dcac2725406, and CONFIG_FPROBE."""
    from usdt.bpf.kprobes import KprobeSite, attach_kprobe_multi  # noqa: PLC0415 - not for USDT

    with _empty(attach=AttachType.TRACE_KPROBE_MULTI).load({}) as program:
        try:
            attach_kprobe_multi(program, [KprobeSite(0, " no such function ")]).close()
        except SyscallError as err:
            # A kernel that supports it looks for the symbol, and does not find it.
            if err.errno in (errno.ESRCH, errno.ENOENT):
                return True
            if err.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.E2BIG):
                raise
        return False


_SESSIONS = frozenset(("x86_64", "aarch64"))


@functools.cache
def kprobe_session() -> tuple[int, int]:
    """Return the BTF IDs of bpf_session_is_return() and bpf_session_cookie(); (0, 0): none.

    A kprobe session runs one program at a function's entry and at its return, with a u64 that the
    kernel keeps in between: Linux 6.10, commits 535a3692ba72 and 5c919acef851. It is used only if
    the kernel keeps that with the task (Linux 6.14, commit 4346ba160409), for any number of calls
    in progress: older kernels kept twice as many as there are CPUs, and missed the others. And it
    is used only on CPUs where it is known to work: Linux 7.2 on ppc64le accepts such programs and
    never runs them at a return.
    """
    if KERNEL_MACHINE not in _SESSIONS or not (have_vmlinux_btf() and have_kprobe_multi()):
        return 0, 0
    from usdt.btf.format import Kind  # noqa: PLC0415
    from usdt.btf.reader import Btf  # noqa: PLC0415 - BTF, only if needed
    from usdt.btf.types import Composite  # noqa: PLC0415

    btf = Btf.from_sysfs()
    (is_return, *_), (cookie, *_) = (
        (*btf.find(name, Kind.FUNC), 0) for name in ("bpf_session_is_return", "bpf_session_cookie")
    )
    for number in btf.find("fprobe", Kind.STRUCT):
        found = btf.type(number)
        if isinstance(found, Composite) and any(one.name == "rethook" for one in found.members):
            return 0, 0
    if not is_return or not cookie:
        return 0, 0
    asm = Assembler()
    asm.mov(R6, R1)
    for function in (is_return, cookie):
        asm.mov(R1, R6)
        asm.call_kernel(function)
    asm.load(R1, R0, 0)
    asm.mov(R0, 0)
    asm.exit()
    kind = AttachType.TRACE_KPROBE_SESSION
    spec = ProgramSpec(asm.assemble(), attach_type=kind, name="probe")
    try:
        spec.load({}).close()
    except VerifierError:  # EACCES here means that it is not supported
        return 0, 0
    return is_return, cookie


@functools.cache
def programs_are_preemptible() -> bool:
    """Return whether a task may be preempted in a program of fentry or of a raw tracepoint.

    Until the task runs again, the kernel does not run the program for others' hits on that CPU:
    these are missed. Kernels with PREEMPT_DYNAMIC show the current mode in debugfs.
    """
    try:
        with open("/sys/kernel/debug/sched/preempt") as file:  # noqa: PTH123
            modes = file.read()
    except OSError:
        return "PREEMPT" in os.uname().version
    return "(full)" in modes or "(lazy)" in modes


# Functions that exist to be traced, net/bpf/test_run.c, as old as BPF_PROG_TYPE_TRACING.
_TEST_TARGETS = ("bpf_fentry_test1", "bpf_fentry_test2")
_UNSUPPORTED = frozenset(  # ENOMEM: s390x without trampolines
    (errno.EINVAL, errno.ENOENT, errno.EOPNOTSUPP, ENOTSUPP, errno.E2BIG, errno.ENOMEM)
)


@functools.cache
def have_fentry() -> bool:
    """Programs at functions' entries and exits. Linux 5.5, commit fec56f5890d9; each CPU later.

    It needs BTF, ftrace with direct calls, and trampolines for the CPU: found by attaching.
    """
    if not have_vmlinux_btf():
        return False
    from usdt.bpf.kprobes import attach_tracing  # noqa: PLC0415
    from usdt.btf.format import Kind  # noqa: PLC0415
    from usdt.btf.reader import Btf  # noqa: PLC0415 - BTF, only if needed

    found = [number for name in _TEST_TARGETS for number in Btf.from_sysfs().find(name, Kind.FUNC)]
    if not found:
        return False
    spec = _empty(kind=ProgType.TRACING, attach=AttachType.TRACE_FEXIT, function=found[0])
    try:
        with spec.load({}) as program:
            attach_tracing(program).close()
    except SyscallError as err:
        if err.errno == errno.EPERM:
            _empty().load({}).close()  # raises, too, if it is our privilege that is missing
        elif err.errno not in _UNSUPPORTED:
            raise
        return False
    return True


@functools.cache
def have_raw_cookies() -> bool:
    """Cookies of raw tracepoints. Linux 6.10, commit 68ca5d4eebb8."""
    return _loads(_empty(helper=Helper.GET_ATTACH_COOKIE, kind=ProgType.RAW_TRACEPOINT))


@functools.cache
def have_vmlinux_btf() -> bool:
    """/sys/kernel/btf/vmlinux. Linux 5.4, commit 341dfcf8d78e, and CONFIG_DEBUG_INFO_BTF."""
    try:
        with open("/sys/kernel/btf/vmlinux", "rb") as file:  # noqa: PTH123
            return file.read(2) in (b"\x9f\xeb", b"\xeb\x9f")
    except FileNotFoundError:
        return False
