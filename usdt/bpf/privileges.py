"""What each thing that a tracer does needs on this kernel; giving up what is not needed."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING

from usdt.base.errors import SyscallError
from usdt.base.frozen import frozen
from usdt.bpf._syscall import (
    capset,
    clear_ambient_capabilities,
    forbid_new_privileges,
    limit_bounding_set,
)
from usdt.bpf._uapi import MapType
from usdt.bpf.capabilities import CAPABILITIES, capability_set, missing_capabilities
from usdt.bpf.link import probe_pmu, takes_uprobe_events
from usdt.bpf.maps import MapSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = (
    "Privilege",
    "drop_capabilities",
    "fd_commands_need_bpf",
    "kernel_settings",
    "privileges",
    "set_aside",
)

_PROGRAMS = ("CAP_BPF", "CAP_PERFMON")
_TRACEFS = "/sys/kernel/tracing"
_SETTINGS = {
    "unprivileged_bpf_disabled": "/proc/sys/kernel/unprivileged_bpf_disabled",
    "perf_event_paranoid": "/proc/sys/kernel/perf_event_paranoid",
    "kptr_restrict": "/proc/sys/kernel/kptr_restrict",
    "lockdown": "/sys/kernel/security/lockdown",
}


@frozen
class Privilege:
    """What one thing needs.

    Attributes:
        key: its name in JSON.
        label: its name for people.
        needs: names of capabilities.
        note: what else decides, or "".
    """

    key: str
    label: str
    needs: tuple[str, ...]
    note: str = ""

    @property
    def lacks(self) -> list[str]:
        """The capabilities that this process does not have."""
        return missing_capabilities(*self.needs) if self.needs else []


def privileges() -> list[Privilege]:
    """Return what each thing needs on this kernel."""
    events = ("CAP_BPF", "CAP_SYS_ADMIN") if _admin_for_uprobe_events() else _PROGRAMS
    reading, note = _tracefs_needs(os.R_OK, "CAP_DAC_READ_SEARCH")
    writing, _ = _tracefs_needs(os.W_OK, "CAP_DAC_OVERRIDE")
    return [
        Privilege("uprobe_multi", "uprobes by uprobe_multi", _PROGRAMS),
        Privilege("uprobe_events", "uprobes by perf events", events),
        Privilege("raw_tracepoints", "raw tracepoints, syscalls", _PROGRAMS),
        Privilege(
            "tracepoints",
            "tracepoints",
            (*_PROGRAMS, *reading),
            note,
        ),
        Privilege("tracefs", "--via tracefs, kprobe event", writing, note),
        Privilege("kernel_functions", "kernel functions", _PROGRAMS),
        Privilege("kernel_addresses", "symbols of kernel stacks", ("CAP_SYSLOG",)),
        Privilege(
            "other_users",
            "processes of other users",
            ("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"),
            "the second for files that others may not read, and for --pystack",
        ),
        Privilege("deleted_files", "deleted libraries", ("CAP_CHECKPOINT_RESTORE",)),
    ]


def _tracefs_needs(mode: int, override: str) -> tuple[tuple[str, ...], str]:
    # What this process needs to read or write tracefs, and what else would help.
    if not os.path.ismount(_TRACEFS):
        return ("CAP_SYS_ADMIN", override), "tracefs is not mounted"
    if os.access(f"{_TRACEFS}/events", mode | os.X_OK, effective_ids=True):
        return (), ""
    return (override,), "or tracefs mounted with gid= and mode="


def kernel_settings() -> dict[str, str]:
    """Return the settings that decide as well, as far as the kernel has and shows them."""
    found = {}
    for name, path in _SETTINGS.items():
        try:
            with open(path) as file:  # noqa: PTH123 - pathlib costs an import
                text = file.read().strip()
        except OSError:
            continue
        found[name] = text.partition("[")[2].partition("]")[0] or text
    return found


@functools.cache
def _admin_for_uprobe_events() -> bool:
    # Whether CAP_PERFMON is not enough for uprobes by perf events: found by trying it without
    # CAP_SYS_ADMIN. A process without CAP_PERFMON cannot find out; then the safe answer is yes.
    if probe_pmu("uprobe") is None or missing_capabilities("CAP_PERFMON"):
        return True
    try:
        with set_aside("CAP_SYS_ADMIN"):
            return not takes_uprobe_events()
    except SyscallError:
        return True


@contextlib.contextmanager
def set_aside(*names: str) -> Iterator[None]:
    """Do without some effective capabilities of this thread for a while.

    Raises:
        SyscallError: the kernel refuses.
    """
    effective, permitted, inheritable = (
        capability_set(key) for key in ("CapEff:", "CapPrm:", "CapInh:")
    )
    capset(effective & ~_mask(names), permitted, inheritable)
    try:
        yield
    finally:
        capset(effective, permitted, inheritable)


def fd_commands_need_bpf() -> bool:
    """Return whether maps and links that are open already need CAP_BPF, by trying it.

    Before Linux 5.19 (commit c8644cd0efe7) they do, if kernel.unprivileged_bpf_disabled is set.
    """
    with MapSpec(MapType.ARRAY, 4, 4, 1).create() as table:
        try:
            with set_aside("CAP_BPF", "CAP_SYS_ADMIN"):
                table.get(bytes(4))
        except SyscallError:
            return True
    return False


def drop_capabilities(keep: Iterable[str] = ()) -> None:
    """Give up all capabilities but these, for good.

    The effective, permitted and bounding sets lose the others; the ambient and inheritable sets
    are emptied; and no program that is executed later gains any (no_new_privs). All of this is of
    the thread: threads that run already keep theirs.

    Args:
        keep: names; those that this thread may not have are passed over.

    Raises:
        SyscallError: the kernel refuses.
    """
    kept = _mask(keep) & capability_set("CapPrm:")
    forbid_new_privileges()
    clear_ambient_capabilities()
    limit_bounding_set(kept)  # needs CAP_SETPCAP: first
    capset(kept, kept, 0)


def _mask(names: Iterable[str]) -> int:
    return sum(1 << CAPABILITIES[name] for name in names)
