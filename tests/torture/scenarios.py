"""What is done to a tracer and its target, and what must hold afterwards.

Each scenario starts a program with probes and a tracer, disturbs one of them at a moment that the
generator chooses, and checks what the toolkit promises: nothing stays attached, semaphores are 0
again, the target goes on, and every hit is delivered or counted as lost.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fixtures import build, start
from processes import command_lines
from tracing_tools import USDT, Tool, before_main, leftovers, run_usdt, tracebacks, until, usdt

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping

    from fixtures import Fixture

__all__ = ("SCENARIOS",)

_ROUNDS = 400
_START = 0.7  # seconds: about as long as a tracer takes to attach on a busy machine
_STOPPED = {0, 130, 143, 129}  # exit codes after SIGINT, SIGTERM, SIGHUP


@contextmanager
def _nothing_left() -> Iterator[None]:
    before = leftovers()
    yield
    until(lambda: leftovers() <= before, "programs, maps and links to go", timeout=60)


def _semaphores(program: Fixture) -> int:
    return sum(sum(counts) for counts in program.state().values())


@contextmanager
def _target() -> Iterator[Fixture]:
    # The program goes on afterwards as if there had been no tracer, with semaphores of 0.
    with start(build("default", "sema_shared"), "-w", "-n", _ROUNDS) as program:
        program.wait_ready()
        yield program
        until(lambda: not _semaphores(program), "semaphores of 0", timeout=60)
        program.fire()
        program.finish()


def _words(rng: random.Random, pid: int, folder: str) -> list[object]:
    # One of the commands that attach, with options that make other paths of the code run.
    command = rng.choice(
        (
            ["trace", "--json"],
            ["trace", "--ustack"],
            ["trace", "--via", "perf-link"],
            ["trace", "-f"],
            ["count"],
            ["count", "--by", "comm"],
            ["count", "-i", "0.1"],
            ["record", "-o", f"{folder}/recording"],
        )
    )
    items = "" if command[0] == "count" else rng.choice(("", "(arg0 >= 0, arg0)"))
    return [*command, "-p", pid, f"sema_shared:*{items}"]


def kill_the_tracer(rng: random.Random) -> None:
    """SIGKILL at any moment, from the first instruction on."""
    with _nothing_left(), _target() as target, tempfile.TemporaryDirectory() as folder:
        with usdt(*_words(rng, target.pid, folder)) as tool:
            if rng.random() < 0.5:
                target.fire()
            time.sleep(rng.uniform(0, _START))
            tool.kill()
        recording = Path(folder, "recording")
        if recording.exists() and recording.stat().st_size:
            done = run_usdt("report", recording)
            assert done.returncode in (0, 1), done.stderr
            assert "Traceback" not in done.stderr, done.stderr


def signal_the_tracer(rng: random.Random) -> None:
    """A signal that asks the tracer to end, at any moment."""
    with (
        _nothing_left(),
        _target() as target,
        tempfile.TemporaryDirectory() as folder,
        usdt(*_words(rng, target.pid, folder)) as tool,
    ):
        time.sleep(rng.uniform(0, _START))
        number = rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        tool.process.send_signal(number)
        tool.wait_all(timeout=60)
        if not before_main(tool.errors):
            assert tool.code in _STOPPED | {-number}, (tool.code, tool.errors)
            assert not tracebacks(tool.errors), tool.errors


def count_every_hit(rng: random.Random) -> None:
    """Bursts of hits, with the tracer stopped meanwhile or not: delivered + lost = fired."""
    buffer = rng.choice(("4K", "64K", "8M"))
    with _nothing_left(), _target() as target:
        words = ("trace", "--json", "--buffer", buffer, "-p", target.pid, "sema_shared:*")
        with usdt(*words) as tool:
            tool.wait_tracing()
            before = len(target.hits)
            for _ in range(rng.randint(1, 4)):
                paused = rng.random() < 0.3
                if paused:
                    tool.process.send_signal(signal.SIGSTOP)
                target.fire()
                if paused:
                    tool.process.send_signal(signal.SIGCONT)
            fired = len(target.hits) - before
            tool.stop(rng.choice((signal.SIGINT, signal.SIGTERM)))
        delivered, lost = tool.closing
        assert delivered + lost == fired, (delivered, lost, fired)


def kill_the_target(rng: random.Random) -> None:
    """The target ends by SIGKILL: the tracer sees it, and ends as well."""
    with _nothing_left(), start(build("default", "sema_shared"), "-w", "-n", _ROUNDS) as target:
        target.wait_ready()
        with usdt("trace", "--json", "-p", target.pid, "sema_shared:*") as tool:
            if rng.random() < 0.7:
                tool.wait_tracing()
                target.send("fire")
            time.sleep(rng.uniform(0, 0.05))
            target.kill()
            tool.wait_all(timeout=60)
            assert tool.code in (0, 1), (tool.code, tool.errors)
            assert not tracebacks(tool.errors), tool.errors


def stop_the_target(rng: random.Random) -> None:
    """The target is stopped while the tracer attaches and detaches, then continues."""
    with _nothing_left(), _target() as target:
        target.process.send_signal(signal.SIGSTOP)
        try:
            with usdt("trace", "-p", target.pid, "sema_shared:*") as tool:
                if rng.random() < 0.7:
                    tool.wait_tracing()
                time.sleep(rng.uniform(0, 0.1))
                _interrupt(tool)
        finally:
            target.process.send_signal(signal.SIGCONT)


def _interrupt(tool: Tool) -> None:
    # Python may drop a ^C while it starts itself, before any code of ours; people press it again.
    for last in (False, True):
        tool.process.send_signal(signal.SIGINT)
        try:
            tool.process.wait(30)
        except subprocess.TimeoutExpired:
            if last or not any("Exception ignored" in line for line in tool.errors):
                raise
        else:
            return


def exec_the_target(rng: random.Random) -> None:
    """A command executes other programs under a tracer, which may be killed meanwhile."""
    with _nothing_left(), tempfile.TemporaryDirectory():
        command = f"{build('default', 'execer')} -n 3"
        with usdt("trace", "-f", "-c", command, f"{build('default', 'execer')}:*:*") as tool:
            if rng.random() < 0.5:
                time.sleep(rng.uniform(0, _START))
                tool.process.send_signal(rng.choice((signal.SIGINT, signal.SIGTERM)))
            tool.wait_all(timeout=60)
            assert not tracebacks(tool.errors), tool.errors


def kill_the_tracer_of_a_command(rng: random.Random) -> None:
    """SIGKILL at any moment: the command ends as well."""
    words = ["sleep", f"{rng.randrange(10**6, 10**7)}.5"]  # nobody else sleeps for as long
    options = rng.choice(((), ("-f",), ("--user", "nobody")))
    with _nothing_left():
        with usdt("trace", *options, "-c", " ".join(words), "syscall:clock_nanosleep") as tool:
            time.sleep(rng.uniform(0, _START))
            tool.kill()
        line = "\0".join([*words, ""]).encode()
        until(lambda: not _running(line), "the command to end", timeout=60)


def _running(line: bytes) -> bool:
    return any(words == line for _, words in command_lines())


def truncate_the_file(rng: random.Random) -> None:
    """Another process truncates and rewrites a file while commands read it."""
    source = build(rng.choice(("default", "static", "stripped")), "sema_shared")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "restless")
        path.write_bytes(Path(source).read_bytes())
        words = [sys.executable, "-c", _TRUNCATE, str(path), str(os.getpid())]
        with subprocess.Popen(words) as truncating:
            try:
                for words in (("list", path), ("check", path), ("info", f"uprobe:{path}:*")):
                    done = run_usdt(*words)
                    assert done.returncode in (0, 1), (words, done.returncode, done.stderr)
                    assert "Traceback" not in done.stderr, done.stderr
            finally:
                truncating.kill()


_TRUNCATE = """
import os, sys
data = open(sys.argv[1], "rb").read()
with open(sys.argv[1], "r+b", buffering=0) as file:
    while os.getppid() == int(sys.argv[2]):
        for size in (len(data) // 2, 0):
            os.ftruncate(file.fileno(), size)
            os.pwrite(file.fileno(), data, 0)
"""


def fill_the_disk(rng: random.Random) -> None:
    """The output cannot be written: one line says so."""
    with _nothing_left(), _target() as target:
        command = rng.choice((["trace"], ["trace", "--json"], ["record"]))
        with usdt(*command, "-o", "/dev/full", "-p", target.pid, "sema_shared:*") as tool:
            if "--json" not in command:  # its header comes before all else
                tool.wait_tracing()
                target.fire()
            if command == ["record"]:  # what little there is is written at the end
                tool.process.send_signal(signal.SIGINT)
            _ends_with_error(tool, "No space left")


def _ends_with_error(tool: Tool, text: str) -> None:
    tool.wait_all(timeout=60)
    assert tool.code == 1, (tool.code, tool.errors)
    until(lambda: any(text in line for line in tool.errors), f"{text!r} in {tool.errors}")
    assert not tracebacks(tool.errors), tool.errors


def close_the_pipe(rng: random.Random) -> None:
    """The reader of the output goes away."""
    with _nothing_left(), _target() as target:
        reader, writer = os.pipe()
        words = ["trace", rng.choice(("--json", "-v")), "-p", str(target.pid), "sema_shared:*"]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen([USDT, *words], stdout=writer, stderr=errors)
            os.close(writer)
            time.sleep(rng.uniform(0, _START))
            os.close(reader)
            try:
                until(lambda: _fire_until_end(target, process), "the tracer to end", timeout=60)
            finally:
                process.kill()
                process.wait()
            errors.seek(0)
            said = errors.read().decode().splitlines()
            assert not tracebacks(said), said


def _fire_until_end(target: Fixture, process: subprocess.Popen[bytes]) -> bool:
    target.fire()
    return process.poll() is not None


def lower_the_limits(rng: random.Random) -> None:
    """Few descriptors or little memory: the tracer works, or one line says what it lacks."""
    limits: Mapping[int, int] = rng.choice(
        (
            {resource.RLIMIT_NOFILE: rng.randint(4, 40)},
            {resource.RLIMIT_AS: rng.randint(60, 400) << 20},
            {resource.RLIMIT_FSIZE: rng.randint(0, 4096)},
        )
    )
    with _nothing_left(), _target() as target, tempfile.TemporaryDirectory() as folder:
        options = [f"--{_LIMITS[kind]}={value}" for kind, value in limits.items()]
        words = _words(rng, target.pid, folder)
        with Tool(*words, "-d", "0.3", before=["prlimit", *options, "--"]) as tool:
            target.fire()
            tool.wait_all(timeout=60)
            assert not tracebacks(tool.errors), tool.errors
            assert tool.code in (0, 1), (tool.words, tool.code, tool.errors)


_LIMITS = {
    resource.RLIMIT_NOFILE: "nofile",
    resource.RLIMIT_AS: "as",
    resource.RLIMIT_FSIZE: "fsize",
}

#: Name → scenario.
SCENARIOS: dict[str, Callable[[random.Random], None]] = {
    function.__name__: function
    for function in (
        kill_the_tracer,
        signal_the_tracer,
        count_every_hit,
        kill_the_target,
        stop_the_target,
        exec_the_target,
        kill_the_tracer_of_a_command,
        truncate_the_file,
        fill_the_disk,
        close_the_pipe,
        lower_the_limits,
    )
}
