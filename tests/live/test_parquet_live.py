"""-o FILE.parquet of live commands, beside what the programs say they did."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from fixtures import build, start
from tracing_tools import run_usdt, usdt

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install pyarrow")

from parquet_rows import check_same, ending_of, header_of, rows_of, types_of

if TYPE_CHECKING:
    from pathlib import Path

_ARGS = build("default", "args")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a file goes."""
    return tmp_path / "it.parquet"


def run(*words: object) -> None:
    """Run a command that must do well."""
    done = run_usdt(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def program(rounds: int = 20) -> tuple[str, str]:
    """The option for a program that fires each probe so often."""
    return "-c", f"{_ARGS} -q -n {rounds}"


def test_a_recording_of_real_probes(tmp_path: Path, place: Path) -> None:
    recording, stream = tmp_path / "it.usdt", tmp_path / "it.json"
    items = "str(arg3), buf(arg3, 3), arg0, arg4, arg6, hex(arg6), usym(arg3), *(long *)8"
    run("record", "--ustack", *program(3), "args:*", f"args:mixed12({items})", "-o", recording)
    run("report", recording, "-o", place)
    run("report", recording, "--json", "-o", stream)
    assert check_same(place, stream.read_text().splitlines()) == 3 * 20
    types = types_of(place)
    assert types["str(arg3)"] == "string"
    assert types["buf(arg3,3)"] == "binary"
    assert types["ustack"].startswith("list<")


def test_hits(place: Path) -> None:
    run("trace", *program(), "args:count3", "-o", place)
    rows = rows_of(place)
    assert [row["arg2"] for row in rows] == [100 * number + 3 for number in range(20)]
    assert {row["probe"] for row in rows} == {"args:count3"}
    header = header_of(place)
    assert (header["command"], header["host"]) == ("trace", rows[0]["host"])
    moment = header["clock"]["realtime"] - header["clock"]["monotonic"] + rows[0]["time"]
    assert abs(rows[0]["timestamp"] - moment) < 1_000_000_000


def test_so_many_and_no_more(place: Path) -> None:
    run("trace", *program(), "args:count3", "-n", 5, "-o", place)
    assert len(rows_of(place)) == 5


def test_a_signal_ends_it_well(place: Path) -> None:
    with start(_ARGS, "-w", "-q", "-n", 3) as fixture:
        tool = usdt("trace", "-p", fixture.wait_ready().pid, "args:count3", "-o", place)
        with tool:
            tool.wait_tracing()
            fixture.fire()
            fixture.finish()
            tool.process.send_signal(signal.SIGINT)
            assert tool.wait_all() == 0
    assert len(rows_of(place)) == 3


def test_probes_of_a_library_that_comes_later(place: Path) -> None:
    with (
        start(build("default", "dlopened"), "-w", "-q") as fixture,
        usdt(
            "trace", "-p", fixture.wait_ready().pid, "dlopened:*", "plugin:*", "-o", place
        ) as tool,
    ):
        tool.wait_tracing()
        fixture.fire()
        tool.wait_error("library loaded")
        fixture.fire()
        fixture.finish()
        assert tool.wait_all() == 0
    assert {row["probe"].partition(":")[0] for row in rows_of(place)} == {"dlopened", "plugin"}


def test_spans(place: Path) -> None:
    run("spans", *program(), "args:count1(arg0)", "args:count3(arg0, arg2)", "-o", place)
    rows = rows_of(place)
    assert [(row["arg0"], row["end_args.arg2"]) for row in rows] == [
        (100 * number + 1, 100 * number + 3) for number in range(20)
    ]
    assert all(row["duration"] > 0 and row["end_probe"] == "args:count3" for row in rows)


def test_a_tree_of_spans(place: Path) -> None:
    run("spans", *program(), "args:count1(arg0)", "args:count3", "--tree", "-o", place)
    assert [(row["arg0"], row["depth"]) for row in rows_of(place)] == [
        (100 * number + 1, 0) for number in range(20)
    ]


def test_results(place: Path) -> None:
    run("count", *program(), "args:count3", "--by", "comm,arg0 % 200", "-o", place)
    rows = rows_of(place)
    assert {(row["comm"], row["arg0%200"]): row["count"] for row in rows} == {
        ("args", 1): 10,
        ("args", 101): 10,
    }
    assert ending_of(place) == []
    run("hist", *program(), "args:count3(arg2)", "-o", place)
    (row,) = rows_of(place)
    assert (row["count"], row["min"], row["max"]) == (20, 3, 1903)
    assert sum(bucket["count"] for bucket in row["buckets"]) == 20


@pytest.mark.parametrize(
    "words",
    [
        ("stats", "args:count3(arg2)", "--by", "ustack"),
        ("heatmap", "args:count3(arg2)", "-i", "0.05", "--align"),
    ],
    ids=lambda words: words[0],
)
def test_commands_that_aggregate(place: Path, words: tuple[str, ...]) -> None:
    run(*words, *program(), "-o", place)
    assert sum(row["count"] for row in rows_of(place)) == 20
