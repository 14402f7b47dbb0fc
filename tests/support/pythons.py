"""The Pythons that the toolkit is tried with: the system's, pyenv's, and newer ones of Debian.

Those of Debian are downloaded once, beside the other packages of tests (``debian``). They need a
newer libc than the system may have: patchelf writes into them where theirs is. So each is a file
that starts as any other does, and ``sys.executable`` names it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import debian
import pytest
from skips import need_program

__all__ = ("OTHERS", "each_other_python", "interpreter")

_SUITES = {"3.13": "trixie", "3.14": "forky", "3.15": "sid"}  #: where Debian has which
#: What a Python needs of its suite: another may have an older one, or none.
_LIBRARIES = (
    *("libbz2-1.0", "libc6", "libexpat1", "libffi8", "liblzma5", "libssl3t64", "libuuid1"),
    *("libsqlite3-0", "libzstd1", "zlib1g"),
)


def _installed() -> list[str]:
    # Those of the system and of pyenv, but for the one that runs this.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*Path("/usr/bin").glob("python3.1[1-9]"), *pyenv.glob("3.1[1-9].*/bin/python3.1[1-9]")]
    own = Path(sys.executable).resolve()
    return sorted((str(path) for path in found if path.resolve() != own), key=_version)


def _version(path: str) -> tuple[int, str]:
    return int(path.rpartition(".")[2]), path


def _of_debian() -> list[str]:
    names = {Path(path).name for path in [*_installed(), Path(sys.executable).resolve()]}
    return [f"Debian's python{one}" for one in _SUITES if f"python{one}" not in names]


OTHERS = [*_installed(), *_of_debian()]
each_other_python = pytest.mark.parametrize("python", OTHERS, ids=lambda name: Path(name).name)


def interpreter(name: str) -> Path:
    """The path of one of ``OTHERS``, downloaded if need be; a skip if it cannot be had."""
    return _download(name.rpartition("python")[2]) if name.startswith("Debian") else Path(name)


@functools.cache
def _download(version: str) -> Path:
    patchelf = need_program("patchelf")
    name = f"python{version}"
    parts = (f"{name}-minimal", f"lib{name}-minimal", f"lib{name}-stdlib")
    root = debian.root(f"whole-{name}", (*parts, *_LIBRARIES), suite=_SUITES[version])
    libraries = root / "usr/lib/x86_64-linux-gnu"
    python = root / "usr/bin" / f"{name}-own"
    with debian.locked():
        if not python.exists():
            partial = python.with_suffix(".partial")
            shutil.copy(root / "usr/bin" / name, partial)
            words = ("--set-interpreter", libraries / "ld-linux-x86-64.so.2", "--force-rpath")
            subprocess.run([patchelf, *words, "--set-rpath", libraries, partial], check=True)
            partial.rename(python)
    return python
