"""Constants of the kernel's interface, under the kernel's names.

Sources: ``include/uapi/linux/bpf.h``, ``include/uapi/linux/perf_event.h`` and the system call
tables of each CPU. Only those that the toolkit uses are listed.
"""

from __future__ import annotations

from usdt.base.frozen import Numbers
from usdt.base.machine import PROCESS_MACHINE

__all__ = (
    "BPF_F_KPROBE_MULTI_RETURN",
    "BPF_F_SLEEPABLE",
    "BPF_F_UPROBE_MULTI_RETURN",
    "ENOTSUPP",
    "MOUNT_SYSCALLS",
    "PERF_ATTR_SIZE",
    "SYSCALLS",
    "AttachType",
    "Command",
    "Helper",
    "MapType",
    "ProgType",
    "ioctl_number",
)

# (bpf, perf_event_open) by usdt.base.machine.PROCESS_MACHINE; arch/*/entry/syscalls/*.tbl
# (scripts/syscall.tbl) and include/uapi/asm-generic/unistd.h. A CPU that is not listed uses the
# generic table.
SYSCALLS: dict[str, tuple[int, int]] = {
    "x86_64": (321, 298),
    "i386": (357, 336),
    **dict.fromkeys(("arm", "armeb"), (386, 364)),
    **dict.fromkeys(("s390", "s390x"), (351, 331)),
    **dict.fromkeys(("ppc", "ppcle", "ppc64", "ppc64le"), (361, 319)),
    **dict.fromkeys(("mips64", "mips64el"), (5315, 5292)),
    **dict.fromkeys(("mips", "mipsel"), (4355, 4333)),
    **dict.fromkeys(("sparc", "sparc64"), (349, 327)),
    "generic": (280, 241),  # arm64, riscv, loongarch
}

# fsopen, fsconfig, fsmount: system calls since Linux 5.1 have the same numbers on all CPUs, but for
# the offset of MIPS.
_OFFSET = {"mips64": 5000, "mips64el": 5000, "mips": 4000, "mipsel": 4000}.get(PROCESS_MACHINE, 0)
MOUNT_SYSCALLS = (430 + _OFFSET, 431 + _OFFSET, 432 + _OFFSET)

# asm-generic/ioctl.h: the direction is in bits 30 and 31. On these CPUs it has three bits, and
# "none" is not 0 (arch/*/include/uapi/asm/ioctl.h).
_THREE_BITS = ("ppc", "mips", "sparc", "alpha")


def ioctl_number(letter: str, number: int, size: int = 0, *, machine: str = PROCESS_MACHINE) -> int:
    """Return the number of an ioctl without an argument, or that passes ``size`` bytes to it."""
    if machine.startswith(_THREE_BITS):
        direction = (4 if size else 1) << 29
    else:
        direction = (1 if size else 0) << 30
    return direction | size << 16 | ord(letter) << 8 | number


BPF_F_SLEEPABLE = 1 << 4
BPF_F_KPROBE_MULTI_RETURN = 1 << 0
BPF_F_UPROBE_MULTI_RETURN = 1 << 0
PERF_ATTR_SIZE = 112  # PERF_ATTR_SIZE_VER5
ENOTSUPP = 524  # internal to the kernel, so the errno module has no name for it


class Command(Numbers):
    """enum bpf_cmd."""

    MAP_CREATE = 0
    MAP_LOOKUP_ELEM = 1
    MAP_UPDATE_ELEM = 2
    MAP_DELETE_ELEM = 3
    MAP_GET_NEXT_KEY = 4
    PROG_LOAD = 5
    OBJ_PIN = 6
    OBJ_GET = 7
    PROG_TEST_RUN = 10
    OBJ_GET_INFO_BY_FD = 15
    RAW_TRACEPOINT_OPEN = 17
    BTF_LOAD = 18
    BTF_GET_FD_BY_ID = 19
    BTF_GET_NEXT_ID = 23
    MAP_LOOKUP_BATCH = 24
    MAP_UPDATE_BATCH = 26
    LINK_CREATE = 28
    ITER_CREATE = 33  # Linux 5.8
    ENABLE_STATS = 32  # Linux 5.8


class MapType(Numbers):
    """enum bpf_map_type."""

    HASH = 1
    ARRAY = 2
    PERF_EVENT_ARRAY = 4
    PERCPU_HASH = 5
    PERCPU_ARRAY = 6
    STACK_TRACE = 7
    LRU_HASH = 9
    LRU_PERCPU_HASH = 10
    ARRAY_OF_MAPS = 12
    RINGBUF = 27  # Linux 5.8


class ProgType(Numbers):
    """enum bpf_prog_type."""

    SOCKET_FILTER = 1
    KPROBE = 2
    TRACEPOINT = 5
    PERF_EVENT = 7
    RAW_TRACEPOINT = 17
    TRACING = 26


class AttachType(Numbers):
    """enum bpf_attach_type."""

    NONE = 0
    TRACE_FENTRY = 24
    TRACE_FEXIT = 25
    TRACE_ITER = 28  # Linux 5.8
    PERF_EVENT = 41  # Linux 5.15
    TRACE_KPROBE_MULTI = 42  # Linux 5.18
    TRACE_UPROBE_MULTI = 48  # Linux 6.6
    TRACE_KPROBE_SESSION = 56  # Linux 6.10
    TRACE_UPROBE_SESSION = 57  # Linux 6.13


class Helper(Numbers):
    """enum bpf_func_id."""

    MAP_LOOKUP_ELEM = 1
    MAP_UPDATE_ELEM = 2
    MAP_DELETE_ELEM = 3
    KTIME_GET_NS = 5
    TRACE_PRINTK = 6
    GET_PRANDOM_U32 = 7
    TAIL_CALL = 12
    GET_SMP_PROCESSOR_ID = 8
    GET_CURRENT_PID_TGID = 14
    GET_CURRENT_UID_GID = 15
    GET_CURRENT_COMM = 16
    GET_STACKID = 27
    GET_SOCKET_COOKIE = 46
    GET_STACK = 67
    GET_CURRENT_TASK = 35
    PROBE_WRITE_USER = 36
    GET_NUMA_NODE_ID = 42
    GET_CURRENT_CGROUP_ID = 80
    PROBE_READ_USER = 112
    PROBE_READ_KERNEL = 113
    PROBE_READ_USER_STR = 114
    PROBE_READ_KERNEL_STR = 115
    SEND_SIGNAL = 109
    SEND_SIGNAL_THREAD = 117
    JIFFIES64 = 118
    GET_NS_CURRENT_PID_TGID = 120
    SEQ_WRITE = 127
    GET_CURRENT_ANCESTOR_CGROUP_ID = 123
    KTIME_GET_BOOT_NS = 125
    RINGBUF_OUTPUT = 130
    RINGBUF_RESERVE = 131
    RINGBUF_SUBMIT = 132
    RINGBUF_DISCARD = 133
    D_PATH = 147
    COPY_FROM_USER = 148
    GET_CURRENT_TASK_BTF = 158
    FOR_EACH_MAP_ELEM = 164
    GET_FUNC_IP = 173
    GET_ATTACH_COOKIE = 174
    TASK_PT_REGS = 175
    FIND_VMA = 180
    LOOP = 181
    MAP_LOOKUP_PERCPU_ELEM = 195
    KTIME_GET_TAI_NS = 208
