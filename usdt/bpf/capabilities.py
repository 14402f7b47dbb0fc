"""The capabilities that tracing needs, and which of them this process lacks."""

from __future__ import annotations

__all__ = (
    "CAPABILITIES",
    "capability_set",
    "effective_capabilities",
    "missing_capabilities",
    "privilege_hint",
    "uprobe_event_hint",
)

# Numbers of <linux/capability.h>.
CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_KILL": 5,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_RESOURCE": 24,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
    "CAP_CHECKPOINT_RESTORE": 40,
}
# What else gives the right: the kernel's perfmon_capable(), bpf_capable() and the like.
_IMPLIED = {
    "CAP_BPF": "CAP_SYS_ADMIN",
    "CAP_PERFMON": "CAP_SYS_ADMIN",
    "CAP_CHECKPOINT_RESTORE": "CAP_SYS_ADMIN",
    "CAP_DAC_READ_SEARCH": "CAP_DAC_OVERRIDE",
}
_TRACING = ("CAP_BPF", "CAP_PERFMON")


def missing_capabilities(*needed: str) -> list[str]:
    """Return the names of the capabilities that this process does not have.

    Args:
        needed: the capabilities in question; by default those that every program needs.
    """
    held = effective_capabilities()
    names = needed or _TRACING
    return [name for name in names if name not in held and _IMPLIED.get(name) not in held]


def privilege_hint(*needed: str) -> str:
    """Return a hint for an EPERM of bpf(2), or of what needs other capabilities."""
    missing = missing_capabilities(*needed)
    if missing:
        return f"this process lacks {' and '.join(missing)}: run it as root, or with sudo"
    return (
        "this process has the capabilities, but the kernel refuses: the process may be in a user "
        "namespace of a container, or the kernel locked down"
    )


def uprobe_event_hint() -> str:
    """Return a hint for a uprobe that perf_event_open(2) refuses.

    Since the fix of CVE-2025-38466 (Linux 6.16, and older ones with it) CAP_PERFMON is not enough.
    """
    if missing_capabilities() or not missing_capabilities("CAP_SYS_ADMIN"):
        return privilege_hint()
    return (
        "on this kernel uprobes by perf events need CAP_SYS_ADMIN, which this process lacks: run "
        "it as root, or with sudo; uprobe_multi (Linux 6.6) needs only CAP_BPF and CAP_PERFMON"
    )


def effective_capabilities() -> frozenset[str]:
    """Return the names of the effective capabilities of this thread, of :data:`CAPABILITIES`."""
    effective = capability_set("CapEff:")
    return frozenset(name for name, bit in CAPABILITIES.items() if effective >> bit & 1)


def capability_set(key: str) -> int:
    """Return a set of this thread, by its name in /proc/PID/status: one bit for each."""
    with open("/proc/thread-self/status") as file:  # noqa: PTH123 - pathlib costs an import
        for line in file:
            if line.startswith(key):
                return int(line.split()[1], 16)
    return 0
