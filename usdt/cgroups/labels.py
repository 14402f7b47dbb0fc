"""What a cgroup's path says of its processes: their container, pod and unit.

    .../cri-containerd-ID.scope, crio-ID.scope, docker-ID.scope, libpod-ID.scope    systemd drivers
    docker/ID, libpod_parent/libpod-ID, .../podUID/ID                               cgroupfs drivers
    SLICE:PREFIX:ID                          a runtime that takes a systemd name for a path
    kubepods-burstable-podUID.slice, kubepods/burstable/podUID                      pods
    lxc.payload.NAME, lxc/NAME                                                      LXC
    machine.slice/machine-NAME.scope, systemd-nspawn@NAME.service                   systemd-nspawn
    NAME.service, NAME.scope, …                                                     units

The innermost one counts: a container in a container, a unit of the systemd in a container. Nothing
here does any I/O, and a path may contain anything but NUL and newlines.
"""

from __future__ import annotations

import re

from usdt.base.frozen import Names, frozen

__all__ = ("CgroupLabels", "CgroupName", "labels_of")

# Patterns, which re compiles when they are first used: most runs only import this module.
# With a runtime's prefix; the cgroups of conmon are those of a container's monitor.
_CONTAINER = r"(?:[^:/]+:[a-z-]+:|(?!.*conmon-)[a-z]+(?:-[a-z]+)*-)?([0-9a-f]{64})(?:\.scope)?"
_POD = r"(?:kubepods(?:-[a-z]+)?-)?pod([0-9A-Fa-f][0-9A-Fa-f_-]{31,35})(?:\.slice)?"
_MACHINE = r"machine-(?!qemu)(.+)\.scope"
_NSPAWN = r"systemd-nspawn@(.+)\.service"
_ESCAPED = r"\\x([0-9a-f]{2})"
_UNITS = (".service", ".scope", ".socket", ".mount", ".swap")


class CgroupName(Names):
    """A name that a cgroup has; recordings contain the values of this enum."""

    CONTAINER = "container"
    POD = "pod"
    UNIT = "unit"
    PATH = "cgroup_path"


@frozen
class CgroupLabels:
    """What the path of a cgroup says; "" for what it does not.

    Attributes:
        path: from the root of the hierarchy, ``/`` for the root itself.
        container_id: 64 hexadecimal digits.
        container_name: the name of a container that has no ID: LXC, systemd-nspawn.
        pod_uid: with dashes, as Kubernetes writes it.
        unit: the innermost unit of systemd; a slice if there is no other.
    """

    path: str
    container_id: str = ""
    container_name: str = ""
    pod_uid: str = ""
    unit: str = ""


def labels_of(path: str) -> CgroupLabels:
    """Return what a path says."""
    identity = name = pod = unit = slice_unit = previous = ""
    for part in path.split("/"):
        if found := re.fullmatch(_POD, part):
            pod = found[1].replace("_", "-")
        if found := re.fullmatch(_CONTAINER, part):
            identity, name = found[1], ""
        elif machine := _machine(part, previous):
            identity, name = "", machine
        if part.endswith(_UNITS):
            unit = part
        elif part.endswith(".slice"):
            slice_unit = part
        previous = part
    return CgroupLabels(path, identity, name, pod, unit or slice_unit)


def _machine(part: str, parent: str) -> str:
    # The name of a container that has no ID, or "".
    if part.startswith("lxc.payload."):
        return part.removeprefix("lxc.payload.")
    if parent == "lxc":
        return part
    found = re.fullmatch(_NSPAWN, part) or (
        re.fullmatch(_MACHINE, part) if parent == "machine.slice" else None
    )
    return _unescaped(found[1]) if found else ""


def _unescaped(name: str) -> str:
    # As systemd-escape(1) has written it: \x2d is a dash, a dash is a slash.
    return re.sub(_ESCAPED, lambda match: chr(int(match[1], 16)), name)
