"""Tracepoints, raw tracepoints and system calls in ``kprobe list`` and ``kprobe info``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from usdt.tracefs.format import EventFormat

__all__ = ("KINDS", "Shown", "found", "is_point", "line", "text")

KINDS = ("tracepoint", "rawtp", "syscall")


@frozen
class Shown:
    """A probe that a command shows.

    Attributes:
        kind: one of :data:`KINDS`.
        pattern: its name as in a probe's text.
        key: the catalog's object for it.
    """

    kind: str
    pattern: str
    key: object

    def fields(self) -> list[dict[str, Any]]:
        """Return its fields as JSON objects: name, C type, names of values."""
        return list(_FIELDS[self.kind](self.key))

    def to_json(self, *, fields: bool) -> str:
        """Return it as the text of a JSON object."""
        made: dict[str, Any] = {"kind": self.kind, "name": self.pattern}
        if fields:
            made["fields"] = self.fields()
        return json.dumps(made)


def is_point(word: str) -> bool:
    """Return True if a command-line argument names probes of these kinds."""
    return word.partition(":")[0] in KINDS and ":" in word


def found(word: str) -> list[Shown]:
    """Return the probes that an argument like ``tracepoint:sched:*`` matches.

    Raises:
        ProbeNotFound: nothing matches; the message names the most similar one.
    """
    from usdt.engine.language import parse_probe  # noqa: PLC0415 - --help does not pay for it

    request = parse_probe(word)
    if request.kind == "syscall":
        from kprobe.tracepoints import syscalls  # noqa: PLC0415 - only for them

        return [Shown("syscall", c.name, c) for c in syscalls.matching(request.name)]
    if request.kind == "rawtp":
        from kprobe.tracepoints import raw  # noqa: PLC0415 - only for them

        return [Shown("rawtp", name, name) for name in raw.matching(request.name)]
    from kprobe.tracepoints import catalog  # noqa: PLC0415 - only for them

    events = catalog.matching(request.provider, request.name)
    return [Shown("tracepoint", event.full_name, event) for event in events]


def line(shown: Shown) -> str:
    """Return its name, as written on a command line."""
    return printable(f"{shown.kind}:{shown.pattern}")


def text(shown: Shown) -> Iterator[str]:
    """Yield its name and its fields, one line each."""
    yield line(shown)
    for field in shown.fields():
        names = field.get("names")
        tail = f"  {_some(names)}" if names else ""
        yield printable(f"    {field['type']}{tail}")


def _some(names: Iterable[str]) -> str:
    words = list(names)
    return "|".join(words[:8]) + ("|…" if len(words) > 8 else "")


def _event_fields(key: Any) -> Iterator[dict[str, Any]]:
    from kprobe.tracepoints.catalog import format_of  # noqa: PLC0415 - only for them
    from kprobe.tracepoints.fields import arguments_of  # noqa: PLC0415

    form: EventFormat = format_of(key)
    declared = {field.name: field.declaration for field in form.own}
    for one in arguments_of(form):
        yield _field(one, declared[one.name])


def _call_fields(key: Any) -> Iterator[dict[str, Any]]:
    from kprobe.tracepoints.catalog import Event, format_of  # noqa: PLC0415 - only for them
    from kprobe.tracepoints.syscalls import arguments_of  # noqa: PLC0415

    form = format_of(Event("syscalls", f"sys_enter_{key.event}"))
    declared = {field.name: field.declaration for field in form.own}
    for one in arguments_of(key, returns=False):
        if not one.hidden:
            yield _field(one, declared[one.name])
    yield {"name": "return", "type": "long return"}


def _raw_fields(key: Any) -> Iterator[dict[str, Any]]:
    from kprobe.tracepoints.raw import arguments_of  # noqa: PLC0415
    from usdt.btf.declare import declaration  # noqa: PLC0415 - only for them
    from usdt.btf.reader import Btf  # noqa: PLC0415

    for one in arguments_of(key):
        if not one.hidden:
            declared = one.name
            if isinstance(one.handle, int):
                declared = declaration(Btf.from_kernel(), one.handle, one.name)
            yield _field(one, declared)


def _field(one: Any, declared: str) -> dict[str, Any]:
    made = {"name": one.name, "type": declared}
    if one.names is not None:
        made["names"] = [name for _, name in (*one.names.choices, *one.names.table)]
    return made


_FIELDS = {"tracepoint": _event_fields, "syscall": _call_fields, "rawtp": _raw_fields}
