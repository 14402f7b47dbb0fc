"""A path in a container, while no process of the container has the file yet."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

import pytest
from cgroups import cgroup, enter
from containers import container
from fixtures import Fixture, build, start
from skips import need_program
from tracing_tools import Tool, private, tracing, until

import usdt
from usdt.bpf import features
from usdt.probes.probe import read_probes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf", "ancestors")


@pytest.fixture
def ancestors() -> None:
    """A kernel whose programs can look up the ancestors of a cgroup."""
    if not features.have_ancestor_cgroups():
        pytest.skip("needs Linux 5.16: bpf_get_current_ancestor_cgroup_id() in tracing programs")


@contextlib.contextmanager
def in_own_namespace(cgroup: Path, program: Path, path: Path) -> Iterator[Fixture]:
    """A program at a path that only it sees, in a cgroup; it waits for its orders."""
    unshare = need_program("unshare", "util-linux")
    copy = f'mount -t tmpfs none "{path.parent}" && cp "{program}" "{path}"'
    shell = f'echo $$ > "{cgroup}/cgroup.procs" && {copy} && exec "{path}" -w'
    with Fixture(unshare, "-m", "/bin/sh", "-c", shell) as fixture:
        yield fixture.wait_ready()


def all_hits(tool: Tool, program: Fixture) -> None:
    """Fire once; all hits must be traced."""
    before = len(tool.events)
    program.fire()
    tool.wait_events(before + len(program.hits))
    assert {event["pid"] for event in tool.events[before:]} == {program.pid}


@pytest.mark.parametrize("probe", ["ints:*", "uprobe:{path}:write"], ids=["usdt", "uprobe"])
def test_a_cgroup_without_processes(probe: str, tmp_path: Path) -> None:
    program = private(build("static", "ints"), tmp_path)
    text = probe.format(path=program) if "{" in probe else f"{program}:{probe}"
    with cgroup() as place, Tool("trace", "--json", "--cgroup", place, text) as tool:
        said = tool.wait_error("no process is in it yet")
        assert said.endswith(f"waiting for one that has {program}")
        with start(program, "-w") as inside, start(program, "-w") as outside:
            enter(place, inside.wait_ready().pid)
            tool.wait_error("now tracing")
            outside.wait_ready().fire()
            inside.fire()
            until(lambda: tool.events, "a hit")
            assert {event["pid"] for event in tool.stop()} == {inside.pid}


def test_a_file_that_only_a_later_process_has(tmp_path: Path) -> None:
    program = private(build("static", "ints"), tmp_path)
    inner = tmp_path / "inner"
    inner.mkdir()
    probe = f"{inner}/app:ints:*"
    sites = sum(len(one.sites) for one in read_probes(program).probes)
    with (
        cgroup() as place,
        start(program, "-w") as first,
        contextlib.ExitStack() as stack,
    ):
        enter(place, first.wait_ready().pid)
        tool = stack.enter_context(tracing("--cgroup", place, probe))
        waiting = tool.wait_error("waiting for a process in")
        assert f"{inner}/app: no such file in the mount namespace of process {first.pid}" in waiting
        for number in (1, 2):  # the same path in two mount namespaces
            later = stack.enter_context(in_own_namespace(place, program, inner / "app"))
            tool.wait_error(f"now tracing {number * sites} sites")
            all_hits(tool, later)
        tool.stop()


def test_a_file_that_comes_without_the_probe(tmp_path: Path) -> None:
    program = private(build("static", "ints"), tmp_path)
    other = private(build("static", "strings"), tmp_path)
    inner = tmp_path / "inner"
    inner.mkdir()
    with cgroup() as place, tracing("--cgroup", place, f"{inner}/app:ints:*") as tool:
        with in_own_namespace(place, other, inner / "app"):
            said = tool.wait_error("not attached: ")
            assert f"{inner}/app" in said
            assert "ints:*" in said
        with in_own_namespace(place, program, inner / "app") as later:
            tool.wait_error("now tracing")
            all_hits(tool, later)
            tool.stop()


def test_a_container_that_is_started_again(tmp_path: Path) -> None:
    name = f"web-{uuid.uuid4().hex[:8]}"
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    with contextlib.ExitStack() as stack:
        with container(tmp_path / "one", name) as first:
            words = ("--container", name, "usr/bin/app:ints:i8(container)")
            tool = stack.enter_context(tracing(*words))
            first.fixture.fire()
            tool.wait_events(1)
        again = stack.enter_context(container(tmp_path / "two", name))

        def traced() -> bool:
            again.fixture.fire()
            return again.pid in {event["pid"] for event in tool.events}

        until(traced, "the new container to be traced", every=0.1)
        assert {event["args"]["container"] for event in tool.stop()} == {name}


def test_a_session_waits_as_well(tmp_path: Path) -> None:
    program = private(build("static", "ints"), tmp_path)
    with (
        cgroup() as place,
        usdt.attach(f"{program}:ints:*", cgroup=str(place)) as events,
        start(program, "-w") as inside,
    ):
        enter(place, inside.wait_ready().pid)

        def hit() -> bool:
            inside.fire()
            return bool(events.poll(0.1))

        until(hit, "a hit")
