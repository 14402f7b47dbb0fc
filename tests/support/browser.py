"""Headless Chromium, driven through a pipe by the DevTools protocol: open, run, click, screenshot.

``browser`` is a fixture of the session, so that the browser starts once. A :class:`Page` is a tab
of its own, with what it has requested and what went wrong in it::

    def test_x(browser, tmp_path):
        with browser.open(tmp_path / "page.html") as page:
            page.click("#theme")
            assert page.run("document.title") == "…"
            assert page.errors == [] and page.requests == [page.url]
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import struct
import subprocess
import time
import zlib
from typing import TYPE_CHECKING, Any, Self

import pytest
from patience import patient
from skips import need_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ("Browser", "Page", "browser")

_SECONDS = 30.0  # at most, for one answer
_OPTIONS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"),
    *("--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-default-browser-check", "--disable-dev-shm-usage", "--mute-audio"),
)


class Browser:
    """A running browser. Close it when done."""

    def __init__(self, folder: Path) -> None:
        program = need_program("chromium")
        to_browser, self._writing = os.pipe()
        self._reading, from_browser = os.pipe()
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        words = [program, *_OPTIONS, *sandbox, f"--user-data-dir={folder}", "about:blank"]
        # It reads commands from descriptor 3 and writes answers to 4.
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *words],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number = 0
        self._rest = b""
        self._pages: dict[str, Page] = {}

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Give a command; return its result."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        found = self.wait_for(lambda one: one.get("id") == number, method)
        assert "error" not in found, f"{method}: {found['error']}"
        result: dict[str, Any] = found["result"]
        return result

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """Return the first message that is wanted; note the events of pages meanwhile."""
        end = time.monotonic() + patient(_SECONDS)
        while True:
            message = self._message(end, what)
            page = self._pages.get(message.get("sessionId", ""))
            if page is not None and "method" in message:
                page.note(message["method"], message["params"])
            if wanted(message):
                return message

    def _message(self, end: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = end - time.monotonic()
            ready = left > 0 and select.select([self._reading], [], [], left)[0]
            assert ready, f"the browser has not answered: {what}"
            data = os.read(self._reading, 1 << 20)
            assert data, f"the browser has ended: {what}"
            self._rest += data
        one, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(one)
        return message

    @contextlib.contextmanager
    def open(
        self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False
    ) -> Iterator[Page]:
        """Open a file in a tab, which is closed at the end."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(self, attached["sessionId"], path.as_uri())
        self._pages[page.session] = page
        try:
            page.load(width, height, dark=dark)
            yield page
        finally:
            del self._pages[page.session]
            self.call("Target.closeTarget", targetId=target)

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        os.close(self._writing)
        os.close(self._reading)
        try:
            self._process.wait(patient(10))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Page:
    """A tab.

    Attributes:
        url: the page.
        requests: the URLs that the page has asked for, itself first.
        errors: what went wrong in it: exceptions, refused scripts and requests.
    """

    def __init__(self, browser: Browser, session: str, url: str) -> None:
        self.session = session
        self.url = url
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._browser = browser

    def note(self, method: str, params: dict[str, Any]) -> None:
        """Note an event of the page."""
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Give the tab a command of the protocol; return its result."""
        return self._browser.call(method, self.session, **params)

    def load(self, width: int, height: int, *, dark: bool) -> None:
        """Load the page, and wait until it is there."""
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=self.url)
        # Of a file that has loaded before the wait begins, no further event comes.
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + patient(_SECONDS)
        while not self.run(script):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """Click the middle of the first element of a CSS selector, as a mouse does."""
        x, y = self.run(
            f"(() => {{ const element = document.querySelector({json.dumps(selector)});"
            "element.scrollIntoView({block: 'center'});"
            "const r = element.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int = 0) -> None:
        """Press a key by its name: "Enter", "Tab", "Escape", "/"."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        about = {"key": key, "windowsVirtualKeyCode": code or _CODES.get(key, ord(key[0]))}
        down = about | ({"text": text} if text else {})
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def screenshot(self, scale: float = 1.0) -> bytes:
        """Return what the tab shows, as PNG."""
        x, y, width, height = self.run("[scrollX, scrollY, innerWidth, innerHeight]")
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": scale}
        found = self.call("Page.captureScreenshot", format="png", clip=clip)
        return base64.b64decode(found["data"])

    def colours(self) -> int:
        """Return how many colours a small picture of what the tab shows has; 1 if it is blank."""
        return _colours(self.screenshot(0.2))


_CODES = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "/": 191}


def _colours(png: bytes) -> int:
    position, parts, header = 8, [], b""
    while position < len(png):
        (size,) = struct.unpack_from(">I", png, position)
        kind = png[position + 4 : position + 8]
        body = png[position + 8 : position + 8 + size]
        header = body if kind == b"IHDR" else header
        parts += [body] if kind == b"IDAT" else []
        position += 12 + size
    width, height, depth, colour = struct.unpack_from(">IIBB", header)
    assert depth == 8
    size = {2: 3, 6: 4}[colour]
    rows = zlib.decompress(b"".join(parts))
    return len(_pixels(rows, width, height, size))


def _pixels(data: bytes, width: int, height: int, size: int) -> set[bytes]:
    # The filters of PNG: each byte is a difference to what is left of it, above it, or both.
    found: set[bytes] = set()
    above = bytearray(width * size)
    for row in range(height):
        at = row * (width * size + 1)
        kind, line = data[at], bytearray(data[at + 1 : at + 1 + width * size])
        for i, byte in enumerate(line):
            left = line[i - size] if i >= size else 0
            corner = above[i - size] if i >= size else 0
            line[i] = byte + _predicted(kind, left, above[i], corner) & 255
        above = line
        found |= {bytes(line[i : i + size]) for i in range(0, len(line), size)}
    return found


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:
        guess = left + up - corner
        return min((left, up, corner), key=lambda one: abs(guess - one))
    return (0, left, up, (left + up) // 2)[kind]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests of the session."""
    with Browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made
