"""Whether uprobes on a long nop are optimized on this kernel without harm, by trying it.

A kernel that optimizes a uprobe replaces its nop, at the first hit, by a call
(:mod:`usdt.arch.nops`). A trial in this process shows what then becomes of a program:

- Linux 6.18 and its nop of 5 bytes: the call overwrites the red zone of the function. A forked
  child gets the call without its target, and dies of SIGSEGV at the next hit.
- Linux 7.2 and its nop of 10 bytes: neither.
"""

from __future__ import annotations

import errno
import functools
import os
import struct

from usdt.arch.nops import NOP10
from usdt.base.errors import SyscallError
from usdt.base.frozen import frozen
from usdt.bpf._syscall import ExecutableFile
from usdt.bpf.features import uprobe_syscall_error
from usdt.bpf.link import open_probe_event, probe_pmu

__all__ = ("Trial", "optimizes_nop10", "try_nop")

_PATTERN = 0x5AC3_96E1_7B2D_4F08
_RED_ZONE = range(8, 129, 8)  # bytes below the stack pointer; System V ABI of x86-64, 3.2.2


@frozen
class Trial:
    """What became of a program with a uprobe on a nop.

    Attributes:
        optimized: whether the kernel replaced the nop by a call.
        red_zone: whether the memory below the stack pointer kept its values.
        child: whether a forked child survived a hit.
    """

    optimized: bool
    red_zone: bool
    child: bool

    @property
    def harmless(self) -> bool:
        """Whether the program did not notice."""
        return self.red_zone and self.child


@functools.cache
def optimizes_nop10() -> bool:
    """Return whether probes on the nop of 10 bytes are optimized and harmless. Linux 7.2.

    False, too, if this process may not try it. The first call takes tens of milliseconds on kernels
    that may have it: the kernel detaches slowly.
    """
    if uprobe_syscall_error() not in (errno.EPROTO, None):
        return False
    try:
        trial = try_nop(NOP10)
    except (SyscallError, OSError):
        return False
    return trial.optimized and trial.harmless


def try_nop(nop: bytes) -> Trial:
    """Put a uprobe on a nop of this process, hit it three times and once in a forked child.

    Args:
        nop: the instruction, of x86-64.

    Raises:
        SyscallError: the kernel refuses such a probe, or this process may not have one.
        OSError: this process may not map a new file's code.
    """
    checked, at = _checked_nop(nop)
    code = checked + _in_child(len(checked))
    pmu = probe_pmu("uprobe")
    if pmu is None:
        raise SyscallError(errno.ENODEV, "perf_event_open")
    with ExecutableFile(code) as program:
        path = f"/proc/self/fd/{program.file.fileno()}\0".encode()
        with open_probe_event(pmu, 0, path, at, pid=os.getpid()):
            kept = [program.call(0) == _PATTERN for _ in range(3)]  # the first is a breakpoint
            optimized = program.read(at, len(nop)) not in (nop, b"\xcc" + nop[1:])
            child = program.call(len(checked)) == 0
    return Trial(optimized, all(kept), child)


def _checked_nop(nop: bytes) -> tuple[bytes, int]:
    # A function that returns _PATTERN if its red zone is the same before and after a nop; and the
    # offset of the nop.
    below = [struct.pack("b", -offset) for offset in _RED_ZONE]
    fill = b"\x48\xb8" + struct.pack("<Q", _PATTERN)  # mov $_PATTERN, %rax
    fill += b"".join(b"\x48\x89\x44\x24" + where for where in below)  # mov %rax, -8(%rsp); …
    # xor -8(%rsp), %rax; …; ret: the slots, an even number, cancel each other out
    check = b"".join(b"\x48\x33\x44\x24" + where for where in below) + b"\xc3"
    return fill + nop + check, len(fill)


def _in_child(checked: int) -> bytes:
    # A function that calls the one ``checked`` bytes before it in a forked child, and returns the
    # child's status of wait(2): 0 if that function returned _PATTERN. The system calls are made
    # here, because Python's fork() runs handlers, and warns in a process with threads.
    clone = bytes.fromhex(
        "31ff 31f6 31d2 4531d2 4531c0"  # no flags and no signal at its end, the same stack
        "b838000000 0f05 4885c0"  # clone(2)
        "7437 7834"  # to the child; errors, which are negative, to the end of the parent
    )
    parent = bytes.fromhex(
        "4883ec18 c7442408ffffffff 4989c0"
        "4c89c7 488d742408 ba00000040 4531d2 b83d000000 0f05"  # wait4(2) with __WALL
        "4883f8fc 74e3"  # EINTR: again
        "8b442408 4883c418 c3"
    )
    here = len(clone + parent) + 5  # behind the call
    child = b"\xe8" + struct.pack("<i", -checked - here)
    child += b"\x48\xb9" + struct.pack("<Q", _PATTERN)
    return (
        clone
        + parent
        + child
        + bytes.fromhex(
            "31ff 4839c8 400f95c7 b8e7000000 0f05"  # exit_group(2): 0 if both are equal, else 1
        )
    )
