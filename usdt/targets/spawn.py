"""Start a command, hold it before its first instruction, and release it.

Probes must be attached before the first instruction, and to exactly the file that will run. So the
child waits on a pipe until its parent traces it, then executes the command. The kernel stops it at
the new program's first instruction (PTRACE_EVENT_EXEC). There, /proc/PID/exe and /proc/PID/maps
already show the program and its dynamic loader, but not yet the libraries (see
:func:`usdt.targets.search.libraries.dependencies`).

PTRACE_SEIZE (Linux 3.4) is used instead of PTRACE_TRACEME because its options apply from the start:
with PTRACE_O_EXITKILL no stopped command outlives its tracer. By ptrace(2), the thread that spawned
a command must also release it; if that thread ends earlier, the command is killed.

If ptrace is refused (seccomp in containers, Yama's ptrace_scope 3) or the program is set-user-ID,
the child waits on the pipe before it executes the command: ``hold_method`` is "pipe", and the
program is the file that PATH and ``#!`` resolve to. A traced process that executes a program with
set-user-ID, set-group-ID or file capabilities gets none of them unless its tracer has
CAP_SYS_PTRACE (cap_bprm_creds_from_file() in security/commoncap.c). Such a program is therefore
never traced by ptrace here.

The command ends with the tracer: close() sends it SIGTERM, and so does the kernel if the tracer is
killed (PR_SET_PDEATHSIG). The kernel means the thread that started the command, so only commands of
the main thread ask for this signal. It sends none to a program that it gives other privileges.
"""

# Importing pathlib takes 6 ms:
# ruff: noqa: PTH116

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import threading
import time
import warnings
from typing import TYPE_CHECKING, Literal, NoReturn

from usdt.base.closeable import Closeable
from usdt.base.errors import ElfError, SyscallError, TargetError
from usdt.base.frozen import frozen
from usdt.base.interrupts import signals
from usdt.engine.run.options import split_command
from usdt.procfs.mapped_files import MappedFile, executable_of, file_identity
from usdt.procfs.process import open_pidfd
from usdt.targets.command_user import find_user
from usdt.targets.search.executables import find_program, program_chain
from usdt.targets.search.libraries import dependencies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from usdt.targets.command_user import CommandUser

__all__ = ("TERMINATION_SECONDS", "StoppedCommand")

TERMINATION_SECONDS = 2.0  # time that a command has to end after SIGTERM

# include/uapi/linux/ptrace.h
PTRACE_CONT = 7
PTRACE_DETACH = 17
PTRACE_SEIZE = 0x4206
PTRACE_EVENT_EXEC = 4
PTRACE_EVENT_STOP = 128
PTRACE_O_TRACEEXEC = 1 << PTRACE_EVENT_EXEC
PTRACE_O_EXITKILL = 1 << 20  # Linux 3.8

_MAX_GUESSES = 64  # tokens that are looked up as programs
_NO_USER = 1 << 16  # in place of an errno: the child could not become the user
_NOT_FOUND = 127  # the exit code of shells for a command that cannot be executed
# Signals that Python ignores or handles; reset to their default in the command.
_DEFAULTS = (signals.SIGPIPE, signals.SIGXFSZ, signals.SIGINT)


class StoppedCommand(Closeable):
    """A command, stopped until :meth:`release`; a context manager.

    Leaving the context kills a command that was not released, and ends a released one: see
    :meth:`end`.

    Attributes:
        argv: the command and its arguments.
        pid: its process ID.
        hold_method: "ptrace" (held at its first instruction) or "pipe" (before it is executed).
        program: the file that runs: read from the process ("ptrace"), or found as the kernel will
            find it ("pipe").
        exit_code: None until :meth:`poll` or :meth:`wait` has seen its end; 128 + N for signal N.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        use_ptrace: bool = True,
    ) -> None:
        """Start a command and stop it.

        Args:
            argv: the command and its arguments; the command is searched on PATH if it has no slash.
            environment: its environment; None for that of this process.
            user: the user that it runs as, by name or number; None for that of this process.
            use_ptrace: False to hold it with the pipe.

        Raises:
            TargetError: the command or the user does not exist, or it cannot be executed.
        """
        self.argv = tuple(argv)
        self._user = None if user is None else find_user(user)
        self.exit_code: int | None = None
        self.hold_method: Literal["ptrace", "pipe"] = "pipe"
        self._environment = dict(os.environ if environment is None else environment)
        if self._user is not None:
            self._environment = self._user.environment(self._environment)
        self._path = _executable(self.argv, self._environment)
        self._chain = program_chain(self._path, environment=self._environment)
        self._files: list[str] | None = None
        self._stopped = True
        self._termination_sent = False
        self._pidfd = self._go = self._status = -1
        self.pid = self._fork()
        try:
            if use_ptrace and not _gains_privileges(self._chain) and _seize(self.pid):
                self.hold_method = "ptrace"
                self._send_go()
                # The kernel executes it meanwhile. What is wrong with a file is told in time.
                with contextlib.suppress(TargetError):
                    self.files()
                self._wait_for_exec()
            self._pidfd = _pidfd(self.pid)
            self.program = self._program()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Return a pidfd, readable after the command's end; -1 before Linux 5.3 or once closed."""
        return self._pidfd

    @property
    def stopped(self) -> bool:
        """True while it waits for :meth:`release`."""
        return self._stopped

    def files(self) -> list[str]:
        """Return the files that it will map at its start: program, interpreters, libraries.

        Files that it loads later (dlopen, another exec) are not included: see
        :class:`usdt.procfs.mapped_files.MapsPoller`.
        """
        if self._files is None:
            self._files = _with_libraries(self._chain, self._environment)
        return self._files

    def guess_programs(self) -> list[str]:
        """Return the files of programs that its arguments name, as for ``sh -c`` or ``env``.

        This is a guess at the programs that the command will execute: arguments are split as by a
        shell, and every token that names a program counts.
        """
        found: dict[str, None] = {}
        for word in _inner_words(self.argv[1:])[:_MAX_GUESSES]:
            path = find_program(word, environment=self._environment)
            if path is not None:
                with contextlib.suppress(TargetError):  # a missing interpreter
                    chain = program_chain(path, environment=self._environment)
                    found.update(dict.fromkeys(_with_libraries(chain, self._environment)))
        return list(found)

    def release(self) -> None:
        """Let the command run; idempotent.

        Raises:
            TargetError: it was held with the pipe, and the kernel refuses to execute it.
        """
        if not self._stopped:
            return
        self._stopped = False
        if self.hold_method == "ptrace":
            _detach(self.pid)
            return
        self._send_go()
        self._check_exec()

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs or is stopped."""
        if self.exit_code is None:
            self._reap(os.WNOHANG)
        return self.exit_code

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait at most ``timeout`` seconds for its end; return the exit code, or None at timeout.

        A command that was not released does not end.
        """
        if timeout is None:
            while self.exit_code is None:
                self._reap(0)
            return self.exit_code
        deadline = time.monotonic() + timeout
        while self.poll() is None and (left := deadline - time.monotonic()) > 0:
            if self._pidfd != -1:
                select.select([self._pidfd], [], [], left)
            else:
                time.sleep(min(left, 0.01))
        return self.exit_code

    def kill(self, number: int = signals.SIGKILL) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def end(self) -> int | None:
        """Send it SIGTERM, once; return its exit code, or None if it has not ended in time."""
        if self.poll() is None and not self._termination_sent:
            self._termination_sent = True
            self.kill(signals.SIGTERM)
            self.wait(TERMINATION_SECONDS)
        return self.exit_code

    def close(self) -> None:
        """Kill it if it was not released, else end it; close descriptors. Idempotent."""
        if self._stopped:
            self._stopped = False
            self.kill()
            self.wait()
        self.end()
        for name in ("_pidfd", "_go", "_status"):
            number = getattr(self, name)
            setattr(self, name, -1)  # the number may be reused at once
            if number != -1:
                os.close(number)

    def _fork(self) -> int:
        from usdt.bpf._syscall import die_with_parent  # noqa: PLC0415 - loads libc, for -c only

        in_main_thread = threading.get_native_id() == os.getpid()
        bind = die_with_parent if in_main_thread else lambda _number: None
        go_read, self._go = os.pipe()
        self._status, status_write = os.pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns about threads; the child does nothing that needs their locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            os.close(self._go)  # otherwise the child would not notice its parent's end
            start = _Start(self._chain, self.argv, self._environment, self._user, bind)
            _child(start, go_read, status_write)
        os.close(go_read)
        os.close(status_write)
        return pid

    def _send_go(self) -> None:
        number, self._go = self._go, -1
        try:
            os.write(number, b"x")
        except BrokenPipeError:
            pass  # killed while it waited
        finally:
            os.close(number)

    def _check_exec(self) -> None:
        # The child's end of the pipe closes at exec; if exec fails, it writes its errno first.
        number, self._status = self._status, -1
        with os.fdopen(number, "rb") as file:
            reason = file.read(16)
        if reason:
            self.wait()
            raise TargetError(_refused(self._path, int(reason), self._user))

    def _wait_for_exec(self) -> None:
        while True:
            status = os.waitpid(self.pid, os.WUNTRACED)[1]
            if not os.WIFSTOPPED(status):
                self._ended(status)
                self._check_exec()
                raise TargetError(f"{self._path}: ended before it was executed")
            event = status >> 16
            if event == PTRACE_EVENT_EXEC:
                break
            # Pass on a pending signal; continue after any other stop.
            number = 0 if event == PTRACE_EVENT_STOP else os.WSTOPSIG(status)
            _ptrace(PTRACE_CONT, self.pid, number)
        self._check_exec()

    def _program(self) -> MappedFile:
        if self.hold_method == "ptrace":
            program = executable_of(self.pid)
            if program is not None:
                return program
        path = self._chain[-1]
        device, inode = file_identity(path)
        return MappedFile(os.path.realpath(path), path, device, inode, deleted=False)

    def _reap(self, flags: int) -> None:
        try:
            pid, status = os.waitpid(self.pid, flags)
        except ChildProcessError:
            self.exit_code = _NOT_FOUND  # reaped by someone else: the code is unknown
            return
        if pid and not os.WIFSTOPPED(status):
            self._ended(status)

    def _ended(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self.exit_code = code if code >= 0 else 128 - code
        self._stopped = False


def _with_libraries(chain: list[str], environment: dict[str, str]) -> list[str]:
    # The files of a chain of interpreters that are mapped when the first is executed.
    found: dict[str, None] = {}
    for path in dict.fromkeys(chain[1:] or chain):
        found[path] = None
        with contextlib.suppress(ElfError):  # an interpreter that is itself a script
            found.update(dict.fromkeys(dependencies(path, environment=environment)))
    return list(found)


def _inner_words(words: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}
    for word in words:
        with contextlib.suppress(TargetError):  # a shell could not split it either
            for inner in split_command(word):
                found[inner.strip("();&|")] = None
    return [word for word in found if word and word[0] != "-" and "\0" not in word]


@frozen
class _Start:
    # What the forked child needs.
    chain: list[str]
    argv: tuple[str, ...]
    environment: dict[str, str]
    user: CommandUser | None
    bind: Callable[[int], None]  # asks for a signal when the parent dies


def _child(start: _Start, go: int, status: int) -> NoReturn:
    # Runs in the forked child and never returns.
    try:
        start.bind(signals.SIGTERM)
        if not os.read(go, 1):
            os._exit(_NOT_FOUND)  # the parent is gone
        for number in _DEFAULTS:
            signals.signal(number, signals.SIG_DFL)
        if start.user is not None:
            _become(start.user)
            start.bind(signals.SIGTERM)  # the kernel forgets it with the IDs
        _execute(start)
    except OSError as err:
        os.write(status, str(err.errno or errno.EINVAL).encode())
    finally:
        os._exit(_NOT_FOUND)


def _become(user: CommandUser) -> None:
    try:
        user.assume()
    except OSError as err:
        raise OSError(_NO_USER, "") from err


def _execute(start: _Start) -> NoReturn:
    path = start.chain[0]
    try:
        os.execve(path, start.argv, start.environment)  # noqa: S606 - no shell is wanted
    except OSError as err:
        if err.errno != errno.ENOEXEC or start.chain[-1] == path:
            raise
        # A text without "#!": execvp(3) and shells run it with /bin/sh.
        os.execve("/bin/sh", ("sh", path, *start.argv[1:]), start.environment)  # noqa: S606


def _executable(argv: tuple[str, ...], environment: Mapping[str, str]) -> str:
    if not argv or not argv[0]:
        raise TargetError("the command is empty")
    if any("\0" in word for word in argv):
        raise TargetError(f"{argv[0]!r}: a word of the command contains a NUL byte")
    name = argv[0]
    path = find_program(name, environment=environment)
    if path is not None:
        return path
    if "/" not in name:
        raise TargetError(f"{name}: command not found on PATH; give its path")
    try:
        mode = os.stat(name).st_mode
    except OSError as err:
        raise TargetError(f"-c {name}: {err.strerror}; give the path of a program") from err
    reason = "is a directory" if stat.S_ISDIR(mode) else "not executable (try: chmod +x)"
    raise TargetError(f"{name}: {reason}")


def _refused(path: str, number: int, user: CommandUser | None) -> str:
    if number == _NO_USER and user is not None:
        needs = "running a command as another user needs root (CAP_SETUID, CAP_SETGID)"
        return f"user {user.name}: {needs}"
    if number == errno.ENOENT:
        return f"{path}: its interpreter does not exist"
    who = "" if user is None else f" as user {user.name}"
    return f"{path}: cannot be executed{who}: {os.strerror(number)}"


def _gains_privileges(chain: list[str]) -> bool:
    # The kernel ignores these bits on scripts, but not on interpreters.
    mode = os.stat(chain[-1]).st_mode
    if mode & stat.S_ISUID or (mode & stat.S_ISGID and mode & stat.S_IXGRP):
        return True
    try:
        return bool(os.getxattr(chain[-1], "security.capability"))
    except OSError:
        return False  # ENODATA: none; ENOTSUP: a file system without


def _ptrace(request: int, pid: int, data: int = 0) -> None:
    from usdt.bpf._syscall import ptrace  # noqa: PLC0415 - loads libc, for -c only

    ptrace(request, pid, 0, data)


def _seize(pid: int) -> bool:
    try:
        _ptrace(PTRACE_SEIZE, pid, PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC)
    except SyscallError as err:
        # EPERM: Yama or seccomp; ENOSYS: seccomp, gVisor; EIO, EINVAL: a kernel without SEIZE.
        if err.errno not in {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EIO, errno.EINVAL}:
            raise
        return False
    return True


def _detach(pid: int) -> None:
    try:
        _ptrace(PTRACE_DETACH, pid)
    except SyscallError as err:
        if err.errno != errno.ESRCH:  # killed while it was stopped
            raise


def _pidfd(pid: int) -> int:
    try:
        return open_pidfd(pid)
    except TargetError:
        return -1  # before Linux 5.3
