"""Downloads over HTTP that end: bounded in size and in time, whatever the server does."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Self

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("AbsentError", "Bounds", "DownloadError", "TooLargeError", "download")

_PIECE = 1 << 16
_MOST_DIGITS = 16
_NOT_FOUND = 404
_REDIRECTIONS = range(300, 400)
_SHOWN_EVERY = 0.2  # seconds


class DownloadError(TracingError):
    """A server did not deliver; the message says why, in one line."""


class AbsentError(DownloadError):
    """The server does not have the file."""


class TooLargeError(DownloadError):
    """The file is larger than the bound."""


@frozen
class Bounds:
    """The bounds of a download.

    Attributes:
        size: bytes of a file.
        seconds: seconds that a file may take.
        idle: seconds that a server may be silent.
    """

    size: int = 1 << 30
    seconds: float = 600.0
    idle: float = 30.0

    @classmethod
    def of_environment(cls) -> Bounds:
        """Return the bounds that the variables of debuginfod's clients set, else the defaults."""
        size, seconds, idle = (
            os.environ.get(f"DEBUGINFOD_{name}", "") for name in ("MAXSIZE", "MAXTIME", "TIMEOUT")
        )
        return cls(
            int(size) if _positive(size) else cls().size,
            int(seconds) if _positive(seconds) else cls().seconds,
            int(idle) if _positive(idle) else cls().idle,
        )


def _positive(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS and int(text) > 0


def download(
    url: str, descriptor: int, bounds: Bounds, progress: Callable[[int, int], object]
) -> None:
    """Write the contents of a URL to a file.

    Args:
        url: an ``http:`` or ``https:`` URL.
        descriptor: the file, empty.
        bounds: what the server may take.
        progress: called with the bytes so far and the bytes in all, 0 if they are not known.

    Raises:
        AbsentError: the server answers 404.
        TooLargeError: the file has more bytes than ``bounds`` allow.
        DownloadError: it does anything else.
        OSError: the file cannot be written.
    """
    with _Watch(bounds.seconds) as watch:
        try:
            with _opener(watch).open(_request(url), timeout=bounds.idle) as response:
                _copy(response, descriptor, bounds, watch, progress)
        except urllib.error.HTTPError as err:
            err.close()
            raise _refusal(err) from err
        except TimeoutError as err:
            raise DownloadError(f"no answer for {bounds.idle:g} seconds") from err
        except (urllib.error.URLError, http.client.HTTPException, ValueError) as err:
            if watch.over:
                raise DownloadError(f"took more than {bounds.seconds:g} seconds") from err
            raise DownloadError(_reason(err, bounds)) from err


def _request(url: str) -> urllib.request.Request:
    return urllib.request.Request(url, headers={"User-Agent": "usdt-toolkit"})  # noqa: S310 - see _opener


def _refusal(err: urllib.error.HTTPError) -> DownloadError:
    if err.code == _NOT_FOUND:
        return AbsentError("has no such file")
    if err.code in _REDIRECTIONS:
        return DownloadError(f"HTTP {err.code}: redirects without end, or elsewhere than to HTTP")
    return DownloadError(f"HTTP {err.code} {http.client.responses.get(err.code, '')}".rstrip())


def _reason(err: Exception, bounds: Bounds) -> str:
    reason = getattr(err, "reason", None) or err
    if isinstance(reason, TimeoutError):
        return f"no answer for {bounds.idle:g} seconds"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return " ".join(f"{reason}".split()) or type(reason).__name__


def _copy(
    response: Any,
    descriptor: int,
    bounds: Bounds,
    watch: _Watch,
    progress: Callable[[int, int], object],
) -> None:
    length = response.headers.get("Content-Length", "")
    total = int(length) if length.isdecimal() else 0
    if total > bounds.size:
        raise TooLargeError(f"{total} bytes are more than the limit of {bounds.size}")
    done, shown = 0, 0.0
    while piece := _piece(response, bounds, watch):
        done += len(piece)
        if done > bounds.size:
            raise TooLargeError(f"sends more than {bounds.size} bytes, the limit")
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view) :]
        if time.monotonic() >= shown + _SHOWN_EVERY:
            shown = time.monotonic()
            progress(done, total)
    if done < total:
        raise DownloadError(f"ends after {done} of {total} bytes")


def _piece(response: Any, bounds: Bounds, watch: _Watch) -> bytes:
    # Errors of the socket must not be taken for those of the file that is written.
    try:
        piece: bytes = response.read1(_PIECE)
    except TimeoutError:
        raise
    except OSError as err:
        piece = b""
        if not watch.over:
            raise DownloadError(f"breaks off: {err.strerror or err}") from err
    if watch.over:
        raise DownloadError(f"took more than {bounds.seconds:g} seconds")
    return piece


class _Watch:
    # Shuts the connections of a download down when its time is over: a server may send one byte
    # again and again, so that no single wait takes long.
    def __init__(self, seconds: float) -> None:
        self.over = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()

    def add(self, connected: socket.socket) -> None:
        self._sockets.append(connected)
        if self.over:
            self._end()

    def _end(self) -> None:
        self.over = True
        for connected in self._sockets:
            try:
                connected.shutdown(socket.SHUT_RDWR)
            except OSError:  # closed already
                continue


def _opener(watch: _Watch) -> urllib.request.OpenerDirector:
    # HTTP and HTTPS alone, also after a redirection: no file:, data: or ftp:.
    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            watch.add(self.sock)

    class Secure(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            watch.add(self.sock)

    class PlainHandler(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Plain, req)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Secure, req)

    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        PlainHandler(),
        SecureHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener
