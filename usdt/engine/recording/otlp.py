"""Recorded spans as OTLP/JSON, the format of OpenTelemetry: one line for each ``TracesData``.

Spans of one thread inside one another are one trace, with parents. An ID is made of what identifies
a span, so that two reports of a recording agree.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

from usdt.arch.locations import Unreadable
from usdt.engine.output.formatters.event_records import Span
from usdt.engine.output.span_tree import MeasuredLine, SpanTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from usdt.engine.output.span_tree import SpanNode

__all__ = ("OtlpSpans",)

_INTERNAL = 1  # SPAN_KIND_INTERNAL
_INTEGERS = range(-(1 << 63), 1 << 63)


class OtlpSpans:
    """A converter from results of an EventFormatter to lines of OTLP/JSON.

    Args:
        host: name of the recording machine.
        offset: nanoseconds from CLOCK_MONOTONIC to CLOCK_REALTIME on it.
        version: version of this program.

    Attributes:
        others: the number of events that are no spans.
    """

    def __init__(self, host: str, offset: int, version: str) -> None:
        self.others = 0
        self._host = host
        self._offset = offset
        self._version = version
        self._tree = SpanTree(as_json=False)

    def lines(self, batch: Iterable[Any]) -> Iterator[str]:
        """Take results; yield lines once many wait."""
        spans = [one for one in batch if isinstance(one, Span)]
        self.others += sum(not isinstance(one, Span) for one in batch)
        self._tree.add(
            MeasuredLine(one.duration, one.start, (one.pid, one.tid), one) for one in spans
        )
        if self._tree.full:
            yield from self.rest()

    def rest(self) -> Iterator[str]:
        """Yield the lines of all spans that wait, one for each process."""
        found: dict[tuple[int, str], list[dict[str, Any]]] = {}
        for root in self._tree.roots():
            span: Span = root.span.line
            found.setdefault((span.pid, span.comm), []).extend(self._trace(root))
        for (pid, comm), spans in found.items():
            resource = {"host.name": self._host, "process.pid": pid, "service.name": comm}
            scope = {"name": "usdt-toolkit", "version": self._version}
            data = {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": scope, "spans": spans}],
            }
            yield json.dumps({"resourceSpans": [data]}) + "\n"

    def _trace(self, root: SpanNode) -> Iterator[dict[str, Any]]:
        first: Span = root.span.line
        trace = self._id(first, 0, 32)
        ahead = [(root, "", 0)]
        number = 0
        while ahead:
            node, parent, _ = ahead.pop()
            number += 1
            own = self._id(node.span.line, number, 16)
            made = self._span(node.span.line)
            yield {"traceId": trace, "spanId": own, "parentSpanId": parent, **made}
            ahead += [(inner, own, 0) for inner in reversed(node.inner)]

    def _id(self, span: Span, number: int, digits: int) -> str:
        who = (
            f"{self._host} {self._offset} {span.pid} {span.tid} {span.start} {span.probe} {number}"
        )
        return hashlib.sha256(who.encode("utf-8", "surrogatepass")).hexdigest()[:digits]

    def _span(self, span: Span) -> dict[str, Any]:
        began = span.start + self._offset
        about = {"thread.id": span.tid, "thread.name": span.comm, "cpu.logical_number": span.cpu}
        about["usdt.end_probe"] = span.end_probe
        items = {f"start.{key}": value for key, value in span.args.items()}
        items |= {f"end.{key}": value for key, value in span.end_args.items()}
        return {
            "name": span.probe,
            "kind": _INTERNAL,
            "startTimeUnixNano": str(began),
            "endTimeUnixNano": str(began + span.duration),
            "attributes": _attributes(about | items),
        }


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": _text(key), "value": _value(value)} for key, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int() if value in _INTEGERS:
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value if math.isfinite(value) else str(value)}
        case list():
            return {"arrayValue": {"values": [_value(one) for one in value]}}
        case Unreadable(reason=reason):
            return {"stringValue": f"?({reason})"}
        case bytes():
            return {"stringValue": value.hex()}
        case dict():
            return {"stringValue": json.dumps(value, default=str)}
    return {"stringValue": _text(str(value))}


def _text(text: str) -> str:
    # Protobuf has no lone surrogates.
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
