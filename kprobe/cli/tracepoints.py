"""Tracepoints, raw tracepoints and system calls in ``kprobe list`` and ``kprobe info``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.base.terminal.look import look_of
from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.tracefs.format import EventFormat

__all__ = ("Tracepoint", "is_tracepoint", "matching")

_KINDS = ("tracepoint", "rawtp", "syscall")
_SHOWN_NAMES = 8  # of values of a field


@frozen
class Tracepoint:
    """A tracepoint, raw tracepoint or system call.

    Attributes:
        kind: ``tracepoint``, ``rawtp`` or ``syscall``.
        name: its name as in a probe's text, without the kind.
        key: the catalog's object for it.
    """

    kind: str
    name: str
    key: object

    def write(self, *, fields: bool, as_json: bool) -> None:
        """Write its name, and its fields if wanted, to standard output."""
        if as_json:
            import json  # noqa: PLC0415 - text needs none

            shown: dict[str, Any] = {"kind": self.kind, "name": self.name}
            if fields:
                shown["fields"] = self._fields()
            sys.stdout.write(json.dumps(shown) + "\n")
            return
        look = look_of(sys.stdout)
        name = printable(f"{self.kind}:{self.name}")
        sys.stdout.write(f"{look.probe}{name}{look.end}\n")
        for field in self._fields() if fields else ():
            sys.stdout.write(printable(f"    {field['type']}{_value_names(field)}") + "\n")

    def _fields(self) -> list[dict[str, Any]]:
        # JSON objects: name, C type, names of values.
        return list(_FIELDS[self.kind](self.key))


def is_tracepoint(word: str) -> bool:
    """Return True if a command-line argument names probes of these kinds."""
    if ":" not in word:  # it names no kind
        return False
    from usdt.engine.language import written_kind  # noqa: PLC0415 - functions do not pay for it

    return written_kind(word) in _KINDS


def matching(word: str) -> list[Tracepoint]:
    """Return what an argument like ``tracepoint:sched:*`` matches.

    Raises:
        ProbeNotFound: nothing matches; the message names the most similar one.
    """
    from usdt.engine.language import parse_probe  # noqa: PLC0415 - --help does not pay for it

    request = parse_probe(word)
    if request.kind == "syscall":
        from kprobe.tracepoints import syscalls  # noqa: PLC0415 - only for them

        return [Tracepoint("syscall", call.name, call) for call in syscalls.matching(request.name)]
    if request.kind == "rawtp":
        from kprobe.tracepoints import raw  # noqa: PLC0415 - only for them

        return [Tracepoint("rawtp", name, name) for name in raw.matching(request.name)]
    from kprobe.tracepoints import catalog  # noqa: PLC0415 - only for them

    events = catalog.matching(request.provider, request.name)
    return [Tracepoint("tracepoint", event.full_name, event) for event in events]


def _value_names(field: dict[str, Any]) -> str:
    names = field.get("names")
    if not names:
        return ""
    return "  " + "|".join(names[:_SHOWN_NAMES]) + ("|…" if len(names) > _SHOWN_NAMES else "")


def _event_fields(key: Any) -> Iterator[dict[str, Any]]:
    from kprobe.tracepoints.catalog import format_of  # noqa: PLC0415 - only for them
    from kprobe.tracepoints.fields import arguments_of  # noqa: PLC0415

    event_format: EventFormat = format_of(key)
    declared = {field.name: field.declaration for field in event_format.own}
    for argument in arguments_of(event_format):
        yield _field(argument, declared[argument.name])


def _call_fields(key: Any) -> Iterator[dict[str, Any]]:
    from kprobe.tracepoints.catalog import Event, format_of  # noqa: PLC0415 - only for them
    from kprobe.tracepoints.syscalls import arguments_of  # noqa: PLC0415

    event_format = format_of(Event("syscalls", f"sys_enter_{key.event}"))
    declared = {field.name: field.declaration for field in event_format.own}
    for argument in arguments_of(key, returns=False):
        if not argument.hidden:
            yield _field(argument, declared[argument.name])
    yield {"name": "return", "type": "long return"}


def _raw_fields(key: Any) -> Iterator[dict[str, Any]]:
    from kprobe.tracepoints.raw import arguments_of  # noqa: PLC0415
    from usdt.btf.dump.declare import declaration  # noqa: PLC0415 - only for them
    from usdt.btf.reader import Btf  # noqa: PLC0415
    from usdt.engine.compiler.ir import BtfType  # noqa: PLC0415

    for argument in arguments_of(key):
        if not argument.hidden:
            declared = argument.name
            if isinstance(argument.type_ref, BtfType):
                declared = declaration(Btf.from_kernel(), argument.type_ref.id, argument.name)
            yield _field(argument, declared)


def _field(argument: Any, declared: str) -> dict[str, Any]:
    field = {"name": argument.name, "type": declared}
    if argument.names is not None:
        field["names"] = [name for _, name in (*argument.names.choices, *argument.names.table)]
    return field


_FIELDS = {"tracepoint": _event_fields, "syscall": _call_fields, "rawtp": _raw_fields}
