"""usdt report as a command: what goes where, which exit code, and what it says of damage."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from planning import plan
from recordings import CASES, frames, header, hit, make, many, read, record, text
from streams import read_events, without_header
from terminals import on_terminal
from tracing_tools import USDT, one_error, run_usdt

from usdt.base.frozen import replace
from usdt.engine.output.streams.header import Clock
from usdt.engine.recording.description import Header
from usdt.engine.runtime.session import Lost

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = [1, 2, 3, 1, 4, 5]
GOOD = make(CASES, [b"".join(many(EVENTS))] * 2, lost=[Lost("p:one", 3, 1), Lost("q:all", 0, 2)])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A good recording of twelve events."""
    path = tmp_path / "it.usdt"
    path.write_bytes(GOOD)
    return path


@pytest.mark.parametrize("form", [(), ("--csv",), ("--json",), ("--chrome",)])
def test_a_terminal_gets_no_character_that_it_would_obey(
    tmp_path: Path, form: tuple[str, ...]
) -> None:
    hostile = "\x1b[2J\x07\x9b1m\u202e".encode()
    made = plan("str(arg7, 15)")
    payload = text(hostile + b"\0", 16)
    path = tmp_path / "it.usdt"
    path.write_bytes(make([(1, "p:\x1b]0;x\x07", made)], [record(payload, comm=hostile)]))
    shown = on_terminal(USDT, "report", path, *form, environ={"NO_COLOR": "1"})
    assert "1 event, 0 lost\n" in shown
    assert not [c for c in shown if not c.isprintable() and c not in "\t\r\n"], shown
    assert "1b" in shown


def test_standard_error_that_cannot_be_written_stops_nothing(place: Path) -> None:
    whole = run_usdt("report", place)
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [USDT, "report", place], stdout=subprocess.PIPE, stderr=full, text=True, check=False
        )
    assert (done.returncode, done.stdout) == (0, whole.stdout)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [USDT, "report", place], stdout=subprocess.PIPE, stderr=writer, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, whole.stdout)


@pytest.mark.parametrize("words", [("report", "/nonexistent"), ("no-such-command",)])
def test_an_error_that_cannot_be_written_has_its_exit_code(words: tuple[str, ...]) -> None:
    expected = run_usdt(*words).returncode
    assert expected in (1, 2)
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run([USDT, *words], stderr=full, check=False)
    assert done.returncode == expected


def test_lines_for_eyes(place: Path) -> None:
    done = run_usdt("report", place)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) == 12
    assert all("comm" in line and ":" in line for line in lines)
    assert "\x1b" not in done.stdout, "no colours for a file"
    assert done.stderr.splitlines() == [
        "p:one: skipped 1 hit with an unreadable predicate",
        "q:all: skipped 2 hits with an unreadable predicate",
        "p:one: 3 events lost; a larger --buffer or --backlog may help",
        "12 events, 3 lost",
    ]


def test_json_is_what_a_trace_prints(place: Path) -> None:
    done = run_usdt("report", place, "--json")
    lines = done.stdout.splitlines(keepends=True)
    assert lines[:-1] == read(GOOD)
    assert json.loads(lines[-1]) == {"lost": 3, "probe": "p:one"}


def test_output_to_a_file(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("older")
    done = run_usdt("report", place, "--json", "q:four", "-o", out)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "2 events, 0 lost\n"
    assert [one["probe"] for one in read_events(out.read_text())] == ["q:four"] * 2


def test_a_report_never_overwrites_its_recording(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place)
    error = one_error(run_usdt("report", place, "-o", tmp_path / "link"))
    assert error == f"{place}: the report would overwrite the recording"
    assert place.read_bytes() == GOOD


def test_some_probes(place: Path) -> None:
    done = run_usdt("report", place, "--json", "p:*", "q:f?ur")
    probes = [json.loads(line).get("probe") for line in done.stdout.splitlines()]
    assert probes == ["p:one", "p:two", "p:one", "q:four"] * 2 + ["p:one"]
    assert done.stderr.endswith("8 events, 3 lost\n")
    assert "no probe x:* was recorded; recorded are p:one, " in one_error(
        run_usdt("report", place, "x:*")
    )


def test_a_recording_that_was_cut(place: Path) -> None:
    (last,) = [end for kind, _, end in frames(GOOD)[-2:] if kind == b"DATA"]
    place.write_bytes(GOOD[: last - 1])
    done = run_usdt("report", place, "--json")
    assert done.returncode == 0
    assert done.stdout.splitlines(keepends=True) == read(GOOD)[:11]
    notice, closing = done.stderr.splitlines()
    assert notice.startswith(
        f"{place}: the recording ends at byte {last - 1} without a closing block"
    )
    assert closing == "11 events, lost unknown"
    for size, form in ((0, "--folded"), (8, "--csv"), (20, "--chrome"), (100, "--header")):
        place.write_bytes(GOOD[:size])
        done = run_usdt("report", place, form)
        assert done.returncode == 0, done.stderr
        assert done.stderr.endswith("0 events, lost unknown\n")
    assert json.loads(done.stdout)["cases"] == []


def test_damage_is_an_error_behind_what_is_good(place: Path) -> None:
    bad = bytearray(GOOD)
    begin, end = [(begin, end) for kind, begin, end in frames(GOOD) if kind == b"DATA"][1]
    bad[end - 1] ^= 1
    place.write_bytes(bad)
    done = run_usdt("report", place, "--json")
    assert f"{place}: damaged at byte {begin}: " in one_error(done)
    assert done.stdout.splitlines(keepends=True) == read(GOOD)[:6]
    done = run_usdt("report", place, "--chrome")
    assert "damaged" in one_error(done)
    assert len(json.loads(done.stdout)["traceEvents"]) >= 6, "a trace that can be opened"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"\x7fELF....", "not a recording of usdt record", id="another file"),
        pytest.param(GOOD + b"more", "data after the closing block", id="more at the end"),
        pytest.param(GOOD + GOOD, "header of a block is damaged", id="two in one"),
    ],
)
def test_other_files(content: bytes, reason: str, place: Path) -> None:
    place.write_bytes(content)
    assert reason in one_error(run_usdt("report", place))


def test_no_file(tmp_path: Path) -> None:
    assert one_error(run_usdt("report", tmp_path / "no")).endswith("No such file or directory")
    assert one_error(run_usdt("report", tmp_path)).endswith("Is a directory")


def test_a_pipe(place: Path) -> None:
    done = subprocess.run(
        [USDT, "report", "-", "--json"], input=GOOD, capture_output=True, check=True
    )
    assert without_header(done.stdout.decode()).splitlines(keepends=True)[:-1] == read(GOOD)
    done = subprocess.run(
        [USDT, "report", "-", "--csv"], input=GOOD, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"this needs a file, not a pipe" in done.stderr


def test_a_table_of_a_file_that_is_standard_input(place: Path) -> None:
    with place.open("rb") as file:
        done = subprocess.run(
            [USDT, "report", "-", "--csv"],
            stdin=file,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == run_usdt("report", place, "--csv").stdout


def test_a_reader_that_has_had_enough(place: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {USDT} report {place} --json | head -1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr
    assert "Traceback" not in done.stderr


def test_spans_of_usual_and_of_given_names(place: Path) -> None:
    cases = [(n, name, plan("", ())) for n, name in enumerate(("a:x__start", "a:x__done", "a:y"))]
    calls = [record(b"", case=case, time=1000 * time) for time, case in enumerate((0, 1, 0, 2))]
    place.write_bytes(make(cases, [b"".join(calls)]))
    done = run_usdt("report", place, "--chrome")
    events = json.loads(done.stdout)["traceEvents"]
    assert [(e["ph"], e["name"]) for e in events if e["ph"] != "M"] == [
        ("X", "a:x"),
        ("i", "a:y"),
        ("i", "a:x__start"),
    ]
    assert "1 span without an end: shown as instants" in done.stderr
    done = run_usdt("report", place, "--chrome", "--span", "a:x__start", "a:y")
    spans = [e for e in json.loads(done.stdout)["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in spans] == [
        ("a:x", 0.0, 1.0),
        ("a:x", 2.0, 1.0),
    ]
    assert "no probe a:z was recorded" in one_error(
        run_usdt("report", place, "--chrome", "--span", "a:y", "a:z")
    )


def test_stacks_that_were_not_recorded(place: Path) -> None:
    assert "no stacks were recorded" in one_error(run_usdt("report", place, "--folded"))


def test_stacks_of_a_process_that_nobody_noted(place: Path) -> None:
    made = plan("ustack, arg6")
    (stack, number) = made.outputs
    room = struct.pack("=q2Q", 16, 0x401000, 0x7FFF00001000) + bytes(stack.size - 16)
    payload = room + struct.pack("=q", 5)
    assert number.offset == 40 + len(room)
    place.write_bytes(make([(1, "p:q", made)], [record(payload, pid=1) * 3]))
    done = run_usdt("report", place, "--folded")
    assert done.stdout == "comm;[unknown];[unknown] 3\n"
    frames_shown = json.loads(run_usdt("report", place, "--json").stdout.splitlines()[0])
    assert [frame["address"] for frame in frames_shown["args"]["ustack"]] == [
        0x401000,
        0x7FFF00001000,
    ]
    assert {frame["symbol"] for frame in frames_shown["args"]["ustack"]} == {None}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="no file"),
        pytest.param(("x", "--json", "--csv"), id="two forms"),
        pytest.param(("x", "--span", "a:b", "a:c"), id="spans without a trace"),
        pytest.param(("x", "--chrome", "--span", "a:b", "a:b"), id="a span of one probe"),
        pytest.param(("x", "--chrome", "--span", "a:b"), id="half a span"),
    ],
)
def test_usage(words: tuple[str, ...]) -> None:
    done = run_usdt("report", *words)
    assert done.returncode == 2
    assert "Error: " in done.stderr
    assert not done.stdout


def test_a_fifo_without_a_writer_holds_nobody_up(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    done = run_usdt("report", fifo)
    assert f"{fifo}: the recording ends at byte 0" in done.stderr


def test_a_pipe_is_read_to_its_end(place: Path) -> None:
    command = f"sleep 0.3; cat {place}"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE) as writer:
        done = subprocess.run(
            [USDT, "report", "/dev/stdin"],
            stdin=writer.stdout,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
    assert len(done.stdout.splitlines()) == 12, done.stderr


def test_events_of_several_recordings_are_in_the_order_of_the_day(tmp_path: Path) -> None:
    stream = header().stream
    assert stream is not None
    clock = Clock(1_000_000_000, 1_500_000_003)
    about = replace(stream, host="late", boot_id="other", clock=clock)
    late = Header.of(about, sys.byteorder, "Linux", "tool", ())
    here, there = tmp_path / "here", tmp_path / "there"
    data = [b"".join(hit(1, time) for time in (10, 12, 14))]
    here.write_bytes(make(CASES, data, lost=[Lost("p:one", 3, 0)]))
    there.write_bytes(make(CASES, data, about=late))
    done = run_usdt("report", here, there, "--json")
    *events, lost = map(json.loads, done.stdout.splitlines())
    assert [(one["host"], one["time"] - 500_000_000) for one in events] == [
        *[("here", 10), ("here", 12), ("late", 13), ("here", 14), ("late", 15), ("late", 17)]
    ]
    assert lost == {"lost": 3, "unreadable": 0, "probe": "p:one"}
    done = run_usdt("report", here, there, "q:*")
    assert done.stdout == ""
    assert done.stderr.endswith("0 events of 2 streams from 2 hosts, begun within 3 ns, 0 lost\n")
    assert "takes one recording" in run_usdt("report", here, there, "--csv").stderr
