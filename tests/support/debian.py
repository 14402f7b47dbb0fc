"""Real binaries: Debian packages, downloaded once and unpacked outside the tree.

``files("libvirt0", "i386")`` is the folder with that package's files. Packages are fetched by apt
with a configuration of its own under ``${XDG_CACHE_HOME:-~/.cache}/usdt-toolkit/debs``: sources
and keys are the system's, lists and architectures are not, so neither root is needed nor is
anything of the system changed. What cannot be downloaded is a skip that names it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("cache", "files")

SUITE = "bookworm"
TIMEOUT = 300  # seconds for one run of apt-get


def cache() -> Path:
    """Where downloaded packages are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "usdt-toolkit" / "debs"


@functools.cache
def files(package: str, architecture: str = "amd64", suite: str = SUITE) -> Path:
    """The unpacked files of a package, or a skip that says why they cannot be had."""
    unpacked = cache() / "files" / f"{package}_{architecture}"
    if unpacked.is_dir():
        return unpacked
    for program in ("apt-get", "dpkg-deb"):
        if not shutil.which(program):
            pytest.skip(f"needs {program} to download {package}:{architecture}")
    with locked():
        if not unpacked.is_dir():
            unpack(download(package, architecture, suite), unpacked)
    return unpacked


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One process at a time downloads: test runs may overlap."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def unpack(package: Path, to: Path) -> None:
    """Unpack a package; the folder appears when it is complete."""
    partial = to.with_name(f".{to.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    subprocess.run(["dpkg-deb", "-x", package, partial], check=True, timeout=TIMEOUT)
    partial.rename(to)
    package.unlink()


def download(package: str, architecture: str, suite: str) -> Path:
    """Fetch a package into the cache."""
    to = cache() / "download"
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    options = apt_options(architecture, suite)
    update_lists(options)
    reason = run((*options, "download", f"{package}:{architecture}"), to)
    found = sorted(to.glob("*.deb"))
    if reason or len(found) != 1:
        pytest.skip(f"needs the Debian package {package}:{architecture}: apt-get: {reason}")
    return found[0]


def apt_options(architecture: str, suite: str) -> tuple[str, ...]:
    """apt-get with lists, caches and sources of its own."""
    root = cache() / f"apt-{suite}-{architecture}"
    sources = root / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    for folder in (sources, root / "lists" / "partial", root / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    (root / "status").touch()
    (root / "empty").mkdir(exist_ok=True)
    copy_sources(sources, suite)
    return (
        "apt-get",
        "-qq",
        *option("APT::Architecture", architecture),
        *option("APT::Architectures", architecture),
        *option("APT::Sandbox::User", ""),
        *option("Dir::State", str(root)),
        *option("Dir::State::status", str(root / "status")),
        *option("Dir::State::lists", str(root / "lists")),
        *option("Dir::Cache", str(root)),
        *option("Dir::Etc::sourcelist", "/dev/null"),
        *option("Dir::Etc::sourceparts", str(sources)),
        *option("Dir::Etc::preferencesparts", str(root / "empty")),
        *option("Acquire::Languages", "none"),
    )


def option(name: str, value: str) -> tuple[str, str]:
    """One setting on apt's command line."""
    return "-o", f"{name}={value}"


def copy_sources(to: Path, suite: str) -> None:
    """The system's sources of its own distribution, for a suite; other vendors' are left out."""
    system = Path("/etc/apt")
    for path in [system / "sources.list", *sorted((system / "sources.list.d").glob("*"))]:
        if path.suffix in {".list", ".sources"} and path.is_file():
            text = path.read_text(errors="replace")
            if SUITE in text and "/debian" in text:
                # A limit to the system's own architectures would hide the others.
                kept = [one for one in text.splitlines() if not one.startswith("Architectures:")]
                (to / path.name).write_text("\n".join(kept).replace(SUITE, suite) + "\n")
    if not any(to.iterdir()):
        pytest.skip(f"needs apt sources of Debian {SUITE} to download packages")


@functools.cache
def update_lists(options: tuple[str, ...]) -> None:
    """Fetch the package lists, once a run.

    A list that cannot be had or does not verify is left out by apt (a mirror may be in the middle
    of its synchronisation), and the package may well be in another: so failure shows at download.
    """
    run((*options, "update"), cache())


def run(command: tuple[str, ...], folder: Path) -> str:
    """Run apt-get in a folder; what went wrong, or ""."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {TIMEOUT} s"
    return (done.stderr.strip().splitlines() or ["no reason given"])[-1] if done.returncode else ""


@functools.cache
def root(name: str, packages: tuple[str, ...], suite: str) -> Path:
    """A folder with the files of several packages, as a system of that suite has them."""
    unpacked = cache() / "roots" / f"{name}_{suite}"
    with locked():
        if not unpacked.is_dir():
            partial = unpacked.with_name(f".{unpacked.name}")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            for package in packages:
                found = download(package, "amd64", suite)
                subprocess.run(["dpkg-deb", "-x", found, partial], check=True, timeout=TIMEOUT)
            partial.rename(unpacked)
    return unpacked
