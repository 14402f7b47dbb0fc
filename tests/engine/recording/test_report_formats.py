"""Recordings in the forms of other programs: tables, and traces of spans."""

from __future__ import annotations

import csv
import io
import json
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest
from planning import EVERY_TYPE, plan
from recordings import CASES, make, many, read, reader, record, text

from usdt.base.errors import TargetError
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.recording import spans as spans_module
from usdt.engine.recording.blocks import RecordingError
from usdt.engine.recording.reader import Reader
from usdt.engine.recording.spans import ChromeFormatter, Spans
from usdt.engine.recording.tables import CsvFormatter, columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# ---------------------------------------------------------------- tables


def table(content: bytes) -> list[dict[str, str]]:
    """The rows of the table of a recording, as somebody else's reader has them."""
    with reader(content) as recording:
        recording.survey()
        form = CsvFormatter(columns_of(case.layout for case in recording.variants))
    lines = "".join([form.title(), *read(content, form)])
    return list(csv.DictReader(io.StringIO(lines, newline=""), strict=True))


def test_a_table_has_the_columns_of_all_probes() -> None:
    rows = table(make(CASES, [b"".join(many([1, 3, 5, 4]))]))
    shown = ["time", "pid", "tid", "cpu", "comm", "probe", "arg6", "arg7", "str(arg7,15)"]
    assert [*rows[0]][:9] == shown
    assert [*rows[0]][9] == "buf(arg7,5)"
    assert [*rows[0]][10:] == [f"arg{n}" for n in range(13) if n not in (6, 7)]
    assert (rows[0]["probe"], rows[0]["arg6"], rows[0]["arg7"]) == ("p:one", "0", "")
    assert (rows[1]["str(arg7,15)"], rows[1]["buf(arg7,5)"]) == ("x", "a")
    last = rows[2]
    assert (last["arg0"], last["arg9"], last["arg10"]) == ("-4", "0.5", "0.25")
    assert (last["arg11"], last["arg12"]) == (bytes(range(24)).hex(), "?(thread-local)")
    assert set(rows[3].values()) == {"3", "11", "0", "comm", "q:four", ""}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"a,b", id="a comma"),
        pytest.param(b'say "a"', id="quotes"),
        pytest.param(b"a\nb", id="a line end"),
        pytest.param(b"a\r\nb\r", id="line ends of others"),
        pytest.param(b" a ", id="blanks"),
        pytest.param(b"", id="nothing"),
        pytest.param("é漢".encode(), id="other alphabets"),
        pytest.param(b"'''{x}\\", id="apostrophes, braces, a backslash"),
    ],
)
def test_texts_are_quoted_in_tables(value: bytes) -> None:
    made = plan('str(arg7, 15), comm, (str(arg7)=="a,b")+0')
    payload = struct.pack("=Q", 0) + text(value + b"\0", 16) + struct.pack("=q", 1)
    (row,) = table(make([(1, 'p:"q,', made)], [record(payload, comm=value)]))
    assert row["str(arg7,15)"] == row["comm"] == value.decode()
    assert row["probe"] == 'p:"q,'
    assert row['(str(arg7)=="a,b")+0'] == "1"


@pytest.mark.parametrize(
    "value",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\tx",
        "\r=1",
        "\n",
        "＝1",
        "'=1",
        "''@",
        '=A("b","c")',
    ],
)
def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe(value: str) -> None:
    made = plan("str(arg7, 15), comm, arg4")
    shown = value.encode()[:15]
    payload = text(shown + b"\0", 16) + struct.pack("=q", -5)
    (row,) = table(make([(1, "-:q", made)], [record(payload, comm=shown)]))
    assert row["str(arg7,15)"] == row["comm"] == f"'{shown.decode()}"
    assert row["probe"] == "'-:q"
    assert row["arg4"] == "-5"


@pytest.mark.parametrize("value", [b"'", b"a=1", b"'a", b" =1", b"1-1", b"?"])
def test_other_text_stays_as_it_is_in_tables(value: bytes) -> None:
    made = plan("str(arg7, 15)")
    (row,) = table(make([(1, "p:q", made)], [record(text(value + b"\0", 16), comm=value)]))
    assert row["str(arg7,15)"] == row["comm"] == value.decode()


def test_a_semicolon_cannot_divide_a_cell() -> None:
    made = plan("str(arg7, 15)")
    content = make([(1, "p:q", made)], [record(text(b"a;=1\0", 16))])
    with reader(content) as recording:
        recording.survey()
        form = CsvFormatter(columns_of(case.layout for case in recording.variants))
    assert read(content, form)[0].endswith(',"a;=1"\n')


def test_what_cannot_be_read_says_so_in_tables() -> None:
    made = plan("arg8, str(arg7, 3)")
    payload = struct.pack("=Qq", 1, 5) + text(b"", 4, length=-14)
    (row,) = table(make([(1, "p:q", made)], [record(payload)]))
    assert (row["arg8"], row["str(arg7,3)"]) == ("?(memory not readable)",) * 2


def test_a_table_of_a_recording_that_has_grown() -> None:
    with pytest.raises(RecordingError, match="has grown"):
        read(make(CASES, many([1])), CsvFormatter(["arg6"]))


def test_a_pipe_is_no_table(tmp_path: Path) -> None:
    content = make(CASES, many([1, 2, 3]))
    os.mkfifo(tmp_path / "pipe")
    # Open for both, so that neither end waits; the content fits into the pipe.
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(writer, content)
    with Reader.open(str(tmp_path / "pipe")) as recording:
        os.close(writer)
        with pytest.raises(TargetError, match="it is read twice"):
            recording.survey()
        assert len([line for batch in recording.replay(JsonFormatter()) for line in batch]) == 3


# ---------------------------------------------------------------- spans

CALLS = [
    (1, "db:query__start", plan("str(arg7, 15)")),
    (2, "db:query__done", plan("arg6")),
    (3, "py:function__entry", plan("", ())),
    (4, "py:function__return", plan("", ())),
    (5, "app:from", plan("", ())),
    (6, "app:to", plan("", ())),
    (7, "app:lonely__start", plan("", ())),
    (8, "py:line", plan("", ())),
]


def call(case: int, time: int, tid: int = 11, pid: int = 10, comm: bytes = b"comm") -> bytes:
    payload = {1: text(b"SELECT\0", 16), 2: struct.pack("=q", -5)}.get(case, b"")
    return record(payload, case=case, time=time, tid=tid, pid=pid, comm=comm)


def chrome(
    calls: Sequence[bytes], given_pairs: Sequence[tuple[str, str]] = ()
) -> tuple[list[dict[str, Any]], Spans]:
    """The events of a trace, without the names of threads."""
    made = Spans(given_pairs)
    made.probes(probe for _, probe, _ in CALLS)
    found = []
    with reader(make(CALLS, [b"".join(calls)])) as recording:
        for batch in recording.replay(ChromeFormatter()):
            found += made.events(batch)
    found += made.rest()
    return [json.loads(line) for line in found], made


def shape(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (event["ph"], event["name"], event["tid"], event["ts"], event.get("dur"))
        for event in events
        if event["ph"] != "M"
    ]


def test_a_span_has_both_ends_values() -> None:
    events, made = chrome([call(1, 1_000_001), call(2, 1_500_002)])
    assert events[-1] == {
        "ph": "X",
        "name": "db:query",
        "cat": "db",
        "ts": 1000.001,
        "dur": 500.001,
        "pid": 10,
        "tid": 11,
        "args": {"start": {"str(arg7,15)": "SELECT"}, "end": {"arg6": -5}},
    }
    assert (made.unfinished, made.unbegun) == (0, 0)


def test_calls_within_calls_and_threads_side_by_side() -> None:
    events, made = chrome(
        [
            call(3, 1000),
            call(3, 2000),
            call(3, 2500, tid=12),
            call(4, 3000),
            call(1, 3500),
            call(4, 4000, tid=12),
            call(4, 5000),
            call(2, 6000),
        ]
    )
    assert shape(events) == [
        ("X", "py:function", 11, 2.0, 1.0),
        ("X", "py:function", 12, 2.5, 1.5),
        ("X", "py:function", 11, 1.0, 4.0),
        ("X", "db:query", 11, 3.5, 2.5),
    ]
    assert (made.unfinished, made.unbegun) == (0, 0)


def test_what_has_no_counterpart_is_an_instant_and_counted() -> None:
    events, made = chrome([call(4, 1000), call(3, 2000), call(3, 3000), call(4, 4000)])
    assert shape(events) == [
        ("i", "py:function__return", 11, 1.0, None),
        ("X", "py:function", 11, 3.0, 1.0),
        ("i", "py:function__entry", 11, 2.0, None),
    ]
    assert (made.unfinished, made.unbegun) == (1, 1)


def test_other_probes_are_instants_and_not_counted() -> None:
    events, made = chrome([call(8, 1000), call(7, 2000), call(5, 3000), call(6, 4000)])
    assert [row[0] for row in shape(events)] == ["i"] * 4
    assert (made.unfinished, made.unbegun) == (0, 0)


def test_pairs_that_are_named() -> None:
    events, _ = chrome([call(5, 3000), call(6, 4000)], [("app:from", "app:to")])
    assert shape(events) == [("X", "app:from", 11, 3.0, 1.0)]


def test_names_of_processes_and_threads() -> None:
    calls = [
        call(8, 1, tid=12, comm=b"worker"),
        call(8, 2, tid=10, comm=b"main"),
        call(8, 3, tid=12, comm=b"worker"),
        call(8, 4, tid=12, comm=b"idle"),
    ]
    events, _ = chrome(calls)
    names = [(e["name"], e["tid"], e["args"]["name"]) for e in events if e["ph"] == "M"]
    assert names == [
        ("process_name", 12, "worker"),
        ("thread_name", 12, "worker"),
        ("process_name", 10, "main"),
        ("thread_name", 10, "main"),
        ("thread_name", 12, "idle"),
    ]


def test_beginnings_without_ends_do_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_module, "_MOST_OPEN", 10)
    events, made = chrome([call(3, time) for time in range(100)] + [call(4, 100)])
    assert made.unfinished == 99
    assert len(shape(events)) == 100
    assert [row[1] for row in shape(events) if row[0] == "X"] == ["py:function"]


def test_every_value_of_every_type_is_json() -> None:
    assert len(EVERY_TYPE) == 13
    for form in (ChromeFormatter(),):
        rows = read(make(CASES, [b"".join(many([5, 3, 1]))]), form)
        assert [len(json.loads(args)) for _, _, args in rows] == [13, 2, 1]
