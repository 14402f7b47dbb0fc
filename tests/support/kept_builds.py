"""Programs of compilers, made once for all tests, workers, runs and checkouts.

Each is made and kept in a folder of its own under
``${XDG_CACHE_HOME:-~/.cache}/usdt-toolkit/builds``, with its sources: debug information names files
that are there. Which one a test gets goes by the words of the command, by the contents of the files
in the test's folder, by the compiler and by the packages that are installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("KEPT", "compile_in")

#: By the environment when this is imported: tests change it for what they start.
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "usdt-toolkit/builds"
_UNUSED = 30 * 86_400  # seconds after which a build goes
_TIMEOUT = 180.0
_PACKAGES = Path("/var/lib/dpkg/status")  # headers and libraries change with it


def compile_in(
    folder: Path, words: Sequence[str | Path], *, check: bool = True, kept: Path | None = KEPT
) -> subprocess.CompletedProcess[str]:
    """Run a compiler in a folder, or copy there what it made of the same files before.

    Words may name the folder or files in it. Debug information names another folder, where all
    files are, too: a test that looks for the names or takes files away compiles for itself, by
    ``kept=None``. A command that fails or says something is run anew each time, and so is one that
    gives a program the path of a library.

    Raises:
        subprocess.CalledProcessError: the command failed, and ``check`` is set.
    """
    command = [str(word) for word in words]
    if kept is None or _names_libraries(folder, command):
        return _run(command, folder, check=check)
    inputs = {str(path.relative_to(folder)): path.read_bytes() for path in _files(folder)}
    place = kept / _key(folder, command, inputs)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _run(command, folder, check=check)
    with _locked(place):
        made = place / "made"
        if not (place / "complete").exists():
            _remove_unused(kept)
            shutil.rmtree(made, ignore_errors=True)
            shutil.copytree(folder, made)
            there = [word.replace(str(folder), str(made)) for word in command]
            done = _run(there, made, check=False)
            if done.returncode or done.stdout or done.stderr:
                return _run(command, folder, check=check)
        (place / "complete").touch()
        for path in _files(made):
            name = str(path.relative_to(made))
            if inputs.get(name) != path.read_bytes():
                shutil.copy(path, folder / name)
    return subprocess.CompletedProcess(command, 0, "", "")


def _names_libraries(folder: Path, command: Sequence[str]) -> bool:
    # Programs would load those of another folder.
    paths = [word for word in command if str(folder) in word]
    return any("-rpath" in path or (".so" in path and Path(path).exists()) for path in paths)


def _run(command: Sequence[str], folder: Path, *, check: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT, check=check
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _key(folder: Path, command: Sequence[str], inputs: dict[str, bytes]) -> str:
    there = [word.replace(str(folder), "") for word in command]
    names = [(name, hashlib.sha256(content).hexdigest()) for name, content in inputs.items()]
    return hashlib.sha256(repr((there, names, _tool(command[0]))).encode()).hexdigest()[:32]


@functools.cache
def _tool(name: str) -> list[tuple[str, int, int]]:
    # A compiler, and what it reads that is no file of ours.
    paths = [Path(shutil.which(name) or name).resolve(), _PACKAGES]
    found = [(path, path.stat()) for path in paths if path.exists()]
    return [(str(path), status.st_size, status.st_mtime_ns) for path, status in found]


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    with (place / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_unused(kept: Path) -> None:
    for place in kept.iterdir():
        with contextlib.suppress(FileNotFoundError):  # others look, too
            if time.time() - (place / "complete").stat().st_mtime > _UNUSED:
                shutil.rmtree(place, ignore_errors=True)
