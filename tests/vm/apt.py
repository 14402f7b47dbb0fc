"""Debian packages of any suite and CPU, by apt with a configuration of its own.

Nothing of the system is read but the keys of Debian, nothing of it is changed, nothing is
installed, and no root is needed. Lists are fetched again when they are a week old.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ("Apt", "Unavailable")

_TIMEOUT = 600  # seconds for one run of apt
_FRESH = 7 * 24 * 3600  # seconds that lists serve
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def _mirrors() -> list[str]:
    # What the environment names (a suite moves to an archive when its support ends), then the
    # mirrors that the system itself uses.
    named = os.environ.get("USDT_DEBIAN_MIRROR")
    found = [named] if named else []
    folder = Path("/etc/apt")
    for path in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))):
        if path.is_file():
            found += re.findall(r"\bhttps?://\S+/debian/?(?=\s|$)", _live(path.read_text()))
    return list(dict.fromkeys(found))


def _live(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


class Unavailable(Exception):  # noqa: N818 - what it is about is not there
    """Something cannot be had; the message names it."""


@dataclass(frozen=True, slots=True)
class Apt:
    """apt for one suite and one architecture, with all its files in a folder."""

    folder: Path
    suite: str
    architecture: str

    @property
    def stamp(self) -> Path:
        """A file whose time is that of the lists."""
        return self.folder / "updated"

    def update(self) -> None:
        """Fetch the lists if they are old; old ones serve if that fails."""
        if self.stamp.exists() and time.time() - self.stamp.stat().st_mtime < _FRESH:
            return
        if not shutil.which("apt-get"):
            raise Unavailable("needs apt-get, of Debian or a relative of it")
        self._lay_out()
        reasons = []
        for mirror in _mirrors():
            self._sources.write_text(f"deb [signed-by={_KEYS}] {mirror} {self.suite} main\n")
            try:
                self._run("apt-get", "update", "--error-on=any")
            except Unavailable as err:
                reasons.append(f"{mirror}: {err}")
            else:
                self.stamp.touch()
                return
        if not self.stamp.exists():
            raise Unavailable(f"Debian {self.suite} {self.architecture}: {'; '.join(reasons)}")

    def depends(self, package: str) -> tuple[str, ...]:
        """Names of what a package depends on."""
        text = self._run("apt-cache", "depends", "--important", package)
        lines = (line.split() for line in text.splitlines())
        return tuple(words[1] for words in lines if words and words[0] == "Depends:")

    def files(self, *packages: str) -> tuple[str, ...]:
        """File names (package_version_architecture.deb) of exactly these packages."""
        return _names(self._run("apt-get", "download", "--print-uris", *packages))

    def closure(self, *packages: str) -> tuple[str, ...]:
        """File names of these packages and of all that they depend on."""
        words = ("-y", "--no-install-recommends", "--print-uris")
        return _names(self._run("apt-get", "install", *words, *packages))

    def download(self, files: tuple[str, ...], to: Path) -> tuple[Path, ...]:
        """Fetch packages by the names that ``files`` or ``closure`` gave."""
        to.mkdir(parents=True, exist_ok=True)
        self._run("apt-get", "download", *(name.partition("_")[0] for name in files), folder=to)
        return tuple(sorted(to.glob("*.deb")))

    @property
    def _sources(self) -> Path:
        return self.folder / "sources.list"

    def _lay_out(self) -> None:
        for name in ("lists/partial", "archives/partial", "empty"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()

    def _options(self) -> tuple[str, ...]:
        at = self.folder
        settings = {
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "APT::Sandbox::User": "",
            "Acquire::Check-Valid-Until": "false",  # of a suite that is no longer maintained
            "Acquire::GzipIndexes": "true",
            "Acquire::Languages": "none",
            "Acquire::PDiffs": "false",
            "Acquire::Retries": "3",
            "Debug::NoLocking": "true",  # the cache has a lock of its own
            "Dir::Cache": at,
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::parts": at / "empty",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": at / "empty",
            "Dir::Etc::sourcelist": self._sources,
            "Dir::Etc::sourceparts": at / "empty",
            "Dir::State": at,
            "Dir::State::lists": at / "lists",
            "Dir::State::status": at / "status",
        }
        return tuple(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))

    def _run(self, program: str, *words: str, folder: Path | None = None) -> str:
        command = (program, "-q", *self._options(), *words)
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{program} {words[0]} took more than {_TIMEOUT} s") from None
        if done.returncode:
            # The first line says what failed, the last one only that something did.
            first = (done.stderr.strip().splitlines() or ["no reason given"])[0]
            raise Unavailable(f"{program} {words[0]}: {first}")
        return done.stdout


def _names(uris: str) -> tuple[str, ...]:
    # 'http://…/name_version_arch.deb' name_version_arch.deb 1234 SHA256:…
    lines = (line.split() for line in uris.splitlines() if line.startswith("'"))
    return tuple(sorted(words[1] for words in lines))
