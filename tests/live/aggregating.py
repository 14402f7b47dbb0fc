"""Aggregating commands run as a user runs them, beside a full trace of the same hits."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

from tracing_tools import Tool, tracing, usdt

from usdt.engine.aggregate.session import AggregateSession
from usdt.engine.language import parse_probe
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.run.options import TargetOptions, TraceOptions
from usdt.engine.runtime.session import RingBufferSession
from usdt.targets.tracer import Tracer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fixtures import Fixture

    from usdt.engine.aggregate.rows import Rows
    from usdt.engine.aggregate.spec import Aggregation
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.formatters.event_records import Event
    from usdt.engine.runtime.session import Lost

__all__ = (
    "Outcome",
    "aggregated",
    "aggregating",
    "beside_a_trace",
    "in_process",
    "log2_buckets",
    "outcome",
    "stopped",
    "tally",
)


class Outcome:
    """What an aggregating command wrote with ``--json``.

    ``results`` are results, ``missed`` what each probe lost, ``pairs`` what was no pair.
    """

    def __init__(self, tool: Tool) -> None:
        """Read the lines of a command that has ended."""
        self.tool = tool
        records = tool.records
        self.results = [record for record in records if "count" in record]
        self.missed = [record for record in records if "lost" in record]
        found = [record for record in records if "unfinished" in record]
        assert len(found) <= 1
        self.pairs: dict[str, int] = found[0] if found else {}

    @property
    def one(self) -> dict[str, Any]:
        """The only result."""
        assert len(self.results) == 1, self.results
        return self.results[0]

    def lost(self) -> int:
        """Hits without room."""
        assert sum(record["lost"] for record in self.missed) == self.tool.closing[1]
        return self.tool.closing[1]

    def unreadable(self) -> int:
        """Hits that were left out."""
        return sum(record["unreadable"] for record in self.missed)


def outcome(tool: Tool, *, code: int = 0) -> Outcome:
    """Wait for the end of a command; what it wrote. Its counts must be those of its last line."""
    tool.finish(code=code)
    found = Outcome(tool)
    assert sum(record["count"] for record in found.results) == tool.closing[0], tool.errors
    return found


def stopped(tool: Tool, number: int = signal.SIGINT) -> Outcome:
    """End a command by a signal; what it wrote."""
    tool.process.send_signal(number)
    return outcome(tool)


@contextlib.contextmanager
def aggregating(command: str, *words: object) -> Iterator[Tool]:
    """Start ``usdt COMMAND --json``, and wait until it traces."""
    with usdt(command, "--json", *words) as tool:
        yield tool.wait_tracing()


def beside_a_trace(
    program: Fixture, command: str, *words: object, probes: Iterable[str]
) -> tuple[Outcome, list[dict[str, Any]]]:
    """Fire a program under an aggregation and a trace; what each says of the same hits.

    Args:
        program: that waits.
        command: count, hist, …
        words: its probes and options.
        probes: what is traced beside it.
    """
    with (
        aggregating(command, "-p", program.pid, *words) as tool,
        tracing("-p", program.pid, *probes) as trace,
    ):
        program.fire()
        return stopped(tool), trace.stop()


def aggregated(
    program: Fixture, aggregation: Aggregation, probes: Sequence[str], traced: Sequence[str]
) -> tuple[Rows, list[Lost], list[Event]]:
    """The same in this process: results, what was missed, and the events of a trace."""
    with (
        in_process(aggregation, [parse_probe(text) for text in probes], program.pid) as (
            tracer,
            session,
        ),
        Tracer(
            [parse_probe(text) for text in traced],
            TargetOptions((program.pid,)),
            None,
            lambda accept: RingBufferSession(EventFormatter(), accept=accept),
            TraceOptions(),
        ) as trace,
    ):
        program.fire()
        assert not [batch for batch in tracer.drain() if batch]
        events = [event for batch in trace.drain() for event in batch]
        assert not trace.lost()
        return session.read(), tracer.lost(), events


@contextlib.contextmanager
def in_process(
    aggregation: Aggregation, requests: Sequence[ProbeText], pid: int
) -> Iterator[tuple[Tracer, AggregateSession]]:
    """Aggregate hits of a process here: the tracer, and the session that it has made."""
    made: list[AggregateSession] = []

    def session(accept: TaskFilter) -> AggregateSession:
        made.append(AggregateSession(aggregation, requests, accept=accept, max_string=128))
        return made[0]

    with Tracer(requests, TargetOptions((pid,)), None, session, TraceOptions()) as tracer:
        yield tracer, made[0]


def tally(keys: Iterable[Any]) -> Counter[Any]:
    """How often each is there."""
    return Counter(keys)


def log2_buckets(values: Iterable[int]) -> list[dict[str, Any]]:
    """The buckets of powers of two of some values, as docs/json.md has them."""
    counts = Counter(0 if v < 0 else 1 + v.bit_length() for v in values)
    used = range(min(counts), max(counts) + 1)
    edges = {0: (None, 0), 1: (0, 1)} | {n: (1 << n - 2, 1 << n - 1) for n in range(2, 66)}
    return [
        {"low": edges[index][0], "high": edges[index][1], "count": counts[index]} for index in used
    ]
