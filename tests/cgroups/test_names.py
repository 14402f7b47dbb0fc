"""Names of containers and pods, from files laid out as the runtimes do."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from usdt.cgroups.labels import labels_of
from usdt.cgroups.names import ContainerNames

if TYPE_CHECKING:
    from pathlib import Path

_ID = "4e2bafe81f0d4a6f" * 4
_UID = "1f2c7a3e-2c0b-4d5e-9f60-aabbccddeeff"
_LABELS = labels_of(f"/kubepods/burstable/pod{_UID}/{_ID}")
_LOG = f"var/log/containers/shop-7d9_prod_web-{_ID}.log"
_STORE = "var/lib/containers/storage/overlay-containers/containers.json"
_DOCKER = f"var/lib/docker/containers/{_ID}/config.v2.json"


def _write(root: Path, path: str, text: str = "") -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


@pytest.mark.parametrize(
    ("files", "container", "pod"),
    [
        pytest.param({}, _ID[:12], _UID, id="no file"),
        pytest.param({_LOG: ""}, "web", "prod/shop-7d9", id="Kubernetes"),
        pytest.param(
            {f"var/log/pods/prod_shop-7d9_{_UID}/web/0.log": ""},
            *(_ID[:12], "prod/shop-7d9"),
            id="a pod without its containers",
        ),
        pytest.param({_DOCKER: '{"Name": "/web"}'}, "web", _UID, id="Docker"),
        pytest.param(
            {_STORE: json.dumps([{"id": _ID, "names": ["web"]}])}, "web", _UID, id="Podman"
        ),
        pytest.param(
            {_LOG: "", _STORE: json.dumps([{"id": _ID, "names": ["k8s_web_shop"]}])},
            *("web", "prod/shop-7d9"),
            id="CRI-O",
        ),
        pytest.param({_DOCKER: '{"Name": 5}'}, _ID[:12], _UID, id="a name that is none"),
        pytest.param({_DOCKER: "[" * 100000}, _ID[:12], _UID, id="JSON that is too deep"),
        pytest.param({_DOCKER: '{"Name": "' + "x" * 300 + '"}'}, _ID[:12], _UID, id="too long"),
        pytest.param({_STORE: '[5, {"id": 5, "names": ["x"]}]'}, _ID[:12], _UID, id="odd JSON"),
        pytest.param({_STORE: '{"id": 5}'}, _ID[:12], _UID, id="an object for a list"),
        pytest.param(
            {f"var/log/containers/web-{_ID}.log": "", "var/log/pods/x": ""},
            *(_ID[:12], _UID),
            id="names of another form",
        ),
        pytest.param(
            {f"var/log/containers/a_b_\x1b[31m-{_ID}.log": ""}, "\x1b[31m", "b/a", id="hostile"
        ),
    ],
)
def test_names_are_those_of_files(
    files: dict[str, str], container: str, pod: str, tmp_path: Path
) -> None:
    for path, text in files.items():
        _write(tmp_path, path, text)
    names = ContainerNames(str(tmp_path))
    assert (names.container(_LABELS), names.pod(_LABELS)) == (container, pod)


def test_names_outlive_their_files(tmp_path: Path) -> None:
    _write(tmp_path, _LOG)
    names = ContainerNames(str(tmp_path))
    assert names.container(_LABELS) == "web"
    (tmp_path / _LOG).unlink()
    assert names.container(_LABELS) == "web"
    assert names.pod(_LABELS) == "prod/shop-7d9"


def test_what_is_in_no_container_has_no_name(tmp_path: Path) -> None:
    names = ContainerNames(str(tmp_path))
    labels = labels_of("/system.slice/nginx.service")
    assert (names.container(labels), names.pod(labels)) == ("", "")


def test_containers_without_an_id_have_the_name_of_their_path(tmp_path: Path) -> None:
    assert ContainerNames(str(tmp_path)).container(labels_of("/lxc.payload.web")) == "web"


def test_a_container_has_its_name_as_soon_as_the_files_have_it(tmp_path: Path) -> None:
    _write(tmp_path, _LOG)
    names = ContainerNames(str(tmp_path))
    assert names.container(_LABELS) == "web"
    other = "b" * 64
    late = labels_of(f"/docker/{other}")
    assert names.container(late) == other[:12]
    _write(tmp_path, f"var/log/containers/shop_prod_next-{other}.log")
    folder = tmp_path / "var/log/containers"
    now = folder.stat().st_mtime_ns
    os.utime(folder, ns=(now, now + 1))  # two changes may have one time on an old kernel
    assert names.container(late) == "next"
