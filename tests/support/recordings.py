"""Records and recordings made by hand: bytes as programs write them, in either byte order."""

from __future__ import annotations

import io
import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planning import plan

from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.output_file import OutputFile
from usdt.engine.output.streams.header import Clock, StreamHeader
from usdt.engine.recording import blocks
from usdt.engine.recording.description import Header
from usdt.engine.recording.reader import Reader
from usdt.engine.recording.writer import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.output.formatters.formatter import Formatter
    from usdt.engine.recording.processes import RecordedStacks
    from usdt.engine.runtime.session import Lost

__all__ = (
    "CASES",
    "NATIVE",
    "block",
    "frames",
    "header",
    "hit",
    "make",
    "many",
    "read",
    "reader",
    "record",
    "text",
    "whole",
)

NATIVE = "<" if sys.byteorder == "little" else ">"


def record(
    payload: bytes,
    *,
    case: int = 1,
    time: int = 7,
    pid: int = 10,
    tid: int = 11,
    cpu: int = 0,
    comm: bytes = b"comm",
    flags: int = 0,
    order: str = NATIVE,
) -> bytes:
    """A record in the ring buffer: header, context, payload."""
    body = struct.pack(order + "QIIII16s", time, tid, pid, cpu, case, comm) + payload
    assert len(body) % 8 == 0
    return struct.pack(order + "II", len(body) | flags, 0xDEADBEEF) + body


def text(
    value: bytes,
    room: int,
    *,
    length: int | None = None,
    stale: bytes = b"#",
    order: str = NATIVE,
) -> bytes:
    """A string's or buffer's bytes: its length, and behind what counts what was there before."""
    lead = struct.pack(order + "q", len(value) if length is None else length)
    return lead + value + stale * (-(-room // 8) * 8 - len(value))


def header(byteorder: str = sys.byteorder) -> Header:
    """What a recording says of itself: monotonic 0 is half a second into 1970, at Greenwich."""
    stream = StreamHeader(
        host="here",
        boot_id="8a7e3a1c-0000-4000-8000-000000000000",
        machine_id=None,
        kernel="6.18.0",
        machine="x86_64",
        cpus=2,
        version="0.1.0",
        command="record",
        probes=("p:*",),
        by=None,
        clock=Clock(1_000_000_000, 1_500_000_000, 20),
    )
    words = ("usdt", "record")
    return Header.of(stream, byteorder, "Linux 6.18.0", "usdt-toolkit 0.1.0", words)


def make(
    cases: Iterable[tuple[int, str, ProbePlan]],
    data: Sequence[bytes],
    *,
    lost: Sequence[Lost] = (),
    close: bool = True,
    about: Header | None = None,
) -> bytes:
    """A recording as the recorder writes it, one block for each element of ``data``."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "recording")
        with OutputFile(str(path)) as sink:
            recorder.begin(about or header(), sink)
            recorder.file("/usr/bin/x", "abcd")
            for number, probe, plan in cases:
                recorder.add(number, probe, plan)
            for piece in data:
                recorder.write(piece)
                recorder.flush()
            if close:
                recorder.end(lost)
            else:
                recorder.flush()
        return path.read_bytes()


def reader(content: bytes) -> Reader:
    """A reader of these bytes."""
    return Reader(io.BytesIO(content), "it")


def read(
    content: bytes, form: Formatter | None = None, stacks: RecordedStacks | None = None
) -> list[Any]:
    """What becomes of all records, JSON lines by default."""
    with reader(content) as recording:
        made = form or JsonFormatter()
        return [item for batch in recording.replay(made, stacks=stacks) for item in batch]


def block(kind: bytes, content: bytes, records: int = 0) -> bytes:
    """A block with the right checksums, whatever is in it."""
    start = struct.pack("<4sIIII", kind, len(content), records, zlib.crc32(content), 0)
    return start + struct.pack("<I", zlib.crc32(start)) + content


def frames(content: bytes) -> list[tuple[bytes, int, int]]:
    """Of every block of a recording: its kind, where it begins, where it ends."""
    position, found = len(blocks.MAGIC), []
    while position < len(content):
        kind, length = struct.unpack_from("<4sI", content, position)
        found.append((kind, position, position + 24 + length))
        position += 24 + length
    assert position == len(content)
    return found


def whole(*parts: bytes) -> bytes:
    """A recording of these blocks."""
    return blocks.MAGIC + b"".join(parts)


#: Cases of every layout: number, probe, plan.
CASES: list[tuple[int, str, ProbePlan]] = [
    (1, "p:one", plan("arg6")),
    (2, "p:two", plan("arg7")),
    (3, "q:three", plan("str(arg7, 15), buf(arg7, 5)")),
    (4, "q:four", plan("", ())),
    (5, "q:all", plan("")),
]


def hit(case: int, time: int, order: str = NATIVE, **context: Any) -> bytes:
    """A record of one of the cases, with contents that depend on the time."""
    payloads = {
        1: lambda: struct.pack(order + "q", -time),
        2: lambda: struct.pack(order + "q", -time),
        3: lambda: (
            text(b"x" * (time % 15) + b"\0", 16, order=order)
            + text(b"abcde"[: time % 6], 5, order=order)
        ),
        4: lambda: b"",
        5: lambda: (
            struct.pack(order + "Q9qdf4x", time % 3 << 7, *range(-4, 5), 0.5, 0.25)
            + bytes(range(24))
        ),
    }
    return record(payloads[case](), case=case, time=time, order=order, **context)


def many(numbers: Sequence[int], order: str = NATIVE) -> list[bytes]:
    """Records of these cases at times 0, 1, 2…"""
    return [hit(case, time, order, pid=10 + time % 2) for time, case in enumerate(numbers)]
