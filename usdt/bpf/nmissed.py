"""Hits of which no program was told: the kernel counts them, and says so if it is asked.

A kprobe that is met while another is at work on its CPU is passed over, and so is the return of a
function when more calls are under way than places are kept for (nmissed). A program is not run on a
CPU on which it, or of some kinds any other, is running.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.base.errors import SyscallError
from usdt.bpf.objects import object_info

if TYPE_CHECKING:
    from usdt.base.closeable import FD

__all__ = ("missed_hits", "missed_runs")

# struct bpf_link_info: type, id, prog_id; then by the type.
_LINK = struct.Struct("=I12xI12xQ8xQ8x")  # of a perf event its type, both fields called missed
_PERF_EVENT, _KPROBE_MULTI = 7, 8  # enum bpf_link_type
_KPROBES = (3, 4)  # enum bpf_perf_event_type: BPF_PERF_EVENT_KPROBE, …_KRETPROBE
_PROGRAM = struct.Struct("=208xQ")  # struct bpf_prog_info: recursion_misses


def missed_hits(link: FD) -> int:
    """Hits of a link's kprobes. Linux 6.7, commits e2b2cd592adf and 3acf8ace6823; before it, 0."""
    try:
        kind, perf, multi, single = _LINK.unpack(object_info(link, _LINK.size))
    except SyscallError:  # a perf event, which has no link; kernels before 5.8
        return 0
    if kind == _KPROBE_MULTI:
        return int(multi)
    return int(single) if kind == _PERF_EVENT and perf in _KPROBES else 0


def missed_runs(program: FD) -> int:
    """Runs of a program. Linux 5.12, commit 9ed9e9ba2337, of kprobes since 6.7; before it, 0."""
    try:
        (missed,) = _PROGRAM.unpack(object_info(program, _PROGRAM.size))
    except SyscallError:
        return 0
    return int(missed)
