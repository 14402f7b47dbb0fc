"""Parquet from a JSON stream: columns by the values, and the file as a whole."""

from __future__ import annotations

import contextlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from parquet_rows import check_same, ending_of, rows_of, types_of
from pyarrow import parquet

from usdt.base.errors import SyscallError, TargetError
from usdt.engine.output.parquet.stream import ParquetStream

_HEADER: dict[str, Any] = {
    "usdt": 1,
    "host": "web1",
    "command": "count",
    "clock": {"monotonic": 10, "realtime": 1_000_000_010, "error": 0},
}
_EVENT: dict[str, Any] = {"time": 1, "pid": 2, "tid": 3, "cpu": 0, "comm": "c", "probe": "p:q"}


def lines(*objects: dict[str, Any], **header: Any) -> list[str]:
    """A stream."""
    return [json.dumps(one) + "\n" for one in (_HEADER | header, *objects)]


def written(path: Path, stream: list[str]) -> Path:
    """The stream as Parquet, which must hold the same."""
    with ParquetStream(str(path)) as output:
        output.write(stream)
    check_same(path, stream)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a file goes."""
    return tmp_path / "it.parquet"


_BUCKETS = [{"low": None, "high": 1, "count": 1}, {"low": 1, "high": 1 << 63, "count": 0}]
_RESULT = {"probe": "p:q", "count": 3, "min": -1, "avg": 0.5, "max": None, "sum": 10**30}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        pytest.param([1, -1], "int64", id="numbers"),
        pytest.param([(1 << 64) - 1, 5], "decimal128(38, 0)", id="some beyond int64"),
        pytest.param([(1 << 64) - 1], "uint64", id="all beyond int64"),
        pytest.param([-1, 1 << 63], "decimal128(38, 0)", id="negative, and beyond int64"),
        pytest.param([10**40], "string", id="too large for any type"),
        pytest.param([0.5, "NaN", "-Infinity"], "double", id="floats"),
        pytest.param(["NaN", "x"], "string", id="texts"),
        pytest.param([True, None], "bool", id="truth values"),
        pytest.param([1, "x", [1]], "string", id="of all kinds"),
        pytest.param([[1, 2], []], "list<element: int64>", id="lists"),
        pytest.param([[1, 1 << 63]], "list<element: uint64>", id="lists of large numbers"),
        pytest.param([{"a": [None, {"b": "\udc80"}]}], "string", id="structures"),
        pytest.param([{"error": "not readable"}, 5], "int64", id="not readable"),
        pytest.param(["a\udcff", "b"], "string", id="not UTF-8"),
    ],
)
def test_a_column_has_a_type_by_its_values(place: Path, values: list[Any], kind: str) -> None:
    objects = [{**_EVENT, "args": {"arg0": value}} for value in values]
    assert types_of(written(place, lines(*objects, command="trace")))["arg0"] == kind


def test_results(place: Path) -> None:
    key = {
        "comm": "c",
        "count": "x",
        "ustack": [{"address": 5, "symbol": "f", "offset": 1, "module": "m"}, {"error": "cut"}],
    }
    one = {**_RESULT, "key": key, "distribution": [[0, 2], [16, 1]], "buckets": _BUCKETS}
    other = {**_RESULT, "time": 7, "interval": 0.5, "linear": {"low": 0, "high": 5, "step": 1}}
    first, second = rows_of(written(place, lines(one, other)))
    assert (first["comm"], first["key.count"], first["host"]) == ("c", "x", "web1")
    assert first["ustack"][0]["symbol"] == "f"
    assert dict(first["errors"]) == {"ustack": "cut"}
    assert first["buckets"][0] == {"low": None, "high": 1.0, "count": 1}
    assert second["timestamp"] == 1_000_000_007


def test_what_follows_the_results_is_metadata(place: Path) -> None:
    ending = [{"lost": 3, "unreadable": 0, "probe": "p:q"}, {"left_out": {"keys": 1}}]
    assert ending_of(written(place, lines(_RESULT, *ending))) == ending


def test_no_results(place: Path) -> None:
    found = written(place, lines(command="trace"))
    assert {"time", "timestamp", "pid", "probe", "errors"} <= types_of(found).keys()


def test_a_clock_that_is_set(place: Path) -> None:
    clock = {"clock": {"monotonic": 20, "realtime": 2_000_000_020, "error": 0}}
    stream = lines(*[_EVENT] * 4096, clock, _EVENT, command="trace")
    found = [row["timestamp"] for row in rows_of(written(place, stream))]
    assert (found[0], found[-1]) == (1_000_000_001, 2_000_000_001)


def test_what_comes_late_and_does_not_fit(place: Path) -> None:
    first = {**_EVENT, "args": {"arg0": 5, "arg1": "x"}}
    later = {**_EVENT, "pid": 1 << 40, "args": {"arg0": "five", "new": {"a": 1}, "arg1": None}}
    with ParquetStream(str(place)) as output:
        output.write(lines(*[first] * 4096, later, command="trace"))
    row = rows_of(place)[-1]
    assert (row["arg0"], row["pid"]) == (None, None)
    assert json.loads(row["more"]) == {"arg0": "five", "new": {"a": 1}, "pid": 1 << 40}


def test_frames_whose_members_are_anything(place: Path) -> None:
    frame = {"symbol": "f", "offset": 1, "module": "m", "address": 5}
    stacks = [[frame | {name: bad}, frame] for name in frame for bad in (7, "x", [1], {"a": 1})]
    objects = [{**_EVENT, "args": {"ustack": stack}} for stack in ([frame], *stacks)]
    with ParquetStream(str(place)) as output:
        output.write(lines(*objects, command="trace"))
    assert len(rows_of(place)) == len(objects)


def test_rows_are_written_in_groups_and_the_file_gets_its_name_at_the_end(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("usdt.engine.output.parquet.stream._GROUP", 4096)
    place.write_text("old")
    with ParquetStream(str(place)) as output:
        output.write(lines(*[_EVENT] * 5000, command="trace"))
        assert place.read_text() == "old"
        assert Path(f"{place}.part").stat().st_size > 0
    with parquet.ParquetFile(place) as file:
        groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert groups == [4096, 904]
    assert [*place.parent.iterdir()] == [place]


def fail(place: Path, *objects: dict[str, Any]) -> None:
    """Fail after these objects."""
    with contextlib.suppress(KeyError), ParquetStream(str(place)) as output:
        output.write(lines(*objects, command="trace"))
        raise KeyError


def test_a_run_that_fails_before_its_first_result_leaves_the_file_alone(place: Path) -> None:
    place.write_text("old")
    fail(place)
    assert place.read_text() == "old"
    assert [*place.parent.iterdir()] == [place]


def test_a_run_that_fails_later_leaves_what_it_has_seen(place: Path) -> None:
    fail(place, _EVENT)
    assert len(rows_of(place)) == 1


def test_a_disk_that_is_full(place: Path) -> None:
    (place.parent / "it.parquet.part").symlink_to("/dev/full")
    full = pytest.raises(SyscallError, match=r"write to .*it.parquet: No space left on device")
    with full, ParquetStream(str(place)) as output:
        output.write(lines(_EVENT, command="trace"))
    assert not [*place.parent.iterdir()]


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="Parquet needs a regular file"):
        ParquetStream(str(tmp_path))


def test_a_file_of_its_owner(place: Path) -> None:
    with ParquetStream(str(place), private=True) as output:
        output.write(lines())
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
