"""``usdt trace --via tracefs``: without BPF, the same values; nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build, start
from paced import BATCHES, ROUNDS, fire_and_wait, lines_of, loop, numbers
from patience import patient
from skips import need_program, requires_root
from tracing_tools import (
    KPROBE,
    USDT,
    Tool,
    by_thread,
    one_error,
    private,
    run_usdt,
    tracing,
    until,
)
from tracing_tools import usdt as started
from tracing_values import compare, unreadable_operands, words_for

from usdt.probes.probe import read_probes
from usdt.tracefs.definitions import DefinedEvent, define_event, remove_event, remove_group
from usdt.tracefs.mount import tracefs as mounted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = requires_root

VIA = ("--via", "tracefs")
HITS = 200_000

# All fixtures are in test_tracefs_fixtures.py, by other means.
_PROGRAMS = pytest.mark.parametrize(
    ("variant", "program"),
    [
        pytest.param(*pair, id="/".join(pair))
        for pair in (("default", "args"), ("static", "globals"), ("m32", "ints"))
    ],
)


@_PROGRAMS
def test_every_value_is_what_the_program_printed(variant: str, program: str) -> None:
    path = build(variant, program)
    with start(path, "-w", "-n", 1) as fixture:
        fixture.wait_ready().fire()
        words, before = words_for(fixture.hits), len(fixture.hits)
        with tracing(*VIA, "-p", fixture.pid, *words) as tool:
            fixture.fire()
            printed = fixture.finish()[before:]
            events = tool.wait_end()
    asked = {word.partition("(")[0] for word in words}
    own = [hit for hit in printed if hit["pid"] == fixture.pid and hit["probe"] in asked]
    assert tool.closing == (len(events), 0)
    assert not [line for line in tool.errors if "not recorded" in line]
    assert Counter(hit["probe"] for hit in own) == Counter(event["probe"] for event in events)
    unreadable = unreadable_operands(path)
    one, other = by_thread(own), by_thread(events)
    assert one.keys() == other.keys()
    found = [line for tid in one for line in compare(one[tid], other[tid], unreadable)]
    assert not found, "\n".join(found[:20])


def _values(events: Iterable[dict[str, Any]]) -> dict[int, list[Any]]:
    keep = ("pid", "tid", "comm", "probe", "args")
    return by_thread([{key: event[key] for key in keep} for event in events])


@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param("args", ["args:count3(arg0+arg1*2,-arg2,pid,tid,comm,func)"], id="computed"),
        pytest.param("ints", ["ints:i32(hex(arg0),arg0<0)", "ints:u8(arg0>=200)"], id="signs"),
        pytest.param(
            "strings",
            ['strings:heap(str(arg0,5),str(arg0)=="f*",arg1)', "strings:literal(buf(arg0,70))"],
            id="strings",
        ),
        pytest.param("regs", ["regs:rax(arg9,arg8!=0||arg9==3)"], id="a part of a register"),
        pytest.param("threads", ['threads:hit(comm=="thread*"||tid!=pid)'], id="whose it is"),
        pytest.param("strings", ["strings:heap(((char *)arg0)[0],*(short *)(arg0+1))"], id="deref"),
    ],
)
def test_expressions_and_predicates_give_what_bpf_gives(program: str, words: list[str]) -> None:
    with (
        start(build("default", program), "-w", "-n", 3) as fixture,
        tracing("-p", fixture.wait_ready().pid, *words) as bpf,
        tracing(*VIA, "-p", fixture.pid, *words) as tool,
    ):
        fixture.fire()
        fixture.finish()
        expected, found = _values(bpf.wait_end()), _values(tool.wait_end())
    assert expected == found
    assert expected or program == "ints"


@pytest.mark.parametrize("program", ["forker", "threads", "execer"])
def test_a_command_is_traced_without_its_children(program: str) -> None:
    path = build("default", program)
    words = ["-c", f"{path} -n 2", f"{program}:*"]
    bpf, tool = (run_usdt("trace", "--json", *via, *words) for via in ((), VIA))
    lines = [
        Counter(re.findall(r'"probe": "(\w+:\w+)", "args": \{', done.stdout))
        for done in (bpf, tool)
    ]
    assert lines[0] == lines[1]
    assert sum(lines[1].values()) > 0


def test_a_file_is_traced_in_every_process_that_runs_it(tmp_path: Path) -> None:
    odd = tmp_path / "with blanks # and more"  # which no definition can hold
    odd.mkdir()
    path = private(build("default", "ints"), odd)
    with (
        start(path, "-w", "-n", 1) as one,
        tracing(*VIA, f"{path}:ints:i32") as tool,
        start(path, "-w", "-n", 1) as other,
    ):
        for fixture in (one, other):
            fixture.wait_ready().fire()
        printed = [h for f in (one, other) for h in f.finish() if h["probe"] == "ints:i32"]
        tool.wait_events(len(printed))
        events = tool.stop()
    expected = Counter((hit["pid"], hit["args"][0]) for hit in printed)
    assert expected == Counter((event["pid"], event["args"]["arg0"]) for event in events)


def test_nothing_is_lost_and_everything_in_order(tmp_path: Path) -> None:
    output = tmp_path / "lines"
    with (
        loop() as program,
        tracing(*VIA, "-o", output, "-p", program.wait_ready().pid, "loop:hit(arg0)") as tool,
    ):
        fire_and_wait(program, lines_of(output))
        program.finish()
        tool.finish()
        assert tool.closing == (ROUNDS * BATCHES, 0)
    rounds = [int(text) for text in re.findall(r'"arg0": (\d+)', output.read_text())]
    assert rounds == numbers()


def test_what_found_no_room_is_counted(tmp_path: Path) -> None:
    path = private(build("default", "loop"), tmp_path)
    with (
        start(path, "-w", "-q", "-n", HITS) as fixture,
        tracing(*VIA, "--buffer", "8K", "-p", fixture.wait_ready().pid, "loop:hit") as tool,
    ):
        os.kill(tool.pid, signal.SIGSTOP)
        fixture.fire(timeout=patient(100))
        os.kill(tool.pid, signal.SIGCONT)
        fixture.finish()
        tool.wait_all()
        delivered, lost = tool.closing
    assert lost > 0
    assert delivered + lost == HITS
    assert [record for record in tool.records if "lost" in record] == [
        {"lost": lost, "probe": "loop:hit"}
    ]


# ---------------------------------------------------------------- what is left


def _state() -> tuple[set[str], set[str]]:
    root = mounted()
    events = {line for line in (root / "uprobe_events").read_text().splitlines() if "usdt_" in line}
    return events, {path.name for path in (root / "instances").iterdir()}


def _of(tool: Tool, state: tuple[set[str], set[str]]) -> list[str]:
    return [line for part in state for line in part if f"usdt_{tool.pid}_" in line]


def test_nothing_is_left(tmp_path: Path) -> None:
    path = private(build("default", "args"), tmp_path)
    with start(path, "-w") as fixture:
        with tracing(*VIA, "-p", fixture.wait_ready().pid, "args:*") as tool:
            assert len(_of(tool, _state())) > 10
            tool.stop()
        assert not _of(tool, _state())


@pytest.mark.parametrize("how", ["kprobe event clean", "the next run"])
def test_what_a_killed_run_left_is_removed(how: str, tmp_path: Path) -> None:
    path = private(build("default", "sema_shared"), tmp_path)
    with start(path, "-w") as fixture:
        with tracing(*VIA, "-p", fixture.wait_ready().pid, "sema_shared:*") as tool:
            tool.kill()
        assert len(_of(tool, _state())) > 1
        counts = fixture.state().values()
        assert all(count for counted in counts for count in counted)
        if how == "the next run":
            run_usdt("trace", *VIA, "-d", 0.1, "-p", fixture.pid, "sema_shared:value")
        else:
            kprobe = USDT.removesuffix("usdt") + "kprobe"
            subprocess.run([kprobe, "event", "clean"], check=True, capture_output=True)
        assert not _of(tool, _state())
        until(
            lambda: not any(count for counted in fixture.state().values() for count in counted),
            "the semaphores to be 0",
        )
        fixture.fire()
        fixture.finish()


def test_what_others_trace_is_left_alone(tmp_path: Path) -> None:
    perf = need_program("perf", "linux-perf")
    path = private(build("default", "ints"), tmp_path)
    root, name = mounted(), f"someone_{os.getpid()}"
    site = next(site for probe in read_probes(str(path)).probes for site in probe.sites)
    other = define_event(
        root, "uprobe_events", f"p:{name}/probe {path}:{site.offset:#x}", f"{name}/probe"
    )
    instance = root / "instances" / name
    instance.mkdir()
    try:
        (instance / "events/sched/sched_process_exec/enable").write_text("1")
        words = [perf, "stat", "-x,", "-a", "-e", "sched:sched_process_exec", "--", "cat"]
        counting = subprocess.Popen(
            words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        until(lambda: "cat" in (instance / "trace").read_text(), "perf to count")
        with start(path, "-w") as fixture:
            with tracing(*VIA, "-p", fixture.wait_ready().pid, "ints:*") as tool:
                tool.kill()
            subprocess.run([KPROBE, "event", "clean"], check=True, capture_output=True)
            assert not _of(tool, _state())
        for _ in range(5):
            subprocess.run(["/bin/true"], check=True)
        _, said = counting.communicate(timeout=patient(100))
        ran = (instance / "trace").read_text().count("filename=/bin/true")
        enabled = (instance / "events/sched/sched_process_exec/enable").read_text()
        assert f":{name}/probe " in (root / "uprobe_events").read_text()
    finally:
        instance.rmdir()
        remove_event(root, other)
    assert (ran, enabled) == (5, "1\n")
    line = next(line for line in said.decode().splitlines() if "sched_process_exec" in line)
    assert int(line.split(",")[0]) >= 5


# ---------------------------------------------------------------- definitions


@pytest.mark.parametrize(
    "program", ["args", "regs", "globals", "strings", "sema_shared", "structs"]
)
def test_the_kernel_takes_what_usdt_events_prints(program: str, tracefs: Path) -> None:
    group = f"usdt_test_{program}"
    done = run_usdt("events", build("default", program), f"{program}:*")
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(lines) > 3
    made = [line.replace("p:usdt/", f"p:{group}/", 1) for line in lines]
    try:
        for line in made:
            name = line.split()[0].removeprefix("p:")
            define_event(tracefs, "uprobe_events", line, name)
        listed = (tracefs / "uprobe_events").read_text().splitlines()
        assert len([line for line in listed if f":{group}/" in line]) == len(made)
    finally:
        remove_group(tracefs, DefinedEvent("uprobe_events", f"{group}/any"))
    assert f":{group}/" not in (tracefs / "uprobe_events").read_text()


@pytest.mark.parametrize("variant", ["default", "m32"])
def test_functions_and_their_returns_as_definitions(variant: str, tmp_path: Path) -> None:
    path = private(build(variant, "args"), tmp_path)
    asked = f"uprobe:{path}:main(arg0, arg0 < 9, return, hex(return), return+arg0)"
    done = run_usdt("events", asked)
    assert "# return+arg0: " in done.stdout
    assert [line.split(":")[0] for line in done.stdout.splitlines() if line[0] != "#"] == ["p", "r"]
    definitions = tmp_path / "definitions"
    definitions.write_text(done.stdout)
    words = ("event", "watch", "--json", "-n", 2, "-i", definitions)
    with Tool(*words, command=KPROBE) as tool:
        tool.wait_error("watching 2 events")
        subprocess.run([path, "-n", "1"], check=True, capture_output=True)
        tool.finish()
    entry, result = (hit["args"] for hit in tool.records)
    assert entry["arg0"] == 3
    assert (result["return"], result["hex_return"]) == (0, 0)


# ---------------------------------------------------------------- privileges and usage


def _less() -> list[str]:
    lost = "-sys_admin,-bpf,-perfmon"
    return [
        need_program("setpriv", "util-linux"),
        f"--bounding-set={lost}",
        f"--inh-caps={lost}",
    ]


def test_it_needs_no_bpf(tmp_path: Path) -> None:
    path = private(build("default", "ints"), tmp_path)
    refused = run_usdt("trace", f"{path}:ints:i32", before=_less())
    assert "--via tracefs needs no BPF" in one_error(refused)
    with (
        start(path, "-w", "-n", 1) as fixture,
        started("trace", "--json", *VIA, f"{path}:ints:i32", before=_less()) as tool,
    ):
        tool.wait_tracing()
        fixture.wait_ready().fire()
        printed = [hit for hit in fixture.finish() if hit["probe"] == "ints:i32"]
        tool.wait_events(len(printed))
        assert [event["args"]["arg0"] for event in tool.stop()] == [
            hit["args"][0] for hit in printed
        ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["-f", "-p", 1, "a:b"], "does not follow children", id="following"),
        pytest.param(["--ustack", "-p", 1, "a:b"], "records no stacks", id="stacks"),
    ],
)
def test_what_it_cannot_do_is_said(words: list[Any], said: str) -> None:
    done = run_usdt("trace", *VIA, *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_predicate_that_no_event_can_decide_is_an_error() -> None:
    path = build("default", "strings")
    done = run_usdt("trace", *VIA, f"{path}:strings:heap(uid == 0)")
    assert "a predicate cannot be decided through tracefs: uid" in one_error(done)


@pytest.mark.parametrize("words", [VIA, ()], ids=["tracefs", "BPF"])
def test_hits_whose_predicate_cannot_be_decided_are_counted(words: tuple[str, ...]) -> None:
    command = f"{build('default', 'loop')} -q -n 10"
    done = run_usdt("trace", *words, "-c", command, "loop:hit(100 / (arg0 - 3) != 7777, arg0)")
    assert done.returncode == 0
    assert done.stdout.count("loop:hit ") == 9
    assert "loop:hit: skipped 1 hit with an unreadable predicate\n" in done.stderr
    assert done.stderr.endswith("9 events, 0 lost\n")
