"""Commands to a Java virtual machine, by HotSpot's attach protocol (as ``jcmd`` uses it).

A virtual machine that nobody has asked yet is told to listen: a file ``/tmp/.attach_pidN`` and
SIGQUIT. It then listens at the socket ``/tmp/.java_pidN``; both are in its own root, and N is its
ID in its own PID namespace. SIGQUIT would kill any other process: it is sent only to one that
has a handler for it and has mapped HotSpot's library.

Any user can create such files in /tmp. A socket is used only if it belongs to the user of the
process or to root; no symbolic link is followed. Every wait has an end.
"""

# Descriptors and dir_fd, which pathlib does not support:
# ruff: noqa: PTH116

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import time
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.procfs.access import explain_errors, open_tmp
from usdt.procfs.namespaces import namespace_pids
from usdt.procfs.process import catches, describe_process, is_stopped, open_pidfd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.runtimes.hotspot import HotSpot

__all__ = ("run_jcmd",)

_PAUSE = 0.005  # seconds between two looks for the socket
_MAX_ANSWER = 1 << 20
_ARGUMENTS = 3  # of every command; empty ones are sent, too


def run_jcmd(machine: HotSpot, command: str, *, timeout: float) -> str:
    """Run a diagnostic command in a virtual machine; return its output.

    Args:
        machine: the virtual machine.
        command: as jcmd takes it: ``"Compiler.perfmap"``.
        timeout: the most seconds that all of this takes.

    Raises:
        TargetError: it cannot be asked, does not answer in time, or refuses.
    """
    deadline = time.monotonic() + timeout
    who = f"{describe_process(machine.pid)}: {command}"
    try:
        with explain_errors(machine.pid):
            folder = open_tmp(machine.pid)
        try:
            with _connected(machine, folder, deadline) as connection:
                return _answer(connection, command, deadline)
        finally:
            os.close(folder)
    except TimeoutError as err:
        raise TargetError(f"{who}: no answer within {timeout:g} s") from err
    except OSError as err:
        raise TargetError(f"{who}: {err.strerror or err}") from err
    except TargetError as err:
        raise TargetError(f"{who}: {err}") from err


@contextlib.contextmanager
def _connected(machine: HotSpot, folder: int, deadline: float) -> Iterator[socket.socket]:
    name = f".java_pid{namespace_pids(machine.pid)[-1]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        if not _connect(connection, machine.pid, folder, name, deadline):
            with _told_to_listen(machine, folder):
                while not _connect(connection, machine.pid, folder, name, deadline):
                    if time.monotonic() >= deadline:
                        raise TimeoutError
                    time.sleep(_PAUSE)
        yield connection


def _connect(connection: socket.socket, pid: int, folder: int, name: str, deadline: float) -> bool:
    # Whether it listens. The path of a descriptor leads to the very file that was looked at.
    try:
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return False
    try:
        status = os.fstat(found)
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid not in {0, _owner(pid)}:
            raise TargetError(f"{name} in its /tmp is not its socket (uid {status.st_uid})")
        connection.settimeout(_left(deadline))
        connection.connect(f"/proc/self/fd/{found}")
    except ConnectionRefusedError:
        return False  # left behind by another process, or not yet listening
    finally:
        os.close(found)
    return True


@contextlib.contextmanager
def _told_to_listen(machine: HotSpot, folder: int) -> Iterator[None]:
    pid = machine.pid
    disabled = machine.options(["DisableAttachMechanism"]).get("DisableAttachMechanism")
    if disabled:
        raise TargetError("it runs with -XX:+DisableAttachMechanism")
    name = f".attach_pid{namespace_pids(pid)[-1]}"
    # What was left behind may be of another user, whom the virtual machine would not obey.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        if os.geteuid() != _owner(pid):
            os.fchown(file, _owner(pid), -1)
        _send_quit(pid)
        yield
    finally:
        os.close(file)
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)


def _send_quit(pid: int) -> None:
    # The descriptor excludes another process of the same ID; only then is it looked at.
    process = open_pidfd(pid)
    try:
        if is_stopped(pid):
            raise TargetError("it is stopped")
        if not catches(pid, signal.SIGQUIT):
            raise TargetError("it does not handle SIGQUIT (java -Xrs, or not yet started)")
        signal.pidfd_send_signal(process, signal.SIGQUIT)
    finally:
        os.close(process)


def _answer(connection: socket.socket, command: str, deadline: float) -> str:
    # Protocol 1: version, command, arguments; the answer is a status line and text.
    words = ["1", "jcmd", command, *[""] * (_ARGUMENTS - 1)]
    connection.settimeout(_left(deadline))
    connection.sendall(b"".join(word.encode() + b"\0" for word in words))
    data = b""
    while len(data) < _MAX_ANSWER:
        connection.settimeout(_left(deadline))
        piece = connection.recv(1 << 16)
        if not piece:
            break
        data += piece
    status, _, text = data.decode("utf-8", "replace").partition("\n")
    if status.strip() != "0":
        reason = " ".join(text.split()) or "it closed the connection"
        raise TargetError(f"refused: {reason[:200]}")
    return text


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _owner(pid: int) -> int:
    return os.stat(f"/proc/{pid}").st_uid
