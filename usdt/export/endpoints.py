"""Where the exporter listens, and where it sends."""

from __future__ import annotations

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen

__all__ = ("Endpoint", "Otlp", "parse_listen")


@frozen
class Endpoint:
    """A host and a port; port 0 lets the kernel choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@frozen
class Otlp:
    """Where metrics are sent, and how often.

    Attributes:
        endpoint: the URL of the collector, without ``/v1/metrics``.
        interval: seconds between two messages.
    """

    endpoint: str
    interval: int


def parse_listen(text: str) -> Endpoint | None:
    """Parse HOST:PORT; ``none`` is None.

    Raises:
        TracingError: it is not HOST:PORT.
    """
    if text == "none":
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise TracingError(f"{text}: expected HOST:PORT; write 127.0.0.1:9435")
    return Endpoint(host, int(port))
