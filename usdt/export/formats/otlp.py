"""Metrics as OTLP/JSON, sent by HTTP to a collector of OpenTelemetry."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import urllib.error
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any

from usdt.base.version import VERSION
from usdt.export.formats.families import HistogramPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from usdt.export.buckets import Number
    from usdt.export.endpoints import Otlp
    from usdt.export.formats.families import Family, Native

__all__ = ("Messages", "Pusher", "metrics_request")

_CUMULATIVE = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE
_ATTEMPTS = 3
_FIRST_PAUSE = 1.0  # seconds before the second attempt; doubled before the third
_TIMEOUT = 5.0  # seconds of an attempt
_AGAIN = {429, 502, 503, 504}  # answers after which OTLP/HTTP allows another attempt

#: Signal (``metrics``, ``traces``) and body of each request.
Messages = list[tuple[str, bytes]]


class Pusher:
    """Sends messages at intervals, in a thread of its own, until close().

    Args:
        otlp: where to.
        messages: returns what is to be sent now.
        say: tells the user something.

    Attributes:
        otlp: where to.
        dropped: messages that were given up, by signal.
    """

    def __init__(
        self, otlp: Otlp, messages: Callable[[], Messages], say: Callable[[str], object]
    ) -> None:
        self.dropped = Counter(metrics=0, traces=0)
        self.otlp = otlp
        self._messages = messages
        self._say = say
        self._failing = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send the last values, in one attempt; idempotent."""
        if not self._end.is_set():
            self._end.set()
            self._thread.join()
            self._push()

    def _run(self) -> None:
        while not self._end.wait(self.otlp.interval):
            self._push()

    def _push(self) -> None:
        for signal, data in self._messages():
            reason = self._try(signal, data)
            if reason:
                self.dropped[signal] += 1
            if reason and not self._failing:  # said once, until it works again
                url = self.otlp.endpoint
                self._say(f"{url}: {signal} were not taken: {reason}; tried again later")
            self._failing = bool(reason)

    def _try(self, signal: str, data: bytes) -> str:
        # Sends a message; returns why it was given up, or "".
        pause = _FIRST_PAUSE
        for attempt in range(_ATTEMPTS):
            again, reason = self._send(signal, data)
            if not again or attempt + 1 == _ATTEMPTS or self._end.wait(pause):
                break
            pause *= 2
        return reason

    def _send(self, signal: str, data: bytes) -> tuple[bool, str]:
        # Returns whether another attempt makes sense, and why it failed; "" if it did not.
        url = self.otlp.endpoint.rstrip("/") + f"/v1/{signal}"
        headers = {"Content-Type": "application/json", "User-Agent": f"usdt-export/{VERSION}"}
        request = urllib.request.Request(url, data, headers)  # noqa: S310 - http or https: checked
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
                answer.read(1 << 16)
        except urllib.error.HTTPError as err:
            err.close()
            return err.code in _AGAIN, f"HTTP {err.code}"
        except (OSError, http.client.HTTPException) as err:
            return True, str(getattr(err, "reason", err)) or type(err).__name__
        return False, ""


def metrics_request(families: Iterable[Family], *, began: int, now: int) -> bytes:
    """Return an ExportMetricsServiceRequest as JSON.

    Args:
        families: the metrics.
        began: when counting began, in nanoseconds since the epoch.
        now: when they were read.
    """
    times = {"startTimeUnixNano": str(began), "timeUnixNano": str(now)}
    metrics = [_family(family, times) for family in families]
    resource = {"service.name": "usdt-export", "host.name": socket.gethostname()}
    scope = {"name": "usdt-toolkit", "version": VERSION}
    data = {
        "resource": {"attributes": _attributes(resource.items())},
        "scopeMetrics": [{"scope": scope, "metrics": metrics}],
    }
    return json.dumps({"resourceMetrics": [data]}).encode()


def _family(family: Family, times: dict[str, str]) -> dict[str, Any]:
    exponential = _is_exponential(family)
    points = [
        {
            "attributes": _attributes(sample.labels),
            **times,
            **_point(sample.value, exponential=exponential),
        }
        for sample in family.samples
    ]
    about = {"name": family.name, "description": family.help}
    about |= {"unit": "s" if family.unit == "seconds" else family.unit}
    data: dict[str, Any] = {"dataPoints": points}
    if family.type == "gauge":
        return {**about, "gauge": data}
    data["aggregationTemporality"] = _CUMULATIVE
    if family.type == "histogram":
        return {**about, "exponentialHistogram" if exponential else "histogram": data}
    return {**about, "sum": {**data, "isMonotonic": True}}


def _is_exponential(family: Family) -> bool:
    # All points of a metric have the same form.
    values = [sample.value for sample in family.samples]
    return all(isinstance(one, HistogramPoint) and one.native is not None for one in values)


def _point(value: Number | HistogramPoint, *, exponential: bool) -> dict[str, Any]:
    if isinstance(value, HistogramPoint):
        shape = _explicit(value)
        if exponential and value.native is not None:
            shape = _exponential(value.native)
        made = {"count": str(value.count), **shape}
        return made if value.sum is None else {**made, "sum": float(value.sum)}
    if isinstance(value, int) and abs(value) < 1 << 63:
        return {"asInt": str(value)}
    return {"asDouble": float(value)}


def _explicit(point: HistogramPoint) -> dict[str, Any]:
    counts = _differences([count for _, count in point.buckets], point.count)
    return {
        "explicitBounds": [float(bound) for bound, _ in point.buckets],
        "bucketCounts": [str(count) for count in counts],
    }


def _exponential(native: Native) -> dict[str, Any]:
    # A bucket's number is one less than in Prometheus, and those without hits are written.
    counts = dict(native.counts)
    numbers = range(min(counts), max(counts) + 1) if counts else range(1, 1)
    return {
        "scale": native.schema,
        "zeroCount": str(native.zeros),
        "positive": {
            "offset": numbers.start - 1,
            "bucketCounts": [str(counts.get(number, 0)) for number in numbers],
        },
    }


def _differences(cumulative: Sequence[int], total: int) -> Iterator[int]:
    before = 0
    for count in (*cumulative, total):
        yield count - before
        before = count


def _attributes(pairs: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in pairs]
