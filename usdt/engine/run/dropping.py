"""Which capabilities a run still needs once everything is attached, and giving up the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf.capabilities import CAPABILITIES, capability_set
from usdt.bpf.features import have_uprobe_multi
from usdt.bpf.link import UprobeMethod
from usdt.bpf.privileges import drop_capabilities, fd_commands_need_bpf
from usdt.engine.language.tree import Call, Name, StackKind, walk
from usdt.engine.output.symbol_needs import wants_user_symbols
from usdt.engine.run.options import TRACEFS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.language.tree import Item, ProbeText
    from usdt.engine.run.options import OutputOptions, TargetOptions, TraceOptions

__all__ = ("keep_needed", "needed_later")

_INSPECT = ("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_PERFMON")
_KERNEL_NAMES = ("kstack", "ksym", "caller", "func")


def needed_later(
    targets: TargetOptions,
    trace: TraceOptions,
    output: OutputOptions,
    requests: Sequence[ProbeText],
    *,
    searching: bool,
) -> dict[str, tuple[str, ...]]:
    """Return what a run does once everything is attached, and the capabilities for it.

    Args:
        targets: the processes.
        trace: what is recorded, and how it is attached.
        output: how results are shown.
        requests: the probes.
        searching: whether probes will be attached in files that processes map later.
    """
    needed: dict[str, tuple[str, ...]] = {}
    if trace.via == TRACEFS:
        needed["tracefs"] = ("CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_SYS_ADMIN")
    if searching:
        needed["new libraries and processes"] = (
            *_INSPECT,
            "CAP_CHECKPOINT_RESTORE",
            *_attach(trace),
        )
    if StackKind.KERNEL in trace.stacks or _mention(requests, trace.keys, *_KERNEL_NAMES):
        needed["kernel symbols"] = ("CAP_SYSLOG",)
    if _shows_processes(requests, trace):
        needed["symbols of processes"] = (*_INSPECT, "CAP_CHECKPOINT_RESTORE")
        if output.jit_map:
            needed["--jit-map"] = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL")
    if targets.user is not None:
        needed["ending the command"] = ("CAP_KILL",)
    if trace.via != TRACEFS and not searching and fd_commands_need_bpf():
        needed["maps, on this kernel"] = ("CAP_BPF",)
    return needed


def _attach(trace: TraceOptions) -> tuple[str, ...]:
    if trace.via == TRACEFS:
        return ()
    # CAP_SYS_ADMIN is much more than tracing needs: only for who cannot do without it.
    permitted = capability_set("CapPrm:")
    enough = all(permitted >> CAPABILITIES[name] & 1 for name in ("CAP_BPF", "CAP_PERFMON"))
    events = trace.via in {*UprobeMethod} - {UprobeMethod.UPROBE_MULTI}
    if enough and not events and have_uprobe_multi():
        return ("CAP_BPF",)
    return ("CAP_BPF", "CAP_SYS_ADMIN")


def _shows_processes(requests: Sequence[ProbeText], trace: TraceOptions) -> bool:
    if {StackKind.USER, StackKind.PYTHON} & {*trace.stacks}:
        return True
    names = "ustack", "pystack", "usym", "caller"
    return any(map(wants_user_symbols, requests)) or _mention(requests, trace.keys, *names)


def _mention(requests: Sequence[ProbeText], keys: Sequence[Item], *names: str) -> bool:
    return any(name in names for name in _names(requests, keys))


def _names(requests: Sequence[ProbeText], keys: Sequence[Item]) -> Iterator[str]:
    # The names of values and functions that probes and keys mention.
    for item in (*keys, *(item for request in requests for item in request.items)):
        for node in walk(item.expression):
            if isinstance(node, Name):
                yield node.name
            elif isinstance(node, Call):
                yield node.function


def keep_needed(needed: dict[str, tuple[str, ...]]) -> list[str]:
    """Give up all capabilities but those; return lines that say which were kept, and why.

    Raises:
        SyscallError: the kernel refuses.
    """
    drop_capabilities({name for names in needed.values() for name in names})
    left = capability_set("CapPrm:")
    lines = []
    for why, names in needed.items():
        kept = [name for name in names if left >> CAPABILITIES[name] & 1]
        if kept:
            lines.append(f"kept for {why}: {', '.join(kept)}")
    return [*lines, "gave up all other capabilities"] if lines else ["gave up all capabilities"]
