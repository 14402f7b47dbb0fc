"""Writing recordings: what is written when, in which blocks, and what it says of itself."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from planning import argument, plan
from recordings import NATIVE, frames, header, make, reader, record, text

from usdt.base.errors import SyscallError, TracingError
from usdt.bpf.rings.ringbuf import DISCARD
from usdt.engine.compiler.record import layout
from usdt.engine.compiler.record.columns import FloatColumn
from usdt.engine.compiler.record.layout import BadLayout, RecordLayout
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.output_file import OutputFile
from usdt.engine.output.streams.header import Clock
from usdt.engine.recording import blocks, writer
from usdt.engine.recording.blocks import MAX_CONTENT, Block, RecordingError, frame, read_block
from usdt.engine.recording.description import (
    Closing,
    Header,
    RecordedVariant,
    TracedFile,
    dump,
    load,
)
from usdt.engine.recording.writer import Recorder
from usdt.engine.runtime.session import Lost

ITEMS = (
    "",
    "arg0, arg6, hex(arg4), arg9, arg10",
    "arg8, arg11, arg12, *(int *)arg7, arg4 / arg5",
    "str(arg7, 15), buf(arg7, 5), buf(arg7, 0), comm, func, arg6",
    "pid, tid, cpu, ts, usym(arg7), ksym(arg7)",
)


def number(value: int) -> bytes:
    return record(struct.pack(NATIVE + "q", value), time=value)


# ---------------------------------------------------------------- layouts


@pytest.mark.parametrize("items", ITEMS)
def test_a_layout_survives_its_own_json(items: str) -> None:
    layout = plan(items).layout
    assert RecordLayout.from_json(json.loads(dump(layout.to_json()))) == layout


@pytest.mark.parametrize(
    ("items", "reasons"),
    [
        pytest.param("arg12", ["thread-local"], id="never readable"),
        pytest.param("arg4/arg5, arg0", ["division by zero", ""], id="sometimes, or always"),
        pytest.param("func", ["p:q"], id="a constant's text"),
    ],
)
def test_a_layout_says_why(items: str, reasons: list[str]) -> None:
    fields = [field.to_json() for field in plan(items).layout.fields]
    assert [field["reason"] for field in fields] == reasons


GOOD = plan("*(int *)arg7, arg6, str(arg7, 15), comm").layout.to_json()


def changed(index: int | None, **changes: Any) -> dict[str, Any]:
    """A good layout with something else in it, or in one of its fields."""
    layout: dict[str, Any] = json.loads(json.dumps(GOOD))
    (layout if index is None else layout["fields"][index]).update(changes)
    return layout


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(None, "an object expected", id="nothing"),
        pytest.param([], "an object expected", id="a list"),
        pytest.param({}, "size", id="no members"),
        pytest.param(changed(None, size=47), "from 40|a record of", id="odd size"),
        pytest.param(changed(None, size=48), "bytes of values", id="too small for its values"),
        pytest.param(changed(None, size=1 << 40), "a number from", id="huge"),
        pytest.param(changed(None, size=True), "a number from", id="a size that is true"),
        pytest.param(changed(None, marks=-1), "has no bitmap", id="fallible without marks"),
        pytest.param(changed(None, marks=8), "marks at 8", id="marks inside the context"),
        pytest.param(changed(None, fields={}), "list of at most", id="fields that are no list"),
        pytest.param(
            changed(None, fields=GOOD["fields"] * 20), "list of at most 64", id="too many fields"
        ),
        pytest.param(
            changed(None, fields=[GOOD["fields"][3]] * 2), "shown twice", id="one key twice"
        ),
        pytest.param(changed(0, offset=40), "is not behind", id="over the marks"),
        pytest.param(changed(1, offset=49), "is not behind", id="odd offset"),
        pytest.param(changed(2, offset=1 << 29), "bytes of values", id="outside the record"),
        pytest.param(changed(1, offset=-1), "can be like this", id="a value without a place"),
        pytest.param(changed(3, offset=200), "can be like this", id="a name with a place"),
        pytest.param(changed(1, size=16), "can be like this", id="an integer of 16 bytes"),
        pytest.param(changed(1, bytes=3), "can be like this", id="an integer of 3 bytes"),
        pytest.param(changed(1, kind="float"), "can be like this", id="a float integer"),
        pytest.param(changed(1, kind="x"), "kind", id="an unknown kind"),
        pytest.param(changed(1, form="x"), "not known to this version", id="an unknown form"),
        pytest.param(changed(1, form=["integer"]), "form", id="a form that is a list"),
        pytest.param(changed(2, size=0), "can be like this", id="a string without room"),
        pytest.param(changed(2, size=1 << 20), "a number from", id="a string of a megabyte"),
        pytest.param(changed(1, key=5), "key", id="a key that is a number"),
        pytest.param(changed(1, key="x" * 70000), "key", id="an endless key"),
        pytest.param(changed(1, fallible=1), "fallible", id="fallible: 1"),
    ],
)
def test_layouts_that_no_plan_has(data: Any, reason: str) -> None:
    with pytest.raises(BadLayout, match=reason):
        RecordLayout.from_json(data)


# ---------------------------------------------------------------- descriptions


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(header(), id="header"),
        pytest.param(Header.here("tool 1", ["a", "\udcff"], ["p:q"]), id="of this machine"),
        pytest.param(RecordedVariant(7, "p:\udcff", plan("arg0").layout), id="case"),
        pytest.param(Closing(Clock(1, 2), 3, (("p:q", 4, 5),)), id="closing"),
        pytest.param(Clock(0, (1 << 63) - 1), id="clock"),
    ],
)
def test_descriptions_survive_their_own_json(value: Any) -> None:
    assert type(value).from_json(load(dump(value.to_json()))) == value


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"format": "x"}, "does not say", id="another format"),
        pytest.param({"version": 3}, "version 3 .* reads versions 1 to 2", id="a later version"),
        pytest.param({"version": "1"}, "int expected", id="a version that is a text"),
        pytest.param({"byteorder": "middle"}, "little or big", id="another byte order"),
        pytest.param({"header": None}, "header: .*'usdt' expected", id="no header of a stream"),
        pytest.param({"version": 1, "host": "a", "machine": "b"}, "'clock'", id="no clock"),
        pytest.param({"command": [1]}, "list of strings", id="arguments that are numbers"),
        pytest.param({"tool": 5}, "str expected", id="a tool that is a number"),
    ],
)
def test_headers_that_are_not_read(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecordingError, match=reason):
        Header.from_json(header().to_json() | changes)


def test_a_header_of_version_1_is_read_without_one_of_a_stream() -> None:
    old = {
        "format": "usdt-recording",
        "version": 1,
        "tool": "usdt-toolkit 0.1.0",
        "byteorder": "little",
        "clock": {"monotonic": 5, "realtime": 7},
        "machine": "x86_64",
        "kernel": "Linux 6.1.0",
        "host": "h",
        "command": ["usdt"],
        "probes": ["p:q"],
    }
    found = Header.from_json(old)
    assert (found.clock, found.host, found.probes) == (Clock(5, 7), "h", ("p:q",))
    assert found.stream is None
    assert Header.from_json(found.to_json()) == found


def test_a_later_tool_may_say_more() -> None:
    assert Header.from_json(header().to_json() | {"more": [1]}) == header()


# ---------------------------------------------------------------- blocks


def test_a_block_and_every_byte_of_it_that_may_be_damaged() -> None:
    good = frame(Block(b"DATA", b"0123456789abcdef", 3))
    assert read_block(io.BytesIO(good)) == Block(b"DATA", b"0123456789abcdef", 3)
    for place in range(len(good)):
        for flip in (1, 0x80, 0xFF):
            bad = good[:place] + bytes([good[place] ^ flip]) + good[place + 1 :]
            with pytest.raises(RecordingError):
                read_block(io.BytesIO(bad))


def test_a_block_larger_than_readers_take_is_not_written() -> None:
    with pytest.raises(RecordingError, match="at most 16777216 can be recorded"):
        frame(Block(b"DATA", bytes(MAX_CONTENT + 8), 1))


@pytest.fixture(params=["zlib", "isal"])
def checksums(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both modules that calculate the checksums of much content."""
    if request.param == "isal":
        pytest.importorskip("isal.isal_zlib", reason="needs the extra isal")
    else:
        monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    monkeypatch.setattr(blocks, "_MANY", 1)
    monkeypatch.setattr(blocks, "_CHECKSUMS", blocks._Checksums())


@pytest.mark.usefixtures("checksums")
def test_checksums_of_much_content_are_those_of_zlib() -> None:
    pieces = [b"the first block", bytes(range(256)) * 5000, b"", b"123456789"]
    for _ in range(3):  # the second and third after much content
        header = blocks.start_of(b"DATA", pieces, 7)
        assert struct.unpack("<4sIIII", header[:20]) == (
            *(b"DATA", 1_280_024, 7, zlib.crc32(b"".join(pieces)), 0),
        )
        content = b"".join([header, *pieces])
        assert read_block(io.BytesIO(content)) == Block(b"DATA", content[24:], 7)
        with pytest.raises(RecordingError, match="the 1280024 bytes of a block are damaged"):
            read_block(io.BytesIO(content[:-1] + b"8"))


# ---------------------------------------------------------------- the recorder


def kinds(content: bytes) -> list[bytes]:
    return [kind for kind, _, _ in frames(content)]


def test_what_a_recording_is_made_of() -> None:
    content = make([(1, "p:q", plan("arg6"))], [number(1) + number(2), number(3)])
    assert kinds(content) == [b"HEAD", b"FILE", b"CASE", b"DATA", b"DATA", b"END\0"]
    with reader(content) as recording:
        assert recording.header == header()
        recording.survey()
        assert recording.records == 3
        assert recording.files == [{"path": "/usr/bin/x", "build_id": "abcd"}]
        assert [(case.number, case.probe) for case in recording.variants] == [(1, "p:q")]
        assert recording.closing is not None
        assert recording.closing.records == 3
        assert recording.cut == -1


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "recording"
    path.write_text("what an earlier run left")
    return path


def test_nothing_is_written_before_there_is_something_to_write(place: Path) -> None:
    recorder = Recorder()
    recorder.add(1, "p:q", plan("arg6"))
    with OutputFile(str(place)) as sink:
        recorder.begin(header(), sink)
        recorder.file("/x", "")
        recorder.tick()
        assert place.read_text() == "what an earlier run left"
        recorder.write(number(1))
        recorder.tick()
        assert place.read_text() == "what an earlier run left", "records are gathered"
        recorder.flush()
        assert kinds(place.read_bytes()) == [b"HEAD", b"FILE", b"CASE", b"DATA"]
        recorder.end([])
    assert kinds(place.read_bytes())[-1] == b"END\0"
    assert recorder.size == place.stat().st_size


def test_a_run_that_fails_before_leaves_the_earlier_file_alone(place: Path, tmp_path: Path) -> None:
    for path in (place, tmp_path / "new"):
        recorder = Recorder()
        with contextlib.suppress(TracingError), OutputFile(str(path)) as sink:
            recorder.begin(header(), sink)
            raise TracingError("no probe")
    assert place.read_text() == "what an earlier run left"
    assert not (tmp_path / "new").exists()


def test_records_are_written_in_large_blocks(place: Path) -> None:
    recorder = Recorder()
    recorder.add(1, "p:q", plan("arg6"))
    batch = b"".join(map(number, range(1000)))
    with OutputFile(str(place)) as sink:
        recorder.begin(header(), sink)
        for _ in range(100):
            recorder.write(batch)
        recorder.end([])
    sizes = [end - start for kind, start, end in frames(place.read_bytes()) if kind == b"DATA"]
    assert sum(sizes) == 100 * len(batch) + 24 * len(sizes)
    assert all(size > 1 << 20 for size in sizes[:-1])
    assert recorder.records == 100_000


def test_what_has_waited_is_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    recorder.add(1, "p:q", plan("arg6"))
    with OutputFile(str(place)) as sink:
        recorder.begin(header(), sink)
        assert recorder.left() == float("inf")
        recorder.write(number(1))
        assert 0 < recorder.left() <= 1
        monkeypatch.setattr(writer, "_MAX_WAIT", 0)
        assert recorder.left() == 0
        recorder.tick()
        assert kinds(place.read_bytes())[-1] == b"DATA"


def test_cases_that_come_later_stand_before_their_records(place: Path) -> None:
    recorder = Recorder()
    recorder.add(1, "p:q", plan("arg6"))
    with OutputFile(str(place)) as sink:
        recorder.begin(header(), sink)
        recorder.write(number(1))
        recorder.flush()
        for case in range(2, 600):
            recorder.add(case, "p:r", plan("arg6"))
        recorder.file("/usr/lib/libx.so", "ef01")
        recorder.write(record(bytes(8), case=599))
        recorder.end([])
    found = kinds(place.read_bytes())
    assert found == [
        *(b"HEAD", b"CASE", b"DATA", b"FILE", b"CASE", b"CASE", b"CASE", b"DATA", b"END\0")
    ]


def test_a_file_is_told_once(place: Path) -> None:
    recorder = Recorder()
    with OutputFile(str(place)) as sink:
        recorder.begin(header(), sink)
        for build_id in ("ab", "ab", "cd"):
            recorder.file("/x", build_id)
        recorder.end([])
    with reader(place.read_bytes()) as recording:
        recording.survey()
        files = [TracedFile(**item) for item in recording.files]
    assert files == [TracedFile("/x", "ab"), TracedFile("/x", "cd")]


@pytest.mark.parametrize(
    ("most", "kept"),
    [
        pytest.param(None, 5, id="all"),
        pytest.param(0, 0, id="none"),
        pytest.param(1, 1, id="one"),
        pytest.param(3, 3, id="some, discarded ones between them"),
        pytest.param(5, 5, id="as many as there are"),
        pytest.param(9, 5, id="more than there are"),
    ],
)
def test_the_first_records_alone(most: int | None, kept: int, place: Path) -> None:
    gone = record(bytes(8), flags=DISCARD)
    long = record(text(b"x\0", 16), case=2)
    data = number(0) + gone + number(1) + gone + gone + long + number(3) + number(4) + gone
    recorder = Recorder()
    recorder.add(1, "p:q", plan("arg6"))
    recorder.add(2, "p:r", plan("str(arg7, 15)"))
    with OutputFile(str(place)) as sink:
        recorder.begin(header(), sink)
        recorder.write(data, most)
        recorder.end([])
    assert recorder.records == kept
    with reader(place.read_bytes()) as recording:
        events = [e for batch in recording.replay(EventFormatter()) for e in batch]
    assert [*map(str, (value for e in events for value in e.args.values()))] == [
        *("0", "1", "x", "3", "4")
    ][:kept]


def test_what_was_lost_is_in_the_closing_block() -> None:
    content = make([(1, "p:q", plan("arg6"))], [number(1)], lost=[Lost("p:q", 5, 2)])
    with reader(content) as recording:
        recording.survey()
        assert recording.closing is not None
        assert recording.closing.lost == (("p:q", 5, 2),)


def test_a_full_disk_is_said() -> None:
    recorder = Recorder()
    with OutputFile("/dev/full") as sink:
        recorder.begin(header(), sink)
        with pytest.raises(SyscallError, match="No space left") as info:
            recorder.end([])
    assert "can be read" not in str(info.value), "nothing was written"


def test_nothing_can_be_written_before_the_beginning() -> None:
    with pytest.raises(TracingError, match="has to begin"):
        Recorder().end([])


def test_the_recorder_passes_bytes_on_as_they_are() -> None:
    data = os.urandom(64)
    assert [*Recorder().batches(data)] == [[data]]


def test_floats_of_both_sizes_are_described() -> None:
    made = plan("arg0, arg1", (argument(0, "f64"), argument(1, "f32")))
    columns = [field.column for field in made.layout.fields]
    assert columns == [FloatColumn(8), FloatColumn(4)]


def test_more_probes_than_a_reader_takes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_DESCRIPTIONS", 100)
    recorder = Recorder()
    recorder.add(1, "p:q", plan("arg6"))
    with contextlib.suppress(TracingError), OutputFile(str(place)) as sink:
        recorder.begin(header(), sink)
        with pytest.raises(RecordingError, match="record fewer probes"):
            recorder.flush()
        raise TracingError
    assert place.read_text() == "what an earlier run left"


def test_the_documentation_tells_everything() -> None:
    prose = Path(__file__).parents[3].joinpath("docs", "recordings.md").read_text()
    kinds_known = {blocks.HEAD, blocks.VARIANT, blocks.FILE, blocks.MAPS, blocks.KSYM, blocks.DATA}
    kinds_known |= {blocks.PYTHON, blocks.CGROUPS}
    words = {kind.decode() for kind in kinds_known} | {"END\\0", blocks.FORMAT}
    words |= {*header().to_json(), *Closing(Clock(1, 2), 3, ()).to_json(), *layout._READERS}
    words |= {*GOOD, *GOOD["fields"][0]}
    described = set(re.findall(r"[\w\\-]+", " ".join(re.findall(r"`([^`]*)`", prose))))
    assert words <= described
    assert f"The format, version {blocks.VERSION}" in prose
    assert blocks.MAGIC.hex(" ") in prose
