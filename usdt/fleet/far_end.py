"""The program that runs on a machine of a fleet: it receives the toolkit and supervises a command.

Its source travels on the command line, so that it imports the standard library only. It speaks on
standard output, in lines that begin with ``usdt-fleet`` and a word that only this run knows; all
other lines are the command's. The end of standard input, or a long silence there, ends the command:
whoever asked has gone.

    need          the machine has no copy of the toolkit; it comes on standard input
    run           the command starts
    exit STATUS   the command has ended, and its output is complete
    fail REASON   the command cannot be started
    clean N       N copies were removed
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

__all__ = ("main",)

_GRACE = 1.0  # seconds for a command to end after SIGINT, before SIGKILL
_BLOCK = 65536


class _NotStarted(Exception):  # noqa: N818 - it says what is wrong
    """The command cannot be started."""


def main(text: str) -> NoReturn:
    """Serve one request and exit.

    Args:
        text: a JSON object. ``word`` marks our lines; ``digest`` (SHA-256) and ``size`` are
            those of the toolkit; ``command`` is the command, a list of words; ``patience``
            is how many seconds standard input may be silent; ``clean`` asks to remove copies
            instead.
    """
    request = json.loads(text)
    word = request["word"]
    status = 1
    try:
        if request.get("clean"):
            _say(word, f"clean {_clean()}")
            status = 0
        else:
            path = _received(word, request)
            _say(word, "run")
            argv = [sys.executable, "-I", "-S", str(path), *request["command"]]
            status = _supervised(argv, request["patience"])
        _say(word, f"exit {status}")
    except _NotStarted as err:
        _say(word, f"fail {err}")
    except OSError as err:
        _say(word, f"fail {err.filename or 'the machine'}: {err.strerror}")
    # What is left of standard output is nobody's: no flush at exit that may fail.
    os._exit(status if 0 <= status < 256 else 1)


def _say(word: str, text: str) -> None:
    # A reader that has gone needs no answer.
    with contextlib.suppress(OSError):
        os.write(1, f"usdt-fleet {word} {text}\n".encode("utf-8", "backslashreplace"))


# ------------------------------------------------------------ the copy of the toolkit


def _folders() -> list[Path]:
    # The caches that a copy may be in, the best first.
    found = []
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path("~").expanduser()
    if base.startswith("/"):
        found.append(Path(base) / "usdt-fleet")
    elif home.is_absolute() and _is_ours(home):  # sudo may leave us the home of another user
        found.append(home / ".cache" / "usdt-fleet")
    return [*found, Path("/tmp") / f"usdt-fleet-{os.geteuid()}"]  # noqa: S108 - its owner is checked


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and _owned(status)


def _owned(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _cache() -> Path:
    # A folder that only this user can write to.
    reasons = []
    for folder in _folders():
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as err:
            reasons.append(f"{folder}: {err.strerror}")
            continue
        if _is_ours(folder):
            return folder
        reasons.append(f"{folder}: belongs to another user, or others can write to it")
    raise _NotStarted("no folder for the toolkit: " + "; ".join(reasons))


def _received(word: str, request: dict[str, Any]) -> Path:
    # Returns the path of the copy, which is asked for if there is none.
    digest, size = request["digest"], request["size"]
    folder = _cache()
    path = folder / f"usdt-{digest}.pyz"
    if _digest_of(path) == digest:
        return path
    _say(word, "need")
    content = _read(size)
    if hashlib.sha256(content).hexdigest() != digest:
        raise _NotStarted(f"the toolkit has arrived damaged: {size} bytes with another hash")
    partial = folder / f".usdt-{digest}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(content)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    return path


def _digest_of(path: Path) -> str:
    # The hash of a file of ours that nobody else can write; "" if it is not one.
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(number, "rb") as file:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or not _owned(status):
            return ""
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(size: int) -> bytes:
    parts = []
    while size:
        part = os.read(0, min(size, _BLOCK))
        if not part:
            raise _NotStarted("the connection closed before the toolkit had arrived")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _clean() -> int:
    # Removes all copies, and folders that are empty then; returns the number of copies.
    removed = 0
    for folder in filter(_is_ours, _folders()):
        for path in [*folder.glob("usdt-*.pyz"), *folder.glob(".usdt-*")]:
            path.unlink(missing_ok=True)
            removed += path.suffix == ".pyz"
        with contextlib.suppress(OSError):
            folder.rmdir()
    return removed


# ------------------------------------------------------------ the command


def _supervised(argv: list[str], patience: float) -> int:
    # Runs the command until it ends, or standard input does or is silent for too long; returns its
    # status as in a shell. Its results come through a pipe: what a program that it starts prints
    # must not be among them.
    results, to_us = os.pipe()
    child = subprocess.Popen(
        [*argv, "-o", f"/dev/fd/{to_us}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(to_us,),
    )
    os.close(to_us)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: child.send_signal(signal.SIGINT))
    ended = os.pidfd_open(child.pid)
    try:
        if not _until_end(results, ended, patience):
            child.send_signal(signal.SIGINT)
            if not _until_end(results, ended, _GRACE, heard=False):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        status = child.wait()
        _pass_on(results)
    finally:
        os.close(ended)
        os.close(results)
    return status if status >= 0 else 128 - status


def _until_end(results: int, ended: int, seconds: float, *, heard: bool = True) -> bool:
    # Passes results on until the process has ended. Returns False if before that the seconds have
    # passed. If standard input is heard, each byte there starts them anew, and its end ends them.
    poller = select.poll()
    for number in (results, ended, *((0,) if heard else ())):
        poller.register(number, select.POLLIN)
    due = time.monotonic() + seconds
    while (left := due - time.monotonic()) > 0:
        ready = {number for number, _ in poller.poll(left * 1000)}
        if results in ready and not _passed_on(results):
            poller.unregister(results)
        if ended in ready:
            return True
        if 0 in ready:
            due = time.monotonic() + seconds if os.read(0, _BLOCK) else 0.0
    return False


def _passed_on(results: int) -> bool:
    # Writes a block of results; returns False at their end.
    data = memoryview(os.read(results, _BLOCK))
    found = bool(data)
    while data:
        data = data[os.write(1, data) :]
    return found


def _pass_on(results: int) -> None:
    # Writes what is left; a program that the command has left behind may keep the pipe open.
    os.set_blocking(results, False)
    with contextlib.suppress(BlockingIOError):
        while _passed_on(results):
            pass


if __name__ == "__main__":
    import base64  # the request comes as a word without quotes

    main(base64.b64decode(sys.argv[2]).decode())
