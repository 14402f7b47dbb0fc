"""Metrics sent to a stand-in for a collector: attempts, and what was given up."""

from __future__ import annotations

import socket

from collector import collecting, metrics_of
from tracing_tools import until

from usdt.export.endpoints import Otlp
from usdt.export.formats.families import Family, HistogramPoint, Sample
from usdt.export.formats.otlp import Messages, Pusher, metrics_request

POINT = HistogramPoint(((1, 2), (10, 5)), 6, 40)
FAMILIES = [
    Family("hits", "h", "counter", "", (Sample((("by", "x"),), 3),)),
    Family("sizes", "h", "histogram", "bytes", (Sample((), POINT),)),
    Family("up", "h", "gauge", "", (Sample((), 1),)),
]


def messages() -> Messages:
    """What is sent."""
    return [("metrics", metrics_request(FAMILIES, began=1, now=2))]


def test_a_collector_that_is_busy_is_asked_again() -> None:
    with collecting(503) as server:
        pusher = Pusher(Otlp(server.url + "/", 1), messages, print)
        until(lambda: server.taken, "a request that is taken")
        pusher.close()
        path, body = server.taken[0]
    assert path == "/v1/metrics"
    assert pusher.dropped["metrics"] == 0
    found = metrics_of(body)
    (hits,) = found["hits"].sum.data_points
    assert (hits.as_int, hits.attributes[0].value.string_value) == (3, "x")
    assert found["hits"].sum.is_monotonic
    assert 0 < hits.start_time_unix_nano < hits.time_unix_nano
    (sizes,) = found["sizes"].histogram.data_points
    assert list(sizes.explicit_bounds) == [1, 10]
    assert list(sizes.bucket_counts) == [2, 3, 1]
    assert (sizes.count, sizes.sum) == (6, 40)
    assert found["up"].gauge.data_points[0].as_int == 1


def test_what_is_refused_is_not_repeated_but_counted() -> None:
    said: list[str] = []
    with collecting(400) as server:
        pusher = Pusher(Otlp(server.url, 1), messages, said.append)
        until(lambda: pusher.dropped["metrics"], "a message that is dropped")
        assert server.requests == 1
        until(lambda: server.taken, "the next message")
        pusher.close()
    assert pusher.dropped["metrics"] == 1
    assert said == [f"{server.url}: metrics were not taken: HTTP 400; tried again later"]


def test_a_collector_that_is_not_there_is_said_once() -> None:
    said: list[str] = []
    with socket.socket() as held:  # nobody else's port, and nobody listens
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        pusher = Pusher(Otlp(url, 3600), messages, said.append)
        pusher.close()
    assert pusher.dropped["metrics"] == 1
    assert said == [
        f"{url}: metrics were not taken: [Errno 111] Connection refused; tried again later"
    ]
