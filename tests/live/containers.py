"""A real container, run by runc, whose only file is a program of testbins/ at /usr/bin/app."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cgroups import cgroup, mounted
from fixtures import Fixture, build
from skips import need_program
from tracing_tools import until

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("Container", "container")

_LOGS = Path("/var/log/containers")


@frozen
class Container:
    """A running container.

    Attributes:
        fixture: its program, which waits for orders.
        pid: the program's process, as this machine sees it.
        id: 64 hexadecimal digits.
        name: as Kubernetes has written it to a file.
        pod: NAMESPACE/NAME.
        root: its root directory, as this machine sees it.
    """

    fixture: Fixture
    pid: int
    id: str
    name: str
    pod: str
    root: Path


@contextlib.contextmanager
def container(folder: Path, name: str = "", pod: str = "") -> Iterator[Container]:
    """Run a container in a pod, below /kubepods as the cgroupfs driver of Kubernetes does.

    Its name and that of its pod in the namespace test are unique, if none are given.
    """
    runc = need_program("runc")
    identity, number = uuid.uuid4().hex * 2, uuid.uuid4().hex[:8]
    name, pod = name or f"web-{number}", pod or f"shop-{number}"
    root = folder / "root"
    (root / "usr/bin").mkdir(parents=True)
    for path in ("proc", "dev", "tmp", "sys"):
        (root / path).mkdir()
    shutil.copy(build("static", "ints"), root / "usr/bin/app")
    place = f"/kubepods/burstable/pod{uuid.uuid4()}"
    _configure(runc, folder, f"{place}/{identity}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(_log(f"{pod}_test_{name}-{identity}.log"))
        stack.enter_context(_kubepods(place))
        words = (runc, "--root", str(folder / "runc"), "run", "--bundle", str(folder), number)
        fixture = stack.enter_context(Fixture(*words))
        procs = mounted() / place[1:] / identity / "cgroup.procs"
        pid = _started(fixture, procs)
        yield Container(fixture, pid, identity, name, f"test/{pod}", root)
        fixture.send("end")
        fixture.process.wait(60)


def _started(fixture: Fixture, procs: Path) -> int:
    # A skip if the machine does not let runc start a container.
    def look() -> bool:
        return any(line.startswith("ready") for line in fixture.lines) or (
            fixture.process.poll() is not None
        )

    until(look, "the container to start")
    if fixture.process.poll() is not None:
        pytest.skip(f"needs a machine that lets runc run containers: {fixture.lines}")
    if not procs.exists():
        pytest.skip(f"needs runc to use cgroups of version 2: {procs} is missing")
    return int(procs.read_text())


def _configure(runc: str, folder: Path, place: str) -> None:
    subprocess.run([runc, "spec"], cwd=folder, check=True)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config["root"] = {"path": "root", "readonly": False}
    config["process"] |= {"terminal": False, "args": ["/usr/bin/app", "-w"], "rlimits": []}
    config["linux"]["cgroupsPath"] = place
    file.write_text(json.dumps(config))


@contextlib.contextmanager
def _log(name: str) -> Iterator[None]:
    # What kubelet writes when it has started a container.
    made = not _LOGS.exists()
    _LOGS.mkdir(parents=True, exist_ok=True)
    (_LOGS / name).touch()
    try:
        yield
    finally:
        (_LOGS / name).unlink()
        if made:
            with contextlib.suppress(OSError):
                _LOGS.rmdir()


@contextlib.contextmanager
def _kubepods(place: str) -> Iterator[None]:
    # Runc removes the cgroup of the container; those above it are left.
    try:
        with cgroup(place[1:]):
            yield
    finally:
        _prune(place)


def _prune(place: str) -> None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if kind.startswith("cgroup"):
            for path in (place, *map(str, list(Path(place).parents)[:-1])):
                with contextlib.suppress(OSError):
                    os.rmdir(mount.split()[4] + path)  # noqa: PTH106
