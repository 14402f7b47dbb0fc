"""Many sites as one event of tracefs, as kernels without uprobe_multi attach them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fixtures import start
from managing import few_sites
from manysites import SYNTAX, build_sites, constants
from recorder import places, shared_semaphores
from recorder import tracing as tracer
from skips import requires_root
from tracing_tools import run_usdt, semaphores, tracing

from usdt.bpf import features
from usdt.tracefs.definitions import list_events
from usdt.tracefs.mount import tracefs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [requires_root, pytest.mark.usefixtures("ringbuf", "uprobe_pmu")]

EVENTS = "--via", "uprobe_events"


def values(events: list[dict[str, Any]]) -> list[tuple[str, object]]:
    """What they say of their probe."""
    return [(event["probe"], event["args"]) for event in events]


def left(pid: int) -> list[str]:
    """The definitions of a process."""
    return [text for event, text in list_events(tracefs()) if event.name.startswith(f"usdt_{pid}_")]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A hundred sites with different arguments, and nine probes with a site each."""
    each = {f"probe{number}": [SYNTAX.pointer, SYNTAX.number(7)] for number in range(9)}
    return build_sites(tmp_path, {"many": constants(100), **each})


@pytest.mark.parametrize("forced", [False, True])
def test_events_are_those_of_other_methods(many: Path, forced: bool) -> None:
    words = ("-v", *EVENTS) if forced else ("-v",)
    with start(many) as running:
        target = "-p", running.pid, "sites:*"
        with (
            tracing(*words, *target) as one,
            tracing("--via", "perf-event", "-p", running.pid, "sites:probe*") as few,
        ):
            multi = features.have_uprobe_multi() and not forced
            how = "one uprobe_multi link" if multi else "one event of tracefs"
            assert one.wait_error(how).startswith(f"118 sites of {many} in {running.pid}: {how}")
            one.wait_tracing()
            few.wait_tracing()
            assert bool(left(one.pid)) is not multi
            running.fire()
            found = values(one.stop())
            assert [value for value in found if value[0] != "sites:many"] == values(few.stop())
    assert [args["arg0"] for name, args in found if name == "sites:many"] == [*range(100)]
    assert not left(one.pid)


def test_two_probes_at_one_place_run_in_the_order_given(tmp_path: Path) -> None:
    path = few_sites(tmp_path)
    probes = "sites:four(arg0)", "sites:one(arg0)", "sites:four(arg0 + 10)", "sites:four(arg0 + 20)"
    with start(path) as running, tracing(*EVENTS, "-p", running.pid, *probes) as tool:
        tool.wait_tracing()
        running.fire()
        found = [[*event["args"].values()] for event in tool.stop()]
    assert found == [[7], *([number + more] for number in (1, 2, 1, 2) for more in (0, 10, 20))]


def test_other_processes_are_not_traced(tmp_path: Path) -> None:
    path = few_sites(tmp_path)
    with (
        start(path) as wanted,
        start(path) as other,
        tracing(*EVENTS, "-p", wanted.pid, "sites:*") as one,
        tracing(*EVENTS, f"{path}:sites:*") as both,
    ):
        one.wait_tracing()
        both.wait_tracing()
        other.fire()
        wanted.fire()
        assert {event["pid"] for event in one.stop()} == {wanted.pid}
        pids = [event["pid"] for event in both.stop()]
    assert pids == [other.pid] * 7 + [wanted.pid] * 7


def test_a_name_that_a_definition_cannot_have(tmp_path: Path) -> None:
    folder = tmp_path / "two words #1: (x)"
    folder.mkdir()
    path = few_sites(folder)
    with start(path) as running, tracing(*EVENTS, f"{path}:sites:*") as tool:
        tool.wait_tracing()
        running.fire()
        assert len(tool.stop()) == 7


def test_semaphores_are_raised_while_it_is_attached(tmp_path: Path) -> None:
    path = shared_semaphores(tmp_path)
    with start(path, "-w") as running:
        running.wait_ready()
        with tracing(*EVENTS, "-p", running.pid, "*:*") as tool:
            tool.wait_tracing()
            assert sorted(semaphores(running.pid, path).values()) == [2, 3]
            tool.stop()
        assert set(semaphores(running.pid, path).values()) == {0}


def test_a_site_that_the_kernel_refuses_does_not_stop_the_others(tmp_path: Path) -> None:
    path = shared_semaphores(tmp_path)
    first, *_ = places(path, *range(5), semaphores=False)
    with start(path, "-w") as running, tracer(path, "ioctl") as other:
        running.wait_ready()
        # At one instruction, all uprobes have one semaphore, or none.
        with other.attached([first], pid=running.pid):
            with tracing(*EVENTS, "-v", "-p", running.pid, "*:*") as tool:
                tool.wait_error("another tracer may have attached here with a different semaphore")
                assert tool.wait_tracing().sites == 4
                assert sorted(semaphores(running.pid, path).values()) == [2, 2]
                tool.stop()
            assert not left(tool.pid)


def test_what_a_killed_run_leaves_is_removed(tmp_path: Path) -> None:
    path = few_sites(tmp_path)
    with start(path) as running:
        with tracing(*EVENTS, "-p", running.pid, "sites:*") as tool:
            tool.wait_tracing()
            tool.kill()
            assert left(tool.pid)
        assert run_usdt("trace", *EVENTS, "-d", "0.1", "-p", running.pid, "sites:*").returncode == 0
        assert not left(tool.pid)
