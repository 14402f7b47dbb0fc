"""``usdt merge``: the examples of its page, files and pipes, events, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from json_schema import check_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
USDT = Path(sys.executable).with_name("usdt")
_PAGE = (ROOT / "docs/merge.md").read_text()
_FILES = re.findall(r"`(\w+\.json)`:\n\n```json\n(.*?)```", _PAGE, re.DOTALL)
_EXAMPLES = re.findall(r"^\$ (.*)\n((?:[^$`].*\n)*)", _PAGE, re.MULTILINE)


def usdt_merge(
    folder: Path, *words: str, code: int = 0, given: bytes | str = b""
) -> tuple[list[str], list[str]]:
    """Run the command; return the lines on standard output, and those on standard error."""
    done = subprocess.run(
        [USDT, "merge", *words],
        input=given.encode() if isinstance(given, str) else given,
        capture_output=True,
        cwd=folder,
        timeout=60,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    check_lines(words, done.stdout.decode().splitlines())
    return done.stdout.decode().splitlines(), done.stderr.decode().splitlines()


def test_the_examples_of_the_page_are_what_is_printed(tmp_path: Path) -> None:
    assert len(_FILES) == 2
    assert len(_EXAMPLES) == 5
    for name, content in _FILES:
        (tmp_path / name).write_text(content)
    for command, shown in _EXAMPLES:
        line = command.replace("usdt", str(USDT))
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, check=True
        )
        assert done.stdout + done.stderr == shown, command


def header(host: str, offset: int, command: str = "trace") -> dict[str, Any]:
    clock = {"monotonic": 100, "realtime": 100 + offset, "error": 1}
    about = {"usdt": 1, "host": host, "boot_id": host, "machine_id": None, "kernel": "6.18"}
    about |= {"machine": "x86_64", "cpus": 2, "version": "0.1.0", "command": command}
    return about | {"probes": ["p:q"], "clock": clock}


def event(time: int, argument: int = 1) -> dict[str, Any]:
    who = {"pid": 1, "tid": 1, "cpu": 0, "comm": "c", "probe": "p:q"}
    return {"time": time, **who, "args": {"arg0": argument}}


def text(*objects: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


def test_events_are_ordered_by_the_time_of_day(tmp_path: Path) -> None:
    hour = 3600 * 1_000_000_000
    # web2 was booted an hour later: its times are smaller.
    first = text(header("web1", hour), *(event(2 * hour + n, n) for n in (1, 3, 5)))
    lost = {"lost": 3, "probe": "p:q"}
    second = text(header("web2", 2 * hour), *(event(hour + n, n) for n in (2, 4)), lost)
    (tmp_path / "a").write_text(first)
    (tmp_path / "b").write_text(second)
    lines, said = usdt_merge(tmp_path, "a", "b", "--json")
    begin, *events, end = map(json.loads, lines)
    assert begin["hosts"] == ["web1", "web2"]
    assert [one["args"]["arg0"] for one in events] == [1, 2, 3, 4, 5]
    assert [one["host"] for one in events] == ["web1", "web2", "web1", "web2", "web1"]
    assert events[0]["time"] == 3 * hour + 1
    assert end == {"lost": 3, "unreadable": 0, "probe": "p:q"}
    assert said[-1] == "5 events of 2 streams from 2 hosts, begun within 3600 s, 3 lost"
    again, _ = usdt_merge(tmp_path, "-", "--json", given="\n".join(lines))
    assert again[1:] == lines[1:]
    shown, _ = usdt_merge(tmp_path, "a", "b", "--realtime")
    assert len(shown) == 5
    assert shown[1].split()[1:] == ["web2", "0", "1", "c", "p:q", "arg0=2"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"", "standard input:0: empty"),
        (b"\x00\xff" * 10, "standard input:1: not JSON, but binary data: skipped"),
        (b"x" * (9 << 20), "standard input:1: longer than 4194304 bytes: skipped"),
        (b"\x89usdtrec", "standard input:0: the recording ends within its header"),
        (b"\x89usdtrec" + b"x" * 99, "standard input:0: standard input: damaged at byte 8"),
    ],
)
def test_what_is_no_stream_is_named(tmp_path: Path, given: bytes, said: str) -> None:
    (tmp_path / "good").write_text(text({"probe": "p:q", "count": 2}))
    lines, errors = usdt_merge(tmp_path, "-", "good", given=given)
    assert lines[1].split() == ["2", "p:q"]
    assert errors[0].startswith(said)
    lines, errors = usdt_merge(tmp_path, "-", "good", "--strict", given=given, code=1)
    assert lines == []
    assert errors[0].startswith(f"Error: {said}")


def test_an_unknown_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(text({"probe": "p:q", "count": 2}))
    _, errors = usdt_merge(tmp_path, "a", "--sort", "p50", code=1)
    assert errors[-1] == "Error: --sort p50: no such column; expected one of count"


@pytest.mark.parametrize("words", [["absent"], ["."], ["a", "-o", "a"]])
def test_files_that_cannot_be_used_are_refused(tmp_path: Path, words: Sequence[str]) -> None:
    (tmp_path / "a").write_text(text({"probe": "p:q", "count": 2}))
    _, errors = usdt_merge(tmp_path, *words, code=1)
    assert len(errors) == 1
    assert errors[0].startswith("Error: ")
    assert (tmp_path / "a").read_text()


def test_a_map_of_several_machines(tmp_path: Path) -> None:
    second = 1_000_000_000
    bucket = {"low": 4, "high": 8, "count": 3}
    row = {"interval": 1.0, "value": "arg0", "probe": "p:q", "count": 3, "buckets": [bucket]}
    for host in ("web1", "web2"):
        rows = [{"time": (n + 1) * second} | row for n in range(2)]
        (tmp_path / host).write_text(text(header(host, 0, "heatmap"), *rows))
    lines, _ = usdt_merge(tmp_path, "web1", "web2")
    assert [line.rpartition("| ")[2] for line in lines[:3]] == ["arg0; count", "6", "6"]
    lines, _ = usdt_merge(tmp_path, "web1", "web2", "--by", "host")
    assert [line for line in lines if line.startswith("p:q")] == ["p:q  web1", "p:q  web2"]


def test_events_and_results_are_merged_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(text(header("web1", 0), *(event(n) for n in range(3))))
    counted = {"probe": "p:q", "key": {"comm": "c"}, "count": 2}
    (tmp_path / "b").write_text(text(header("web2", 0, "count"), counted, {"lost": 1}))
    usdt_merge(tmp_path, "a", "b", "--json", "-o", "all")
    lines, _ = usdt_merge(tmp_path, "all", "--json")
    objects = [json.loads(line) for line in lines[1:]]
    assert sum("pid" in one for one in objects) == 3
    assert counted in objects


def test_a_long_name_of_a_host_does_not_widen_all_lines(tmp_path: Path) -> None:
    for host in ("web1", "w" * 60_000):
        objects = [event(n) for n in range(100)]
        (tmp_path / host[:5]).write_text(text(header(host, 0), *objects))
    lines, _ = usdt_merge(tmp_path, "web1", "wwwww")
    assert sorted(map(len, lines))[50] < 200
