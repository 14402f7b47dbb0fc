"""The header of a JSON stream: where and when its objects were made."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.base.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("SCHEMA_VERSION", "Clock", "HeaderError", "StreamHeader")

#: The version of what docs/json.md describes, the member ``usdt`` of a header.
SCHEMA_VERSION = 1

_LONGEST = 1 << 16  # characters of a text
_FUTURE = 1 << 63  # nanoseconds


class HeaderError(ValueError):
    """An object that is not a header, or a clock."""


@frozen
class Clock:
    """One moment on two clocks, in nanoseconds.

    Attributes:
        monotonic: CLOCK_MONOTONIC, the clock of records.
        realtime: CLOCK_REALTIME, since 1970.
        error: the greatest distance of ``monotonic`` from the moment of ``realtime``.
    """

    monotonic: int
    realtime: int
    error: int = 0

    @classmethod
    def now(cls) -> Clock:
        """Return the current time on both clocks."""
        before = time.monotonic_ns()
        realtime = time.time_ns()
        after = time.monotonic_ns()
        return cls((before + after) // 2, realtime, (after - before + 1) // 2)

    def to_json(self) -> dict[str, int]:
        """Return a JSON object."""
        return {"monotonic": self.monotonic, "realtime": self.realtime, "error": self.error}

    @classmethod
    def from_json(cls, data: Any) -> Clock:
        """Return a clock from the object of to_json(); without ``error``, that is 0.

        Raises:
            HeaderError: the object is not valid.
        """
        if not isinstance(data, dict):
            raise HeaderError(f"'clock': dict expected, found {type(data).__name__}")
        names = ("monotonic", "realtime", "error")
        made = cls(*(_number({"error": 0} | data, name) for name in names))
        if max(made.monotonic, made.realtime, made.error) >= _FUTURE:
            raise HeaderError("the clock is out of range")
        return made


@frozen
class StreamHeader:
    """The first object of a JSON stream.

    Attributes:
        host: name of the machine.
        boot_id: random ID of its boot; "" if the kernel gives none.
        machine_id: ID of its installation; None if it has none.
        kernel: release of its kernel.
        machine: its CPU.
        cpus: number of its processors.
        version: version of this toolkit.
        command: ``trace``, ``count``, …
        probes: the probes as written.
        by: the expressions of ``--by``; None if the command does not aggregate.
        clock: when the stream began.
    """

    host: str
    boot_id: str
    machine_id: str | None
    kernel: str
    machine: str
    cpus: int
    version: str
    command: str
    probes: tuple[str, ...]
    by: tuple[str, ...] | None
    clock: Clock

    @classmethod
    def here(
        cls, command: str, probes: Sequence[str], by: Sequence[str] | None = None
    ) -> StreamHeader:
        """Return the header of a stream that begins now on this machine."""
        name = os.uname()
        return cls(
            name.nodename,
            _first_line("/proc/sys/kernel/random/boot_id"),
            _first_line("/etc/machine-id") or None,
            name.release,
            name.machine,
            os.cpu_count() or 1,
            VERSION,
            command,
            tuple(probes),
            None if by is None else tuple(by),
            Clock.now(),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        made: dict[str, Any] = {"usdt": SCHEMA_VERSION}
        made |= {
            "host": self.host,
            "boot_id": self.boot_id,
            "machine_id": self.machine_id,
            "kernel": self.kernel,
            "machine": self.machine,
            "cpus": self.cpus,
            "version": self.version,
            "command": self.command,
            "probes": [*self.probes],
        }
        if self.by is not None:
            made["by"] = [*self.by]
        return made | {"clock": self.clock.to_json()}

    def line(self) -> str:
        """Return the first line of the stream."""
        return json.dumps(self.to_json()) + "\n"

    @classmethod
    def from_json(cls, data: Any) -> StreamHeader:
        """Return a header from the object of to_json(); further members are ignored.

        Only ``host`` and ``clock`` must be there.

        Raises:
            HeaderError: the object is not a header, or that of another version.
        """
        if not isinstance(data, dict) or "usdt" not in data:
            raise HeaderError("an object with the member 'usdt' expected")
        if data["usdt"] != SCHEMA_VERSION:
            raise HeaderError(
                f"version {str(data['usdt'])[:20]} of the stream; this program reads version "
                f"{SCHEMA_VERSION}"
            )
        data = {**_ABSENT, **data}
        found: dict[str, Any] = {name: _text(data, name) for name in _TEXTS}
        named = data["machine_id"]
        found["machine_id"] = named if named is None else _text(data, "machine_id")
        found["cpus"] = _number(data, "cpus")
        found["probes"] = _words(data, "probes")
        found["by"] = None if data.get("by") is None else _words(data, "by")
        return cls(**found, clock=Clock.from_json(data.get("clock")))


_TEXTS = ("host", "boot_id", "kernel", "machine", "version", "command")
_ABSENT: dict[str, Any] = {
    **dict.fromkeys(("boot_id", "kernel", "machine", "version", "command"), ""),
    "machine_id": None,
    "cpus": 0,
    "probes": [],
}


def _first_line(path: str) -> str:
    # Returns "" if a machine has no such file: a container often lacks /etc/machine-id.
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - avoids importing pathlib
            return file.readline(256).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise HeaderError(f"{name!r}: str expected, found {type(value).__name__}")
    if len(value) > _LONGEST:
        raise HeaderError(f"{name!r}: string too long, {len(value)} characters")
    return value


def _words(data: dict[str, Any], name: str) -> tuple[str, ...]:
    value = data.get(name)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise HeaderError(f"{name!r}: list of strings expected")
    return tuple(value)


def _number(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise HeaderError(f"{name!r}: int expected, found {type(value).__name__}")
    if not 0 <= value < 1 << 64:
        raise HeaderError(f"{name!r}: {value} is out of range")
    return value
