"""Headers of JSON streams, and streams that repeat their clock."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from usdt.base.frozen import replace
from usdt.base.version import VERSION
from usdt.engine.output.streams.header import Clock, HeaderError, StreamHeader
from usdt.engine.output.streams.json_stream import JsonStream

HERE = StreamHeader.here("count", ["p:q(arg0)", "p:\udcff\x1b[2J"], ["comm", "str(arg0, 20)"])


def test_a_header_describes_this_machine() -> None:
    found = json.loads(HERE.line())
    name = os.uname()
    assert [*found] == [
        *("usdt", "host", "boot_id", "machine_id", "kernel", "machine", "cpus", "version"),
        *("command", "probes", "by", "clock"),
    ]
    assert (found["host"], found["kernel"], found["machine"]) == (
        *(name.nodename, name.release, name.machine),
    )
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (found["usdt"], found["boot_id"], found["version"]) == (1, boot, VERSION)
    assert (found["command"], found["by"]) == ("count", ["comm", "str(arg0, 20)"])


def test_its_clock_is_a_moment_between_two_readings() -> None:
    before = time.monotonic_ns()
    clock = Clock.now()
    after = time.monotonic_ns()
    assert before <= clock.monotonic <= after
    assert 2 * clock.error <= after - before + 1


def test_hostile_text_is_escaped() -> None:
    line = replace(HERE, host='a"\n\x1b[2J\udcff').line()
    assert line.isascii()
    assert line.count("\n") == 1
    assert "\x1b" not in line


def test_headers_survive_their_own_json() -> None:
    for header in (HERE, replace(HERE, by=None), replace(HERE, machine_id=None)):
        assert StreamHeader.from_json(json.loads(header.line())) == header
    assert StreamHeader.from_json(HERE.to_json() | {"more": [1]}) == HERE
    assert "by" not in json.loads(replace(HERE, by=None).line())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"usdt": 2}, "version 2 .* reads version 1", id="a later version"),
        pytest.param({"host": 5}, "'host': str expected", id="a host that is a number"),
        pytest.param({"host": "a" * 70000}, "too long, 70000", id="a host that is too long"),
        pytest.param({"cpus": True}, "'cpus': int expected", id="a number that is a boolean"),
        pytest.param({"cpus": -1}, "out of range", id="a negative number"),
        pytest.param({"probes": [1]}, "list of strings", id="probes that are numbers"),
        pytest.param({"clock": None}, "'clock': dict expected", id="no clock"),
        pytest.param({"clock": {"monotonic": 1}}, "realtime", id="half a clock"),
        pytest.param(
            {"clock": {"monotonic": 1 << 63, "realtime": 1}}, "out of range", id="a far future"
        ),
    ],
)
def test_headers_that_are_not_read(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(HeaderError, match=reason):
        StreamHeader.from_json(HERE.to_json() | changes)


def test_other_objects_are_no_headers() -> None:
    for data in (None, [], {}, {"clock": Clock.now().to_json()}):
        with pytest.raises(HeaderError, match="'usdt' expected"):
            StreamHeader.from_json(data)


def test_a_stream_repeats_the_clock_before_a_result_only(tmp_path: Path) -> None:
    with JsonStream(str(tmp_path / "out"), pause=0.0) as stream:
        stream.write_header(HERE)
        stream.write([])
        stream.write(['{"count": 1}\n', '{"count": 2}\n'])
    first, clock, *rest = map(json.loads, (tmp_path / "out").read_text().splitlines())
    assert first["usdt"] == 1
    assert [*clock] == ["clock"]
    assert clock["clock"]["monotonic"] > first["clock"]["monotonic"]
    assert rest == [{"count": 1}, {"count": 2}]


def test_a_short_stream_has_one_clock(tmp_path: Path) -> None:
    with JsonStream(str(tmp_path / "out")) as stream:
        stream.write_header(HERE)
        stream.write(['{"count": 1}\n'])
    assert len((tmp_path / "out").read_text().splitlines()) == 2
