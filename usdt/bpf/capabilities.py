"""The capabilities that tracing needs, and which of them this process lacks."""

from __future__ import annotations

__all__ = ("missing_capabilities", "privilege_hint")

# <linux/capability.h>; CAP_SYS_ADMIN implies CAP_PERFMON and CAP_BPF, which are of Linux 5.8.
_CAP_SYS_ADMIN = 21
_NEEDED = {"CAP_PERFMON": 38, "CAP_BPF": 39}


def missing_capabilities() -> list[str]:
    """Return the names of the capabilities that tracing needs and this process does not have."""
    effective = _effective()
    if effective >> _CAP_SYS_ADMIN & 1:
        return []
    return [name for name, bit in sorted(_NEEDED.items()) if not effective >> bit & 1]


def privilege_hint() -> str:
    """Return a hint for an EPERM of bpf(2)."""
    missing = missing_capabilities()
    if missing:
        return f"this process lacks {' and '.join(missing)}: run it as root, or with sudo"
    return (
        "this process has the capabilities, but the kernel refuses: the process may be in a user "
        "namespace of a container, or the kernel locked down"
    )


def _effective() -> int:
    with open("/proc/self/status") as file:  # noqa: PTH123 - pathlib costs an import
        for line in file:
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    return 0
