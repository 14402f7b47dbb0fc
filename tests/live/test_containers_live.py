"""Real containers: whom to trace by name, paths and symbols inside, and ``usdt list``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from containers import Container, container
from fixtures import Fixture, build, start
from tracing_tools import one_error, private, run_usdt, tracing

import kprobe
import usdt
from usdt.bpf import features

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("ringbuf")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """A container with the program ints."""
    if not features.have_ancestor_cgroups():
        pytest.skip("needs Linux 5.16: bpf_get_current_ancestor_cgroup_id() in tracing programs")
    with container(tmp_path_factory.mktemp("shop")) as running:
        yield running


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Fixture]:
    """The same program outside of any container."""
    with start(private(build("static", "ints"), tmp_path), "-w") as program:
        program.wait_ready()
        yield program


def _fired(container: Container) -> int:
    before = len(container.fixture.hits)
    container.fixture.fire()
    return len(container.fixture.hits) - before


@pytest.mark.parametrize("path", ["usr/bin/app:", "/usr/bin/app:", "app:", ""])
def test_paths_are_those_of_the_container(shop: Container, outside: Fixture, path: str) -> None:
    assert not Path("/usr/bin/app").exists()
    with tracing("--container", shop.name, f"{path}ints:i8(container, pod)") as tool:
        outside.fire()
        _fired(shop)
        tool.wait_events(1)
        events = tool.stop()
    assert {event["pid"] for event in events} == {shop.pid}
    assert events[0]["args"] == {"container": shop.name, "pod": shop.pod}


@pytest.mark.parametrize("option", ["id", "digits", "pod", "uid"])
def test_a_container_by_everything_that_names_it(shop: Container, option: str) -> None:
    cgroup = Path(f"/proc/{shop.pid}/cgroup").read_text().rstrip().rpartition("\n")[2]
    words = {
        "id": ("--container", shop.id),
        "digits": ("--container", shop.id[:12]),
        "pod": ("--pod", shop.pod),
        "uid": ("--pod", cgroup.split("/pod")[1].split("/")[0]),
    }[option]
    with tracing(*words, "ints:*") as tool:
        number = _fired(shop)
        assert len(tool.wait_events(number)) == number
        tool.stop()


def test_the_python_interface_traces_a_container(shop: Container, outside: Fixture) -> None:
    with (
        usdt.attach("usr/bin/app:ints:i8(container)", container=shop.name) as events,
        usdt.Session(pod=[shop.pod]) as session,
        kprobe.Session(container=shop.id) as kernel,
    ):
        counted = session.count("ints:i8", by="container")
        writes = kernel.count("syscall:write", by="pid")
        outside.fire()
        _fired(shop)
        hits = events.finish()
        assert {(hit.pid, hit.args["container"]) for hit in hits} == {(shop.pid, shop.name)}
        assert dict(counted) == {shop.name: len(hits)}
        assert {*writes} == {shop.pid}


def test_functions_and_symbols_are_those_of_the_container(shop: Container) -> None:
    words = ("--container", shop.name, "--ustack", "uprobe:usr/bin/app:write")
    with tracing(*words) as tool:
        _fired(shop)
        event = tool.wait_events(1)[0]
        tool.stop()
    names = [frame.get("symbol", "") for frame in event["args"]["ustack"]]
    assert any("main" in name for name in names), names


def test_perf_maps_are_those_of_the_container(shop: Container) -> None:
    maps = Path(f"/proc/{shop.pid}/maps").read_text().splitlines()
    start = next(line for line in maps if line.endswith("[stack]")).partition("-")[0]
    perf_map = shop.root / "tmp/perf-1.map"  # the ID of the process in its own namespace
    perf_map.write_text(f"{start} 100 compiled_function\n")
    with tracing("--container", shop.name, f"uprobe:usr/bin/app:write(usym(0x{start}))") as tool:
        _fired(shop)
        event = tool.wait_events(1)[0]
        tool.stop()
    assert event["args"][f"usym(0x{start})"]["symbol"] == "compiled_function"


def test_what_is_not_in_the_container(shop: Container) -> None:
    done = run_usdt("trace", "--container", shop.name, "usr/bin/app:a:b")
    assert "/usr/bin/app: no probe a:b" in one_error(done)
    with tracing("--container", shop.name, "usr/bin/env:a:b") as tool:
        said = tool.wait_error("waiting for a process in --container")
        assert said.startswith("/usr/bin/env: no such file in the mount namespace of process ")
        assert not tool.stop()


def test_a_listing_names_the_container(shop: Container) -> None:
    for words in (("-a",), ("-p", shop.pid)):
        shown = run_usdt("list", *words).stdout
        apps = [line for line in shown.splitlines() if line.startswith("/usr/bin/app  (")]
        own = [line for line in apps if line.endswith(f"; in {shop.pod}/{shop.name})")]
        assert len(own) == 1, apps  # other tests run containers, too
        objects = map(json.loads, run_usdt("list", "--json", *words).stdout.splitlines())
        found = [one["containers"] for one in objects if one["path"] == "/usr/bin/app"]
        assert [f"{shop.pod}/{shop.name}"] in found


def test_what_is_in_no_container_names_none(outside: Fixture) -> None:
    assert "; in " not in run_usdt("list", "-p", outside.pid).stdout
    assert "containers" not in run_usdt("list", "--json", "-p", outside.pid).stdout
