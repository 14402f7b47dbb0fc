"""Trace events that exist, read in the instance of a session: tracepoints and defined events."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.engine.runtime.tracefs_backend.trace_event_rows import trace_event_rows
from usdt.procfs.thread_groups import NEW_TASK
from usdt.procfs.thread_names import RENAMED, ThreadNames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.runtime.tracefs_backend.trace_event_rows import TraceEventRows
    from usdt.tracefs.format import EventFormat
    from usdt.tracefs.instance import Instance

__all__ = ("TraceEvents",)


class TraceEvents:
    """The trace events that a session reads. Their definitions are not changed.

    Args:
        instance: the instance of the session.

    Attributes:
        threads: the names of threads at the time of a record.
    """

    def __init__(self, instance: Instance) -> None:
        self.threads = ThreadNames()
        self._instance = instance
        self._rows: dict[int, list[tuple[int, TraceEventRows]]] = {}  # event ID → by variant
        self._renamed: tuple[EventFormat, int] | None = None

    def plan(self, event: str, plan: ProbePlan) -> tuple[int, TraceEventRows]:
        """Return the ID of an event, ``GROUP/EVENT``, and the converter of its records.

        Raises:
            TracingError: the event is gone, or a predicate needs what its records do not have.
        """
        try:
            form = self._instance.format(event)
        except OSError as err:
            raise TracingError(f"event {event}: {err.strerror}: its definition is gone") from err
        return form.number, trace_event_rows(plan, form)

    def enable(self, event: str, number: int, variant: int, rows: TraceEventRows) -> None:
        """Record an event, for one more variant.

        Raises:
            SyscallError: the kernel refuses.
        """
        known = self._rows.get(number, [])
        # Predicates are decided again when a record is read: a filter only saves records. It must
        # not keep any from another variant, or from this session itself.
        shared = known or event in (NEW_TASK, RENAMED)
        with contextlib.suppress(TracingError):
            self._instance.filter(event, "0" if shared else rows.filter or "0")
        if not known:
            self._instance.enable(event)
        self._rows[number] = [*known, (variant, rows)]

    def follow_names(self, pids: Sequence[int]) -> None:
        """Record changes of threads' names from now on; idempotent."""
        if self._renamed is None:
            with contextlib.suppress(OSError, TracingError):  # without it, /proc is read
                form = self._instance.format(RENAMED)
                self._instance.enable(RENAMED)
                self._renamed = form, form.number
            self.threads.observe(pids or None)

    def rows(self, number: int) -> Sequence[tuple[int, TraceEventRows]]:
        """Return (variant, converter) of an event by its ID; empty if it is another."""
        return self._rows.get(number, ())

    def observe(self, number: int, record: memoryview) -> None:
        """Note the name in a record of task:task_rename; ignore others."""
        if self._renamed is not None and number == self._renamed[1]:
            values = self._renamed[0].decode(record)
            tid, name = values.get("pid", values["common_pid"]), values.get("newcomm")
            if isinstance(tid, int) and isinstance(name, str):
                self.threads.named(tid, name)
