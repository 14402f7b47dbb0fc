"""The exporter's server: bounded connections, no waiting for those that say nothing."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import TracingError
from usdt.export.endpoints import Endpoint
from usdt.export.formats.families import Family, Sample
from usdt.export.server import MetricsServer

if TYPE_CHECKING:
    from collections.abc import Iterator

FAMILY = Family("up", "h", "gauge", "", (Sample((), 1),))


@contextlib.contextmanager
def serving() -> Iterator[tuple[MetricsServer, tuple[str, int]]]:
    """A server whose connections are taken, as the exporter's loop does."""
    server = MetricsServer(Endpoint("127.0.0.1", 0), lambda: [FAMILY])
    before = {*threading.enumerate()}
    end = threading.Event()

    def loop() -> None:
        while not end.is_set():
            if select.select([server], [], [], 0.01)[0]:
                server.handle_request()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield server, server.server_address[:2]  # type: ignore[misc]
    finally:
        end.set()
        for one in {*threading.enumerate()} - before:  # those of connections as well
            one.join(20)
        server.close()


def answer(address: tuple[str, int], request: bytes) -> bytes:
    """What is answered to a request."""
    with socket.create_connection(address, timeout=100) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(4096), b""))


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (b"GET /metrics HTTP/1.0\r\n\r\n", b"200", b"up 1\n"),
        (b"HEAD /metrics HTTP/1.0\r\n\r\n", b"200", b"Content-Length: "),
        (b"GET /-/healthy HTTP/1.1\r\n\r\n", b"200", b"ok\n"),
        (b"GET / HTTP/1.0\r\n\r\n", b"404", b"only /metrics"),
        (b"GET /../etc/passwd HTTP/1.0\r\n\r\n", b"404", b"only /metrics"),
        (b"POST /metrics HTTP/1.0\r\n\r\n", b"501", b""),
        (b"GET /" + b"x" * 65532, b"414", b""),
        (b"GET / HTTP/1.0\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"431", b""),
        (b"\xff\xfe\r\n\r\n", b"400", b""),
    ],
)
def test_answers(request_: bytes, code: bytes, text: bytes) -> None:
    with serving() as (_, address):
        found = answer(address, request_)
    assert code in found[:200]
    assert text in found


def test_connections_that_say_nothing_are_bounded_and_closed() -> None:
    with serving() as (server, address), contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(address, timeout=100)) for _ in range(8)
        ]
        silent[0].sendall(b"GET /metrics HTT")
        with socket.create_connection(address, timeout=100) as ninth:
            assert ninth.recv(1) == b""  # no room: closed at once
        server._close_older(float("inf"))  # as after ten seconds
        assert [client.recv(1) for client in silent] == [b""] * 8


def test_a_port_in_use_is_one_line() -> None:
    with (
        serving() as (_, (host, port)),
        pytest.raises(TracingError, match="cannot listen there: Address already in use"),
    ):
        MetricsServer(Endpoint(host, port), list)
