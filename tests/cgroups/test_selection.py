"""What the options select, in a directory that is laid out as a cgroup file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import TargetError
from usdt.cgroups.hierarchy import Hierarchy
from usdt.cgroups.names import ContainerNames
from usdt.cgroups.selection import CgroupChoice, CgroupSelection

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Literal

_WEB = "ab" * 32
_WEB_AGAIN = "abcd" + "0" * 60
_DB = "0" * 64
_UID = "1f2c7a3e-2c0b-4d5e-9f60-aabbccddeeff"
_POD = f"kubepods/pod{_UID}"
_CGROUPS = (
    f"{_POD}/{_WEB}/inner",
    f"{_POD}/{_DB}",
    f"docker/{_WEB_AGAIN}",
    "system.slice/nginx.service/worker",
    "user.slice/user@1000.service/app.slice/nginx.service",
    "lxc.payload.web",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with cgroups/, and logs of two containers."""
    for path in _CGROUPS:
        (tmp_path / "cgroups" / path).mkdir(parents=True)
    logs = tmp_path / "var/log/containers"
    logs.mkdir(parents=True)
    (logs / f"shop_prod_web-{_WEB}.log").touch()
    (logs / f"shop_prod_db-{_DB}.log").touch()
    pods = tmp_path / "var/log/pods"
    (pods / f"prod_shop_{_UID}").mkdir(parents=True)
    return tmp_path


_Option = "Literal['cgroup', 'unit', 'container', 'pod']"


def _selection(
    root: Path, option: Literal["cgroup", "unit", "container", "pod"], text: str
) -> CgroupSelection:
    hierarchy = Hierarchy(str(root / "cgroups"))
    choice = CgroupChoice(option, text)
    return CgroupSelection([choice], hierarchy, ContainerNames(str(root)))


@pytest.mark.parametrize(
    ("option", "text", "paths"),
    [
        pytest.param("cgroup", "/docker", ["/docker"], id="a path"),
        pytest.param("cgroup", "docker/", ["/docker"], id="one without its slash"),
        pytest.param("cgroup", "/", ["/"], id="the root"),
        pytest.param(
            "unit",
            "nginx",
            ["/system.slice/nginx.service", f"/{_CGROUPS[4]}"],
            id="units of one name",
        ),
        pytest.param("unit", "user@1000.service", ["/user.slice/user@1000.service"], id="a unit"),
        pytest.param("container", "web", ["/lxc.payload.web", f"/{_POD}/{_WEB}"], id="by name"),
        pytest.param("container", _WEB[:12], [f"/{_POD}/{_WEB}"], id="by the first digits"),
        pytest.param("container", _DB, [f"/{_POD}/{_DB}"], id="by ID"),
        pytest.param("pod", "prod/shop", [f"/{_POD}"], id="a pod"),
        pytest.param("pod", "shop", [f"/{_POD}"], id="a pod without its namespace"),
        pytest.param("pod", _UID, [f"/{_POD}"], id="a pod by UID"),
    ],
)
def test_an_option_selects(root: Path, option: str, text: str, paths: list[str]) -> None:
    found = _selection(root, option, text).first()  # type: ignore[arg-type]
    assert sorted(one.path for one in found) == sorted(paths)


def test_a_path_may_begin_with_the_mount(root: Path) -> None:
    (found,) = _selection(root, "cgroup", f"{root}/cgroups/docker").first()
    assert found.path == "/docker"
    assert found.id == (root / "cgroups/docker").stat().st_ino


@pytest.mark.parametrize(
    ("option", "text", "reason"),
    [
        pytest.param("cgroup", "/dockers", "did you mean /docker?", id="a path"),
        pytest.param("cgroup", "/docker/..", "no such cgroup", id="a path that leads up"),
        pytest.param("unit", "ngink.service", "did you mean nginx.service?", id="a unit"),
        pytest.param("container", "x", f"there are {_WEB_AGAIN[:12]}, db, web", id="a container"),
        pytest.param("container", "ab", "there are", id="too few digits"),
        pytest.param("container", "abcdabcd", "no such container", id="another ID"),
        pytest.param("pod", "prod/shup", "did you mean prod/shop?", id="a pod"),
        pytest.param("pod", "\x1b[31m", "--pod \\x1b[31m: no such pod", id="hostile"),
        pytest.param("pod", "", "--pod '': no such pod", id="nothing"),
    ],
)
def test_what_selects_nothing_says_what_there_is(
    root: Path, option: str, text: str, reason: str
) -> None:
    with pytest.raises(TargetError) as caught:
        _selection(root, option, text).first()  # type: ignore[arg-type]
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_digits_of_two_containers_are_refused(root: Path) -> None:
    (root / "cgroups/docker" / ("abcd" + "1" * 60)).mkdir()
    with pytest.raises(TargetError, match="2 containers have an ID that begins so"):
        _selection(root, "container", "abcd").first()


def test_cgroups_that_are_made_later_are_selected(root: Path) -> None:
    selection = _selection(root, "unit", "nginx")
    selection.first()
    (root / "cgroups/other/nginx.service").mkdir(parents=True)
    assert "/other/nginx.service" in {one.path for one in selection.again()}
