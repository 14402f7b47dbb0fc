"""``usdt trace --json`` run as a user runs it, and what it wrote, for the tests of this folder.

``tracing("-p", pid, "ints:*")`` starts the command and returns once it says that it traces::

    with tracing("-p", program.pid, "ints:*") as tool:
        program.fire()
        events = tool.stop()      # SIGINT; exit code 0 and the closing line are checked
"""

from __future__ import annotations

import contextlib
import enum
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fork_server import run, started
from json_schema import check_lines
from patience import patient
from streams import answers, is_about

from usdt.bpf._syscall import bpf_attribute
from usdt.probes.probe import read_probes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fixtures import Fixture

__all__ = (
    "KPROBE",
    "USDT",
    "Tool",
    "before_main",
    "bias",
    "by_thread",
    "dropped_by_python",
    "fire_until_traced",
    "leftovers",
    "one_error",
    "private",
    "run_usdt",
    "semaphores",
    "tracebacks",
    "tracing",
    "until",
    "usdt",
)

#: The command as it is installed beside the Python that runs the tests.
USDT = str(Path(sys.executable).parent / "usdt")
KPROBE = str(Path(sys.executable).parent / "kprobe")

_TIMEOUT = 100.0
_PAUSE = patient(0.004)  # seconds between two looks, which take time from what is awaited
_TRACING = re.compile(r"^tracing (\d+) sites?; end with \^C$")
_CLOSING = re.compile(r"^(\d+) events?, (\d+) lost$")

T = TypeVar("T")


def until(
    look: Callable[[], T | None], what: str, *, timeout: float = _TIMEOUT, every: float = _PAUSE
) -> T:
    """Wait until look() gives something true, and return that."""
    deadline = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {timeout} s in vain for {what}"
        time.sleep(every)
    return found


class Tool:
    """A running ``usdt`` command whose streams are read all the time; a context manager.

    ``lines`` and ``errors`` are what it has written so far, ``code`` its exit code once it ended.
    Of a JSON stream, ``lines`` are those behind its header.
    """

    def __init__(self, *words: object, before: Iterable[str] = (), command: str = USDT) -> None:
        """Start the command; ``before`` are words such as setpriv's that run it."""
        self.words = [*before, command, *map(str, words)]
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.began = time.monotonic()
        self.process = started(self.words)
        streams = ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        self._readers = [
            threading.Thread(target=_collect, args=pair, daemon=True) for pair in streams
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The process ID of the command."""
        return self.process.pid

    @property
    def code(self) -> int | None:
        """The exit code, None while the command runs."""
        return self.process.poll()

    @property
    def records(self) -> list[dict[str, Any]]:
        """Every JSON line so far."""
        return [json.loads(line) for line in self.lines]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The hits among them."""
        return [record for record in self.records if "lost" not in record]

    @property
    def sites(self) -> int:
        """How many sites it says that it traces."""
        return int(next(m[1] for line in self.errors if (m := _TRACING.match(line))))

    def wait_tracing(self, *, timeout: float = _TIMEOUT) -> Self:
        """Wait for "tracing N sites"."""
        self._until(lambda: any(map(_TRACING.match, self.errors)), "to trace", timeout)
        return self

    def wait_error(self, text: str, *, timeout: float = _TIMEOUT) -> str:
        """Wait for a line with this text on stderr, and return it."""
        found = lambda: next((line for line in self.errors if text in line), None)  # noqa: E731
        return self._until(found, f"to say {text!r}", timeout)

    def wait_events(self, count: int, *, timeout: float = _TIMEOUT) -> list[dict[str, Any]]:
        """Wait for so many lines, and return all events."""
        self._until(lambda: len(self.lines) >= count, f"to write {count} lines", timeout)
        return self.events

    def wait_all(self, *, timeout: float = patient(_TIMEOUT)) -> int:
        """Wait for the end by itself, and for all that it wrote; its exit code."""
        code = self.process.wait(timeout)
        for reader in self._readers:
            reader.join(timeout)
        return code

    def finish(self, *, code: int = 0, timeout: float = _TIMEOUT) -> None:
        """Wait for the end by itself, with this exit code and without a traceback."""
        self.wait_all(timeout=timeout)
        assert self.code == code, f"{self}: exit code {self.code}, {self.errors[-5:]}"
        assert not [line for line in self.errors if "Traceback" in line], self.errors
        check_lines(self.words, self.lines)

    def wait_end(self, *, code: int = 0, timeout: float = _TIMEOUT) -> list[dict[str, Any]]:
        """Wait for the end by itself; return the events. A trace's counts are checked."""
        self.finish(code=code, timeout=timeout)
        if code:
            return []
        events = self.events
        assert self.closing[0] == len(events), f"{self}: {len(events)} lines"
        return events

    def stop(self, number: int = signal.SIGINT) -> list[dict[str, Any]]:
        """End it by a signal; return the events. It must end with 0 and its closing line."""
        self.process.send_signal(number)
        return self.wait_end()

    @property
    def closing(self) -> tuple[int, int]:
        """(events, lost) of the closing line."""
        found = [match for line in self.errors if (match := _CLOSING.match(line))]
        assert len(found) == 1, f"{self}: one closing line expected in {self.errors}"
        return int(found[0][1]), int(found[0][2])

    def kill(self) -> None:
        """End it at once; harmless when repeated."""
        self.process.kill()
        self.process.wait(_TIMEOUT)
        for reader in self._readers:
            reader.join(_TIMEOUT)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __str__(self) -> str:
        return " ".join(self.words)

    def _until(self, look: Callable[[], T | None], what: str, timeout: float) -> T:
        deadline = time.monotonic() + timeout
        while not (found := look()):
            ended = self.process.poll() is not None
            if ended:
                for reader in self._readers:
                    reader.join(timeout)
                if found := look():
                    return found
            if ended or time.monotonic() > deadline:
                why = f"ended with {self.code}" if ended else f"did not in {timeout} s"
                msg = f"{self}: expected {what}, {why}; {self.errors[-5:]} {self.lines[-3:]}"
                raise AssertionError(msg)
            time.sleep(_PAUSE)
        return found


def fire_until_traced(fixture: Fixture, tool: Tool, probe: str) -> None:
    """Have a fixture fire until hits of a probe that the tool finds by itself are traced.

    Attaching to what was just loaded takes the tool a moment. What it says of it may be about a
    program of the same probe that somebody else runs.
    """

    def traced() -> bool:
        fixture.fire()
        time.sleep(0.02)
        return any(event["probe"] == probe for event in tool.events)

    until(traced, f"{probe} to be traced")


def _collect(stream: Any, lines: list[str]) -> None:
    # One by one, as they come.
    lines.extend(line.rstrip("\n") for line in stream if not is_about(line))


def usdt(*words: object, before: Iterable[str] = ()) -> Tool:
    """Start the command with any words."""
    return Tool(*words, before=before)


def tracing(*words: object) -> Tool:
    """Start ``usdt trace --json`` with these words, and wait until it traces."""
    tool = Tool("trace", "--json", *words)
    try:
        return tool.wait_tracing()
    except BaseException:
        tool.kill()
        raise


def run_usdt(
    *words: object,
    before: Iterable[str] = (),
    timeout: float = _TIMEOUT,
    stdout: Any = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; of a JSON stream, show what is behind its header."""
    command = [*before, USDT, *map(str, words)]
    if stdout is subprocess.PIPE:
        done = run(command, timeout=timeout)
    else:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
            check=False,
            timeout=timeout,
        )
    if done.stdout is not None:
        done.stdout = answers(words, done.stdout)
    return done


def private(program: Path, folder: Path) -> Path:
    """A copy of a fixture, and of its library: no tracer of others' finds its way there."""
    for path in (program, *program.parent.glob(f"{program.name}.so")):
        shutil.copy(path, folder)
    return folder / program.name


def bias(pid: int, path: Path) -> int:
    """Address at which a process has mapped the start of a file."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if fields[-1] == str(path) and not int(fields[2], 16):
            return int(fields[0].partition("-")[0], 16)
    msg = f"{path} is not mapped in {pid}"
    raise AssertionError(msg)


def semaphores(pid: int, path: Path) -> dict[str, int]:
    """The 16-bit counters of a file's probes, as they are in a process's memory now."""
    found = {}
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for probe in read_probes(str(path)).probes:
            memory.seek(bias(pid, path) + probe.sites[0].semaphore)
            found[probe.name] = int.from_bytes(memory.read(2), sys.byteorder)
    return found


def one_error(done: subprocess.CompletedProcess[str], *, code: int = 1) -> str:
    """The text of the one "Error:" line that a failed command wrote, whatever came before it."""
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, f"exit code {done.returncode}: {done.stderr}"
    found = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(found) == 1, done.stderr
    assert done.stderr.rstrip("\n").endswith(found[0]), "the error is the last thing said"
    return found[0].removeprefix("Error: ")


def by_thread(hits: Iterable[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Hits in their order, thread by thread."""
    found: dict[int, list[dict[str, Any]]] = {}
    for hit in hits:
        found.setdefault(hit["tid"], []).append(hit)
    return found


def before_main(errors: Sequence[str]) -> bool:
    """Whether a command ended before Python ran main(), by what it wrote.

    A signal, or a limit that Python cannot live with, may meet it while it imports ``site`` or the
    package.
    """
    text = "\n".join(errors)
    imports = r'/(usdt|kprobe)", line \d+, in <module>\n(?!\s*sys\.exit)'
    reasons = rf"Fatal Python error|<frozen site>|{imports}"
    return text == "KeyboardInterrupt" or re.search(reasons, text) is not None


def dropped_by_python(errors: Sequence[str]) -> bool:
    """Whether Python dropped ^C in a callback of its imports, before main() notes each one."""
    text = "\n".join(errors)
    return text.startswith("Exception ignored in") and "interrupts.py" not in text


def tracebacks(errors: Sequence[str]) -> list[str]:
    """The tracebacks that a command wrote, but for those of Python itself."""
    return [line for line in errors if "Traceback" in line and not before_main(errors)]


class _Next(enum.IntEnum):
    """Commands of bpf(2) that list objects, include/uapi/linux/bpf.h."""

    PROG_GET_NEXT_ID = 11
    MAP_GET_NEXT_ID = 12
    LINK_GET_NEXT_ID = 31


def leftovers() -> set[str]:
    """Programs, maps and links of the kernel that no process holds by a descriptor: "prog 12".

    Those of cgroups and pinned ones are among them: compare with what was there before.
    """
    existing = {
        f"{command.name.partition('_')[0].lower()} {number}"
        for command in _Next
        for number in _numbers(command)
    }
    return existing - _held()


def _numbers(command: _Next) -> Iterator[int]:
    number = 0
    while True:
        # union bpf_attr: start_id, next_id, open_flags
        result, error, attribute = bpf_attribute(command, "III", number, 0, 0)  # type: ignore[arg-type]
        if result == -1:
            assert error == errno.ENOENT, os.strerror(error)
            return
        number = int.from_bytes(attribute[4:8], sys.byteorder)
        yield number


def _held() -> set[str]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            for info in list((process / "fdinfo").iterdir()):
                found |= _objects(info)
    return found


def _objects(info: Path) -> set[str]:
    try:
        text = info.read_text()
    except OSError:  # closed meanwhile
        return set()
    numbers = re.findall(r"^(prog|map|link)_id:\s*(\d+)$", text, re.MULTILINE)
    return {f"{kind} {number}" for kind, number in numbers}
