"""The program that runs on a machine of a fleet: it receives the toolkit and supervises a command.

Its source travels on the command line, so that it imports the standard library only. It speaks on
standard output, in lines that begin with ``usdt-fleet`` and a word that only this run knows; all
other lines are the command's. The end of standard input, or a long silence there, ends the command:
whoever asked has gone. Nothing here waits for a reader without hearing standard input.

    need          the machine has no copy of the toolkit; it comes on standard input
    run           the command starts
    alive         the command runs on; nothing else was to be said for a while
    exit STATUS   the command has ended, and its output is complete
    fail REASON   the command cannot be started, or was ended by a silence
    clean N       N copies were removed
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any, NoReturn

__all__ = ("main",)

_GRACE = 1.0  # seconds for a command to end after SIGINT, before SIGKILL
_FAREWELL = 1.0  # seconds for a reader to take what is left once the command has ended
_BLOCK = 65536
_ARRIVAL = 30.0  # seconds without a byte of the toolkit after which it does not come any more
_KEPT = 4  # copies of other versions
_UNUSED = 30 * 86400  # seconds after which a copy goes that no run has used


class _NotStarted(Exception):  # noqa: N818 - it says what is wrong
    """The command cannot be started."""


def main(text: str) -> NoReturn:
    """Serve one request and exit.

    Args:
        text: a JSON object. ``word`` marks our lines; ``digest`` (SHA-256) and ``size`` are
            those of the toolkit; ``command`` is the command, a list of words, and ``printed``
            is true if its results are what it prints, not what it writes to the file of -o;
            ``patience`` is how many seconds standard input may be silent, and ``beat`` how
            many seconds we may be; ``clean`` asks to remove copies instead.
    """
    request = json.loads(text)
    word = request["word"]
    status = 1
    try:
        if request.get("clean"):
            _say(word, f"clean {_clean()}")
            _say(word, "exit 0")
            status = 0
        else:
            path, kept = _received(word, request)
            _say(word, "run")
            app = _unpacked(path, kept)
            argv = [sys.executable, "-I", "-S", str(app), *request["command"]]
            status = _Supervisor(argv, request).run()
            os.close(kept)
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


def _received(word: str, request: dict[str, Any]) -> tuple[Path, int]:
    # Returns the path of the copy, which is asked for if there is none, and its descriptor with a
    # lock: other runs do not remove a copy that is in use.
    digest = request["digest"]
    folder = _cache()
    path = folder / f"usdt-{digest}.pyz"
    if (kept := _opened(path, digest)) < 0:
        _say(word, "need")
        _receive(path, request)
        _prune(folder, path)
        if (kept := _opened(path, digest)) < 0:
            raise _NotStarted(f"{path}: it was changed while it was written")
    os.utime(kept)  # used now
    return path, kept


def _receive(path: Path, request: dict[str, Any]) -> None:
    # Writes the copy that comes on standard input, whole or not at all.
    digest, size = request["digest"], request["size"]
    content = _read(size)
    if hashlib.sha256(content).hexdigest() != digest:
        raise _NotStarted(f"the toolkit has arrived damaged: {size} bytes with another hash")
    partial = path.parent / f".usdt-{digest}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(content)
        partial.replace(path)
    except OSError as err:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise _NotStarted(f"{path.parent}: no copy of the toolkit: {err.strerror}") from err


def _opened(path: Path, digest: str) -> int:
    # A locked descriptor of a file of ours that nobody else can write, with this hash; -1 if it is
    # not one.
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    status = os.fstat(number)
    if stat.S_ISREG(status.st_mode) and _owned(status):
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with os.fdopen(number, "rb", closefd=False) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                return number
    os.close(number)
    return -1


def _unpacked(path: Path, kept: int) -> Path:
    # The folder beside the copy that has its files. Python keeps bytecode there, for each of its
    # versions, so that the next command starts in a quarter of the time. The copy itself, if it is
    # no archive or there is no room.
    folder = path.with_suffix("")
    partial = path.parent / f".{folder.name}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        with os.fdopen(kept, "rb", closefd=False) as file, zipfile.ZipFile(file) as archive:
            # Before it is looked at: another run may rename its own meanwhile.
            there = os.path.lexists(folder)
            if not _is_whole(folder, archive):
                if there:
                    shutil.rmtree(folder, ignore_errors=True)
                partial.mkdir(0o700)
                archive.extractall(partial)
                with contextlib.suppress(OSError):  # another run was faster
                    partial.rename(folder)
            if _is_whole(folder, archive):
                return folder
    except (OSError, zipfile.BadZipFile):
        pass
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return path


def _is_whole(folder: Path, archive: zipfile.ZipFile) -> bool:
    # Whether a folder of ours that nobody else can write has all files of the archive, undamaged.
    if not _is_ours(folder):
        return False
    try:
        return all(
            zlib.crc32((folder / entry.filename).read_bytes()) == entry.CRC
            for entry in archive.infolist()
        )
    except OSError:
        return False


def _read(size: int) -> bytes:
    parts = []
    poller = select.poll()
    poller.register(0, select.POLLIN)
    while size:
        part = os.read(0, min(size, _BLOCK)) if poller.poll(_ARRIVAL * 1000) else b""
        if not part:
            raise _NotStarted("the connection closed before the toolkit had arrived")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _prune(folder: Path, newest: Path) -> None:
    # Removes copies that nobody has used for long, and all but the few that were used last.
    used: list[tuple[float, Path]] = []
    for path in [*folder.glob("usdt-*.pyz"), *folder.glob(".usdt-*")]:
        with contextlib.suppress(OSError):
            if path != newest:
                used.append((path.lstat().st_mtime, path))
    long_ago = time.time() - _UNUSED
    for number, (when, path) in enumerate(sorted(used, reverse=True)):
        if when < long_ago or number >= _KEPT:
            with contextlib.suppress(OSError):
                _remove_unused(path)


def _remove_unused(path: Path) -> None:
    # Raises an OSError if another run holds the lock.
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path)
    finally:
        os.close(number)


def _remove(path: Path) -> None:
    # The folder of a copy goes first: no run is left with a folder that is not known by its copy.
    shutil.rmtree(path.with_suffix("") if path.suffix == ".pyz" else path, ignore_errors=True)
    path.unlink(missing_ok=True)


def _clean() -> int:
    # Removes all copies, and folders that are empty then; returns the number of copies.
    removed = 0
    for folder in filter(_is_ours, _folders()):
        for path in [*folder.glob("usdt-*"), *folder.glob(".usdt-*")]:
            _remove(path)
            removed += path.suffix == ".pyz"
        with contextlib.suppress(OSError):
            folder.rmdir()
    return removed


# ------------------------------------------------------------ the command


class _Supervisor:
    # The command, and the way of its results to standard output: through a pipe of their own,
    # because what a program that it starts prints must not be among them.
    def __init__(self, argv: list[str], request: dict[str, Any]) -> None:
        self._word: str = request["word"]
        self._patience: float = request["patience"]
        self._beat: float = request["beat"]
        self._results, to_us = os.pipe()
        printed = request.get("printed", False)
        self._child = subprocess.Popen(
            argv if printed else [*argv, "-o", f"/dev/fd/{to_us}"],
            stdin=subprocess.DEVNULL,
            stdout=to_us if printed else subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=() if printed else (to_us,),
        )
        os.close(to_us)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._child.send_signal(signal.SIGINT))
        self._ended = os.pidfd_open(self._child.pid)
        os.set_blocking(1, False)
        os.set_blocking(self._results, False)
        self._spoken = time.monotonic()
        self._waiting = b""  # for the reader
        self._whole = True  # whether the last line that was read is whole
        self._open = True  # whether results may come
        self._gone = False  # whether nobody reads
        self._patient = True  # whether a slow reader is waited for

    def run(self) -> int:
        # Runs the command until it ends, or standard input does or is silent for too long; returns
        # its status as in a shell, which is the last line.
        try:
            if not self._until_end(self._patience):
                self._child.send_signal(signal.SIGINT)
                if not self._until_end(_GRACE, heard=False):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(self._child.pid, signal.SIGKILL)
            number = self._child.wait()
            status = number if number >= 0 else 128 - number
            self._pass_on_the_rest()
            self._waiting += b"" if self._whole else b"\n"
            if not self._patient:
                reason = f"it ended early: nothing was heard for {self._patience:g} s"
                self._waiting += f"usdt-fleet {self._word} fail {reason}\n".encode()
            self._waiting += f"usdt-fleet {self._word} exit {status}\n".encode()
            self._open = False
            self._pass_on_the_rest()
        finally:
            os.close(self._ended)
            os.close(self._results)
        return status

    def _until_end(self, seconds: float, *, heard: bool = True) -> bool:
        # Passes results on until the command has ended. Returns False if before that the seconds
        # have passed, or the reader has gone. If standard input is heard, each byte there starts
        # the seconds anew, and its end ends them.
        due = time.monotonic() + seconds
        left = seconds
        while left > 0:
            left = due - time.monotonic()
            # A last look when they have passed: a byte may have come while we were held up.
            wait = max(0.0, min(left, self._beat))
            ready = self._ready(wait, self._ended, *((0,) if heard else ()))
            self._pass_on(ready)
            if self._ended in ready:
                return True
            if 0 in ready:
                if not os.read(0, _BLOCK):
                    return False
                left = seconds
                due = time.monotonic() + left
            if self._gone and heard:
                return False
            if time.monotonic() > self._spoken + self._beat and self._whole and not self._waiting:
                self._waiting = f"usdt-fleet {self._word} alive\n".encode()
        if heard:  # after such a silence a reader that does not take all at once has gone
            self._patient = False
            self._pass_on(set())
        return False

    def _ready(self, seconds: float, *heard: int) -> set[int]:
        # Waits until there is something to do; returns the descriptors.
        poller = select.poll()
        for number in heard:
            poller.register(number, select.POLLIN)
        if self._waiting and not self._gone:
            poller.register(1, select.POLLOUT)
        elif self._open:
            poller.register(self._results, select.POLLIN)
        return {number for number, _ in poller.poll(seconds * 1000)}

    def _pass_on(self, ready: set[int]) -> None:
        # Reads a block of results, and writes what the reader takes of it.
        if self._results in ready:
            self._waiting = os.read(self._results, _BLOCK)
            self._open = bool(self._waiting)
            self._whole = self._waiting.endswith(b"\n") if self._open else self._whole
        if self._waiting and not self._gone:
            try:
                self._waiting = self._waiting[os.write(1, self._waiting) :]
                self._spoken = time.monotonic()
            except BlockingIOError:
                pass  # the reader is slow
            except OSError:
                self._gone = True
            self._gone = self._gone or bool(self._waiting and not self._patient)

    def _pass_on_the_rest(self) -> None:
        # Nothing is cut as long as somebody is there, however slowly it reads. A program that the
        # command has left behind may keep the pipe open: results that are not there do not count.
        due = time.monotonic() + self._patience
        heard: tuple[int, ...] = (0,)
        while not self._gone and (left := due - time.monotonic()) > 0:
            ready = self._ready(left, *heard) if self._waiting else self._ready(0)
            if not (self._waiting or self._results in ready):
                return
            self._pass_on(ready)
            if 0 in ready:
                heard = heard if os.read(0, _BLOCK) else ()
                due = time.monotonic() + (self._patience if heard else _FAREWELL)


if __name__ == "__main__":
    import base64  # the request comes as a word without quotes

    main(base64.b64decode(sys.argv[2]).decode())
