"""What a recording says of itself, as values: the JSON of its blocks, checked when it is read."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, cast

from usdt.base.frozen import frozen
from usdt.engine.compiler.record.layout import BadLayout, RecordLayout
from usdt.engine.recording.blocks import FORMAT, VERSION, RecordingError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Case", "Clock", "Closing", "Header", "TracedFile", "dump", "load")

_LONGEST_NAME = 1 << 16  # characters of a probe's name or of a path
_FUTURE = 1 << 63  # nanoseconds


def dump(value: Any) -> bytes:
    """JSON as blocks have it: ASCII."""
    return json.dumps(value, separators=(",", ":")).encode()


def load(content: bytes) -> dict[str, Any]:
    """The object in a block.

    Raises:
        RecordingError: it has none.
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
        raise RecordingError(f"{name!r}: a text of {len(value)} characters")
    return value


def _number(data: dict[str, Any], name: str) -> int:
    value = cast("int", _get(data, name, int))
    if not 0 <= value < 1 << 64:
        raise RecordingError(f"{name!r}: {value} is out of range")
    return value


@frozen
class Clock:
    """One moment on two clocks, nanoseconds each.

    Attributes:
        monotonic: CLOCK_MONOTONIC, the clock of records.
        realtime: CLOCK_REALTIME, since 1970.
    """

    monotonic: int
    realtime: int

    @classmethod
    def now(cls) -> Clock:
        """This moment."""
        before = time.monotonic_ns()
        realtime = time.time_ns()
        return cls((before + time.monotonic_ns()) // 2, realtime)

    def to_json(self) -> dict[str, int]:
        """A JSON object."""
        return {"monotonic": self.monotonic, "realtime": self.realtime}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Clock:
        """What to_json() made.

        Raises:
            RecordingError: it did not make this.
        """
        made = cls(_number(data, "monotonic"), _number(data, "realtime"))
        if max(made.monotonic, made.realtime) >= _FUTURE:
            raise RecordingError("a clock that is centuries ahead")
        return made


@frozen
class Header:
    """What was recorded, where and how.

    Attributes:
        byteorder: of the records, "little" or "big".
        clock: when recording began.
        machine, kernel, host: as ``uname`` has them.
        tool: name and version of what recorded.
        command: its words.
        probes: as they were asked for.
    """

    byteorder: str
    clock: Clock
    machine: str
    kernel: str
    host: str
    tool: str
    command: tuple[str, ...]
    probes: tuple[str, ...]

    @classmethod
    def here(cls, tool: str, command: Sequence[str], probes: Sequence[str]) -> Header:
        """Of a recording that this machine begins now."""
        name = os.uname()
        return cls(
            sys.byteorder,
            Clock.now(),
            name.machine,
            f"{name.sysname} {name.release} {name.version}",
            name.nodename,
            tool,
            tuple(command),
            tuple(probes),
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the first block."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "tool": self.tool,
            "byteorder": self.byteorder,
            "clock": self.clock.to_json(),
            "machine": self.machine,
            "kernel": self.kernel,
            "host": self.host,
            "command": [*self.command],
            "probes": [*self.probes],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Header:
        """What to_json() made, by this version or an earlier one.

        Raises:
            RecordingError: nothing of the kind, or made by a later version.
        """
        if data.get("format") != FORMAT:
            raise RecordingError("its first block does not say that it is a recording")
        version = _number(data, "version")
        if version != VERSION:
            raise RecordingError(
                f"version {version} of the format; this program reads version {VERSION}"
            )
        byteorder = _get(data, "byteorder", str)
        if byteorder not in ("little", "big"):
            raise RecordingError(f"byteorder: little or big expected, found {byteorder!r}")
        lists = [_get(data, name, list) for name in ("command", "probes")]
        if not all(isinstance(word, str) for words in lists for word in words):
            raise RecordingError("command, probes: lists of texts expected")
        texts = [_get(data, name, str) for name in ("machine", "kernel", "host", "tool")]
        clock = Clock.from_json(_get(data, "clock", dict))
        return cls(byteorder, clock, *texts, *map(tuple, lists))


@frozen
class Case:
    """Which records belong to which probe, and how they are laid out.

    Attributes:
        number: in each record, a u32 at byte 20.
        probe: ``provider:name``.
        layout: of the records.
    """

    number: int
    probe: str
    layout: RecordLayout

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"case": self.number, "probe": self.probe, "layout": self.layout.to_json()}

    @classmethod
    def from_json(cls, data: Any) -> Case:
        """What to_json() made.

        Raises:
            RecordingError: it did not make this.
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
    """A file whose probes are recorded; ``build_id`` is "" where it has none."""

    path: str
    build_id: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"path": self.path, "build_id": self.build_id}


@frozen
class Closing:
    """What is known at the end.

    Attributes:
        clock: the end.
        records: how many were recorded.
        lost: for each probe that has any: its name, hits without room, hits whose predicates
            could not be decided.
    """

    clock: Clock
    records: int
    lost: tuple[tuple[str, int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the last block."""
        names = ("probe", "lost", "unread")
        return {
            "clock": self.clock.to_json(),
            "records": self.records,
            "lost": [dict(zip(names, item, strict=True)) for item in self.lost],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Closing:
        """What to_json() made.

        Raises:
            RecordingError: it did not make this.
        """
        lost = []
        for item in _get(data, "lost", list):
            if not isinstance(item, dict):
                raise RecordingError("lost: objects expected")
            lost.append((_get(item, "probe", str), _number(item, "lost"), _number(item, "unread")))
        clock = Clock.from_json(_get(data, "clock", dict))
        return cls(clock, _number(data, "records"), tuple(lost))
