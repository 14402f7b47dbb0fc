"""Processes for tests to look at: started, waited for, and cleaned up."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from usdt.base.errors import TargetError
from usdt.procfs.mapped_files import executable_of, mapped_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = (
    "as_nobody",
    "command_lines",
    "copied_sleep",
    "descendants",
    "libc_of",
    "open_folder",
    "running",
    "sleeps",
    "system_libc",
    "until",
)

NOBODY = 65534


def until(condition: Callable[[], object], what: object, seconds: float = 100) -> None:
    """Wait for something another process does; fail saying what did not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds} s in vain for {what}")
        time.sleep(0.002)


def command_lines() -> Iterator[tuple[int, bytes]]:
    """Every process with its command line; those that end meanwhile are left out."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - glob() looks at each, which may have ended
        if name.isdigit():
            with contextlib.suppress(OSError):
                yield int(name), Path(f"/proc/{name}/cmdline").read_bytes()


def descendants(pid: int) -> set[int]:
    """The children of a process, theirs and so on; none where the kernel does not list them."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop()) - found
        found |= children
        waiting += children
    return found


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    # Before each test: pathlib takes three times as long.
    with contextlib.suppress(OSError):  # ended meanwhile, or without CONFIG_PROC_CHILDREN
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{thread}/children") as file:  # noqa: PTH123
                found.update(map(int, file.read().split()))
    return found


@contextlib.contextmanager
def running(*argv: str | Path, program: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A process, killed at the end; with ``program``, once a file of that name waits for us.

    Right after exec /proc/PID/exe is the new program while nothing of it is mapped yet.
    """
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if program:
            until(lambda: sleeps(child.pid, program), f"{argv} to execute {program}")
        yield child
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):  # not communicate(): a grandchild may hold them
            if pipe:
                pipe.close()


def libc_of(pid: int) -> Path:
    """The libc that a process runs with."""
    paths = [Path(file.path) for file in mapped_files(pid)]
    return next(path for path in paths if path.name.startswith("libc.so"))


def system_libc() -> Path:
    """The libc that programs of the system run with; this Python may have brought its own."""
    with running("cat", program="cat") as child:
        return libc_of(child.pid)


def sleeps(pid: int, program: str) -> bool:
    """Whether a process runs a program of that name and waits for something."""
    try:
        found = executable_of(pid)
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, TargetError):
        return False
    return found is not None and Path(found.path).name == program and state == "S"


def copied_sleep(path: Path) -> Path:
    """A program of our own that can be deleted and replaced: sleep(1) under another name."""
    source = shutil.which("sleep")
    assert source
    shutil.copy(source, path)
    path.chmod(0o755)
    return path


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user may read; pytest's are their owner's alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        yield folder


def as_nobody(question: Callable[[], object]) -> Any:
    """The answer to a question asked by another user without any privilege, through JSON."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 and newer warn if a library has started threads: the child does not touch it.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            answer = json.dumps(question())
        except BaseException as err:  # noqa: BLE001 - told to the test, which cannot see it
            answer = json.dumps(f"{type(err).__name__}: {err}")
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(pid, 0)
    return json.loads(answer)
