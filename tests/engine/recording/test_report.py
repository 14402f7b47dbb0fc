"""Reading recordings: every event again, from any machine; cut anywhere; damaged anyhow."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import struct
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning import plan
from recordings import (
    CASES,
    NATIVE,
    block,
    frames,
    header,
    hit,
    make,
    many,
    read,
    reader,
    record,
    whole,
)

from usdt.base.errors import TargetError
from usdt.bpf.rings.ringbuf import BUSY, DISCARD
from usdt.engine.output.decode import Decoder
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import FoldedFormatter, TextFormatter
from usdt.engine.recording.blocks import MAGIC, RecordingError
from usdt.engine.recording.description import Closing, dump
from usdt.engine.recording.processes import RecordedStacks
from usdt.engine.recording.reader import Reader
from usdt.engine.recording.spans import ChromeFormatter, Spans
from usdt.engine.recording.tables import CsvFormatter, columns_of
from usdt.engine.runtime.session import Lost
from usdt.symbolize import Symbolizer

if TYPE_CHECKING:
    from collections.abc import Sequence

OTHER = ">" if NATIVE == "<" else "<"
ORDERS = {"<": "little", ">": "big"}

MIXED = [1, 2, 1, 1, 3, 2, 2, 4, 4, 5, 1, 3, 3, 3, 4, 1, 2, 5, 5, *[1] * 40, *[3, 1] * 30, *[2] * 9]


def expected(form: Any, records: Sequence[bytes]) -> list[Any]:
    """What a decoder makes of the same bytes at once."""
    decoder = Decoder(form)
    for case in CASES:
        decoder.add(*case)
    return [item for batch in decoder.batches(b"".join(records)) for item in batch]


def blocks_of(records: Sequence[bytes], size: int) -> list[bytes]:
    return [b"".join(records[n : n + size]) for n in range(0, len(records), size)]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_report_is_what_a_trace_would_have_printed(size: int) -> None:
    records = many(MIXED)
    content = make(CASES, blocks_of(records, size))
    assert read(content) == expected(JsonFormatter(), records)
    assert read(content, EventFormatter()) == expected(EventFormatter(), records)
    assert len(read(content)) == len(MIXED)


def test_the_other_byte_order_reads_the_same() -> None:
    ours = make(CASES, blocks_of(many(MIXED), 20))
    # The recorder writes what this machine's kernel gives, so the other machine's blocks are put
    # in by hand.
    parts = [MAGIC, block(b"HEAD", dump(header(ORDERS[OTHER]).to_json()))]
    theirs = many(MIXED, OTHER)
    for kind, start, end in frames(ours)[1:]:
        if kind == b"DATA":
            records, theirs = theirs[:20], theirs[20:]
            parts.append(data(*records))
            assert parts[-1] != ours[start:end]
        else:
            parts.append(ours[start:end])
    assert not theirs
    other = b"".join(parts)
    assert read(other) == read(ours)
    cut = read(other[:-1000])
    assert cut == read(ours)[: len(cut)]
    assert len(cut) > 50


def test_the_time_of_day_is_that_of_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    content = make(CASES, [hit(4, 3_661_000_001_999)])
    with reader(content) as recording:
        assert recording.header is not None
        clock = recording.header.clock
        form = TextFormatter(offset=clock.realtime - clock.monotonic)
        (line,) = [line for batch in recording.replay(form) for line in batch]
    monkeypatch.undo()
    time.tzset()
    assert line.startswith("01:01:01.500001  ")


def test_probes_that_are_not_wanted_are_left_out() -> None:
    records = many(MIXED)
    with reader(make(CASES, blocks_of(records, 50))) as recording:
        found = [
            event
            for batch in recording.replay(EventFormatter(), lambda probe: probe.startswith("p:"))
            for event in batch
        ]
    wanted = [
        event for event in expected(EventFormatter(), records) if event.probe.startswith("p:")
    ]
    assert found == wanted
    assert 0 < len(found) < len(records)


def test_discarded_records_are_no_events() -> None:
    gone = record(b"\xff" * 8, case=77, flags=DISCARD)
    records = [gone, hit(1, 0), gone, gone, hit(3, 1), hit(1, 2), gone]
    assert read(make(CASES, [b"".join(records)])) == expected(JsonFormatter(), records)


# ---------------------------------------------------------------- cut


SMALL = make(CASES[:3], blocks_of(many([1, 2, 3, 1, 1, 3, 2]), 3), lost=[Lost("p:one", 3, 0)])


def test_a_recording_cut_at_any_byte_reads() -> None:
    lines = read(SMALL)
    ends = []  # of each record in the file
    for kind, start, end in frames(SMALL):
        position = start + 24
        while kind == b"DATA" and position < end:
            position += 8 + struct.unpack_from("=I", SMALL, position)[0]
            ends.append(position)
    assert len(ends) == len(lines) == 7
    for size in range(len(SMALL)):
        with reader(SMALL[:size]) as recording:
            found = [line for batch in recording.replay(JsonFormatter()) for line in batch]
            assert found == lines[: sum(end <= size for end in ends)], size
            assert recording.cut == size
            assert recording.closing is None
    with reader(SMALL) as recording:
        assert [line for batch in recording.replay(JsonFormatter()) for line in batch] == lines
        assert (recording.cut, recording.records) == (-1, 7)
        assert recording.closing is not None


def test_a_file_that_cannot_be_read_is_named() -> None:
    # The first page of a process is nowhere, and reading it an error of the device.
    with pytest.raises(TargetError) as caught:
        Reader.open("/proc/self/mem")
    assert str(caught.value) == "/proc/self/mem: cannot be read: Input/output error"


def test_a_survey_of_a_recording_cut_at_any_byte() -> None:
    for size in range(len(SMALL)):
        with reader(SMALL[:size]) as recording:
            recording.survey()
            assert recording.cut == size


# ---------------------------------------------------------------- damaged


def test_damage_to_any_byte_is_found() -> None:
    lines = read(SMALL)
    for place in range(len(SMALL)):
        bad = bytearray(SMALL)
        bad[place] ^= 1 << place % 8
        found: list[str] = []
        with pytest.raises(RecordingError) as caught:
            gather(bytes(bad), found)
        assert found == lines[: len(found)], "what comes before the damage is good"
        assert "\n" not in str(caught.value)


def gather(content: bytes, found: list[str]) -> None:
    """Read lines until the end or the first damage."""
    with reader(content) as recording:
        for batch in recording.replay(JsonFormatter()):
            found += batch


def test_what_is_no_recording() -> None:
    for content in (b"\x7fELF", b"text", b"\x89PNG\r\n\x1a\n", b"\0" * 100):
        with pytest.raises(RecordingError, match="it: not a recording of usdt record"):
            reader(content)


def start(*parts: bytes) -> bytes:
    """A recording with a good header and these blocks behind it."""
    return whole(block(b"HEAD", dump(header().to_json())), *parts)


def described(*cases: tuple[int, str, Any]) -> bytes:
    found = [
        {"case": number, "probe": probe, "layout": made.layout.to_json()}
        for number, probe, made in cases
    ]
    return block(b"CASE", dump({"cases": found}))


def data(*records: bytes, count: int | None = None) -> bytes:
    return block(b"DATA", b"".join(records), len(records) if count is None else count)


END = block(b"END\0", dump(Closing(header().clock, 0, ()).to_json()))
ONE = described(CASES[0])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(whole(END), "no recording begins with", id="no header"),
        pytest.param(whole(block(b"HEAD", b"[]")), "no JSON object", id="a header of no members"),
        pytest.param(whole(block(b"HEAD", b"{")), "no JSON", id="a header that is no JSON"),
        pytest.param(
            whole(block(b"HEAD", b"[" * 100_000)), "no JSON", id="a header too deep to parse"
        ),
        pytest.param(
            whole(block(b"HEAD", b"1" * 10_000)), "no JSON", id="a number too long to parse"
        ),
        pytest.param(start(block(b"HEAD", b"{}")), "second header", id="two headers"),
        pytest.param(start(block(b"WHAT", b"{}")), "not known", id="an unknown block"),
        pytest.param(start(block(b"CASE", b"{}")), "a list expected", id="no cases"),
        pytest.param(start(block(b"CASE", b'{"cases": [1]}')), "objects", id="cases: numbers"),
        pytest.param(
            start(block(b"CASE", b'{"cases": [{"case": 1, "probe": "x"}]}')),
            "an object expected",
            id="a case without a layout",
        ),
        pytest.param(start(ONE, described((1, "p:x", plan("")))), "twice", id="one case twice"),
        pytest.param(start(data(hit(1, 0))), "of no known probe", id="records before their case"),
        pytest.param(start(ONE, data(hit(2, 0))), "of no known probe", id="another case"),
        pytest.param(start(ONE, data(hit(3, 0, tid=1))), "no known probe", id="a longer one"),
        pytest.param(
            start(ONE, data(record(bytes(16)))), "where 0x30 is expected", id="another length"
        ),
        pytest.param(
            start(ONE, data(*[record(bytes(16))] * 40)), "where 0x30", id="many of another length"
        ),
        pytest.param(start(ONE, data(hit(1, 0), count=2)), "not hold its 2", id="too few"),
        pytest.param(start(ONE, data(hit(1, 0)[:-8], count=1)), "not hold its 1", id="a torn one"),
        pytest.param(start(ONE, data(b"x" * 7, count=1)), "not hold its 1", id="odd bytes"),
        pytest.param(
            start(ONE, data(record(bytes(8), flags=BUSY))), "not hold its 1", id="a busy one"
        ),
        pytest.param(
            start(ONE, data(struct.pack("=II", 0, 0))), "not hold its 1", id="one without a length"
        ),
        pytest.param(start(END, END), "data after the closing block", id="two ends"),
        pytest.param(start(END, ONE), "data after the closing block", id="more behind the end"),
        pytest.param(start(block(b"END\0", b"{}")), "list expected", id="an end of no members"),
        pytest.param(start(block(b"FILE", b"{}")), "a list expected", id="no files"),
        pytest.param(
            start(block(b"FILE", b'{"files": []}', 5)), "not known", id="records among files"
        ),
    ],
)
def test_damage_with_the_right_checksums(content: bytes, reason: str) -> None:
    with pytest.raises(RecordingError, match=f"^it: .*{reason}"):
        read(content)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["integer", "string", "comm", "opaque", "signed", "bytes", "'''{}\\"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "cases", "files", "lost"]), inner, max_size=4)
    ),
    max_leaves=10,
)
fields = st.fixed_dictionaries(
    {
        "key": st.text(st.characters(codec=None), max_size=6) | values,
        "form": st.sampled_from(
            [
                *("integer", "hex", "float", "bytes", "string", "buffer", "comm", "opaque"),
                *("func", "ustack", "kstack", "usym", "ksym"),
            ]
        ),
        "kind": st.sampled_from(["signed", "unsigned", "float", "bytes"]),
        "bytes": st.sampled_from([1, 4, 8, 24]),
        "offset": st.sampled_from([-1, 40, 48, 56, 64, 72]),
        "size": st.sampled_from([0, 5, 8, 16]),
        "fallible": st.booleans(),
        "reason": st.text(st.characters(codec=None), max_size=6),
    }
)
layouts = st.fixed_dictionaries(
    {
        "size": st.sampled_from([40, 48, 56, 64, 96]),
        "marks": st.sampled_from([-1, 40]),
        "fields": st.lists(fields, max_size=3) | values,
    }
)
cases = st.fixed_dictionaries(
    {"case": st.integers(0, 3), "probe": st.text(max_size=4), "layout": layouts | values}
)
payloads = st.binary(max_size=60).map(lambda value: value + bytes(-len(value) % 8))
records = st.builds(
    lambda payload, case, flags: record(payload, case=case, flags=flags),
    payloads,
    st.integers(0, 3),
    st.sampled_from([0, 0, 0, DISCARD, BUSY]),
)
mappings = st.tuples(
    *[st.sampled_from([0, 4096, 1 << 63, -1])] * 3,
    st.sampled_from(["", "[vdso]", "/bin/true", "/dev/null", "/\0", "\udcff"]),
    st.none() | st.sampled_from(["", "ab", "../x"]),
)
hostile = st.one_of(
    st.builds(lambda found: block(b"CASE", dump({"cases": found})), st.lists(cases, max_size=3)),
    st.builds(
        lambda kind, value: block(kind, dump(value)), st.sampled_from([b"FILE", b"CASE"]), values
    ),
    st.builds(lambda found: data(*found), st.lists(records, max_size=6)),
    st.builds(
        lambda content, count: block(b"DATA", content, count), st.binary(), st.integers(0, 9)
    ),
    st.builds(lambda value: block(b"END\0", dump(value)), values),
    st.builds(
        lambda pid, rows, jit: block(
            b"MAPS", dump({"pid": pid, "snapshot": {"mappings": rows, "perf_map": jit}})
        ),
        st.sampled_from([10, -1, "x"]),
        st.lists(mappings, max_size=3) | values,
        st.text(st.characters(codec=None), max_size=20) | values,
    ),
    st.builds(
        lambda content: block(b"KSYM", content),
        st.binary(max_size=30) | st.binary(max_size=99).map(zlib.compress),
    ),
    st.binary(max_size=40),
)


def every_form(content: bytes) -> None:
    """Read it in every form; whatever comes, or a RecordingError."""
    for make_form in (
        JsonFormatter,
        ChromeFormatter,
        lambda s: TextFormatter(offset=0, stacks=s),
        FoldedFormatter,
    ):
        with RecordedStacks(Symbolizer, sys.byteorder) as stacks:
            try:
                found = read(content, make_form(stacks), stacks)
            except RecordingError:
                continue
        if make_form is JsonFormatter:
            assert all("args" in json.loads(line) for line in found)
        if make_form is ChromeFormatter:
            made = Spans()
            for item in [*made.events(found), *made.rest()]:
                json.loads(item)
    with contextlib.suppress(RecordingError):
        with reader(content) as recording:
            recording.survey()
            columns = columns_of(case.layout for case in recording.variants)
        read(content, CsvFormatter(columns, RecordedStacks(Symbolizer, sys.byteorder)))


# Forms that a field may have: form, kind, bytes of the value, room (-1: it takes none).
_VALID = [
    *(("integer", kind, size, 8) for kind in ("signed", "unsigned") for size in (1, 4, 8)),
    *(("hex", "signed", 2, 8), ("usym", "unsigned", 8, 8), ("ksym", "unsigned", 8, 8)),
    *(("float", "float", 4, 8), ("float", "float", 8, 8), ("bytes", "bytes", 3, 8)),
    *(("bytes", "bytes", 24, 24), ("string", "unsigned", 8, 1), ("string", "unsigned", 8, 13)),
    *(("buffer", "unsigned", 8, 0), ("buffer", "unsigned", 8, 9), ("ustack", "unsigned", 8, 16)),
    *(("kstack", "unsigned", 8, 24), ("comm", "unsigned", 8, -1), ("func", "unsigned", 8, -1)),
    ("opaque", "unsigned", 8, -1),
]
_ANY_TEXT = st.text(st.characters(codec=None), max_size=8)
_LENGTHS = [struct.pack("=q", number) for number in (0, 1, 5, 8, 16, 1 << 40, -14, -(1 << 63))]


@st.composite
def recordings_of_strangers(draw: st.DrawFn) -> bytes:
    """A layout with anything for names and reasons, and records with anything in them."""
    keys = draw(st.lists(_ANY_TEXT | st.sampled_from(["{x!r}", "'''", "\\", "%s"]), unique=True))
    marks = draw(st.booleans())
    end, found = 48 if marks else 40, []
    for key in keys[:8]:
        form, kind, size, room = draw(st.sampled_from(_VALID))
        field = {"key": key, "form": form, "kind": kind, "bytes": size, "size": max(0, room)}
        field |= {"fallible": marks and draw(st.booleans()), "reason": draw(_ANY_TEXT)}
        found.append(field | {"offset": end if room >= 0 else -1})
        lead = 8 if form in ("string", "buffer", "ustack", "kstack") else 0
        end += lead + -(-room // 8) * 8 if room >= 0 else 0
    layout = {"size": end, "marks": 40 if marks else -1, "fields": found}
    case = {"case": 1, "probe": draw(_ANY_TEXT), "layout": layout}
    made = []
    for _ in range(draw(st.integers(1, 3))):
        words = st.one_of(st.binary(min_size=8, max_size=8), st.sampled_from(_LENGTHS))
        payload = b"".join(draw(words) for _ in range((end - 40) // 8))
        comm = draw(st.binary(max_size=16))
        made.append(record(payload, comm=comm, time=draw(st.integers(0, (1 << 64) - 1))))
    return start(block(b"CASE", dump({"cases": [case]})), data(*made), END)


@settings(deadline=None, max_examples=150)
@given(recordings_of_strangers())
def test_strangers_names_and_values_are_shown_in_every_form(content: bytes) -> None:
    every_form(content)
    stacks = RecordedStacks(Symbolizer, sys.byteorder)  # with no process and no kernel in it
    lines = read(content, JsonFormatter(stacks))
    assert lines
    with reader(content) as recording:
        recording.survey()
        form = CsvFormatter(columns_of(case.layout for case in recording.variants), stacks)
    rows = [*csv.reader(io.StringIO("".join([form.title(), *read(content, form)]), newline=""))]
    assert {len(row) for row in rows} == {len(rows[0])}
    assert len(rows) == 1 + len(lines)
    for line in read(content, TextFormatter(offset=0, stacks=stacks)):
        assert all(part.isprintable() for part in line.split("\n"))


@settings(deadline=None, max_examples=150)
@given(st.lists(hostile, max_size=6))
def test_hostile_blocks_never_raise_anything_else(found: list[bytes]) -> None:
    every_form(start(ONE, *found))


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.tuples(st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=8)), max_size=4
    ),
    st.integers(0, len(SMALL)),
)
def test_damaged_recordings_never_raise_anything_else(
    places: list[tuple[int, bytes]], size: int
) -> None:
    bad = bytearray(SMALL)
    for place, patch in places:
        bad[place : place + len(patch)] = patch
    every_form(bytes(bad[:size]))


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_behind_the_magic_number(content: bytes) -> None:
    every_form(MAGIC + content)
