"""Events that somebody defined and that stay: traced by name, in an instance of tracefs.

perf never opens them: that has crashed a kernel (docs/architecture.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build
from kernelprobes import kprobe, program, tracing_kernel
from tracing_tools import USDT, private, until

import kprobe as api
from kprobe.tracepoints.syscall_numbers import numbers
from usdt.base.errors import NotSupported
from usdt.tracefs.definitions import (
    DefinedEvent,
    define_event,
    list_events,
    remove_event,
    remove_group,
)
from usdt.tracefs.mount import tracefs as mounted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GROUP = f"usdt_test_defined_{os.getpid()}"
_ROUNDS = 20


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """A program with the probe loop:hit, and events GROUP/hit and GROUP/back on it."""
    return private(build("default", "loop"), tmp_path)


@pytest.fixture
def event(loop: Path) -> Iterator[str]:
    """The name of an event on loop:hit with the field ``round``, which stays."""
    lines = kprobe("events", loop, "loop:hit(arg0)", command=USDT).stdout.splitlines()
    (line,) = [one for one in lines if one.startswith("p:usdt/loop_hit_site0 ")]
    line = line.replace("usdt/loop_hit_site0", f"{_GROUP}/hit").replace(" arg0=", " round=")
    kprobe("event", "define", line)
    yield "hit"
    kprobe("event", "remove", "--yes", f"{_GROUP}/*")


def _traced(loop: Path, *probes: str, rounds: int = _ROUNDS) -> list[dict[str, Any]]:
    words = ("trace", "--json", "-c", f"{loop} -q -n {rounds}", *probes)
    lines = kprobe(*words).stdout.splitlines()
    return [found for found in map(json.loads, lines) if "probe" in found]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(f"tracepoint:{_GROUP}:hit", id="as a tracepoint"),
        pytest.param("tracepoint:hit", id="without its group"),
        pytest.param(f"{_GROUP}/hit", id="as kprobe event lists it"),
        pytest.param(f"{_GROUP}:hit", id="with a colon"),
    ],
)
@pytest.mark.usefixtures("event")
def test_a_defined_event_is_traced_by_name(loop: Path, name: str) -> None:
    hits = _traced(loop, name)
    assert [hit["args"]["round"] for hit in hits] == list(range(_ROUNDS))
    assert {hit["probe"] for hit in hits} == {f"tracepoint:{_GROUP}:hit"}
    assert {hit["comm"] for hit in hits} == {"loop"}
    assert {hit["args"]["__probe_ip"]["symbol"] for hit in hits} == {"quick"}
    assert f"{_GROUP}/hit" in kprobe("event", "list").stdout  # it stays
    enabled = (mounted() / "events" / _GROUP / "hit" / "enable").read_text()
    assert enabled.startswith("0")


def test_items_and_predicates_of_a_defined_event(loop: Path, event: str) -> None:
    hits = _traced(loop, f"{_GROUP}:{event}(round > 16, round * 2, comm)", f"{event}(round == 3)")
    assert [hit["args"] for hit in hits] == [
        {"round": 3} | {"__probe_ip": hits[0]["args"]["__probe_ip"]},
        *({"round*2": 2 * number, "comm": "loop"} for number in (17, 18, 19)),
    ]


def test_several_readers_and_a_definition_that_is_in_use(loop: Path, event: str) -> None:
    probe = f"tracepoint:{_GROUP}:{event}(round)"
    with (
        tracing_kernel("trace", "--json", probe) as one,
        tracing_kernel("trace", "--json", probe) as other,
    ):
        said = kprobe("event", "remove", f"{_GROUP}/{event}", code=1).stderr
        assert "Device or resource busy (the event is in use)" in said
        subprocess.run([loop, "-q", "-n", "5"], check=True, capture_output=True)
        for tool in (one, other):
            tool.wait_events(5)
            assert [hit["args"]["round"] for hit in tool.stop()] == list(range(5))


def test_a_process_by_id_and_a_probe_beside_a_defined_event(loop: Path, event: str) -> None:
    probe = f"tracepoint:{_GROUP}:{event}(round < 3, round)"
    subprocess.run([loop, "-q", "-n", "5"], check=True, capture_output=True)
    words = ("-c", f"{loop} -q -n 5", probe, "usdt:loop:hit(arg0 < 3, arg0)")
    lines = kprobe("trace", "--json", *words).stdout.splitlines()
    hits = [hit for hit in map(json.loads, lines) if "probe" in hit]
    assert len({hit["pid"] for hit in hits}) == 1
    assert sorted((hit["probe"], *hit["args"].values()) for hit in hits) == [
        *(("loop:hit", number) for number in range(3)),
        *((f"tracepoint:{_GROUP}:hit", number) for number in range(3)),
    ]
    assert [hit["time"] for hit in hits] == sorted(hit["time"] for hit in hits)


def test_patterns_leave_out_defined_events(event: str) -> None:
    assert _GROUP not in kprobe("list", "tracepoint:*").stdout
    assert f"tracepoint:{_GROUP}:hit\n" in kprobe("list", f"tracepoint:{_GROUP}:{event}").stdout
    said = kprobe("count", "-d", "0.1", f"tracepoint:{_GROUP}:*", code=1).stderr
    assert "a pattern leaves out events that somebody defined; name one" in said


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        pytest.param(["count", "NAME"], 1, "only trace reads it", id="counted"),
        pytest.param(["count", "hit"], 1, "only trace reads it", id="counted as a function"),
        pytest.param(
            ["trace", "NAME", "syscall:openat"], 1, "syscall:openat cannot be read", id="a syscall"
        ),
        pytest.param(["trace", "--kstack", "NAME"], 2, "records no stacks", id="stacks"),
        pytest.param(
            ["trace", "-f", "-c", "true", "NAME"], 2, "not follow children", id="children"
        ),
        pytest.param(["trace", "NAME(rond)"], 2, "did you mean round?", id="no such field"),
        pytest.param(["trace", "NAME(*(int *)8 == 1)"], 1, "only points to", id="a predicate"),
    ],
)
def test_what_cannot_be_done_is_said(event: str, words: list[str], code: int, says: str) -> None:
    full = f"tracepoint:{_GROUP}:{event}"
    said = kprobe(*(word.replace("NAME", full) for word in words), code=code).stderr
    assert says in said
    assert len([line for line in said.splitlines() if line.startswith("Error: ")]) == 1


def test_events_in_python(loop: Path, event: str) -> None:
    command = [str(loop), "-q", "-n", "4"]
    with api.attach(f"tracepoint:{_GROUP}:{event}(round)", command=command) as events:
        assert [hit.args["round"] for hit in events] == list(range(4))


# ---------------------------------------------------------------- tracepoints without BPF

_PROGRAM = """
import os
for number in range(3):
    if not os.fork():
        os.execv('/bin/true', ['true'])
    os.wait()
try:
    os.close(987)
except OSError:
    pass
"""
_CLOSE = f"id == {numbers()['close']} && args[0] == 987"
_PROBES = (
    f"tracepoint:raw_syscalls:sys_enter({_CLOSE}, id, args[0] + 1, hex(args[0]), comm, func)",
    "tracepoint:sched:sched_process_fork(parent_comm, child_comm)",
    "tracepoint:task:task_newtask(comm, clone_flags, oom_score_adj)",
)


@pytest.mark.usefixtures("ringbuf", "cookies")
def test_tracepoints_are_the_same_with_and_without_bpf() -> None:
    found = []
    for words in (["--via", "tracefs"], []):
        command = ("trace", "--json", *words, "-c", program(_PROGRAM), *_PROBES)
        hits = list(map(json.loads, kprobe(*command).stdout.splitlines()))
        found.append([(hit["probe"], hit["comm"], hit["args"]) for hit in hits])
    assert found[0] == found[1]
    assert len(found[0]) >= 7


def test_the_names_of_threads_are_those_at_the_hit() -> None:
    """Each program is gone when its record is read."""
    probe = "tracepoint:sched:sched_process_exit(comm)"
    with tracing_kernel("trace", "--via", "tracefs", "--json", probe) as tool:
        for _ in range(3):
            subprocess.run(["/bin/true"], check=True)
        until(lambda: len(_of(tool.events, "true")) >= 3, "the ends of three processes")
        hits = _of(tool.stop(), "true")
    assert {hit["comm"] for hit in hits} == {"true"}


def _of(hits: list[dict[str, Any]], comm: str) -> list[dict[str, Any]]:
    return [hit for hit in hits if hit.get("args", {}).get("comm") == comm]


# ---------------------------------------------------------------- functions of the kernel


@pytest.fixture
def kernel_event(tracefs: Path) -> Iterator[str]:
    """An event on a function of the kernel, which stays."""
    if not (tracefs / "kprobe_events").exists():
        raise NotSupported("kprobe events (CONFIG_KPROBE_EVENTS)", None)
    kprobe("event", "define", f"p:{_GROUP}/kk do_sys_openat2 dfd=$arg1:s32 name=+0($arg2):ustring")
    kprobe("event", "define", f"r:{_GROUP}/rr do_sys_openat2 $retval:s32")
    yield "kk"
    kprobe("event", "remove", "--yes", f"{_GROUP}/*")


@pytest.mark.usefixtures("kernel_event")
def test_a_defined_event_of_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "made"
    items = f'(name == "{path}", dfd, __probe_ip)'
    command = program(f"open({str(path)!r}, 'w')")
    words = ("trace", "--json", "-c", command, f"kk{items}", f"{_GROUP}/rr(__probe_func)")
    hits = [hit for hit in map(json.loads, kprobe(*words).stdout.splitlines()) if "probe" in hit]
    at = next(index for index, hit in enumerate(hits) if hit["probe"].endswith(":kk"))
    assert hits[at]["args"]["dfd"] == -100
    assert hits[at]["args"]["__probe_ip"]["symbol"] == "do_sys_openat2"
    assert hits[at + 1]["args"]["__probe_func"]["symbol"] == "do_sys_openat2"


_REMOVES = """
import sys
from pathlib import Path
from usdt.tracefs.definitions import DefinedEvent, remove_event
for number in range(100):
    remove_event(Path(sys.argv[1]), DefinedEvent("uprobe_events", f"{sys.argv[2]}/gone{number}"))
"""


def test_events_that_stay_are_listed_while_others_go(tracefs: Path) -> None:
    group = f"usdt_check_{os.getpid()}"
    stay = [f"{group}/stays{number}" for number in range(80)]
    try:
        for _ in range(3):
            for name in (*(f"{group}/gone{number}" for number in range(100)), *stay):
                define_event(tracefs, "uprobe_events", f"p:{name} /bin/sh:0x1000", name)
            words = [sys.executable, "-c", _REMOVES, str(tracefs), group]
            with subprocess.Popen(words) as other:
                while other.poll() is None:
                    assert {*stay} <= {event.name for event, _ in list_events(tracefs)}
            assert other.returncode == 0
            remove_group(tracefs, DefinedEvent("uprobe_events", stay[0]))
    finally:
        for event, _ in list_events(tracefs):
            if event.name.startswith(f"{group}/"):
                remove_event(tracefs, event)
