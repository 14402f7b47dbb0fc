"""Debian packages of any suite and CPU, by apt with a configuration of its own.

Nothing of the system is read but the keys of Debian, nothing of it is changed, nothing is
installed, and no root is needed. Lists are fetched again when they are a week old.

apt checks what it fetches: lists by Debian's signature, packages by the lists. Lists are fetched
into a folder of their own, which counts only when all of them are there. A stamp beside it holds
their checksums, so that lists which are damaged later do not count any more.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from vm.watch import Stuck, watched

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("Apt", "Mirrors", "Unavailable", "Unreachable")

_TIMEOUT = 600.0  # seconds for one run of apt
_FRESH = 7 * 24 * 3600  # seconds that lists serve
_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TRIES = 2  # of a mirror that says nothing, in succession
# What apt itself says of such a mirror.
_MUTE = re.compile(r"Could not (connect|resolve)|failure resolving|timed out|[Uu]nable to connect")


class Unavailable(Exception):  # noqa: N818 - what it is about is not there
    """Something cannot be had; the message names it."""


class Unreachable(Unavailable):
    """It cannot be had from any mirror: no fault of this machine, nor of ours."""


def _addresses() -> tuple[str, ...]:
    # What the environment names (a suite moves to an archive when its support ends), then the
    # mirrors that the system itself uses.
    named = os.environ.get("USDT_DEBIAN_MIRROR")
    found = [named] if named else []
    folder = Path("/etc/apt")
    for path in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))):
        if path.is_file():
            found += re.findall(r"\bhttps?://\S+/debian/?(?=\s|$)", _live(path.read_text()))
    return tuple(dict.fromkeys(found))


def _live(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Where packages come from, whose signature they need, and how long a mirror may be silent."""

    addresses: tuple[str, ...] = field(default_factory=_addresses)
    keys: Path = _KEYS
    silence: float = 60.0  # seconds
    silent: dict[str, int] = field(default_factory=dict)  # host → how often it was, in succession

    def of(self, suite: str) -> Iterator[str]:
        """Addresses for a suite: security suites are beside the others."""
        more = "-security" if suite.endswith("-security") else ""
        return (address.rstrip("/") + more for address in self.addresses)

    def check(self, address: str) -> None:
        """Unreachable if a mirror was silent too often to be asked once more."""
        if self.silent.get(urlsplit(address).netloc, 0) >= _TRIES:
            raise Unreachable("it is not asked again: nothing came from it before")

    def heard(self, address: str, *, silent: bool) -> None:
        """Note whether a mirror said something."""
        host = urlsplit(address).netloc
        self.silent[host] = self.silent.get(host, 0) + 1 if silent else 0


@dataclass(frozen=True, slots=True)
class Apt:
    """apt for one suite and one architecture, with all its files in a folder."""

    folder: Path
    suite: str
    architecture: str
    mirrors: Mirrors = field(default_factory=Mirrors)

    @property
    def stamp(self) -> Path:
        """A file whose time is that of the lists; it holds where they are from and checksums."""
        return self.folder / "updated"

    def update(self) -> None:
        """Fetch the lists if they are old; old ones serve if that fails."""
        whole = self._lists_are_whole()
        if whole and time.time() - self.stamp.stat().st_mtime < _FRESH:
            return
        self._need_programs()
        reasons = []
        for address in self.mirrors.of(self.suite):
            try:
                self._fetch(address)
            except Unreachable as err:
                reasons.append(str(err) if address in str(err) else f"{address}: {err}")
            else:
                return
        if not whole:
            raise Unreachable("; ".join(reasons) or "no mirror of Debian is known")

    def depends(self, package: str) -> tuple[str, ...]:
        """Names of what a package depends on."""
        text = self._ask("apt-cache", "depends", "--important", package)
        lines = (line.split() for line in text.splitlines())
        return tuple(words[1] for words in lines if words and words[0] == "Depends:")

    def files(self, *packages: str) -> tuple[str, ...]:
        """File names (package_version_architecture.deb) of exactly these packages."""
        return _names(self._ask("apt-get", "download", "--print-uris", *packages))

    def closure(self, *packages: str) -> tuple[str, ...]:
        """File names of these packages and of all that they depend on."""
        words = ("-y", "--no-install-recommends", "--print-uris")
        return _names(self._ask("apt-get", "install", *words, *packages))

    def download(self, files: tuple[str, ...], to: Path) -> tuple[Path, ...]:
        """Fetch packages by the names that ``files`` or ``closure`` gave."""
        to.mkdir(parents=True, exist_ok=True)
        names = (name.partition("_")[0] for name in files)
        mirror = self._known()["mirror"]
        self._fetching(mirror, self._current(), to, "apt-get", "download", *names)
        return tuple(sorted(to.glob("*.deb")))

    def _need_programs(self) -> None:
        if not shutil.which("apt-get"):
            raise Unavailable("needs apt-get, of Debian or a relative of it")
        if not self.mirrors.keys.exists():
            raise Unavailable(f"needs {self.mirrors.keys}: apt-get install debian-archive-keyring")

    def _known(self) -> dict[str, Any]:
        try:
            found = json.loads(self.stamp.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _current(self) -> Path:
        return self.folder / self._known()["folder"]

    def _lists_are_whole(self) -> bool:
        known = self._known()
        return bool(known) and _checksums(self._current()) == known["lists"]

    def _fetch(self, address: str) -> None:
        """Fetch lists into a new folder, which replaces the earlier ones when it is complete."""
        new = self.folder / f"lists-{time.time_ns()}"
        for name in ("lists/partial", "archives/partial", "empty"):
            (new / name).mkdir(parents=True)
        (new / "status").touch()
        # With the earlier lists apt fetches what is new, and takes none that are older.
        for path in _lists(self._current()) if self._lists_are_whole() else ():
            os.link(path, new / "lists" / path.name)
        sources = f"deb [signed-by={self.mirrors.keys}] {address} {self.suite} main\n"
        (new / "sources.list").write_text(sources)
        try:
            self._fetching(address, new, new, "apt-get", "update", "--error-on=any")
        except Unreachable:
            shutil.rmtree(new)
            raise
        self._take(new, address)

    def _take(self, new: Path, address: str) -> None:
        known = {"mirror": address, "folder": new.name, "lists": _checksums(new)}
        fresh = self.stamp.with_suffix(".new")
        fresh.write_text(json.dumps(known))
        fresh.rename(self.stamp)
        for old in self.folder.iterdir():
            if old.is_dir() and old != new:
                shutil.rmtree(old)

    def _options(self, at: Path) -> tuple[str, ...]:
        settings = {
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "APT::Get::AllowUnauthenticated": "false",
            "APT::Sandbox::User": "",
            "Acquire::AllowDowngradeToInsecureRepositories": "false",
            "Acquire::AllowInsecureRepositories": "false",
            "Acquire::AllowWeakRepositories": "false",
            "Acquire::Check-Valid-Until": "false",  # of a suite that is no longer maintained
            "Acquire::GzipIndexes": "true",
            "Acquire::Languages": "none",
            "Acquire::PDiffs": "false",
            "Acquire::Retries": "3",
            # A second try fits into the time that a mirror may be silent.
            "Acquire::http::Timeout": max(1, int(self.mirrors.silence / 2)),
            "Acquire::https::Timeout": max(1, int(self.mirrors.silence / 2)),
            "Debug::NoLocking": "true",  # the cache has a lock of its own
            "Dir::Cache": at,
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::parts": at / "empty",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": at / "empty",
            "Dir::Etc::sourcelist": at / "sources.list",
            "Dir::Etc::sourceparts": at / "empty",
            "Dir::State": at,
            "Dir::State::lists": at / "lists",
            "Dir::State::status": at / "status",
        }
        return tuple(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))

    def _ask(self, program: str, *words: str) -> str:
        # Of the lists alone, without a mirror.
        return self._run(self._current(), None, program, *words)

    def _fetching(self, address: str, at: Path, to: Path, *command: str) -> None:
        # Of the mirror: it has to bring something all the time.
        self.mirrors.check(address)
        try:
            self._run(at, to, *command)
        except Unreachable as err:
            stuck = err.__cause__
            silent = stuck.silent if isinstance(stuck, Stuck) else bool(_MUTE.search(str(err)))
            self.mirrors.heard(address, silent=silent)
            raise
        self.mirrors.heard(address, silent=False)

    def _run(self, at: Path, to: Path | None, program: str, *words: str) -> str:
        command = (program, "-q", *self._options(at), *words)
        silence = self.mirrors.silence
        try:
            done = watched(command, cwd=to or at, growing=to, silence=silence, limit=_TIMEOUT)
        except Stuck as err:
            raise Unreachable(str(err)) from err
        if done.code:
            raise Unreachable(_reason(done.errors))
        return done.output


def _lists(at: Path) -> list[Path]:
    return sorted(path for path in (at / "lists").glob("*") if path.is_file())


def _checksums(at: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in _lists(at)}


def _reason(errors: str) -> str:
    # The first error says what failed, the last one only that something did; of signatures only a
    # warning says what is wrong with them. The address of the host is of no use.
    lines = [line for line in errors.splitlines() if line.strip()] or ["no reason given"]
    telling = [line for line in lines if "GPG error" in line]
    telling += [line for line in lines if line.startswith("E:")]
    text = " ".join((telling or lines)[0].split())
    return re.sub(r"\s*\[IP: [^]]*\]", "", re.sub(r"^[EW]: ", "", text))


def _names(uris: str) -> tuple[str, ...]:
    # 'http://…/name_version_arch.deb' name_version_arch.deb 1234 SHA256:…
    lines = (line.split() for line in uris.splitlines() if line.startswith("'"))
    return tuple(sorted(words[1] for words in lines))
