"""A stand-in for a collector of OpenTelemetry: a plain HTTP server that keeps what it is sent.

It is no collector. What it got is decoded by opentelemetry-proto, which is the definition.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("Collector", "collecting", "metrics_of", "spans_of")


class Collector(HTTPServer):
    """Keeps the requests; ``answers`` are the codes of the next answers, then 200."""

    def __init__(self, answers: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.requests = 0

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Content-Type"] == "application/json"
        self.server.requests += 1
        code = self.server.answers.pop(0) if self.server.answers else 200
        if code == 200:
            self.server.taken.append((self.path, body))
        self.send_response(code)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass


@contextlib.contextmanager
def collecting(*answers: int) -> Iterator[Collector]:
    """Run one until the end of the block."""
    with Collector(list(answers)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def metrics_of(body: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a request by name, decoded by opentelemetry-proto."""
    request = _decoded(body, "metrics", "ExportMetricsServiceRequest")
    (resource,) = request.resource_metrics
    return {one.name: one for scope in resource.scope_metrics for one in scope.metrics}


def spans_of(body: dict[str, Any]) -> list[Any]:
    """The spans of a request, decoded by opentelemetry-proto; its IDs are hexadecimal in JSON."""
    found = []
    for resource in body["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    request = _decoded(body, "trace", "ExportTraceServiceRequest")
    for resource in request.resource_spans:
        found += [span for scope in resource.scope_spans for span in scope.spans]
    return found


def _decoded(body: dict[str, Any], signal: str, name: str) -> Any:
    needs = "needs opentelemetry-proto (pip install)"
    json_format = pytest.importorskip("google.protobuf.json_format", reason=needs)
    module = f"opentelemetry.proto.collector.{signal}.v1.{signal}_service_pb2"
    made = getattr(pytest.importorskip(module, reason=needs), name)()
    return json_format.ParseDict(body, made)
