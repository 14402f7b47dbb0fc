"""A small archive of Debian's kind on this machine, and a server that has its faults.

Every suite has the same packages: a kernel of a few bytes and a Python of one module. Which fault
a suite has, its name says::

    good      none
    older     Packages is older than InRelease says: a mirror in the midst of its renewal
    missing   404 for everything
    hang      requests are taken and not answered
    forged    signed by a key that nobody trusts
    unsigned  not signed at all
    damaged   the packages are not those of the lists
    stuck     the lists are fine, and packages are not answered
    slow      packages come in small pieces, with pauses
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import subprocess
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = (
    "KERNEL",
    "META",
    "PYTHON",
    "SUITES",
    "Archive",
    "Keys",
    "Server",
    "make_keys",
    "serving",
)

SUITES = ("good", "older", "missing", "hang", "forged", "unsigned", "damaged", "stuck", "slow")
META = "linux-image-small"
KERNEL = b"a kernel" * 1000
PYTHON = "python3"

_CPU = "amd64"
_PIECES = 8  # of a package that comes slowly
_NEEDS = {META: "linux-image-1-small", PYTHON: "python3.11"}
_HAS = {
    META: ("usr/share/empty", b""),
    "linux-image-1-small": ("boot/vmlinuz-1-small", KERNEL),
    PYTHON: ("usr/share/nothing", b""),
    "python3.11": ("usr/lib/python3.11/module.py", b"x = 1\n"),
}


@dataclass(frozen=True)
class Keys:
    """A folder of gpg's with a key that is trusted and one that is not."""

    home: Path

    @property
    def trusted(self) -> Path:
        """The keyring of the first."""
        return self.home / "trusted.gpg"

    def sign(self, text: str, user: str) -> str:
        """The text with a signature, as InRelease has it."""
        return self.gpg("--local-user", user, "--clearsign", text=text).decode()

    def gpg(self, *words: str, text: str = "") -> bytes:
        """Run gpg."""
        command = ("gpg", "--homedir", str(self.home), "--batch", "--quiet", "--passphrase", "")
        done = subprocess.run(
            (*command, *words), input=text.encode(), check=True, capture_output=True
        )
        return done.stdout


@contextlib.contextmanager
def make_keys(home: Path) -> Iterator[Keys]:
    """Two keys that are thrown away."""
    home.mkdir(mode=0o700)
    keys = Keys(home)
    try:
        for user in ("trusted", "stranger"):
            keys.gpg("--quick-gen-key", user, "ed25519", "sign", "never")
        keys.trusted.write_bytes(keys.gpg("--export", "trusted"))
        yield keys
    finally:
        stop = ("gpgconf", "--homedir", str(home), "--kill", "all")
        subprocess.run(stop, check=False, capture_output=True)


@dataclass(frozen=True)
class Archive:
    """The files of a mirror."""

    root: Path
    keys: Keys

    def make(self) -> None:
        """Every suite."""
        for suite in SUITES:
            if suite != "missing":
                self.renew(suite, "1")

    def renew(self, suite: str, version: str, *, packages: bool = True) -> None:
        """Bring packages of this version into a suite; without ``packages``, its lists alone."""
        pool = self.root / "debian" / "pool" / suite
        texts = [self._package(pool, name, version) for name in _HAS]
        text = "\n".join(texts)
        lists = {"Packages": text.encode(), "Packages.xz": lzma.compress(text.encode())}
        self._sign(suite, lists)
        if packages:
            stale = lzma.compress(b"Package: old\n")
            folder = self.root / "debian" / "dists" / suite / f"main/binary-{_CPU}"
            folder.mkdir(parents=True, exist_ok=True)
            data = stale if suite == "older" else lists["Packages.xz"]
            (folder / "Packages.xz").write_bytes(data)

    def _sign(self, suite: str, lists: dict[str, bytes]) -> None:
        folder = self.root / "debian" / "dists" / suite
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"Suite: {suite}", f"Codename: {suite}", "Components: main"]
        date = time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime())
        lines += [f"Architectures: {_CPU}", f"Date: {date}", "SHA256:"]
        for name, data in lists.items():
            lines.append(f" {_sha256(data)} {len(data)} main/binary-{_CPU}/{name}")
        text = "\n".join(lines) + "\n"
        if suite == "unsigned":
            (folder / "Release").write_text(text)
        else:
            user = "stranger" if suite == "forged" else "trusted"
            (folder / "InRelease").write_text(self.keys.sign(text, user))

    def _package(self, pool: Path, name: str, version: str) -> str:
        """Build a package; its paragraph in Packages."""
        made, file = pool / f"{name}-{version}", pool / f"{name}_{version}_{_CPU}.deb"
        path, data = _HAS[name]
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_bytes(data)
        control = f"Package: {name}\nVersion: {version}\nArchitecture: {_CPU}\n"
        control += "Maintainer: nobody\nDescription: for a test\n"
        control += f"Depends: {_NEEDS[name]}\n" if name in _NEEDS else ""
        (made / "DEBIAN").mkdir(exist_ok=True)
        (made / "DEBIAN" / "control").write_text(control)
        command = ("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(made), str(file))
        subprocess.run(command, check=True, capture_output=True)
        content = file.read_bytes()
        if pool.name == "damaged":
            file.write_bytes(content.replace(b"a kernel", b"a colonel"))
        where = file.relative_to(self.root / "debian")
        return f"{control}Filename: {where}\nSize: {len(content)}\nSHA256: {_sha256(content)}\n"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves an archive on loopback, and notes what it is asked for."""

    daemon_threads = False  # all of them have ended when it is closed

    def __init__(self, root: Path) -> None:
        """Any free port."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.asked: list[str] = []
        self.over = threading.Event()

    def address(self, name: str = "debian") -> str:
        """As a mirror is named."""
        return f"http://127.0.0.1:{self.server_port}/{name}"

    def handle_error(self, *_: Any) -> None:
        """Who asked has gone: that is what is tested."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        words = self.path.strip("/").split("/")
        where = words[2] if len(words) > 2 else ""
        if where == "hang" or (where == "stuck" and words[1] == "pool"):
            self.server.over.wait()
            return
        try:
            data = self.server.root.joinpath(*words).read_bytes()
        except OSError:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self._write(data, slowly=where == "slow" and words[1] == "pool")

    def _write(self, data: bytes, *, slowly: bool) -> None:
        step = len(data) // _PIECES + 1 if slowly else len(data)
        for start in range(0, len(data), step):
            self.wfile.write(data[start : start + step])
            if slowly:
                self.server.over.wait(1)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving(root: Path) -> Iterator[Server]:
    """A server that runs meanwhile."""
    with Server(root) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
