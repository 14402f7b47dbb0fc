"""The programs of testbins/, built on demand and driven by their dialogue on stdin and stdout.

``build("default", "args")`` gives the path of a program, and skips the test with the name of what
is missing where it cannot be built. ``start(path, "-w", "-n", 3)`` runs it::

    with start(build("default", "args"), "-w") as program:
        ...                       # attach to program.pid: it waits
        program.fire()            # returns when everything has fired; may be repeated
        hits = program.finish()   # what was fired, one dict a line: probe, pid, tid, args

What each program fires, its options and its orders are in testbins/README.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pytest
from skips import need_program

from usdt.base.machine import PROCESS_MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = (
    "CROSS",
    "FIXTURES",
    "NOT_BUILT",
    "PROGRAMS",
    "TESTBINS",
    "Fixture",
    "build",
    "compiler",
    "cross",
    "is_current",
    "locked",
    "make",
    "run",
    "start",
)

TESTBINS = Path(__file__).resolve().parents[2] / "testbins"

# Seconds: no fixture takes a tenth of it on a machine that is not busy, traced or not.
_TIMEOUT = 100.0
_BUILD_TIMEOUT = 120.0

_ANYWHERE = (
    *("args", "ints", "floats", "strings", "structs", "consts", "globals", "tls", "sib", "regs"),
    *("inline", "sema_shared", "sema_each", "threads", "forker", "bomb", "execer", "loop"),
    *("cxx", "oddnames", "oddnotes", "nops"),
)
_SHARED = (*_ANYWHERE, "libpair", "dlopened")

# The Makefile's table, without the libraries that come with their programs; a test compares them.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "default": (*_SHARED, "many10k"),
    "O0": _SHARED,
    "nopie": _SHARED,
    "static": _ANYWHERE,
    "staticpie": ("args", "strings", "globals", "sema_shared", "loop"),
    "stripped": (*_SHARED, "many10k"),
    "m32": _SHARED,
    "m32O0": _SHARED,
    "m32nopie": _SHARED,
    "clang": _SHARED,
    "clangO0": _SHARED,
}
CROSS = ("arm64", "armhf", "i386", "mips64el", "ppc64el", "riscv64", "s390x")
FIXTURES = tuple((variant, name) for variant, names in PROGRAMS.items() for name in names)

# What to install for a variant that this machine cannot build.
_PACKAGES = {
    "default": "gcc",
    "m32": "gcc-multilib (for gcc -m32)",
    "m32O0": "gcc-multilib (for gcc -m32)",
    "m32nopie": "gcc-multilib (for gcc -m32)",
    "clang": "clang",
    "clangO0": "clang",
}
#: What guest/make says in a virtual machine of what it has not.
NOT_BUILT = "not built by the host"
_LIBRARIES = {"libpair": "libpair.so", "dlopened": "libplugin.so"}

T = TypeVar("T")


def make(*words: str, timeout: float = _BUILD_TIMEOUT) -> subprocess.CompletedProcess[str]:
    """Run make in testbins/; hold locked() meanwhile."""
    return subprocess.run(
        ["make", "--no-print-directory", "-C", str(TESTBINS), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        # make would take our own -j for a job server that is not there
        env={k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MFLAGS"}},
    )


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Two test runs must not have make write the same program at the same time."""
    directory = TESTBINS / "out"
    directory.mkdir(exist_ok=True)
    with (directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _variants(variant: str) -> str:
    # stripped programs are made from the default ones
    return "VARIANTS=default stripped" if variant == "stripped" else f"VARIANTS={variant}"


@functools.cache
def _missing(variant: str) -> str | None:
    """Return what this machine lacks to build a variant, None if nothing."""
    if variant.startswith("m32") and PROCESS_MACHINE not in ("x86_64", "i386"):
        return "an x86 CPU"
    if shutil.which("make") is None:
        return "make"
    found = make(_variants(variant), f"usable-{variant}")
    if NOT_BUILT in found.stderr:
        return "the host to build it for this virtual machine"
    if found.returncode != 0:
        last = (found.stderr.strip().splitlines() or ["no message"])[0]
        return f"{_PACKAGES.get(variant, f'a compiler for {variant}')} ({last})"
    header = make(_variants(variant), "out/include/sys/sdt.h")
    return None if header.returncode == 0 else "systemtap-sdt-dev (for sys/sdt.h)"


@functools.cache
def _last_change(sources: Path) -> int:
    files = (path for path in (*TESTBINS.iterdir(), *sources.iterdir()) if path.is_file())
    return max(path.stat().st_mtime_ns for path in files)


def is_current(*made: Path, sources: Path = TESTBINS) -> bool:
    """Whether programs are newer than all sources, and make has nothing to do; hold locked()."""
    if "CC" in os.environ:  # another compiler, which may lack what they need
        return False
    return all(path.exists() and path.stat().st_mtime_ns >= _last_change(sources) for path in made)


@functools.cache
def _built(variant: str, program: str) -> tuple[Path | None, str]:
    files = [program, *([_LIBRARIES[program]] if program in _LIBRARIES else [])]
    with locked():
        if is_current(*(TESTBINS / "out" / variant / name for name in files)):
            return _own(variant) / program, ""
        if missing := _missing(variant):
            return None, missing
        done = make(_variants(variant), *(f"{variant}/{name}" for name in files))
        path = TESTBINS / "out" / variant / program
        if NOT_BUILT in done.stderr:
            return None, f"the host to build {program} for this virtual machine"
        if done.returncode or not path.exists():
            return path, done.stderr or "?"
        return _own(variant) / program, ""


def _own(variant: str) -> Path:
    """The programs of a variant as this worker of pytest-xdist runs them, brought up to date.

    A probe in a file sees every process that runs the file, those of tests beside this one too. So
    each worker has copies; they are files of their own to the kernel.
    """
    made = TESTBINS / "out" / variant
    if not (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        return made
    own = TESTBINS.parent / "build" / "testbins" / worker / variant
    own.mkdir(parents=True, exist_ok=True)
    for path in made.iterdir():
        copy = own / path.name
        if path.is_file() and _older(copy, path):
            fresh = own / f".{path.name}"
            shutil.copy2(path, fresh)
            fresh.replace(copy)  # a program that runs keeps its file
    return own


def _older(copy: Path, path: Path) -> bool:
    return not copy.exists() or copy.stat().st_mtime_ns != path.stat().st_mtime_ns


@functools.cache
def _cross_built(cpu: str) -> str:
    with locked():
        done = make("-s", "-j2", f"cross-{cpu}", timeout=3 * _BUILD_TIMEOUT)
    return done.stderr if done.returncode else ""


def cross(cpu: str) -> list[Path]:
    """Return the programs and libraries of another CPU, in all their variants.

    Skips the test where there is no compiler for it, and fails it where one of them does not build.
    """
    if problem := _cross_built(cpu):
        pytest.fail(f"testbins for {cpu} do not build:\n{problem[-2000:]}")
    found = [
        path
        for variant in sorted((TESTBINS / "cross" / cpu).iterdir())
        if (variant / "obj").is_dir()
        for path in sorted(variant.iterdir())
        if path.is_file()
    ]
    if not found:
        pytest.skip(f"needs a compiler for {cpu}: tools/cross.sh fetches it")
    return found


def compiler() -> list[str]:
    """The C compiler with what code needs to be traced by this machine's kernel, or a skip."""
    # Linux has no uprobes in Thumb code, which is what most compilers for arm make.
    return [need_program("gcc"), *(["-marm"] if PROCESS_MACHINE == "arm" else [])]


def build(variant: str, program: str) -> Path:
    """Return the path of a program or library, built if need be; skip the test if it cannot be.

    A program that does not compile fails the test: that is a defect of testbins/, not of the
    machine.
    """
    path, problem = _built(variant, program)
    if path is None:
        pytest.skip(f"testbins/ variant {variant} needs {problem}")
    if problem:
        pytest.fail(f"testbins {variant}/{program} does not build:\n{problem[-2000:]}")
    return path


class Fixture:
    """A running fixture. A context manager: nothing of it survives the block.

    ``lines`` are all lines but hits and results, such as "ready 123"; ``hits`` what was fired so
    far by the process and its children; ``results`` the other JSON objects (loop's timing, states).
    """

    def __init__(self, *words: str) -> None:
        """Start words[0]; in a session of its own, to be killed with its children."""
        self.hits: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.results: list[dict[str, Any]] = []
        self._seen = 0  # how many of lines wait_line() has gone past
        self._changed = threading.Condition()
        self._ended = False
        self.name = " ".join(words)  # for messages
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process ID."""
        return self.process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End the process and its children, however it stands with them; harmless when repeated."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(_TIMEOUT)
        self._reader.join(_TIMEOUT)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def send(self, line: str) -> None:
        """Send one order: fire, state, open, close; any other lets the program end."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def wait_line(self, word: str, *, timeout: float = _TIMEOUT) -> str:
        """Return the next line that begins with word; AssertionError if it does not come."""

        def found() -> str | None:
            while self._seen < len(self.lines):
                self._seen += 1
                if self.lines[self._seen - 1].startswith(word):
                    return self.lines[self._seen - 1]
            return None

        return self._wait(found, f"line {word!r}", timeout)

    def wait_hits(self, count: int, *, timeout: float = _TIMEOUT) -> list[dict[str, Any]]:
        """Return the hits once there are as many as count."""
        return self._wait(
            lambda: self.hits if len(self.hits) >= count else None, f"{count} hits", timeout
        )

    def wait_ready(self, *, timeout: float = _TIMEOUT) -> Self:
        """Wait until the program (started with -w) waits; nothing has been fired then."""
        self.wait_line("ready", timeout=timeout)
        return self

    def fire(self, *, timeout: float = _TIMEOUT) -> int:
        """Have the program (started with -w) fire its rounds; return its hits in all so far."""
        self.send("fire")
        return int(self.wait_line("done", timeout=timeout).split()[1])

    def state(self, *, timeout: float = _TIMEOUT) -> dict[str, Any]:
        """Ask a program with semaphores for their values now."""
        known = len(self.results)
        self.send("state")
        found = self._wait(lambda: self.results[known:], "state", timeout)[0]["state"]
        assert isinstance(found, dict)
        return found

    def finish(self, *, timeout: float = _TIMEOUT) -> list[dict[str, Any]]:
        """Let the program end by itself, and return all its hits; it must exit with 0."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        assert not self._reader.is_alive(), f"{self.name}: a child holds its stdout"
        assert code == 0, f"{self.name}: exit code {code}, last lines {self.lines[-3:]}"
        return self.hits

    def _wait(self, look: Callable[[], T | None], what: str, timeout: float) -> T:
        deadline = time.monotonic() + timeout
        with self._changed:
            while not (found := look()):
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    why = "ended" if self._ended else f"gave none in {timeout} s"
                    msg = f"{self.name}: {what} awaited, program {why}; {self.lines[-3:]}"
                    raise AssertionError(msg)
                self._changed.wait(left)
            return found

    def _read(self) -> None:
        # Always drained: a program that waits for its reader would look like one that hangs.
        assert self.process.stdout is not None
        try:
            for raw in self.process.stdout:
                self._take(raw)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _take(self, raw: bytes) -> None:
        line = raw.decode().rstrip("\n")
        record = json.loads(line) if line.startswith("{") else None
        with self._changed:
            if record is None:
                self.lines.append(line)
            elif "probe" in record:
                self.hits.append(record)
            else:
                self.results.append(record)
            self._changed.notify_all()


def start(path: Path | str, *options: object) -> Fixture:
    """Start a program with these options; use the result as a context manager."""
    return Fixture(str(path), *map(str, options))


def run(path: Path | str, *options: object) -> Fixture:
    """Run a program to its end; its hits, lines and results remain."""
    with start(path, *options) as fixture:
        fixture.finish()
    return fixture
