"""``-f``: children, their threads, their children and what they become are traced as well."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import Fixture, build, start
from patience import patient
from skips import need_program
from streams import read_events
from tracing_tools import (
    USDT,
    Tool,
    fire_until_traced,
    leftovers,
    one_error,
    private,
    run_usdt,
    semaphores,
    tracing,
    until,
)
from tracing_tools import usdt as usdt_tool

import usdt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = pytest.mark.usefixtures("ringbuf")

# Microseconds between the rounds of children that are to be caught alive; more under emulation.
_PAUSE = int(20_000 * float(os.environ.get("USDT_PATIENCE", "1")))
_EVERY_WAY = pytest.mark.parametrize("via", ["uprobe_multi", "perf-link", "perf-event"])


def tally(records: Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """How often each hit is there: by probe, thread and values, as printed and as traced."""
    return Counter((record["probe"], record["tid"], *_values(record["args"])) for record in records)


def _values(args: Any) -> Iterable[Any]:
    return args.values() if isinstance(args, dict) else args


@contextlib.contextmanager
def waiting(*words: object) -> Iterator[Fixture]:
    """A bomb that waits for its orders, or another fixture."""
    path, *options = words
    with start(str(path), "-w", *options) as fixture:
        yield fixture.wait_ready()


def children(pid: int) -> list[int]:
    """The processes that have this one for a parent and are not about to be reaped."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(entry.name))
    return found


def run_command(output: Path, command: str, *words: object) -> tuple[Tool, list[dict[str, Any]]]:
    """Trace a command to the end, with its children; what it printed is in the tool's lines."""
    with tracing("-f", "-c", command, "-o", output, *words) as tool:
        assert tool.wait_all() == 0
        events = read_events(output.read_text())
        until(lambda: any("events, " in line for line in tool.errors), "the closing line")
    assert tool.closing == (len(events), 0), tool.errors
    return tool, events


# ---------------------------------------------------------------- forks and threads


def test_every_hit_of_two_hundred_children_and_their_threads_is_there(tmp_path: Path) -> None:
    bomb = build("default", "bomb")
    tool, events = run_command(tmp_path / "events", f"{bomb} -n 10 -c 200 -t 2", "bomb:*")
    assert len(events) == 10 * (1 + 200 * 4)
    assert len({event["pid"] for event in events}) == 1 + 2 * 200
    assert tally(events) == tally(tool.records)


@_EVERY_WAY
def test_every_way_of_attaching_follows(via: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue({"perf-link": "cookies", "perf-event": "uprobe_pmu"}.get(via, via))
    with (
        waiting(build("default", "bomb"), "-n", 3) as bomb,
        tracing("-f", "-p", bomb.pid, "--via", via, "bomb:*") as tool,
    ):
        bomb.fire()
        bomb.finish()
        assert tally(tool.wait_end()) == tally(bomb.hits)


def test_a_server_is_followed_through_one_generation_of_workers_after_the_other() -> None:
    with (
        waiting(build("default", "bomb"), "-n", 2, "-c", 5) as bomb,
        tracing("-f", "-p", bomb.pid, "bomb:*") as tool,
        tracing("-p", bomb.pid, "bomb:*") as alone,
    ):
        for _ in range(5):
            bomb.fire()
        bomb.finish()
        assert len(bomb.hits) == 5 * 2 * (1 + 5 * 4)
        assert tally(tool.wait_end()) == tally(bomb.hits)
        own = [hit for hit in bomb.hits if hit["pid"] == bomb.pid]
        assert tally(alone.wait_end()) == tally(own), "without -f a child's hit is nobody's"


def begun(bomb: Fixture, number: int) -> list[int]:
    """The bomb's children, once it has so many and each has fired."""
    bomb.send("fire")
    until(lambda: len({hit["pid"] for hit in bomb.hits}) == 1 + number, "all children to begin")
    found = children(bomb.pid)
    assert len(found) == number, "a child ended too early for this test"
    return found


def signalled(pids: Iterable[int], number: int) -> None:
    """Send a signal to all of them."""
    for pid in pids:
        os.kill(pid, number)


def test_children_that_are_there_already_are_followed() -> None:
    with waiting(build("default", "bomb"), "-n", 20, "-s", _PAUSE, "-c", 3, "-t", 1) as bomb:
        first = begun(bomb, 3)
        signalled(first, signal.SIGSTOP)
        with tracing("-f", "-p", bomb.pid, "bomb:*") as tool:
            signalled(first, signal.SIGCONT)
            bomb.wait_line("done")
            bomb.finish()
            events = tool.wait_end()
    assert {event["pid"] for event in events} > set(first)
    late = [hit for hit in bomb.hits if hit["probe"] == "bomb:grandchild"]
    assert len(late) == 20 * 3
    assert tally(e for e in events if e["probe"] == "bomb:grandchild") == tally(late)
    assert not tally(events) - tally(bomb.hits)


def test_it_goes_on_when_only_children_are_left() -> None:
    # The first process ends at once, its children are left to somebody else.
    script = '( read go; exec "$0" -n 3 -c 2 ) <&3 & exec 3<&-; exit 0'
    bomb = build("default", "bomb")
    with start("sh", "-c", f"exec 3<&0; read start; {script}", bomb) as fixture:
        with tracing("-f", "-p", fixture.pid, f"{bomb}:bomb:*") as tool:
            fixture.send("start")
            fixture.process.wait(patient(100))
            assert tool.code is None
            fixture.send("go")
            fixture.wait_hits(3 * (1 + 2 * 4))
            events = tool.wait_end()
        assert tally(events) == tally(fixture.hits)
        assert fixture.pid not in {event["pid"] for event in events}


def test_stopped_children_lose_nothing() -> None:
    with (
        waiting(build("default", "bomb"), "-n", 20, "-s", _PAUSE, "-c", 4) as bomb,
        tracing("-f", "-p", bomb.pid, "bomb:*") as tool,
    ):
        stopped = begun(bomb, 4)[:2]
        signalled(stopped, signal.SIGSTOP)
        until(lambda: len(children(bomb.pid)) == 2, "the other two to end")
        tool.wait_events(20 + 2 * 4 * 20)
        signalled(stopped, signal.SIGCONT)
        bomb.wait_line("done")
        bomb.finish()
        assert tally(tool.wait_end()) == tally(bomb.hits)


def test_killed_children_do_not_keep_it() -> None:
    with (
        waiting(build("default", "bomb"), "-n", 1000, "-s", 100000, "-c", 3, "-t", 1) as bomb,
        tracing("-f", "-p", bomb.pid, "bomb:*") as tool,
    ):
        bomb.send("fire")
        both = {"bomb:child", "bomb:thread"}
        until(lambda: {event["probe"] for event in tool.events} >= both, "children and threads")
        bomb.kill()
        assert {event["probe"] for event in tool.wait_end()} >= both


def test_semaphores_are_raised_in_all_and_none_is_left_raised(tmp_path: Path) -> None:
    path, known = private(build("default", "bomb"), tmp_path), leftovers()
    with waiting(path, "-n", 1000, "-s", 100000, "-c", 4, "-t", 1) as bomb:
        with tracing("-f", "-p", bomb.pid, "bomb:*") as tool:
            everybody = [bomb.pid, *begun(bomb, 4)]
            for pid in everybody:
                assert set(semaphores(pid, path).values()) == {1}
            tool.stop()
        for pid in everybody:
            assert set(semaphores(pid, path).values()) == {0}
    until(lambda: leftovers() <= known, "programs, maps and links to go")


# ---------------------------------------------------------------- what children become


def test_a_child_that_executes_a_named_program_is_traced_at_once(tmp_path: Path) -> None:
    execer, args = build("default", "execer"), build("default", "args")
    command = f"sh -c '{execer} -n 3 {args} -n 2; {args} -n 1; true'"
    words = (f"{execer}:execer:*", f"{args}:args:count3(arg0,arg1,arg2)")
    tool, events = run_command(tmp_path / "events", command, *words)
    wanted = ("execer:before", "args:count3")
    assert tally(events) == tally(hit for hit in tool.records if hit["probe"] in wanted)
    assert Counter(event["probe"] for event in events) == {"execer:before": 3, "args:count3": 3}


@pytest.mark.parametrize("words", ["sh -c '{}; true'", "env X=1 {}", "sh -c '(timeout 20 {})'"])
def test_a_program_that_the_command_mentions_is_traced_at_once(words: str, tmp_path: Path) -> None:
    command = words.format(f"{build('default', 'args')} -n 2")
    tool, events = run_command(tmp_path / "events", command, "args:count3")
    assert len(events) == 2
    assert tally(events) == tally(h for h in tool.records if h["probe"] == "args:count3")


def _last_round(fixture: Fixture, tool: Tool, probe: str) -> tuple[Any, list[dict[str, Any]]]:
    # What the last round fired of a probe that the tool finds by itself, and all that was traced.
    fire_until_traced(fixture, tool, probe)
    tool.wait_error("library loaded; now tracing")
    before = len(fixture.hits)
    fixture.fire()
    expected = [hit for hit in fixture.hits[before:] if hit["probe"] == probe]
    fixture.finish()
    return expected, tool.wait_end()


def assert_found(*words: str) -> None:
    """What is started by these words executes args when told to go: it is traced from then on."""
    with (
        start(*words) as fixture,
        tracing("-f", "-p", fixture.pid, "args:count3") as tool,
    ):
        tool.wait_error("waiting for a library")
        fixture.send("go")
        fixture.wait_ready()
        expected, events = _last_round(fixture, tool, "args:count3")
    assert len(expected) == 2
    assert tally(events[-2:]) == tally(expected)
    assert fixture.pid not in {event["pid"] for event in events}


def test_a_program_that_nobody_named_is_found_when_a_child_executes_it() -> None:
    args = build("default", "args")
    assert_found("sh", "-c", f"read go; {args} -w -n 2; true")


@pytest.mark.parametrize("between", ["rm {0}", "true"], ids=["deleted", "overwritten"])
def test_a_program_in_the_place_of_another_is_found(between: str, tmp_path: Path) -> None:
    # File systems give the inode of a deleted file to the next one.
    copy, args = tmp_path / "copy", build("default", "args")
    before = f"cp /bin/true {copy}; {copy}; {between.format(copy)}"
    assert_found("sh", "-c", f"read go; {before}; cp {args} {copy}; {copy} -w -n 2; true")


def test_a_program_in_a_childs_own_mount_namespace_is_found() -> None:
    args = build("default", "args")
    script = f"read go; mount -t tmpfs none /mnt; cp {args} /mnt/inside; /mnt/inside -w -n 2; true"
    assert_found("unshare", "--mount", "sh", "-c", script)


def test_a_library_that_a_child_loads_is_found() -> None:
    path = build("default", "dlopened")
    with start("sh", "-c", f"{path} -w -n 1; true") as fixture:
        fixture.wait_ready()
        with tracing("-f", "-p", fixture.pid, "plugin:hit") as tool:
            fixture.send("open")
            fixture.wait_line("opened")
            expected, events = _last_round(fixture, tool, "plugin:hit")
    assert len(expected) == 1
    assert {event["tid"] for event in events} == {expected[0]["tid"]}


# ---------------------------------------------------------------- PID namespaces


def test_children_in_a_pid_namespace_are_shown_as_the_tracer_sees_them(tmp_path: Path) -> None:
    need_program("unshare", "util-linux")
    bomb = build("default", "bomb")
    command = f"unshare --pid --fork --kill-child {bomb} -n 2 -c 3"
    tool, events = run_command(tmp_path / "events", command, f"{bomb}:bomb:*")
    printed = Counter((hit["probe"], *hit["args"]) for hit in tool.records)
    assert Counter((event["probe"], *event["args"].values()) for event in events) == printed
    inside = {hit["pid"] for hit in tool.records}
    assert len(inside) == len({event["pid"] for event in events}) == 7
    assert inside.isdisjoint({event["pid"] for event in events})


_INSIDE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def test_a_tracer_in_a_pid_namespace_follows(tmp_path: Path) -> None:
    need_program("unshare", "util-linux")
    bomb, output = build("default", "bomb"), tmp_path / "events"
    words = ("--json", "-o", output, "-f", "-c", f"{bomb} -n 2 -c 20", "bomb:*")
    done = run_usdt("trace", *words, before=_INSIDE)
    assert done.returncode == 0, done.stderr
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    events = read_events(output.read_text())
    assert len(events) == 2 * (1 + 20 * 4)
    assert tally(events) == tally(printed)
    assert {event["pid"] for event in events} == {hit["pid"] for hit in printed}


def test_hits_that_have_no_number_here_are_said_to_be_left_out() -> None:
    # Of a namespace below that of a tracer which is itself not in the first one.
    need_program("unshare", "util-linux")
    bomb = build("default", "bomb")
    command = f"unshare --pid --fork --kill-child {bomb} -q -n 2 -c 3"
    words = ("--json", "-f", "-c", command, f"{bomb}:bomb:*")
    done = run_usdt("trace", *words, before=_INSIDE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert f"left out {2 * (1 + 3 * 4)} hits in child PID namespaces" in done.stderr


# Starts a process in a namespace below and traces it.
_BELOW = """
import subprocess, sys, time
from usdt.targets.follow_forks import descendants

outer = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sleep", "60"])
while not (inner := list(descendants([outer.pid]))):
    time.sleep(0.01)
done = subprocess.run([sys.argv[1], "trace", *sys.argv[2:], "-p", str(inner[0]), "libc:*"])
outer.kill()
sys.exit(done.returncode)
"""


@pytest.mark.parametrize("words", [(), ("-f",)], ids=["alone", "followed"])
def test_a_process_that_has_no_number_here_is_refused(words: tuple[str, ...]) -> None:
    need_program("unshare", "util-linux")
    done = subprocess.run(
        [*_INSIDE, sys.executable, "-c", _BELOW, USDT, *words],
        cwd=Path(usdt.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(100),
    )
    message = one_error(done)
    assert "(sleep) is in a child PID namespace: it can only be traced from" in message


# ---------------------------------------------------------------- from Python


def test_events_of_children_come_to_python() -> None:
    words = [str(build("default", "bomb")), "-q", "-n", "2", "-c", "10"]
    with usdt.attach("bomb:*", command=words, follow=True) as events:
        found = Counter(event.probe for event in events)
    assert found == {"bomb:parent": 2, "bomb:child": 20, "bomb:thread": 40, "bomb:grandchild": 20}


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """A shell that does nothing but wait for its child."""
    words = ["sh", "-c", "sleep 1000; :"]
    with subprocess.Popen(words, start_new_session=True) as shell:
        until(lambda: children(shell.pid), "the child")
        yield shell
        os.killpg(shell.pid, signal.SIGKILL)


def test_a_trace_without_hits_says_that_children_are_not_traced(
    parent: subprocess.Popen[bytes],
) -> None:
    said = f"process {parent.pid} (sh): no hits so far, and its children are not traced; add -f"
    with usdt_tool("trace", "-p", parent.pid, "uprobe:libc:getenv") as tool:
        tool.wait_error(said)
        tool.stop()
    assert tool.errors.count(said) == 1
    done = run_usdt("count", "-p", parent.pid, "uprobe:libc:getenv", "-d", "0.1")
    assert said in done.stderr.splitlines()
    done = run_usdt("count", "-f", "-p", parent.pid, "uprobe:libc:getenv", "-d", "0.1")
    assert "add -f" not in done.stderr


def test_a_trace_with_hits_or_without_children_does_not() -> None:
    with waiting(build("default", "loop"), "-n", 3) as loop:
        with tracing("-p", loop.pid, "loop:hit") as tool:
            loop.fire()
            tool.stop()
        assert "not traced" not in "".join(tool.errors)
        done = run_usdt("trace", "-p", loop.pid, "loop:hit", "-d", "0.1")
    assert "not traced" not in done.stderr


def test_a_probe_that_is_waited_for_is_named_with_the_one_that_was_probably_meant() -> None:
    with waiting(build("default", "loop")) as loop:
        done = run_usdt("trace", "-p", loop.pid, "loop:h", "-d", "0.1")
    assert (
        f"no probe loop:h in process {loop.pid} yet: waiting for a library with it; "
        "did you mean loop:hit?"
    ) in done.stderr
