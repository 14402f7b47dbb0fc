"""PID namespaces: process IDs as we see them, and as the kernel tells them to programs."""

# ruff: noqa: PTH116 - importing pathlib takes 6 ms

from __future__ import annotations

import os

from usdt.procfs.access import explain_errors
from usdt.procfs.process import status_numbers

__all__ = (
    "in_initial_pid_namespace",
    "namespace_pids",
    "nested_pid_namespace",
    "pid_namespace",
    "pid_visible_to_bpf",
)

PROC_PID_INIT_INO = 0xEFFFFFFC  # include/linux/proc_ns.h: the initial PID namespace's inode


def namespace_pids(pid: int) -> tuple[int, ...]:
    """Return a process's ID in each PID namespace from ours to its own, outermost first.

    Raises:
        TargetError: no such process.
    """
    with explain_errors(pid):
        return status_numbers(pid, b"NSpid") or (pid,)  # Linux 4.1, commit e4bc33245124


def pid_namespace() -> tuple[int, int]:
    """Return device and inode of our PID namespace: arguments of bpf_get_ns_current_pid_tgid()."""
    found = os.stat("/proc/self/ns/pid")
    return found.st_dev, found.st_ino


def in_initial_pid_namespace() -> bool:
    """Return whether our process IDs are those of bpf_get_current_pid_tgid()."""
    try:
        return pid_namespace()[1] == PROC_PID_INIT_INO
    except OSError:
        return True  # a kernel without CONFIG_PID_NS has only one


def nested_pid_namespace() -> tuple[int, int] | None:
    """Return :func:`pid_namespace`; None if it is the initial one."""
    return None if in_initial_pid_namespace() else pid_namespace()


def pid_visible_to_bpf(pid: int) -> bool:
    """Return whether a program can get this process's ID as we see it.

    In the initial namespace it can for all processes. Elsewhere bpf_get_ns_current_pid_tgid()
    gives the IDs of processes of our own namespace, and not of the namespaces below it.

    Raises:
        TargetError: no such process.
    """
    return in_initial_pid_namespace() or len(namespace_pids(pid)) == 1
