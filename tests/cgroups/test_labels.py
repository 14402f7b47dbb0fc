"""Paths of cgroups as systemd, Kubernetes, Docker, Podman, LXC and systemd-nspawn make them."""

from __future__ import annotations

import pytest

from usdt.cgroups.labels import CgroupLabels, labels_of

_ID = "4e2bafe81f0d4a6f" * 4
_OTHER = "0123456789abcdef" * 4
_UID = "1f2c7a3e-2c0b-4d5e-9f60-aabbccddeeff"
_UNDERSCORES = _UID.replace("-", "_")
_SLICE = f"kubepods-burstable-pod{_UNDERSCORES}.slice"
_BURSTABLE = f"/kubepods.slice/kubepods-burstable.slice/{_SLICE}"


@pytest.mark.parametrize(
    ("path", "container", "pod", "unit"),
    [
        pytest.param(
            f"{_BURSTABLE}/cri-containerd-{_ID}.scope",
            *(_ID, _UID, f"cri-containerd-{_ID}.scope"),
            id="Kubernetes with containerd and systemd",
        ),
        pytest.param(
            f"{_BURSTABLE}/crio-{_ID}.scope/container",
            *(_ID, _UID, f"crio-{_ID}.scope"),
            id="Kubernetes with CRI-O and systemd",
        ),
        pytest.param(
            f"{_BURSTABLE}/docker-{_ID}.scope", _ID, _UID, f"docker-{_ID}.scope", id="cri-dockerd"
        ),
        pytest.param(
            f"/kubepods/besteffort/pod{_UID}/{_ID}", _ID, _UID, "", id="Kubernetes with cgroupfs"
        ),
        pytest.param(
            f"/kubepods/pod{_UID}/{_ID}", _ID, _UID, "", id="a guaranteed pod with cgroupfs"
        ),
        pytest.param(
            f"/kubepods.slice/kubepods-pod{_UNDERSCORES}.slice/cri-containerd-{_ID}.scope",
            *(_ID, _UID, f"cri-containerd-{_ID}.scope"),
            id="a guaranteed pod with systemd",
        ),
        pytest.param(
            f"/kubepods/burstable/pod{'ab' * 16}/{_ID}", _ID, "ab" * 16, "", id="a static pod"
        ),
        pytest.param(_BURSTABLE, "", _UID, _SLICE, id="a pod itself"),
        pytest.param(
            f"/system.slice/containerd.service/{_SLICE}:cri-containerd:{_ID}",
            *(_ID, "", "containerd.service"),
            id="containerd with a systemd name for a path",
        ),
        pytest.param(
            f"{_BURSTABLE}/crio-conmon-{_ID}.scope",
            *("", _UID, f"crio-conmon-{_ID}.scope"),
            id="the monitor of a container of CRI-O",
        ),
        pytest.param(
            f"/system.slice/docker-{_ID}.scope", _ID, "", f"docker-{_ID}.scope", id="Docker"
        ),
        pytest.param(f"/docker/{_ID}", _ID, "", "", id="Docker with cgroupfs"),
        pytest.param(
            f"/docker/{_ID}/docker/{_OTHER}", _OTHER, "", "", id="a container in a container"
        ),
        pytest.param(
            f"/system.slice/docker-{_ID}.scope/system.slice/nginx.service",
            *(_ID, "", "nginx.service"),
            id="a systemd in a container",
        ),
        pytest.param(
            f"/machine.slice/libpod-{_ID}.scope/container",
            *(_ID, "", f"libpod-{_ID}.scope"),
            id="Podman",
        ),
        pytest.param(f"/libpod_parent/libpod-{_ID}", _ID, "", "", id="Podman with cgroupfs"),
        pytest.param(
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{_ID}.scope",
            *(_ID, "", f"libpod-{_ID}.scope"),
            id="Podman without root",
        ),
        pytest.param(
            f"/machine.slice/libpod-conmon-{_ID}.scope",
            *("", "", f"libpod-conmon-{_ID}.scope"),
            id="the monitor of a container of Podman",
        ),
        pytest.param("/system.slice/nginx.service", "", "", "nginx.service", id="a unit"),
        pytest.param(
            "/user.slice/user-1000.slice/user@1000.service/app.slice/a.service",
            *("", "", "a.service"),
            id="a unit of a user",
        ),
        pytest.param("/user.slice/user-1000.slice", "", "", "user-1000.slice", id="a slice"),
        pytest.param("/", "", "", "", id="the root"),
        pytest.param(f"/x/{_ID}0", "", "", "", id="an ID that is too long"),
        pytest.param(f"/x/{_ID.upper()}", "", "", "", id="no ID: capital letters"),
        pytest.param("/kubepods/pod../x", "", "", "", id="a UID with dots"),
        pytest.param(f"/x/\x1b[31m-{_ID}.scope", "", "", f"\x1b[31m-{_ID}.scope", id="hostile"),
    ],
)
def test_containers_pods_and_units(path: str, container: str, pod: str, unit: str) -> None:
    assert labels_of(path) == CgroupLabels(path, container, "", pod, unit)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param("/lxc.payload.web/system.slice/a.service", "web", id="LXC"),
        pytest.param("/lxc/web", "web", id="an older LXC"),
        pytest.param("/lxc.monitor.web", "", id="its monitor"),
        pytest.param("/machine.slice/machine-web\\x2done.scope/payload", "web-one", id="nspawn"),
        pytest.param("/machine.slice/systemd-nspawn@web.service/payload", "web", id="its service"),
        pytest.param("/machine.slice/machine-qemu\\x2d1\\x2dvm.scope", "", id="no virtual machine"),
        pytest.param("/machine-web.scope", "", id="no machine of systemd"),
        pytest.param(f"/lxc.payload.web/docker/{_ID}", "", id="Docker in LXC"),
    ],
)
def test_containers_without_an_id(path: str, name: str) -> None:
    assert labels_of(path).container_name == name
