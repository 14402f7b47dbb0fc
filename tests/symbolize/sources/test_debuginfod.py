"""Files from debuginfod servers on this machine, and from servers that behave badly."""

from __future__ import annotations

import contextlib
import http.server
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import debian
import pytest
from symbol_programs import TELLER, compiled

from usdt.base.frozen import replace
from usdt.elf.file import ElfFile
from usdt.symbolize.file_symbols import FileSymbols
from usdt.symbolize.sources.build_id_files import BuildIdFiles
from usdt.symbolize.sources.debuginfod import Debuginfod
from usdt.symbolize.sources.download import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BOUNDS = Bounds(size=1 << 20, seconds=100.0, idle=50.0)  # a busy machine pauses, too
READY = 60.0  # seconds that a server of elfutils may take to read its directory


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ``contents`` of the path; what a path ``/bad`` does is in ``bad``."""

    contents: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []
    bad: ClassVar[dict[str, Callable[[Any], None]]] = {}

    def do_GET(self) -> None:
        self.asked.append(self.path)
        for name, act in self.bad.items():
            if self.path.startswith(name):
                with contextlib.suppress(OSError):  # the client has gone
                    act(self)
                return
        data = self.contents.get(self.path)
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def redirect(handler: Any, where: str) -> None:
    handler.send_response(302)
    handler.send_header("Location", where)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def endless(handler: Any) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 16))


def dripping(handler: Any) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x")
        time.sleep(0.02)


def slow_header(handler: Any) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
    while True:
        handler.wfile.write(b"x")
        time.sleep(0.02)


def silent(handler: Any) -> None:
    handler.rfile.read()  # until the client has gone


def short(handler: Any) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b"x" * 40)


def large(handler: Any) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(1 << 40))
    handler.end_headers()


def lying(handler: Any) -> None:
    data = handler.contents["other"]
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    return compiled(folder, TELLER, "-O0", "-g", "-Wl,--build-id")


@pytest.fixture(scope="module")
def build_id(program: Path) -> str:
    with ElfFile(program) as elf:
        assert elf.build_id is not None
        return elf.build_id


@pytest.fixture(scope="module")
def other(program: Path) -> bytes:
    source = "int main() { return 1; }"
    return compiled(program.parent, source, "-Wl,--build-id", name="other").read_bytes()


@pytest.fixture
def url(program: Path, build_id: str, other: bytes) -> Iterator[str]:
    Handler.contents = {
        f"/buildid/{build_id}/debuginfo": program.read_bytes(),
        "other": other,
    }
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = False  # they end with their clients, and are waited for
        here = f"http://127.0.0.1:{server.server_address[1]}"
        Handler.bad = {
            "/around": lambda handler: redirect(handler, handler.path),
            "/file": lambda handler: redirect(handler, "file:///etc/passwd"),
            "/ftp": lambda handler: redirect(handler, "ftp://127.0.0.1:1/x"),
            "/moved": lambda handler: redirect(handler, handler.path.removeprefix("/moved")),
            "/endless": endless,
            "/dripping": dripping,
            "/slow": slow_header,
            "/silent": silent,
            "/short": short,
            "/large": large,
            "/lying": lying,
            "/broken": lambda handler: handler.send_error(500),
            "/noise": lambda handler: handler.wfile.write(b"\x1b[2Jnoise\r\n\r\n"),
        }
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield here
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "debuginfod_client"


def test_a_file_is_downloaded_once_and_kept_as_elfutils_keeps_it(
    url: str, build_id: str, program: Path, cache: Path
) -> None:
    Handler.asked.clear()
    for _ in range(2):
        client = Debuginfod([url])
        found = client.find(build_id, "debuginfo")
        assert found is not None
        with found:
            assert found.build_id == build_id
        assert not client.notices
    assert Handler.asked == [f"/buildid/{build_id}/debuginfo"]
    (kept,) = (cache / build_id).iterdir()
    assert (kept.name, kept.read_bytes()) == ("debuginfo", program.read_bytes())
    assert kept.stat().st_mode & 0o777 == 0o600


def test_what_the_clients_of_elfutils_have_downloaded_is_used_without_a_server(
    build_id: str, program: Path, cache: Path
) -> None:
    (cache / build_id).mkdir(parents=True)
    shutil.copy(program, cache / build_id / "debuginfo")
    (cache / build_id / "executable").touch(0)  # no server had it
    with FileSymbols(str(program), sources=BuildIdFiles()) as file:
        assert file.build_id == build_id
    client = Debuginfod()
    found = client.find(build_id, "debuginfo")
    assert found is not None
    found.close()
    assert client.find(build_id, "executable") is None


def test_a_file_of_the_cache_with_another_build_id_is_not_used(
    build_id: str, other: bytes, cache: Path
) -> None:
    (cache / build_id).mkdir(parents=True)
    (cache / build_id / "debuginfo").write_bytes(other)
    assert Debuginfod().find(build_id, "debuginfo") is None


def test_servers_are_asked_in_order_and_once(url: str, build_id: str, cache: Path) -> None:
    Handler.asked.clear()
    client = Debuginfod([f"{url}/empty", url])
    for _ in range(2):
        assert client.find(build_id, "executable") is None
    assert Handler.asked == [f"{root}/buildid/{build_id}/executable" for root in ("/empty", "")]
    assert not client.notices
    assert [*cache.iterdir()] == []


def test_a_redirection_to_http_is_followed(url: str, build_id: str, cache: Path) -> None:
    found = Debuginfod([f"{url}/moved"]).find(build_id, "debuginfo")
    assert found is not None
    found.close()
    assert (cache / build_id / "debuginfo").exists()


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("/around", "HTTP 302: redirects without end, or elsewhere than to HTTP"),
        ("/file", "HTTP 302: redirects without end, or elsewhere than to HTTP"),
        ("/ftp", "unknown url type: ftp"),
        ("/silent", "no answer for 0.3 seconds"),
        ("/broken", "HTTP 500 Internal Server Error"),
        ("/short", "ends after 40 of 100 bytes"),
        ("/noise", r"\x1b[2Jnoise"),
    ],
)
def test_a_server_that_does_not_deliver_is_named_and_not_asked_again(
    url: str, build_id: str, cache: Path, root: str, why: str
) -> None:
    bounds = replace(BOUNDS, idle=0.3) if root == "/silent" else BOUNDS
    client = Debuginfod([url + root], bounds=bounds)
    assert client.find(build_id, "debuginfo") is None
    Handler.asked.clear()
    assert client.find(build_id, "executable") is None
    assert not Handler.asked
    (notice,) = client.notices
    assert notice.encode("unicode_escape").decode() == (
        f"{url}{root}: {why}; this server is not asked again"
    ).replace("\\\\", "\\")
    assert not [*cache.rglob("*debuginfo*")]


@pytest.mark.parametrize("root", ["/dripping", "/slow"])
def test_a_server_that_never_ends_is_left_when_the_time_is_over(
    url: str, build_id: str, cache: Path, root: str
) -> None:
    client = Debuginfod([url + root], bounds=Bounds(size=1 << 20, seconds=0.3, idle=5.0))
    assert client.find(build_id, "debuginfo") is None
    assert client.notices == [
        f"{url}{root}: took more than 0.3 seconds; this server is not asked again"
    ]
    assert not [*cache.rglob("*debuginfo*")]


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("/endless", "is not used: sends more than 1048576 bytes, the limit"),
        ("/large", f"is not used: {1 << 40} bytes are more than the limit of 1048576"),
        ("/lying", "is a file without this build ID; it is not used"),
    ],
)
def test_a_file_that_is_not_used_is_named_and_the_next_server_asked(
    url: str, build_id: str, cache: Path, root: str, why: str
) -> None:
    client = Debuginfod([url + root, url], bounds=BOUNDS)
    found = client.find(build_id, "debuginfo")
    assert found is not None
    found.close()
    (notice,) = client.notices
    assert notice.startswith(f"{url}{root}: its debuginfo of build ID {build_id} ")
    assert notice.endswith(why)
    assert [one.name for one in (cache / build_id).iterdir()] == ["debuginfo"]


def test_a_server_that_is_not_there(build_id: str, cache: Path) -> None:
    client = Debuginfod(["http://127.0.0.1:1", "http://[bad"], bounds=BOUNDS)
    assert client.find(build_id, "debuginfo") is None
    assert client.notices[0] == (
        "http://127.0.0.1:1: Connection refused; this server is not asked again"
    )
    assert client.notices[1].startswith("http://[bad: ")
    assert not [*cache.iterdir()]


def test_the_bounds_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBUGINFOD_MAXSIZE", "1000")
    monkeypatch.setenv("DEBUGINFOD_MAXTIME", "nonsense")
    monkeypatch.setenv("DEBUGINFOD_TIMEOUT", "7")
    assert Bounds.of_environment() == Bounds(1000, Bounds().seconds, 7)


def unused_port() -> int:
    """A port that no connection of another program takes: the kernel gives those higher ones."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in range(lowest // 2 + os.getpid() % (lowest // 4), lowest):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError(lowest)


@pytest.fixture(scope="module")
def elfutils(program: Path, build_id: str) -> Iterator[str]:
    # Debian's server, which reads the folder of the program.
    server = shutil.which("debuginfod") or debian.files("debuginfod") / "usr/bin/debuginfod"
    libraries = [debian.files("libmicrohttpd12"), debian.files("libdebuginfod1")]
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(str(one / "usr/lib/x86_64-linux-gnu") for one in libraries),
    }
    port = unused_port()
    folder = program.parent
    command = [server, "-p", str(port), "-d", folder / "db", "-t", "0", "-F", folder]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            until_served(process, f"{address}/buildid/{build_id}/executable")
            yield address
        finally:
            process.terminate()
            process.communicate()


def until_served(process: subprocess.Popen[str], url: str) -> None:
    deadline = time.monotonic() + READY
    while time.monotonic() < deadline:
        if process.poll() is not None:
            assert process.stderr is not None
            why = process.stderr.read()
            missing = re.search(r"loading shared libraries: (\S+):", why)
            assert missing, why
            pytest.skip(f"needs {missing[1]} for debuginfod: apt-get install debuginfod")
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                answer.read()
        except urllib.error.HTTPError as err:
            err.close()  # which Python 3.14 warns of otherwise
        except urllib.error.URLError:
            pass
        else:
            return
        time.sleep(0.05)
    pytest.fail(f"{url}: not served within {READY} seconds")


def test_the_server_of_elfutils(elfutils: str, build_id: str, program: Path, cache: Path) -> None:
    client = Debuginfod([elfutils])
    for kind in ("debuginfo", "executable"):
        found = client.find(build_id, kind)
        assert found is not None
        found.close()
        assert (cache / build_id / kind).read_bytes() == program.read_bytes()
    assert not client.notices
    assert Debuginfod([elfutils]).find("00" * 20, "debuginfo") is None
    assert [one.name for one in cache.iterdir()] == [build_id]
