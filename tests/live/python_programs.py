"""Python programs whose stacks are known, and the interpreters of this machine that run them."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import subprocess
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import debian
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = (
    "NEWEST",
    "PYTHONS",
    "each_installed_python",
    "each_python",
    "interpreter",
    "running",
    "shown",
    "written",
)


def _pythons() -> list[str]:
    # Of each version the one of the system and one of pyenv: the first is often without a
    # libpython, the second with one.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*Path("/usr/bin").glob("python3.1[1-3]"), *pyenv.glob("*/bin/python3.1[1-3]")]
    return sorted(map(str, found))


PYTHONS = _pythons()
NEWEST = "python3.14 of Debian forky"
each_installed_python = pytest.mark.parametrize(
    "python",
    PYTHONS or [pytest.param("", marks=pytest.mark.skip("needs CPython 3.11 to 3.13"))],
    indirect=True,
)
each_python = pytest.mark.parametrize("python", [*PYTHONS, NEWEST], indirect=True)


def interpreter(name: str) -> str:
    """The path of a Python of :data:`each_python`."""
    return name if name != NEWEST else str(_python_of_another_suite())


@functools.cache
def _python_of_another_suite() -> Path:
    # It needs a newer libc than the system has. So the loader of that libc starts it: the
    # process has the file of the loader as /proc/PID/exe, and Python as a mapped file.
    packages = ("python3.14-minimal", "libpython3.14-minimal", "libpython3.14-stdlib")
    root = debian.root("python3.14", (*packages, "libc6", "libexpat1", "zlib1g"), suite="forky")
    libraries = root / "usr/lib/x86_64-linux-gnu"
    script = debian.cache() / "roots" / "python3.14"
    script.write_text(
        f"#!/bin/sh\nPYTHONHOME={root}/usr exec {libraries}/ld-linux-x86-64.so.2"
        f' --library-path {libraries} {root}/usr/bin/python3.14 "$@"\n'
    )
    script.chmod(0o755)
    return script


def written(folder: Path, program: str) -> Path:
    """A program that tells by its first line of output that it has begun to work."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    return path


@contextlib.contextmanager
def running(*words: object) -> Iterator[tuple[int, str]]:
    """Run a Python program; the value is its process ID and the line that it has written."""
    with subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert select.select([process.stdout], [], [], 100)[0], "the program does not begin"
            yield process.pid, process.stdout.readline().decode()
        finally:
            process.kill()


def shown(stack: object) -> list[tuple[str, int]]:
    """Function and line of each frame of a stack in JSON."""
    assert isinstance(stack, list), stack
    return [(frame["symbol"], frame["line"]) for frame in stack]
