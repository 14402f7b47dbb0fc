"""``usdt report`` of several recordings and streams: folded stacks, and machines kept apart."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fork_server import run
from json_schema import check_lines
from planning import plan
from recordings import make, record

if TYPE_CHECKING:
    from collections.abc import Sequence

_USDT = str(Path(sys.executable).with_name("usdt"))


def usdt(*words: object, code: int = 0) -> tuple[list[str], list[str]]:
    """Run the command; return the lines on standard output, and those on standard error."""
    done = run([_USDT, *map(str, words)], timeout=60)
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    check_lines([*map(str, words)], done.stdout.splitlines())
    return done.stdout.splitlines(), done.stderr.splitlines()


def stream(path: Path, host: str, objects: Sequence[dict[str, Any]], command: str) -> Path:
    """Write a stream of JSON lines."""
    header = {"usdt": 1, "host": host, "boot_id": host, "machine_id": None, "kernel": "6.18.5"}
    header |= {"machine": "x86_64", "cpus": 4, "version": "0.1.0", "command": command}
    header |= {"probes": ["p:q"], "clock": {"monotonic": 9, "realtime": 99, "error": 2}}
    path.write_text("".join(json.dumps(one) + "\n" for one in (header, *objects)))
    return path


def frame(address: int, symbol: str | None, module: str = "shop", **more: Any) -> dict[str, Any]:
    known = {"build_id": "ab12", "link_address": address}
    return {"symbol": symbol, "offset": 4, "module": module} | known | more


def event(stack: list[dict[str, Any]], probe: str = "p:q") -> dict[str, Any]:
    about = {"time": 10, "pid": 1, "tid": 1, "cpu": 0, "comm": "shop", "probe": probe}
    return about | {"args": {"arg0": 1, "ustack": stack}}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Three hits with the same stack."""
    made = plan("ustack, arg6")
    stack = made.outputs[0]
    room = struct.pack("=q2Q", 16, 0x401000, 0x7FFF00001000) + bytes(stack.size - 16)
    path = tmp_path / "it.usdt"
    hits = record(room + struct.pack("=q", 5), pid=1) * 3
    path.write_bytes(make([(1, "p:q", made)], [hits]))
    return path


def test_folded_stacks_of_recordings_and_streams_are_added_up(
    recording: Path, tmp_path: Path
) -> None:
    alone, _ = usdt("report", recording, "--folded")
    assert alone == ["comm;[unknown];[unknown] 3"]
    other = tmp_path / "other.usdt"
    other.write_bytes(recording.read_bytes())
    found = stream(tmp_path / "a.json", "web1", [event([frame(16, "sell")])], "trace")
    lines, said = usdt("report", recording, other, found, "--folded")
    assert lines == ["comm;[unknown];[unknown] 6", "shop;sell 1"]
    assert said[-1] == "7 events of 3 streams from 2 hosts, begun within 1.50 s, 0 lost"
    apart, _ = usdt("report", recording, found, "--folded", "--by", "host")
    assert apart == ["comm;host=here;[unknown];[unknown] 3", "shop;host=web1;sell 1"]
    merged, _ = usdt("merge", recording, other, found, "--folded")
    assert merged == lines
    made = tmp_path / "out.folded"
    usdt("report", found, "--folded", "-o", made)
    assert made.read_text() == "shop;sell 1\n"


def test_stacks_are_one_by_build_id(tmp_path: Path) -> None:
    sold = [frame(16, "sell"), frame(32, "main")]
    # This machine has no symbols of the program; another file has the same addresses.
    bare = [frame(16, None), frame(32, None)]
    alien = [frame(16, None, build_id="cd34"), frame(32, "main")]
    first = stream(tmp_path / "a.json", "web1", [event(sold), event(sold)], "trace")
    second = stream(tmp_path / "b.json", "web2", [event(bare), event(alien)], "trace")
    lines, _ = usdt("report", first, second, "--folded")
    assert lines == ["shop;main;[shop] 1", "shop;main;sell 3"]
    counted = {"probe": "p:q", "key": {"comm": "shop", "ustack": bare}, "count": 40}
    third = stream(tmp_path / "c.json", "web3", [counted], "count")
    lines, _ = usdt("report", first, second, third, "--folded")
    assert lines == ["shop;main;[shop] 1", "shop;main;sell 43"]


def test_names_cannot_pretend_to_be_frames_or_counts(tmp_path: Path) -> None:
    evil = [frame(16, "a;b\n\x1b[2J 7"), frame(32, "ma in 5")]
    found = stream(tmp_path / "a.json", "x;y\n\x1b]0;", [event(evil)], "trace")
    lines, _ = usdt("report", found, "--folded", "--by", "host")
    assert len(lines) == 1
    assert lines[0].endswith(" 1")
    assert lines[0].count(";") == 3
    assert lines[0].isprintable()


def test_results_and_events_by_host(tmp_path: Path) -> None:
    counted = {"probe": "p:q", "key": {"comm": "shop"}, "count": 4}
    files = [
        stream(tmp_path / f"{host}.json", host, [counted], "count") for host in ("web1", "web2")
    ]
    lines, _ = usdt("report", *files)
    assert [line.split() for line in lines] == [["COUNT", "PROBE", "comm"], ["8", "p:q", "shop"]]
    lines, _ = usdt("report", *files, "--by", "host", "--json")
    assert [json.loads(line)["key"] for line in lines[1:]] == [
        {"host": "web1", "comm": "shop"},
        {"host": "web2", "comm": "shop"},
    ]


def test_patterns_select_results(tmp_path: Path) -> None:
    stack = [frame(16, "sell")]
    counted = [
        {"probe": probe, "key": {"comm": "shop", "ustack": stack}, "count": 4}
        for probe in ("p:q", "p:other")
    ]
    lost = [{"lost": 2, "unreadable": 0, "probe": probe} for probe in ("p:q", "p:other")]
    found = stream(tmp_path / "a.json", "web1", [*counted, *lost], "count")
    lines, said = usdt("report", found, "p:o*")
    assert [line.split() for line in lines[:2]] == [
        ["COUNT", "PROBE", "comm"],
        ["4", "p:other", "shop"],
    ]
    assert said[-1] == "1 result of 1 stream from 1 host, 2 lost"
    assert usdt("report", found, "p:o*", "--folded")[0] == ["shop;sell 4"]


def test_a_stack_by_any_name_is_survived(tmp_path: Path) -> None:
    counted = {"probe": "p:q", "key": {"comm": [frame(16, "sell")]}, "count": 4}
    found = stream(tmp_path / "a.json", "web1", [counted], "count")
    _, said = usdt("report", found, "--folded", code=1)
    assert "no stacks" in said[-1]


def test_what_has_no_stacks_is_named(tmp_path: Path) -> None:
    plain = event([])
    plain["args"] = {}
    files = [stream(tmp_path / name, name, [plain], "trace") for name in ("a", "b")]
    _, said = usdt("report", *files, "--folded", code=1)
    assert said[-1].startswith("Error: ")
    assert "no stacks; add --ustack" in said[-1]
    _, said = usdt("report", *files, "--csv", code=2)
    assert said[-1] == "Error: --csv takes one recording, without --by"
    _, said = usdt("report", *files, "--folded", "-o", files[0], code=1)
    assert said[-1].endswith("the output would overwrite it")
    assert files[0].read_text()
