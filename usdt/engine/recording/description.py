"""The descriptions in a recording as values: JSON contents of blocks, checked when read."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, cast

from usdt.base.frozen import frozen
from usdt.engine.compiler.record.layout import BadLayout, RecordLayout
from usdt.engine.output.streams.header import Clock, HeaderError, StreamHeader
from usdt.engine.recording.blocks import FORMAT, VERSION, RecordingError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Closing", "Header", "RecordedVariant", "TracedFile", "dump", "load")

_LONGEST_NAME = 1 << 16  # characters of a probe's name or of a path


def dump(value: Any) -> bytes:
    """Return a value as JSON for a block: ASCII."""
    return json.dumps(value, separators=(",", ":")).encode()


def load(content: bytes) -> dict[str, Any]:
    """Return the JSON object in a block.

    Raises:
        RecordingError: the content is not a JSON object.
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as err:
        raise RecordingError("a block holds no JSON") from err
    if not isinstance(found, dict):
        raise RecordingError("a block holds no JSON object")
    return found


def _get(data: dict[str, Any], name: str, kind: type) -> Any:
    value = data.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise RecordingError(f"{name!r}: {kind.__name__} expected, found {type(value).__name__}")
    if isinstance(value, str) and len(value) > _LONGEST_NAME:
        raise RecordingError(f"{name!r}: string too long, {len(value)} characters")
    return value


def _words(data: dict[str, Any], name: str) -> tuple[str, ...]:
    found = _get(data, name, list)
    if not all(isinstance(word, str) for word in found):
        raise RecordingError(f"{name}: list of strings expected")
    return tuple(found)


def _clock(data: dict[str, Any]) -> Clock:
    try:
        return Clock.from_json(data.get("clock"))
    except HeaderError as err:
        raise RecordingError(str(err)) from err


def _number(data: dict[str, Any], name: str) -> int:
    value = cast("int", _get(data, name, int))
    if not 0 <= value < 1 << 64:
        raise RecordingError(f"{name!r}: {value} is out of range")
    return value


@frozen
class Header:
    """The header of a recording.

    Attributes:
        byteorder: byte order of the records, "little" or "big".
        clock: the start of the recording.
        machine, kernel, host: as in ``uname``.
        tool: name and version of the program that recorded.
        command: arguments of its command line.
        probes: the probes as given.
        stream: the header of its JSON stream; None in a recording of version 1.
    """

    byteorder: str
    clock: Clock
    machine: str
    kernel: str
    host: str
    tool: str
    command: tuple[str, ...]
    probes: tuple[str, ...]
    stream: StreamHeader | None = None

    @classmethod
    def here(cls, tool: str, command: Sequence[str], probes: Sequence[str]) -> Header:
        """Return the header of a recording that starts now on this machine."""
        name = os.uname()
        stream = StreamHeader.here("record", probes)
        kernel = f"{name.sysname} {name.release} {name.version}"
        return cls.of(stream, sys.byteorder, kernel, tool, tuple(command))

    @classmethod
    def of(
        cls, stream: StreamHeader, byteorder: str, kernel: str, tool: str, command: tuple[str, ...]
    ) -> Header:
        """Return the header of a recording whose JSON stream has the header ``stream``."""
        return cls(
            byteorder,
            stream.clock,
            stream.machine,
            kernel,
            stream.host,
            tool,
            command,
            stream.probes,
            stream,
        )

    def of_stream(self) -> StreamHeader:
        """Return the header of the recording's JSON stream; version 1 holds less of it."""
        return self.stream or StreamHeader(
            *(self.host, "", None, self.kernel, self.machine, 0),
            *(self.tool, "record", self.probes, None, self.clock),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the first block."""
        made = {
            "format": FORMAT,
            "version": VERSION,
            "tool": self.tool,
            "byteorder": self.byteorder,
            "kernel": self.kernel,
            "command": [*self.command],
        }
        if self.stream is not None:
            return made | {"header": self.stream.to_json()}
        return made | {
            "version": 1,
            "clock": self.clock.to_json(),
            "machine": self.machine,
            "host": self.host,
            "probes": [*self.probes],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Header:
        """Return a header from the object of to_json().

        Raises:
            RecordingError: the object is not valid, or of another version.
        """
        if data.get("format") != FORMAT:
            raise RecordingError("its first block does not say that it is a recording")
        version = _number(data, "version")
        if not 1 <= version <= VERSION:
            raise RecordingError(
                f"version {version} of the format; this program reads versions 1 to {VERSION}"
            )
        byteorder = _get(data, "byteorder", str)
        if byteorder not in ("little", "big"):
            raise RecordingError(f"byteorder: little or big expected, found {byteorder!r}")
        kernel, tool = (_get(data, name, str) for name in ("kernel", "tool"))
        command = _words(data, "command")
        if version > 1:
            try:
                stream = StreamHeader.from_json(data.get("header"))
            except HeaderError as err:
                raise RecordingError(f"header: {err}") from err
            return cls.of(stream, byteorder, kernel, tool, command)
        machine, host = (_get(data, name, str) for name in ("machine", "host"))
        clock = _clock(data)
        return cls(byteorder, clock, machine, kernel, host, tool, command, _words(data, "probes"))


@frozen
class RecordedVariant:
    """A variant of a probe: its number in records, and their layout.

    Attributes:
        number: the number in each record, a u32 at byte 20.
        probe: ``provider:name``.
        layout: layout of the records.
    """

    number: int
    probe: str
    layout: RecordLayout

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {"case": self.number, "probe": self.probe, "layout": self.layout.to_json()}

    @classmethod
    def from_json(cls, data: Any) -> RecordedVariant:
        """Return a variant from the object of to_json().

        Raises:
            RecordingError: the object is not valid.
        """
        if not isinstance(data, dict):
            raise RecordingError("cases: objects expected")
        try:
            layout = RecordLayout.from_json(data.get("layout"))
        except BadLayout as err:
            raise RecordingError(str(err)) from err
        return cls(_number(data, "case"), _get(data, "probe", str), layout)


@frozen
class TracedFile:
    """A file whose probes are recorded; ``build_id`` is "" if the file has none."""

    path: str
    build_id: str

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {"path": self.path, "build_id": self.build_id}


@frozen
class Closing:
    """The closing block of a recording.

    Attributes:
        clock: the end of the recording.
        records: number of records.
        lost: for each probe with losses: its name, hits lost to a full buffer, and hits whose
            predicates were unreadable.
    """

    clock: Clock
    records: int
    lost: tuple[tuple[str, int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the last block."""
        names = ("probe", "lost", "unread")
        return {
            "clock": self.clock.to_json(),
            "records": self.records,
            "lost": [dict(zip(names, item, strict=True)) for item in self.lost],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Closing:
        """Return a closing block from the object of to_json().

        Raises:
            RecordingError: the object is not valid.
        """
        lost = []
        for item in _get(data, "lost", list):
            if not isinstance(item, dict):
                raise RecordingError("lost: objects expected")
            lost.append((_get(item, "probe", str), _number(item, "lost"), _number(item, "unread")))
        return cls(_clock(data), _number(data, "records"), tuple(lost))
