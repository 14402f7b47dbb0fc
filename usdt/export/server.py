"""HTTP: ``/metrics`` and ``/-/healthy``. Requests are few at a time, short, and end in time."""

from __future__ import annotations

import http
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

from usdt.base.errors import TracingError
from usdt.base.version import VERSION
from usdt.export.formats.exposition import exposition, preferred_format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from usdt.export.endpoints import Endpoint
    from usdt.export.formats.families import Family

__all__ = ("MetricsServer",)

_CONNECTIONS = 8  # at a time
_SECONDS = 10.0  # that a connection may last


class MetricsServer(socketserver.ThreadingMixIn, HTTPServer):
    """A server: ``handle_request()`` takes a connection, which a thread answers.

    Args:
        endpoint: where it listens.
        collect: returns the families; called in threads of the server.

    Raises:
        TracingError: it cannot listen there.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, endpoint: Endpoint, collect: Callable[[], Iterable[Family]]) -> None:
        self.collect = collect
        self.address_family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        try:
            super().__init__((endpoint.host, endpoint.port), _Handler)
        except OSError as err:
            raise TracingError(
                f"{endpoint}: cannot listen there: {err.strerror}; choose another --listen"
            ) from err
        self.timeout = 0  # of handle_request(): a connection waits, or there is none

    def server_bind(self) -> None:
        """Bind; the name of the host is not looked up."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def close(self) -> None:
        """End; connections are closed. Idempotent."""
        self.server_close()
        self._close_older(time.monotonic())

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is room for another connection."""
        del client_address
        with self._lock:
            if len(self._open) >= _CONNECTIONS:
                return False
            self._open[request] = time.monotonic()
        return True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that has ended."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def close_late(self) -> None:
        """Close connections that last too long."""
        self._close_older(time.monotonic() - _SECONDS)

    def _close_older(self, limit: float) -> None:
        with self._lock:
            late = [one for one, began in self._open.items() if began <= limit]
            for one in late:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:  # the other side has closed it
                    continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about a connection that broke: the scraper says so."""


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = _SECONDS
    server_version = f"usdt-export/{VERSION}"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        if path == "/-/healthy":
            self._answer("text/plain; charset=utf-8", b"ok\n")
        elif path == "/metrics":
            kind = preferred_format(self.headers.get("Accept", ""))
            self._answer(kind, exposition(self.server.collect(), kind))
        else:
            self.send_error(http.HTTPStatus.NOT_FOUND, "only /metrics and /-/healthy are here")

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def _answer(self, kind: str, data: bytes) -> None:
        self.send_response(http.HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Say nothing: a scrape every few seconds is no news."""
