"""usdt record beside what programs say they did, and usdt report of what it wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import Fixture, build, start
from paced import ROUNDS, fire_and_wait, loop, numbers
from recordings import frames
from streams import read_events
from tracing_tools import USDT, Tool, one_error, private, run_usdt, until, usdt

from usdt.arch.unwinding import STACK_POINTERS
from usdt.base.machine import KERNEL_MACHINE
from usdt.elf.file import ElfFile
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.recording.blocks import DATA, MAGIC
from usdt.engine.recording.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMEOUT = 120


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a recording goes."""
    return tmp_path / "it.usdt"


def recording(place: Path, *words: object) -> Tool:
    """Start ``usdt record``, and wait until it records."""
    tool = usdt("record", "-o", place, *words)
    try:
        return tool.wait_tracing()
    except BaseException:
        tool.kill()
        raise


def ended(tool: Tool) -> tuple[int, int]:
    """Wait for a recorder's good end: events and lost ones."""
    assert tool.process.wait(_TIMEOUT) == 0, tool.errors
    until(lambda: tool.errors and tool.errors[-1].endswith("lost"), "the closing line")
    assert not tool.lines, "a recorder has nothing to say on standard output"
    return tool.closing


def report(place: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run ``usdt report``, which must do well."""
    done = run_usdt("report", place, *words, timeout=_TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done


def events(place: Path, *words: object) -> list[dict[str, Any]]:
    """Every event of a recording, by ``usdt report --json``."""
    found = [json.loads(line) for line in report(place, "--json", *words).stdout.splitlines()]
    return [item for item in found if "lost" not in item]


@pytest.fixture
def args() -> Iterator[Fixture]:
    """A process that waits, with the probes of args."""
    with start(build("default", "args"), "-w", "-n", 3) as fixture:
        yield fixture.wait_ready()


def test_a_recording_has_what_a_trace_shows(args: Fixture, place: Path, tmp_path: Path) -> None:
    words = ("-p", args.pid, "args:*", "args:count3(arg1 + 1, comm, hex(arg2))")
    with (
        recording(place, *words) as tool,
        usdt("trace", "--json", "-o", tmp_path / "trace", *words) as tracer,
    ):
        tracer.wait_tracing()
        args.fire()
        args.finish()
        count, lost = ended(tool)
        assert tracer.process.wait(_TIMEOUT) == 0
    found = events(place)
    assert (len(found), lost) == (count, 0)
    traced = read_events((tmp_path / "trace").read_text())
    for item in (*found, *traced):
        del item["time"], item["cpu"]  # each has hits of its own
    assert count > 30
    assert found == traced


def test_a_recording_is_its_owners_only(args: Fixture, place: Path) -> None:
    with recording(place, "-p", args.pid, "args:*") as tool:
        args.fire()
        tool.process.send_signal(signal.SIGINT)
        ended(tool)
    assert place.stat().st_mode & 0o777 == 0o600


def test_what_a_recording_says_of_itself(args: Fixture, place: Path) -> None:
    with recording(place, "-p", args.pid, "args:count3(arg0)") as tool:
        args.fire()
        args.finish()
        assert ended(tool) == (3, 0)
    about = json.loads(report(place, "--header").stdout)
    name = os.uname()
    assert about["header"]["byteorder"] == sys.byteorder
    assert name.release in about["header"]["kernel"]
    assert about["header"]["command"][:2] == ["usdt", "record"]
    stream = about["header"]["header"]
    assert (stream["host"], stream["machine"]) == (name.nodename, name.machine)
    assert stream["probes"] == ["args:count3(arg0)"]
    path = build("default", "args")
    with ElfFile(path) as elf:
        assert elf.build_id
        assert about["files"] == [{"path": str(path), "build_id": elf.build_id}]
    assert {case["probe"] for case in about["cases"]} == {"args:count3"}
    assert about["closing"]["records"] == 3
    begin, end = stream["clock"], about["closing"]["clock"]
    times = [event["time"] for event in events(place)]
    assert begin["monotonic"] < min(times) <= max(times) < end["monotonic"]
    assert begin["realtime"] < end["realtime"]


def recorded(place: Path) -> int:
    """How many records are in a recording that may still grow: its blocks say it."""
    records, position = 0, len(MAGIC)
    with place.open("rb") as file:
        while len(head := file.read(24) if file.seek(position) else b"") == 24:
            kind, length, count = struct.unpack_from("<4sII", head)
            position += 24 + length
            records += count if kind == DATA and position <= place.stat().st_size else 0
    return records


def test_nothing_is_lost_of_what_is_read_in_time(place: Path, tmp_path: Path) -> None:
    batches = 5  # a recorder writes what it read after a second
    with (
        loop() as program,
        recording(place, "-p", program.wait_ready().pid, "loop:hit(arg0,arg1)") as tool,
    ):
        fire_and_wait(program, lambda: recorded(place), batches)
        program.finish()
        assert ended(tool) == (ROUNDS * batches, 0)
    done = report(place, "--json", "-o", tmp_path / "lines")
    assert done.stderr == f"{ROUNDS * batches} events, 0 lost\n"
    pairs = re.findall(rb'"arg0": (\d+), "arg1": (-?\d+)}}\n', (tmp_path / "lines").read_bytes())
    assert pairs == [(b"%d" % i, b"%d" % -i) for i in numbers(batches)]
    blocks = [end - begin for kind, begin, end in frames(place.read_bytes()) if kind == b"DATA"]
    assert len(blocks) < 200, "records are written in large blocks"


def test_at_full_speed_every_hit_is_recorded_or_counted(place: Path) -> None:
    with (
        start(build("default", "loop"), "-w", "-q", "-n", 1_000_000) as fixture,
        recording(place, "-p", fixture.wait_ready().pid, "loop:hit(arg0,arg1)") as tool,
    ):
        fixture.fire(timeout=_TIMEOUT)
        fixture.finish()
        count, lost = ended(tool)
    assert count + lost == 1_000_000
    assert recorded(place) == count


def test_what_found_no_room_is_in_the_recording(place: Path) -> None:
    with (
        start(build("default", "loop"), "-w", "-q", "-n", 200_000) as fixture,
        recording(
            place, "-p", fixture.wait_ready().pid, "--buffer", "4K", "loop:hit(arg0)"
        ) as tool,
    ):
        os.kill(tool.pid, signal.SIGSTOP)  # so that nothing is read meanwhile
        fixture.fire(timeout=_TIMEOUT)
        os.kill(tool.pid, signal.SIGCONT)
        fixture.finish()
        count, lost = ended(tool)
    assert lost > 0
    assert count + lost == 200_000
    done = report(place, "--json")
    assert done.stderr.splitlines()[-1] == f"{count} events, {lost} lost"
    assert f"loop:hit: {lost} events lost" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"lost": lost, "probe": "loop:hit"}


def test_so_many_and_no_more(place: Path) -> None:
    done = run_usdt(
        *("record", "-o", place, "-n", 1234, "loop:hit(arg0)"),
        *("-c", f"{build('default', 'loop')} -q -n 100000"),
        timeout=_TIMEOUT,
    )
    assert done.returncode == 0
    assert done.stderr.endswith("1234 events, 0 lost\n")
    assert [event["args"]["arg0"] for event in events(place)] == [*range(1234)]


def test_for_so_long_and_no_longer(args: Fixture, place: Path) -> None:
    with recording(place, "-p", args.pid, "-d", 0.5, "args:count3") as tool:
        args.fire()
        assert ended(tool) == (3, 0)
    assert len(events(place)) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_well(number: int, args: Fixture, place: Path) -> None:
    with recording(place, "-p", args.pid, "args:count3") as tool:
        args.fire()
        tool.process.send_signal(number)
        assert ended(tool) == (3, 0)
    assert len(events(place)) == 3


def test_a_recorder_that_is_killed_leaves_what_it_has_written(args: Fixture, place: Path) -> None:
    with recording(place, "-p", args.pid, "args:count3") as tool:
        args.fire()
        # The first block may be the header alone.
        written = lambda: run_usdt("report", place, "--json").stdout  # noqa: E731
        until(lambda: written().count("\n") == 3, "the events to be written", every=0.2)
        tool.kill()
    done = report(place, "--json")
    assert len(done.stdout.splitlines()) == 3
    size = place.stat().st_size
    assert f"the recording ends at byte {size} without a closing block" in done.stderr
    assert done.stderr.endswith("3 events, lost unknown\n")


def test_probes_of_a_library_that_comes_later(place: Path) -> None:
    with (
        start(build("default", "dlopened"), "-w") as fixture,
        recording(place, "-p", fixture.wait_ready().pid, "dlopened:*", "plugin:*") as tool,
    ):
        fixture.fire()
        tool.wait_error("library loaded")
        fixture.fire()
        fixture.finish()
        count, _ = ended(tool)
    found = events(place)
    assert len(found) == count
    assert "plugin" in {event["probe"].split(":")[0] for event in found}
    about = json.loads(report(place, "--header").stdout)
    assert Path(about["files"][-1]["path"]).name == "libplugin.so"


def test_a_run_that_fails_leaves_an_earlier_recording_alone(args: Fixture, place: Path) -> None:
    place.write_bytes(b"earlier")
    for words in (
        ("-p", args.pid, "args:cuont3"),
        ("-p", args.pid, "args:count3("),
        ("-p", 4194303, "args:count3"),
        ("-c", "/nonexistent", "args:count3"),
    ):
        done = run_usdt("record", "-o", place, *words)
        assert done.returncode in (1, 2), done.stderr
        assert place.read_bytes() == b"earlier"
    missing = place.with_name("new")
    assert "no probe" in one_error(run_usdt("record", "-o", missing, "-p", args.pid, "args:cuont3"))
    assert not missing.exists()


def test_a_disk_that_is_full(place: Path) -> None:
    # A limit on the size of files stands for the end of the disk: the write is cut short there.
    done = run_usdt(
        *("record", "-o", place, "loop:hit(arg0)"),
        *("-c", f"{build('default', 'loop')} -q -n 200000"),
        before=("prlimit", "--fsize=3000000"),
        timeout=_TIMEOUT,
    )
    error = one_error(done)
    assert error.startswith(f"write to {place}: File too large")
    assert "can be read" in error
    assert place.stat().st_size == 3_000_000
    found = events(place)
    assert len(found) > 40_000
    assert [event["args"]["arg0"] for event in found] == [*range(len(found))]
    full = run_usdt(
        "record", "-o", "/dev/full", "-c", "true", f"{build('default', 'loop')}:loop:hit"
    )
    assert "No space left on device" in one_error(full)


def test_from_pipe_to_pipe(args: Fixture) -> None:
    with subprocess.Popen(
        [USDT, "record", "-o", "-", "-p", str(args.pid), "args:count3(arg0)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as recorder:
        assert recorder.stderr is not None
        assert b"end with ^C" in recorder.stderr.readline()
        args.fire()
        args.finish()
        done = subprocess.run(
            [USDT, "report", "-", "--json"],
            stdin=recorder.stdout,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=True,
        )
        recorder.communicate(timeout=_TIMEOUT)
    assert recorder.returncode == 0
    assert len(read_events(done.stdout)) == 3
    assert done.stderr == "3 events, 0 lost\n"


def test_a_recording_can_be_read_while_it_grows(args: Fixture, place: Path) -> None:
    with recording(place, "-p", args.pid, "args:count3") as tool:
        args.fire()
        until(lambda: place.exists() and place.stat().st_size > 0, "a block to be written")
        with Reader.open(str(place)) as growing:
            assert sum(map(len, growing.replay(JsonFormatter()))) == 3
            assert growing.cut == place.stat().st_size
        args.fire()
        args.finish()
        assert ended(tool) == (6, 0)
    assert len(events(place)) == 6


def test_every_way_to_attach(args: Fixture, place: Path) -> None:
    for way in ("perf-link", "perf-event"):
        with recording(place, "-p", args.pid, "--via", way, "args:count3(arg0)") as tool:
            args.fire()
            tool.process.send_signal(signal.SIGINT)
            assert ended(tool) == (3, 0)
        assert len(events(place, "args:*3")) == 3


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("a:b",), id="no file"),
        pytest.param(("-o", "-", "-c", "ls", "a:b"), id="a pipe that the command writes to"),
        pytest.param(("-o", "x", "-p", "1", "-a", "a:b"), id="two targets"),
        pytest.param(("-o", "x", "--buffer", "many", "a:b"), id="a buffer of no size"),
    ],
)
def test_usage(words: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [USDT, "record", *words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2, done.stderr
    assert not done.stdout
    assert not [*tmp_path.iterdir()]


def test_stacks_have_names_when_the_process_has_gone(place: Path) -> None:
    program = build("default", "loop")
    done = run_usdt(
        "record", "-o", place, "--ustack", "loop:hit(arg0)", "-c", f"{program} -q -n 50"
    )
    assert done.returncode == 0, done.stderr
    folded = report(place, "--folded").stdout.splitlines()
    if KERNEL_MACHINE in STACK_POINTERS:
        assert re.fullmatch(r"loop;.*main;fire_all;quick 50", *folded)
    else:  # the program has no frame pointers: what is above differs
        found = [re.fullmatch(r"loop;.*quick (\d+)", line) for line in folded]
        assert sum(int(match[1]) for match in found if match) == 50, folded
    frames_shown = [event["args"]["ustack"] for event in events(place)]
    assert len(frames_shown) == 50
    assert {frame[0]["symbol"] for frame in frames_shown} == {"quick"}
    assert {frame[0]["module"] for frame in frames_shown} == {"loop"}
    kinds = [kind for kind, _, _ in frames(place.read_bytes())]
    assert kinds.index(b"MAPS") < kinds.index(b"DATA")
    assert b"KSYM" not in kinds, "no kernel stacks were asked for"


def test_a_file_that_is_no_longer_the_same_gives_no_names(place: Path, tmp_path: Path) -> None:
    program = private(build("default", "loop"), tmp_path)
    done = run_usdt("record", "-o", place, "loop:hit(ustack)", "-c", f"{program} -q -n 5")
    assert done.returncode == 0, done.stderr
    assert {event["args"]["ustack"][0]["symbol"] for event in events(place)} == {"quick"}
    program.unlink()
    shutil.copy(build("default", "args"), program)  # another build ID
    shown = report(place, "--json")
    tops = [json.loads(line)["args"]["ustack"][0] for line in shown.stdout.splitlines()]
    assert {top["symbol"] for top in tops} == {None}
    assert f"{program}: the recorded functions have no names: its build ID is" in shown.stderr


@pytest.mark.parametrize("unwind", ["fp", *(["dwarf"] if KERNEL_MACHINE in STACK_POINTERS else [])])
def test_the_program_of_another_machine_in_a_directory(
    place: Path, tmp_path: Path, unwind: str
) -> None:
    program = private(build("default", "loop"), tmp_path)
    command = f"{program} -q -n 1"
    words = ("--unwind", unwind, "loop:hit(ustack)", "-c", command)
    done = run_usdt("record", "-o", place, *words)
    assert done.returncode == 0, done.stderr
    before = events(place)[0]["args"]["ustack"]
    folder = tmp_path / "from there"
    folder.mkdir()
    program.rename(folder / "renamed")
    shown = report(place, "--json", "--symbols", folder)
    assert json.loads(shown.stdout)["args"]["ustack"] == before
    assert "no names" not in shown.stderr


def test_a_directory_of_symbols_that_is_not_there(place: Path) -> None:
    done = run_usdt("record", "-o", place, "loop:hit", "-c", f"{build('default', 'loop')} -q -n 1")
    assert done.returncode == 0, done.stderr
    error = one_error(run_usdt("report", place, "--symbols", "/nowhere"), code=2)
    assert error.endswith("--symbols /nowhere: no such directory")
