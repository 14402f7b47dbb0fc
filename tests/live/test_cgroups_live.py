"""``--cgroup``, ``--unit``, ``--container``, ``--pod``: the kernel decides by subtree."""

from __future__ import annotations

import contextlib
import json
import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest
from cgroups import cgroup, enter, launch, mounted
from fixtures import Fixture, build, start
from skips import need_program
from tracing_tools import KPROBE, Tool, one_error, private, run_usdt, tracing, until
from tracing_tools import usdt as usdt_tool

import usdt
from usdt.base.errors import NotSupported
from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.bpf import features
from usdt.bpf.perf.sideband import CgroupRecord, PerfSideband

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf", "ancestors")


@pytest.fixture
def ancestors() -> None:
    """A kernel whose programs can look up the ancestors of a cgroup."""
    if KERNEL_WORD_SIZE == 4:
        raise NotSupported("tracing by cgroup on 32-bit machines")
    if not features.have_ancestor_cgroups():
        raise NotSupported("tracing by cgroup", (5, 16))


@pytest.fixture
def reports() -> None:
    """A kernel that reports new cgroups."""
    with PerfSideband(cgroups=True) as records, cgroup() as place:
        number = place.stat().st_ino
        if number not in {one.id for one in records.take() if isinstance(one, CgroupRecord)}:
            raise NotSupported("PERF_RECORD_CGROUP of every new cgroup")


@contextlib.contextmanager
def waiting_in(place: Path | None, program: Path) -> Iterator[Fixture]:
    """A program that waits for its orders, in a cgroup."""
    with start(program, "-w") as fixture:
        fixture.wait_ready()
        if place is not None:
            enter(place, fixture.pid)
        yield fixture


def pids(tool: Tool) -> set[int]:
    """The processes whose hits were traced."""
    return {event["pid"] for event in tool.events}


def test_a_cgroup_is_traced_with_those_below_it_and_nothing_else(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    with (
        cgroup() as place,
        cgroup("below", place) as below,
        waiting_in(place, program) as one,
        waiting_in(below, program) as two,
        waiting_in(None, program) as outside,
        tracing("--cgroup", f"/{place.name}", "ints:*") as tool,
    ):
        for fixture in (outside, one, two):
            fixture.fire()
        wanted = len(one.hits) + len(two.hits)
        tool.wait_events(wanted)
        assert len(tool.stop()) == wanted
        assert pids(tool) == {one.pid, two.pid}


def test_what_starts_later_is_traced_in_cgroups_that_are_made_later(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    with (
        cgroup() as place,
        waiting_in(place, program),
        tracing("--cgroup", place, f"{program}:ints:*") as tool,
        cgroup("later", place) as later,
    ):
        lines = launch(later, program, "-n", 2).stdout.splitlines()
        launch(later.parent.parent, program)
        tool.wait_events(len(lines))
        assert len(tool.stop()) == len(lines)


def test_a_program_that_appears_later_is_found(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    other = private(build("default", "strings"), tmp_path)
    with (
        cgroup() as place,
        waiting_in(place, program),
        tracing("--cgroup", place, "ints:*", "strings:*") as tool,
        waiting_in(place, other) as later,
    ):
        tool.wait_error("library loaded")
        later.fire()
        tool.wait_events(len(later.hits))
        assert pids(tool) == {later.pid}
        tool.stop()


@pytest.mark.parametrize("via", ["uprobe_multi", "perf-link", "perf-event"])
def test_every_way_of_attaching(via: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    request.getfixturevalue({"perf-link": "cookies", "perf-event": "uprobe_pmu"}.get(via, via))
    program = private(build("default", "ints"), tmp_path)
    with (
        cgroup() as place,
        waiting_in(place, program) as inside,
        waiting_in(None, program) as outside,
        tracing("--cgroup", place, "--via", via, "ints:*") as tool,
    ):
        outside.fire()
        inside.fire()
        tool.wait_events(len(inside.hits))
        tool.stop()
        assert pids(tool) == {inside.pid}


def test_a_process_and_a_cgroup_must_both_fit(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    with (
        cgroup() as place,
        waiting_in(place, program) as inside,
        waiting_in(place, program) as other,
        waiting_in(None, program) as outside,
        tracing("--cgroup", place, "-p", inside.pid, "-p", outside.pid, "ints:*") as tool,
    ):
        for fixture in (outside, other, inside):
            fixture.fire()
        tool.wait_events(len(inside.hits))
        tool.stop()
        assert pids(tool) == {inside.pid}


def test_a_unit_that_is_started_again_is_traced_on(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    name = f"usdt-{uuid.uuid4().hex[:8]}.service"
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        place = first.enter_context(cgroup(name))
        one = first.enter_context(waiting_in(place, program))
        tool = stack.enter_context(tracing("--unit", name, f"{program}:ints:*", "-v"))
        one.fire()
        one.finish()
        tool.wait_events(len(one.hits))
        first.close()
        with cgroup(name) as again, waiting_in(again, program) as two:
            assert again.stat().st_ino

            def traced() -> bool:
                two.fire()
                return two.pid in pids(tool)

            until(traced, "the new cgroup to be traced", every=0.1)
        tool.stop()


def test_a_container_that_is_started_again_at_another_level_is_traced_on(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    name = f"docker-{uuid.uuid4().hex * 2}.scope"
    words = ("--container", name[7:19], f"{program}:ints:*")
    with contextlib.ExitStack() as stack:
        with cgroup(name) as place, waiting_in(place, program):
            tool = stack.enter_context(tracing(*words))
        parent = stack.enter_context(cgroup("", stack.enter_context(cgroup())))
        again = stack.enter_context(cgroup(name, parent))
        two = stack.enter_context(waiting_in(again, program))
        outside = stack.enter_context(waiting_in(parent, program))

        def traced() -> bool:
            outside.fire()
            two.fire()
            return two.pid in pids(tool)

        until(traced, "the new cgroup to be traced", every=0.1)
        tool.stop()
        assert pids(tool) == {two.pid}


def test_a_container_by_id_and_by_its_first_digits(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    identity = uuid.uuid4().hex * 2
    with (
        cgroup(f"docker-{identity}.scope") as place,
        waiting_in(place, program) as inside,
        waiting_in(None, program) as outside,
    ):
        for text in (identity, identity[:12]):
            with tracing("--container", text, "ints:*") as tool:
                outside.fire()
                inside.fire()
                tool.wait_events(1)
                tool.stop()
                assert pids(tool) == {inside.pid}


def test_the_kernels_probes_are_those_of_a_cgroup() -> None:
    program = build("default", "ints")
    with cgroup() as place, waiting_in(place, program) as inside, waiting_in(None, program) as out:
        words = ("trace", "--json", "--cgroup", place, "syscall:write")
        with Tool(*words, command=KPROBE) as tool:
            tool.wait_tracing()
            out.fire()
            inside.fire()
            tool.wait_events(1)
            tool.stop()
            assert pids(tool) == {inside.pid}


def test_results_of_the_kernel_are_those_of_a_cgroup(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    with (
        cgroup() as place,
        waiting_in(place, program) as inside,
        waiting_in(None, program) as outside,
        Tool("count", "--json", "--cgroup", place, "ints:*") as tool,
    ):
        tool.wait_tracing()
        outside.fire()
        inside.fire()
        tool.process.send_signal(2)
        tool.finish()
        assert sum(record.get("count", 0) for record in tool.records) == len(inside.hits)


# ------------------------------------------------------------------ names


def _short_lived(program: Path, names: list[str]) -> None:
    # Cgroups that are gone before anybody can look them up.
    for name in names:
        with cgroup(name) as place:
            launch(place, program, "-q")


def _containers(number: int) -> tuple[list[str], set[str]]:
    identities = [uuid.uuid4().hex * 2 for _ in range(number)]
    return [f"docker-{one}.scope" for one in identities], {one[:12] for one in identities}


@pytest.mark.usefixtures("reports")
def test_names_of_containers_that_have_ended(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    scopes, containers = _containers(5)
    with tracing(f"{program}:ints:i8(container, pod, unit, cgroup_path)") as tool:
        _short_lived(program, scopes)
        tool.wait_events(5)
        events = tool.stop()
    found = [event["args"] for event in events]
    assert {args["container"] for args in found} == containers
    assert {args["unit"] for args in found} == set(scopes)
    assert {args["cgroup_path"] for args in found} == {f"/{one}" for one in scopes}
    assert {args["pod"] for args in found} == {None}


def test_results_by_container_and_its_cgroups_are_one(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    ((scope,), (container,)) = _containers(1)
    words = ("count", "--json", f"{program}:ints:i8", "--by", "container,pod")
    with (
        cgroup(scope) as place,
        cgroup("one", place) as one_below,
        cgroup("two", place) as two_below,
        Tool(*words) as tool,
    ):
        tool.wait_tracing()
        for below in (one_below, two_below):
            launch(below, program, "-q", "-n", 3)
        launch(mounted(), program, "-q", "-n", 2)
        tool.process.send_signal(2)
        tool.finish()
    rows = [record for record in tool.records if "key" in record]
    found = {record["key"]["container"]: record["count"] for record in rows}
    assert len(rows) == len(found) == 2
    one = found.pop(container)
    assert found == {None: one // 3}, "6 rounds in the container, 2 outside"


@pytest.mark.usefixtures("reports")
def test_recordings_have_the_names(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    scopes, containers = _containers(2)
    file = tmp_path / "recording"
    probe = f"{program}:ints:i8(container, cgroup_path)"
    with usdt_tool("record", "-o", file, probe) as tool:
        tool.wait_tracing()
        _short_lived(program, scopes)
        tool.process.send_signal(2)
        tool.finish()
    reported = run_usdt("report", "--json", file).stdout.splitlines()
    found = [json.loads(line)["args"] for line in reported if '"args"' in line]
    assert {args["container"] for args in found} == containers
    shown = run_usdt("report", "--csv", file).stdout
    assert all(f"/{scope}" in shown for scope in scopes)


@pytest.mark.usefixtures("reports")
def test_python_programs_get_the_names(tmp_path: Path) -> None:
    program = private(build("default", "ints"), tmp_path)
    scopes, containers = _containers(1)
    with usdt.attach(f"{program}:ints:i8(container, pod)") as events:
        _short_lived(program, scopes)
        event = next(iter(events))
    assert event.args == {"container": containers.pop(), "pod": None}


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        pytest.param(("--unit", "usdt-absent"), "--unit usdt-absent: no such unit", id="a unit"),
        pytest.param(("--cgroup", "/usdt-absent"), "no such cgroup; ", id="a cgroup"),
        pytest.param(("--container", "zz"), "--container zz: no such container", id="a container"),
        pytest.param(("--pod", "a/b"), "--pod a/b: no such pod", id="a pod"),
    ],
)
def test_what_is_not_there(words: tuple[str, ...], reason: str) -> None:
    mounted()
    assert reason in one_error(run_usdt("trace", *words, "ints:*"))


def test_a_machine_without_cgroups_of_version_2(tmp_path: Path) -> None:
    shell = f"umount -l '{mounted()}' && exec \"$@\""
    before = (need_program("unshare", "util-linux"), "-m", "/bin/sh", "-c", shell, "sh")
    error = one_error(run_usdt("trace", "--cgroup", "/", "ints:*", before=before))
    assert error.startswith("no cgroup2 file system: ")
    assert "mount -t cgroup2 none DIRECTORY" in error
    program = private(build("default", "ints"), tmp_path)
    words = ("trace", "--json", "-c", f"{program} -q", "ints:i8(cgroup_path)")
    done = run_usdt(*words, before=before)
    assert '"args": {"cgroup_path": ' in done.stdout, done.stderr


def test_a_tracer_in_a_cgroup_namespace_of_its_own(tmp_path: Path) -> None:
    unshare = need_program("unshare", "util-linux")
    if subprocess.run([unshare, "-C", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs unshare -C: that of util-linux, in a kernel with cgroup namespaces")
    program = private(build("default", "ints"), tmp_path)
    with cgroup() as place, cgroup("below", place) as below, waiting_in(below, program) as inside:
        mount = f"umount -l {mounted()} && mount -t cgroup2 none {mounted()}"
        inner = f'exec unshare -C -m /bin/sh -c \'{mount} && exec "$@"\' sh "$@"'
        shell = f'echo $$ > "{place}/cgroup.procs" && {inner}'
        words = ("trace", "--json", "--cgroup", "/below", "ints:*")
        with (
            waiting_in(place, program) as outside,
            usdt_tool(*words, before=("/bin/sh", "-c", shell, "sh")) as tool,
        ):
            tool.wait_tracing()
            outside.fire()
            inside.fire()
            tool.wait_events(len(inside.hits))
            tool.stop()
            assert pids(tool) == {inside.pid}


def test_a_command_is_not_in_another_cgroup() -> None:
    done = run_usdt("trace", "--cgroup", "/", "-c", "true", "ints:*")
    assert done.returncode == 2
    assert "-c starts the command in the cgroup of this one" in done.stderr


def test_without_bpf_there_is_no_cgroup() -> None:
    mounted()
    done = run_usdt("trace", "--cgroup", "/", "--via", "tracefs", "uprobe:libc:getppid")
    assert "--via tracefs cannot trace by cgroup" in one_error(done)
