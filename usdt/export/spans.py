"""Spans of running programs, as traces of OpenTelemetry."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from usdt.base.version import VERSION
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.recording.otlp import OtlpSpans
from usdt.engine.run.options import TraceOptions
from usdt.engine.spans.session import SpanSession
from usdt.export.attached import Attachment, Standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.export.config import SpanSource
    from usdt.export.programs import Programs

__all__ = ("SpanGroup",)

_MOST = 10_000  # spans that wait for the next message
_MOST_BATCHES = 64  # that are taken at once: more wait in the backlog


class _Part:
    # Spans of some processes.
    def __init__(self, group: SpanGroup, pids: Sequence[int]) -> None:
        source = group.source
        self._group = group
        options = TraceOptions(max_string=source.max_string, calls=source.spec.end is None)

        def session(tasks: TaskFilter) -> SpanSession:
            return SpanSession(
                spec=source.spec,
                form=EventFormatter(),
                accept=tasks,
                max_string=source.max_string,
            )

        self.attachment = Attachment(source.targets, pids, source.spec.requests, session, options)

    def look(self) -> None:
        """Take the spans that have ended."""
        for _ in range(_MOST_BATCHES):
            batch = self.attachment.targets.poll(0.0)
            if not batch:
                return
            self._group.take(batch)

    def drain(self) -> None:
        """Detach, and take the last spans."""
        for batch in self.attachment.targets.drain():
            self._group.take(batch)


class SpanGroup:
    """Spans that are attached in the processes that their targets select.

    Args:
        source: what is measured.
        programs: the processes by their programs' names.

    Attributes:
        source: what is measured.
        standing: where it is attached.
        dropped: spans for which there was no space until the next message.
    """

    def __init__(self, source: SpanSource, programs: Programs) -> None:
        self.source = source
        self.dropped = 0
        self.standing = Standing(
            source.name, source.targets, programs, lambda pids: _Part(self, pids), _Part.drain
        )
        offset = time.time_ns() - time.monotonic_ns()
        self._spans = OtlpSpans(socket.gethostname(), offset, VERSION)
        self._waiting = 0
        self._lines: list[str] = []

    def take(self, batch: Sequence[object]) -> None:
        """Keep spans until the next message."""
        kept = batch[: max(0, _MOST - self._waiting)]
        self.dropped += len(batch) - len(kept)
        self._waiting += len(kept)
        self._lines += self._spans.lines(kept)

    def messages(self) -> list[bytes]:
        """Return the spans since the last call: one ExportTraceServiceRequest for each process."""
        lines = [*self._lines, *self._spans.rest()]
        self._lines, self._waiting = [], 0
        return [line.encode() for line in lines]
