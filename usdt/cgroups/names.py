"""Names of containers and pods, from files that runtimes keep; no runtime is asked.

    /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log     Kubernetes: container ID → names
    /var/log/pods/NAMESPACE_POD_UID/                       Kubernetes: pod UID → namespace and pod
    /var/lib/docker/containers/ID/config.v2.json           Docker
    /var/lib/containers/storage/*-containers/*containers.json       Podman, CRI-O, and those of
    ~/.local/share/containers/storage/…                             users without root

Names are kept once they are known. A runtime may remove them when the container ends. Whatever is
in these files was written by others, and is checked.
"""

# Importing pathlib takes 6 ms:
# ruff: noqa: PTH116, PTH118, PTH207, PTH208

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.procfs.access import read_bytes

if TYPE_CHECKING:
    from usdt.cgroups.labels import CgroupLabels

__all__ = ("ContainerNames",)

_ID = r"[0-9a-f]{64}"
_SHORT = 12  # digits of an ID without a name, as docker(1) and podman(1) show it
_AGAIN = 1.0  # seconds until files are read again for a name that is not known yet
_TRIES = 5
_MAX_FILE = 16 << 20
_MAX_NAMES = 1 << 17
_FOLDERS = ("var/log/containers", "var/log/pods", "var/lib/docker/containers")
_STORAGE = "storage/*-containers/*containers.json"
_STORES = (
    f"var/lib/containers/{_STORAGE}",
    f"root/.local/share/containers/{_STORAGE}",
    f"home/*/.local/share/containers/{_STORAGE}",
)


@frozen
class _Names:
    # What is known of one container.
    container: str
    pod: str = ""


class ContainerNames:
    """Names of containers by ID, and of pods by UID.

    Args:
        root: the directory in which the files are looked for.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._containers: dict[str, _Names] = {}
        self._pods: dict[str, str] = {}
        self._expected: dict[CgroupLabels, int] = {}  # → how often they are looked for
        self._read = -_AGAIN
        self._seen: list[int] = []  # when folders had changed before the files were read

    def container(self, labels: CgroupLabels) -> str:
        """Return the name of a cgroup's container, else 12 digits of its ID; "" if none."""
        if not labels.container_id:
            return labels.container_name
        self._look(labels)
        known = self._containers.get(labels.container_id)
        return known.container if known else labels.container_id[:_SHORT]

    def pod(self, labels: CgroupLabels) -> str:
        """Return NAMESPACE/NAME of a cgroup's pod, else its UID; "" if it is in none."""
        self._look(labels)
        known = self._containers.get(labels.container_id)
        if known and known.pod:
            return known.pod
        return self._pods.get(labels.pod_uid, labels.pod_uid)

    def written(self, labels: CgroupLabels) -> str:
        """Return the container with its pod, ``NAMESPACE/POD/CONTAINER``; "" if it is in none."""
        container, pod = self.container(labels), self.pod(labels)
        return f"{pod}/{container}" if container and pod else container

    def expect(self, labels: CgroupLabels) -> None:
        """Let :meth:`look` find out the names of a container or pod, before it ends."""
        if self._is_unknown(labels):
            self._expected[labels] = _TRIES

    def look(self) -> None:
        """Find out the names that are expected, for some seconds after :meth:`expect`."""
        if not self._expected or time.monotonic() < self._read + _AGAIN:
            return
        self._look(next(iter(self._expected)))
        self._expected = {
            labels: tries - 1
            for labels, tries in self._expected.items()
            if tries > 1 and self._is_unknown(labels)
        }

    def _is_unknown(self, labels: CgroupLabels) -> bool:
        if labels.container_id and labels.container_id not in self._containers:
            return True
        return bool(labels.pod_uid) and labels.pod_uid not in self._pods

    def _look(self, labels: CgroupLabels) -> None:
        # Read the files again if they may name what is not known yet.
        if not self._is_unknown(labels):
            return
        changed = [self._changed(folder) for folder in _FOLDERS]
        if changed == self._seen and time.monotonic() < self._read + _AGAIN:
            return
        self._seen = changed
        if len(self._containers) + len(self._pods) > _MAX_NAMES:
            self._containers.clear()
            self._pods.clear()
        self._read_kubernetes()
        self._read_docker(labels.container_id)
        self._read_stores()
        self._read = time.monotonic()

    def _changed(self, folder: str) -> int:
        try:
            return os.stat(os.path.join(self._root, folder)).st_mtime_ns
        except OSError:
            return 0

    def _read_kubernetes(self) -> None:
        for name in self._names("var/log/pods"):
            parts = name.split("_")
            if len(parts) == 3 and all(parts):
                self._pods[parts[2]] = f"{parts[0]}/{parts[1]}"
        for name in self._names("var/log/containers"):
            rest, dash, identity = name.removesuffix(".log").rpartition("-")
            parts = rest.split("_", 2)
            if dash and re.fullmatch(_ID, identity) and len(parts) == 3 and all(parts):
                self._containers[identity] = _Names(parts[2], f"{parts[1]}/{parts[0]}")

    def _read_docker(self, identity: str) -> None:
        for one in (identity, *self._names("var/lib/docker/containers")):
            if re.fullmatch(_ID, one) and one not in self._containers:
                found = self._json(f"var/lib/docker/containers/{one}/config.v2.json")
                name = found.get("Name") if isinstance(found, dict) else None
                self._name(one, name.removeprefix("/") if isinstance(name, str) else None)

    def _read_stores(self) -> None:
        from glob import glob  # noqa: PLC0415 - only where there are containers

        for pattern in _STORES:
            for path in sorted(glob(pattern, root_dir=self._root))[:1000]:
                found = self._json(path)
                for one in found[:_MAX_NAMES] if isinstance(found, list) else ():
                    names = one.get("names") if isinstance(one, dict) else None
                    if isinstance(names, list) and names:
                        self._name(one.get("id"), names[0])

    def _name(self, identity: Any, name: Any) -> None:
        usable = isinstance(name, str) and 0 < len(name) <= 255
        if usable and isinstance(identity, str) and re.fullmatch(_ID, identity):
            self._containers.setdefault(identity, _Names(name))

    def _names(self, directory: str) -> list[str]:
        try:
            return os.listdir(os.path.join(self._root, directory))[:_MAX_NAMES]
        except OSError:
            return []  # another runtime, or not permitted

    def _json(self, path: str) -> Any:
        whole = os.path.join(self._root, path)
        try:
            if os.path.getsize(whole) > _MAX_FILE:  # noqa: PTH202
                return None
            return json.loads(read_bytes(whole))
        except (OSError, ValueError, RecursionError):
            return None
