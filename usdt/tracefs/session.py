"""A run of the event tracer: events defined, read and removed again."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Self

from usdt.base.errors import SyscallError
from usdt.base.frozen import frozen
from usdt.bpf.rcu import expedited_rcu
from usdt.tracefs.definitions import define_event, orphaned_events, remove_event, remove_group
from usdt.tracefs.format import parse_format
from usdt.tracefs.instance import Instance, orphaned_instances, remove_instance
from usdt.tracefs.trace_pipe_reader import TracePipeReader

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.tracefs.definitions import DefinedEvent
    from usdt.tracefs.format import EventFormat
    from usdt.tracefs.trace_pipe_reader import RawRecord

__all__ = ("EventRequest", "EventSession", "TraceRecord", "clean")

_MANY = 256  # events whose end is worth a hurry


@frozen
class EventRequest:
    """An event to watch.

    Attributes:
        file: where its definition goes; None: it exists already, and stays.
        line: the definition.
        name: ``GROUP/EVENT``.
        filter: in the kernel's language, or "".
    """

    file: str | None
    line: str
    name: str
    filter: str = ""


@frozen
class TraceRecord:
    """One record.

    Attributes:
        time: CLOCK_MONOTONIC, nanoseconds.
        cpu: where it was recorded.
        tid: thread ID in the initial namespace.
        name: ``GROUP/EVENT``.
        values: its own fields, by name.
    """

    time: int
    cpu: int
    tid: int
    name: str
    values: dict[str, Any]


class EventSession:
    """Defines events, watches them in an instance of its own, removes them; a context manager.

    Args:
        root: where tracefs is.
        events: what to watch.
        buffer: bytes for each CPU.

    Attributes:
        formats: of the events, by name.

    Raises:
        NotSupported: the kernel has no such events.
        TracingError: the kernel refuses a definition or a filter.
    """

    def __init__(self, root: Path, events: list[EventRequest], *, buffer: int) -> None:
        self._root = root
        self._defined: list[DefinedEvent] = []
        self._stack = contextlib.ExitStack()
        self.formats: dict[str, EventFormat] = {}
        self._names: dict[int, str] = {}
        self.strange = 0  # records of events that are not ours; there should be none
        try:
            for event in events:
                if event.file is not None:
                    self._defined.append(define_event(root, event.file, event.line, event.name))
            # Undone in the other order: reader, instance, definitions.
            self._stack.callback(self._remove)
            self._instance = self._stack.enter_context(Instance(root, buffer=buffer))
            self._intake = TracePipeReader(root, self._instance.path)
            self._stack.callback(self._intake.close)
            for event in events:
                self._watch(event)
            self._instance.start()
            self._intake.start()
        except BaseException:
            self._stack.callback(self._remove)
            self._stack.close()
            raise

    def _watch(self, event: EventRequest) -> None:
        folder = self._instance.path / "events" / event.name
        form = parse_format((folder / "format").read_text())
        self.formats[event.name] = form
        self._names[form.number] = event.name
        if event.filter:
            self._instance.filter(event.name, event.filter)
        self._instance.enable(event.name)

    def wait(self, seconds: float) -> None:
        """Wait for records, at most so long."""
        self._intake.wait(seconds)

    def read(self, *, everything: bool = False) -> list[TraceRecord]:
        """What there is, in order of time; ``everything``, after stop(): a part of what is left."""
        while True:
            records = self._intake.take(everything=everything)
            hits = [hit for record in records if (hit := self._hit(record)) is not None]
            if hits or not everything or self._intake.empty:
                return hits

    def stop(self) -> None:
        """Switch the events off; what was recorded can still be read."""
        self._instance.disable()
        self._intake.finish()

    @property
    def damaged(self) -> int:
        """Pages of which not everything could be read."""
        return self._intake.damaged

    def lost(self) -> int:
        """Records that were not read, as the kernel counts them."""
        return self._instance.dropped()

    def close(self) -> None:
        """Remove everything; again is fine."""
        self._stack.close()

    def _hit(self, record: RawRecord) -> TraceRecord | None:
        time, cpu, data = record
        number = int.from_bytes(data[:2], sys.byteorder)
        name = self._names.get(number)
        if name is None:
            self.strange += 1
            return None
        form = self.formats[name]
        values = form.decode(data)
        tid = values["common_pid"]
        own = {field.name: values[field.name] for field in form.own}
        return TraceRecord(time, cpu, tid if isinstance(tid, int) else -1, name, own)

    def _remove(self) -> None:
        while self._defined:
            with contextlib.suppress(SyscallError):  # left for clean(), which tells
                remove_event(self._root, self._defined[-1])
            self._defined.pop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def clean(root: Path) -> tuple[list[str], list[str]]:
    """Remove what killed runs left; (names of what is gone, lines on what could not be removed)."""
    gone, stuck = [], []
    for path in orphaned_instances(root):
        try:
            remove_instance(path)
            gone.append(f"instance {path.name}")
        except SyscallError as err:
            stuck.append(str(err))
    left = orphaned_events(root)
    with expedited_rcu() if len(left) >= _MANY else contextlib.nullcontext():
        _clean_events(root, left, gone, stuck)
    return gone, stuck


def _clean_events(root: Path, left: list[DefinedEvent], gone: list[str], stuck: list[str]) -> None:
    whole: dict[tuple[str, str], bool] = {}
    # An event is listed once for each of its places.
    for event in {(event.file, event.name): event for event in left}.values():
        group = event.file, event.name.partition("/")[0]
        if group not in whole:  # one by one, thousands take minutes
            whole[group] = remove_group(root, event)
        try:
            if not whole[group]:
                remove_event(root, event)
            gone.append(f"event {event.name}")
        except SyscallError as err:
            stuck.append(str(err))
