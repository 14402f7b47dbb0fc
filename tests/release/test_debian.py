"""The Debian package: it builds, lintian finds no fault, and its commands run."""

from __future__ import annotations

import hashlib
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from builds import build, checkout
from house import ROOT
from skips import need_program

from usdt.base.version import VERSION

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built from a source distribution; tools/deb.sh fails on words of lintian."""
    need_program("apt-get", "apt: Debian, or a relative of it")
    folder = tmp_path_factory.mktemp("deb")
    build(checkout(folder / "checkout"), folder / "dist", "--sdist")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    return built(sdist, folder / "one")


def built(sdist: Path, folder: Path, **settings: str) -> Path:
    done = subprocess.run(
        [ROOT / "tools/deb.sh", sdist, folder],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if "packages: missing" in done.stdout:
        pytest.skip(f"needs {done.stdout.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.deb")
    return found


@pytest.fixture(scope="module")
def root(package: Path) -> Path:
    """The files of the package, as a system has them."""
    folder = package.parent / "root"
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return folder


def test_two_builds_are_the_same_bytes(package: Path) -> None:
    (sdist,) = (package.parents[1] / "dist").glob("*.tar.gz")
    place = package.parents[1] / "another" / "place"
    again = built(sdist, place, TZ="Pacific/Auckland", LC_ALL="C.UTF-8", HOME="/nonexistent")
    first, second = (hashlib.sha256(one.read_bytes()).digest() for one in (package, again))
    assert first == second


def field(package: Path, name: str) -> str:
    command = ["dpkg-deb", "-f", package, name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_it_depends_on_what_the_commands_import(package: Path) -> None:
    depends = {word.split()[0]: word for word in field(package, "Depends").split(", ")}
    assert {"python3", "python3-click", "python3-pyelftools"} <= depends.keys()
    assert "python3 (>= 3.11)" in field(package, "Depends")
    assert field(package, "Architecture") == "all"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["usdt", "--version"], f"usdt {VERSION}"),
        (["kprobe", "--version"], f"kprobe {VERSION}"),
        (["usdt", "list", "libc", "uprobe:getenv"], "getenv"),
        (["usdt", "help", "language"], "# The probe language"),
        (["usdt", "examples"], "exec_snoop"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_its_commands_run_with_the_packages_of_debian(
    root: Path, words: list[str], shown: str
) -> None:
    modules = str(root / "usr/lib/python3/dist-packages")
    done = subprocess.run(
        ["/usr/bin/python3", "-s", root / "usr/bin" / words[0], *words[1:]],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


@pytest.mark.parametrize(
    "path",
    [
        "usr/share/man/man1/usdt.1.gz",
        "usr/share/man/man1/kprobe-trace.1.gz",
        "usr/share/bash-completion/completions/usdt",
        "usr/share/fish/vendor_completions.d/kprobe.fish",
        "usr/share/zsh/vendor-completions/_usdt",
        "usr/share/doc/usdt-toolkit/copyright",
        "usr/share/doc/usdt-toolkit/examples/usdt-export@.service",
    ],
)
def test_it_has_man_pages_completions_and_examples(root: Path, path: str) -> None:
    assert (root / path).is_file()
