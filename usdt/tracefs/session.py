"""A run of the event tracer: define events, read their records, remove the events."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from usdt.base.closeable import Closeable
from usdt.base.errors import SyscallError
from usdt.base.frozen import frozen
from usdt.bpf.rcu import expedited_rcu
from usdt.tracefs.definitions import list_events, orphaned_events, remove_event, remove_group
from usdt.tracefs.instance import Instance, orphaned_instances, remove_instance
from usdt.tracefs.trace_pipe_reader import TracePipeReader

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from usdt.tracefs.definitions import DefinedEvent
    from usdt.tracefs.format import EventFormat
    from usdt.tracefs.trace_pipe_reader import RawRecord

__all__ = ("EventRequest", "EventSession", "TraceRecord", "clean", "remove_events")

_MANY = 256  # events, whose removal is worth expedited grace periods


@frozen
class EventRequest:
    """An event to trace.

    Attributes:
        file: the file of its definition; None: the event exists, and is not removed.
        line: the definition.
        name: ``GROUP/EVENT``.
        filter: in the kernel's filter language, or "".
    """

    file: str | None
    line: str
    name: str
    filter: str = ""


@frozen
class TraceRecord:
    """A decoded record of an event.

    Attributes:
        time: CLOCK_MONOTONIC, nanoseconds.
        cpu: the CPU that recorded it.
        tid: thread ID in the initial namespace.
        name: ``GROUP/EVENT``.
        values: fields of the event by name, without the common ones.
    """

    time: int
    cpu: int
    tid: int
    name: str
    values: dict[str, Any]


class EventSession(Closeable):
    """Defines events, traces them in a private instance, and removes them.

    Args:
        root: mount point of tracefs.
        events: the events to trace.
        buffer: bytes for each CPU.

    Attributes:
        formats: of the events, by name.
        unknown_records: number of records of other events, which there should not be.

    Raises:
        NotSupported: the kernel has no such events.
        TracingError: the kernel refuses a definition or a filter.
    """

    def __init__(self, root: Path, events: list[EventRequest], *, buffer: int) -> None:
        self.formats: dict[str, EventFormat] = {}
        self._names: dict[int, str] = {}
        self.unknown_records = 0
        with contextlib.ExitStack() as undo:
            self._instance = undo.enter_context(Instance(root, buffer=buffer))
            for event in events:
                if event.file is not None:
                    self._instance.define(event.file, event.line, event.name)
            self._reader = TracePipeReader(root, self._instance.path)
            undo.callback(self._reader.close)
            for event in events:
                form = self.formats[event.name] = self._instance.format(event.name)
                self._names[form.number] = event.name
                self._instance.enable(event.name, event.filter)
            self._instance.start()
            self._reader.start()
            self._stack = undo.pop_all()

    def wait(self, seconds: float) -> None:
        """Wait for records, at most this long."""
        self._reader.wait(seconds)

    def read(self, *, everything: bool = False) -> list[TraceRecord]:
        """Return the next records, in order of time.

        Args:
            everything: after stop(), read what is left, a part with each call; [] at the end.
        """
        while True:
            records = self._reader.take(everything=everything)
            hits = [hit for record in records if (hit := self._hit(record)) is not None]
            if hits or not everything or self._reader.empty:
                return hits

    def stop(self) -> None:
        """Disable the events; the records made so far can still be read."""
        self._instance.disable()
        self._reader.stop_and_drain()

    @property
    def damaged(self) -> int:
        """Number of pages that could not be read completely."""
        return self._reader.damaged

    def lost(self) -> int:
        """Return the number of records that the kernel dropped."""
        return self._instance.dropped()

    def close(self) -> None:
        """Remove instance and events; idempotent."""
        self._stack.close()

    def _hit(self, record: RawRecord) -> TraceRecord | None:
        time, cpu, data = record
        number = int.from_bytes(data[:2], sys.byteorder)
        name = self._names.get(number)
        if name is None:
            self.unknown_records += 1
            return None
        form = self.formats[name]
        values = form.decode(data)
        tid = values["common_pid"]
        own = {field.name: values[field.name] for field in form.own}
        return TraceRecord(time, cpu, tid if isinstance(tid, int) else -1, name, own)


def clean(root: Path) -> tuple[list[str], list[str]]:
    """Remove the instances and events that killed runs left behind.

    Returns:
        (names of what was removed, error messages for what could not be removed).
    """
    gone, stuck = [], []
    for path in orphaned_instances(root):
        try:
            remove_instance(path)
            gone.append(f"instance {path.name}")
        except SyscallError as err:
            stuck.append(str(err))
    removed, failures = remove_events(root, orphaned_events(root))
    return gone + [f"event {name}" for name in removed], stuck + failures


def remove_events(root: Path, events: Iterable[DefinedEvent]) -> tuple[list[str], list[str]]:
    """Remove events; all of a group at once, because thousands one by one take minutes.

    Returns:
        (names of the removed events, error messages for those that could not be removed).
    """
    # An event is listed once for each of its attach points.
    chosen = {(event.file, event.name): event for event in events}
    others = {
        _group(event) for event, _ in list_events(root) if (event.file, event.name) not in chosen
    }
    sizes = Counter(map(_group, chosen.values()))
    group_removed = {group: False for group, size in sizes.items() if size == 1 or group in others}
    gone, stuck = [], []
    with expedited_rcu() if len(chosen) >= _MANY else contextlib.nullcontext():
        for event in chosen.values():
            group = _group(event)
            if group not in group_removed:
                group_removed[group] = remove_group(root, event)
            try:
                if not group_removed[group]:
                    remove_event(root, event)
                gone.append(event.name)
            except SyscallError as err:
                stuck.append(str(err))
    return gone, stuck


def _group(event: DefinedEvent) -> tuple[str, str]:
    return event.file, event.name.partition("/")[0]
