"""``--at``: attached before, and no hit before counts; every command, at one moment."""

from __future__ import annotations

import contextlib
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from fixtures import build, start
from fleets import asked, hits_program
from patience import patient
from skips import requires_root
from streams import read_events
from tracing_tools import KPROBE, Tool, run_usdt, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fixtures import Fixture

pytestmark = [requires_root, pytest.mark.usefixtures("ringbuf")]

_PROBE = "threads:hit"
_HITS = 40  # of one order to fire
# Seconds from the start of tools to their moment: the next where they were attached too late.
_WAITS = (patient(3), patient(12), patient(90))


@pytest.fixture(scope="module")
def program() -> Iterator[Fixture]:
    with start(build("default", "threads"), "-w", "-t", 2, "-n", _HITS // 2) as made:
        yield made.wait_ready()


def commands(folder: Path) -> dict[str, tuple[str, ...]]:
    """A command line for each way of counting or showing hits."""
    return {
        "trace": ("trace", "--json", _PROBE),
        "tracefs": ("trace", "--json", "--via", "tracefs", _PROBE),
        "spans": ("spans", "--json", "--key", "tid,arg1", _PROBE, _PROBE),
        "record": ("record", "-o", str(folder / "out.usdt"), _PROBE),
        "by": ("count", "--json", "--by", "tid,arg1", "--max-keys", str(_HITS), _PROBE),
        "intervals": ("stats", "--json", "-i", "500ms", "--align", f"{_PROBE}(arg1)"),
    }


@pytest.fixture(scope="module")
def found(program: Fixture, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tool]:
    """The tools after a run: the program fired once before the moment, and once after it."""
    for wait in _WAITS:
        lines = commands(tmp_path_factory.mktemp("at"))
        at, moment = _moment(wait)
        with contextlib.ExitStack() as stack:
            tools = {
                name: stack.enter_context(Tool(*words, "-p", program.pid, "--at", moment))
                for name, words in lines.items()
            }
            if not all(_traces(tool) for tool in tools.values()):
                continue
            program.fire()
            if time.time_ns() > at:
                continue
            time.sleep((at - time.time_ns()) / 1e9 + 0.001)
            program.fire()
            for tool in tools.values():
                tool.process.send_signal(2)
            for tool in tools.values():
                tool.finish()
            return tools
    raise AssertionError([tool.errors for tool in tools.values()])


def _moment(seconds: float) -> tuple[int, str]:
    """A moment so far from now: ns since 1970, and the word for ``--at``."""
    at = time.time_ns() + int(seconds * 1e9)
    return at, f"@{at // 10**9}.{at % 10**9:09}"


def _traces(tool: Tool) -> bool:
    """Wait until a tool traces; whether it came in time for its moment."""
    until(lambda: tool.code is not None or "tracing" in "".join(tool.errors), f"{tool} to trace")
    return tool.code is None


def counts(tool: Tool) -> int:
    return sum(record.get("count", 0) for record in tool.records)


@pytest.mark.parametrize("name", ["trace", "tracefs", "record", "by", "intervals"])
def test_hits_before_do_not_count(found: dict[str, Tool], name: str) -> None:
    tool = found[name]
    assert tool.closing == (_HITS, 0)
    assert any("do not count" in line for line in tool.errors)
    if name in ("trace", "tracefs"):
        assert len(tool.events) == _HITS
    elif name != "record":
        assert counts(tool) == _HITS


def test_keys_of_earlier_hits_fill_no_map(found: dict[str, Tool]) -> None:
    groups = [record for record in found["by"].records if record.get("count")]
    assert [group["count"] for group in groups] == [1] * _HITS


def test_pairs_have_both_ends_after_the_moment(found: dict[str, Tool]) -> None:
    assert found["spans"].closing == (0, 0)


def test_no_interval_is_before_the_moment(found: dict[str, Tool]) -> None:
    records = [record for record in found["intervals"].records if "count" in record]
    assert 1 <= len(records) <= 4, records
    assert records[0]["partial"] is True  # 500 ms do not end at that moment


def test_a_recording_begins_there(found: dict[str, Tool]) -> None:
    words = found["record"].words
    done = run_usdt("report", words[words.index("-o") + 1], "--json")
    assert len(read_events(done.stdout)) == _HITS


def test_the_duration_begins_at_the_moment() -> None:
    for wait in (patient(1), *_WAITS):
        at, moment = _moment(wait)
        words = ("count", "--at", moment, "-d", "200ms", "syscall:getppid")
        with Tool(*words, command=KPROBE) as tool:
            if not _traces(tool):
                continue
            tool.finish()
            break
    assert tool.code == 0, tool.errors
    assert time.time_ns() > at + 200_000_000


def test_machines_of_a_fleet_begin_at_one_moment_in_any_time_zone() -> None:
    at = int(time.time()) + 3600
    words = ("count", "--at", time.strftime("%H:%M:%S", time.localtime(at)), "-c", hits_program())
    done = asked(
        "--nodes", "n1", "-v", "--", *words, _PROBE, via="env TZ=Asia/Tokyo sh -c {command} {node}"
    )
    said = next(line for line in done.messages if "do not count" in line)
    assert datetime.fromisoformat(said.split()[3]).timestamp() == at
    assert "+09:00" in said
    assert "n1: 0 events, 0 lost" in done.messages


@pytest.mark.parametrize(
    "words",
    [
        ("trace", "x:y"),
        ("count", "x:y"),
        ("spans", "x:y"),
        ("record", "-o", "/dev/null", "x:y"),
    ],
)
def test_a_time_that_has_passed_is_an_error(words: tuple[str, ...]) -> None:
    done = run_usdt(*words, "-a", "--at", "2020-01-01T00:00:00Z")
    assert done.returncode == 2
    assert "2020-01-01T00:00:00Z was" in done.stderr
    assert "ago; give a time to come" in done.stderr
