"""Commands forked from a process that has imported them, where a test run starts thousands.

Most of what a start of ``usdt`` costs is imports. ``started(words)`` forks the command from a
server that has done them, one for each worker of pytest-xdist and one in each virtual machine,
where imports take seconds. All else is real: a process of its own with these words, this
environment and folder, and its end is that of the installed script. Commands in lines of a shell
are forked, too, where PATH is ``shell_path()``: ``forked_command.c`` stands for the scripts there.

A forked command ends without the last step of Python's end, which takes its modules apart: they
are the server's, and each page of theirs would be copied first, for most of what a short command
takes. Threads are awaited, what it registered is called and streams are flushed.

What a fork cannot have starts as for users: a command behind another program, an environment
that changes how Python starts, and every command of a test run by itself on this machine.
``USDT_COLD=1`` in the environment has all start so; a test of ``test_trace_targets.py`` sets it,
so that a command starts cold in each virtual machine, too.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import math
import os
import re
import select
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("Command", "run", "server_processes", "shell_path", "started")

#: Imported by nearly every command that traces, and what these import.
_IMPORTED = (
    *("usdt.cli.group", "usdt.cli.files.selection", "usdt.engine.cli.trace"),
    *("usdt.engine.cli.aggregates.commands", "usdt.engine.cli.programs.run"),
    *("usdt.engine.cli.completion.values", "usdt.engine.cli.target_options"),
    *("usdt.engine.cli.aggregate_options", "usdt.engine.cli.programs.text_output"),
    *("usdt.engine.aggregate.session", "usdt.engine.output.formatters.json"),
    *("usdt.engine.programs.syntax.parser", "usdt.engine.programs.prepared"),
    *("usdt.engine.programs.output.writer", "usdt.engine.run.programs"),
    *("usdt.targets.provider", "usdt.probes.argspec", "usdt.bpf.perf.sideband"),
    *("kprobe.cli.group", "kprobe.tracepoints.provider", "kprobe.functions"),
    *("kprobe.tracepoints.catalog", "usdt.engine.runtime.attach.kernel_events"),
    *("kprobe.provider", "kprobe.tracepoints.syscalls", "kprobe.functions.kernel_types"),
    *("usdt.uprobes.provider", "usdt.uprobes.parameters", "usdt.uprobes.typed_arguments"),
    *("usdt.uprobes.variables", "usdt.uprobes.debug_info", "usdt.dwarf.info"),
    *("usdt.dwarf.types.dwarf_btf", "usdt.symbolize.symbolizer", "usdt.unwind.unwinder"),
    *("usdt.symbolize.python_stacks", "usdt.targets.spawn", "usdt.targets.follow_forks"),
    *("usdt.engine.runtime.follow", "usdt.bpf.optimized_nops", "usdt.arch.operands.x86"),
    *("concurrent.futures.thread", "difflib", "hashlib", "resource", "textwrap"),
)
_NAMES = ("usdt", "kprobe")
_SCRIPTS = frozenset(str(Path(sys.executable).with_name(name)) for name in _NAMES)
#: Variables that Python reads when it starts.
_OF_PYTHON = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
#: Variables of test runs that start enough commands to have a server.
_SERVED = frozenset({"PYTEST_XDIST_WORKER", "USDT_GUEST"})
_ALIVE = 2.0  # seconds between two looks whether the tests still run
_READY = b"ready\n"
_TEXT: dict[str, Any] = {"text": True, "errors": "surrogateescape"}


class Command:
    """A running command, with those members of subprocess.Popen that tests use; text streams."""

    def __init__(self, words: list[str], server: str) -> None:
        """Have the server fork the command; its stdin is empty."""
        self.args = words
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        out, its_out = os.pipe()
        err, its_err = os.pipe()
        try:
            self._connection.connect(server)
            request = {"argv": words, "env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109
            text = json.dumps(request).encode()
            socket.send_fds(self._connection, [len(text).to_bytes(4, "big")], [its_out, its_err])
            self._connection.sendall(text)
        finally:
            os.close(its_out)
            os.close(its_err)
        self.stdout: IO[str] = open(out, errors="surrogateescape")  # noqa: SIM115, PTH123
        self.stderr: IO[str] = open(err, errors="surrogateescape")  # noqa: SIM115, PTH123
        self.pid = self._number()

    def _number(self) -> int:
        got = b""
        while len(got) < 4:
            part = self._connection.recv(4 - len(got))
            assert part, f"the server of {self.args} has ended"
            got += part
        return int.from_bytes(got, "big", signed=True)

    def poll(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; subprocess.TimeoutExpired if it does not come in so many seconds."""
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._connection, select.POLLIN)
            if not waiting.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(self._number())
            self._connection.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read both streams until the command has ended; subprocess.TimeoutExpired as in wait()."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        found: dict[IO[str], bytes] = {self.stdout: b"", self.stderr: b""}
        with selectors.DefaultSelector() as selector:
            for stream in found:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                left = deadline - time.monotonic()
                ready = selector.select(None if timeout is None else max(0.0, left))
                if not ready and left <= 0:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                for key, _ in ready:
                    if data := os.read(key.fd, 1 << 16):
                        found[key.fileobj] += data  # type: ignore[index]
                    else:
                        selector.unregister(key.fileobj)
        self.wait(None if timeout is None else max(0.0, deadline - time.monotonic()))
        self.stdout.close()
        self.stderr.close()
        out, err = (_text(data) for data in found.values())
        return out, err

    def send_signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once; harmless when repeated."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


def started(words: list[str]) -> Command | subprocess.Popen[str]:
    """Start a command with empty stdin and pipes behind it."""
    if _forkable(words):
        return Command(words, _server())
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, **pipes, **_TEXT)


def run(
    words: list[str], *, given: str = "", timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as subprocess.run() does; only one without stdin is forked."""
    if given:
        return subprocess.run(
            words, input=given, capture_output=True, timeout=timeout, check=False, **_TEXT
        )
    process = started(words)
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            stream.close()  # type: ignore[union-attr]
        raise
    return subprocess.CompletedProcess(words, process.wait(), out, err)


def shell_path() -> str:
    """PATH of shells with the commands of this Python first, forked where they can be."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return f"{_clients()}:{path}" if _served() and shutil.which("gcc") else path


def server_processes() -> frozenset[int]:
    """The process ID of this worker's server, if it runs."""
    return frozenset(_processes)


def _served() -> bool:
    return not _SERVED.isdisjoint(os.environ) and not os.environ.get("USDT_COLD")


def _forkable(words: list[str]) -> bool:
    return _served() and words[0] in _SCRIPTS and _of_python(os.environ) == _AT_START


def _text(data: bytes) -> str:
    text = data.decode(errors="surrogateescape")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    # PYTHON alone is the tests' own: the process ID of a service.
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_OF_PYTHON) and name != "PYTHON"
    }


_AT_START = _of_python(os.environ)


_processes: set[int] = set()


@functools.cache
def _server() -> str:
    """The address of this worker's server, which runs as long as the worker."""
    address = f"\0usdt-tests-{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, __file__, address[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        if process.stdout.readline() != _READY:
            msg = f"no server of commands: {process.stderr.read().decode()}"
            raise AssertionError(msg)
    atexit.register(_end, process)
    _processes.add(process.pid)
    return address


@functools.cache
def _clients() -> str:
    """A folder with both names of the program that asks this worker's server."""
    folder = TemporaryDirectory(prefix="usdt-forked-")
    atexit.register(folder.cleanup)
    usdt, kprobe = (Path(folder.name, name) for name in _NAMES)
    texts = {"SERVER": _server()[1:], "SCRIPTS": Path(sys.executable).parent}
    words = [f'-D{name}="{text}"' for name, text in texts.items()]
    source = Path(__file__).with_name("forked_command.c")
    subprocess.run(
        ["gcc", "-std=gnu2x", "-D_GNU_SOURCE", "-O1", *words, "-o", usdt, source], check=True
    )
    kprobe.hardlink_to(usdt)
    return folder.name


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


class _Server:
    """Forks a command for each connection, and tells its process ID and its end."""

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{address}")
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._connections: dict[int, tuple[int, socket.socket]] = {}  # by descriptor of the process

    def serve(self) -> list[str]:
        """Serve until the tests have ended; returns only in commands, with their words."""
        tests = os.getppid()
        os.write(1, _READY)
        while os.getppid() == tests:
            for key, _ in self._selector.select(_ALIVE):
                if key.fileobj is self._listener:
                    if words := self._fork():
                        return words
                elif key.data is None:
                    self._tell(key.fd)
                elif key.data in self._connections:  # whoever asked for it was killed
                    self._selector.unregister(key.fileobj)
                    signal.pidfd_send_signal(key.data, signal.SIGKILL)
        sys.exit()

    def _fork(self) -> list[str]:
        connection, _ = self._listener.accept()
        size, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
        length = int.from_bytes(size, "big")
        if length:
            request = json.loads(_received(connection, length))
        else:
            request = _shell_request(connection, descriptors)
        pid = os.fork() if request else -1
        if not pid:
            connection.close()
            self._become(request, descriptors)
            return list(request["argv"])
        for descriptor in descriptors:
            os.close(descriptor)
        if not request:
            connection.close()
            return []
        connection.sendall(pid.to_bytes(4, "big"))
        process = os.pidfd_open(pid)
        self._connections[process] = pid, connection
        self._selector.register(process, selectors.EVENT_READ)
        if not length:
            self._selector.register(connection, selectors.EVENT_READ, process)
        return []

    def _become(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Keep nothing of the server's but what it has imported."""
        for process, (_, connection) in self._connections.items():
            os.close(process)
            connection.close()
        self._selector.close()
        self._listener.close()
        for number, descriptor in enumerate(descriptors, 3 - len(descriptors)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        for number in request.get("ignored", ()):
            signal.signal(number, signal.SIG_IGN)
        os.environ.clear()
        os.environ.update(request["env"])
        time.tzset()
        os.chdir(request["cwd"])

    def _tell(self, process: int) -> None:
        pid, connection = self._connections.pop(process)
        self._selector.unregister(process)
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)
        os.close(process)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError), connection:
            connection.sendall(status.to_bytes(4, "big"))


def _received(connection: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        part = connection.recv(size - len(got))
        if not part:
            raise EOFError
        got += part
    return bytes(got)


#: What /proc/PID/status tells of a process that a fork of the server has as the server has it.
_INHERITED = re.compile(
    r"^(?:Umask|[UG]id|Groups|Cap\w+|NoNewPrivs|Seccomp|Cpus_allowed):.*", re.MULTILINE
)
#: Python ignores these.
_IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})


def _shell_request(connection: socket.socket, descriptors: list[int]) -> dict[str, Any]:
    """The request of a ``forked_command.c``, which is as it was started; empty: start it cold."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    folder = Path("/proc", str(struct.unpack("3i", credentials)[0]))
    name, *words = map(os.fsdecode, (folder / "cmdline").read_bytes().split(b"\0")[:-1])
    entries = (folder / "environ").read_bytes().split(b"\0")[:-1]
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    environment = {name: value for name, _, value in pairs}
    status = (folder / "status").read_text()
    if (
        environment.get("USDT_COLD")
        or _of_python(environment) != _AT_START
        or any(os.isatty(descriptor) for descriptor in descriptors)
        or len([*(folder / "fd").iterdir()]) != len(descriptors) + 1  # it has no file but these
        or _inherited(folder, status) != _inherited(Path("/proc/self"))
    ):
        return {}
    (mask,) = re.findall(r"^SigIgn:\s(\w+)", status, re.MULTILINE)
    ignored = {number for number in signal.Signals if int(mask, 16) >> (number - 1) & 1}
    return {
        "argv": [str(Path(sys.executable).with_name(Path(name).name)), *words],
        "env": environment,
        "cwd": os.readlink(folder / "cwd"),  # noqa: PTH115
        "ignored": ignored - _IGNORED_BY_PYTHON,
    }


def _inherited(process: Path, status: str = "") -> list[str]:
    """What a process has of those that started it, and no request tells."""
    found = _INHERITED.findall(status or (process / "status").read_text())
    found += [(process / name).read_text() for name in ("limits", "cgroup")]
    found += [str(path.readlink()) for path in sorted((process / "ns").iterdir())]
    return [*found, str((process / "root").readlink())]


def _main() -> NoReturn:
    import gc

    sys.path[0] = str(Path(sys.executable).parent)  # that of the script
    for name in _IMPORTED:
        importlib.import_module(name)
    end = _End()
    atexit.register(end.at_once)  # the first one: Python calls it last
    gc.collect()
    gc.freeze()
    sys.argv = _Server(sys.argv[1]).serve()
    name = Path(sys.argv[0]).name
    Path("/proc/self/comm").write_text(name)
    try:
        sys.exit(importlib.import_module(f"{name}.cli").main())
    except SystemExit as err:
        end.code = 0 if err.code is None else err.code
        raise


class _End:
    """The end of a forked command, once Python has done all of it but to take modules apart."""

    def __init__(self) -> None:
        self.code: object = ""  # what main() gave sys.exit()

    def at_once(self) -> None:
        """End the process, unless Python has something to say at its end."""
        if not isinstance(self.code, int):
            return
        with contextlib.suppress(OSError, ValueError):  # told by Python, which tries again
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code & 0xFF)


if __name__ == "__main__":
    _main()
