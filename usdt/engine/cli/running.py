"""One run of a tracing command: from its options to its closing line.

A front (USDT probes, kernel probes) gives what attaches; a command gives what is done with what
comes. The loop between them, signals, ``-d``, ``-c`` and the order of what is said are the same for
all commands, and here.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from typing import TYPE_CHECKING, Any, Protocol

import click

from usdt.base.errors import TracingError, VerifierError
from usdt.bpf.capabilities import missing_capabilities, privilege_hint
from usdt.engine.cli.click_group import escaped
from usdt.engine.cli.options import TRACEFS
from usdt.engine.run.started import Command, Started, Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.output.stacks import UserSymbols
    from usdt.engine.runtime.session import BpfSession, Lost

__all__ = ("Command", "Front", "Job", "Started", "Tracing", "run", "say", "signals")

_PATIENCE = 2.0  # seconds that a command has to end after SIGTERM
_POLL = 0.25  # seconds between two looks at signals, deadlines and the command


class Front(Protocol):
    """Where probes come from.

    Attributes:
        name: of the command, for examples in help.
    """

    name: str

    def parse(self, text: str) -> ProbeText:
        """A probe as the user wrote it."""

    def symbols(self) -> Callable[[], UserSymbols] | None:
        """What makes the source of names for addresses of processes."""

    def start(
        self,
        stack: contextlib.ExitStack,
        options: dict[str, Any],
        requests: Sequence[ProbeText],
        session: Callable[[TaskFilter], BpfSession],
    ) -> Started:
        """Attach the probes to what the options name; ``stack`` undoes it."""


class Stoppable(Protocol):
    """A loop that looks whether it should stop."""

    stop: bool


class Job(Protocol):
    """What one command does with what comes."""

    def session(self, accept: TaskFilter) -> BpfSession:
        """The session to attach with."""

    def begin(self, sink: OutputFile) -> None:
        """Everything is attached; results go to ``sink``."""

    def take(self, batch: list[Any]) -> bool:
        """Take what came; whether that was enough (``-n``)."""

    def look(self) -> bool:
        """Called at least every quarter of a second; whether it is enough."""

    def until_look(self) -> float:
        """Seconds until look() has something to do."""

    def finish(self, lost: list[Lost]) -> str:
        """Everything is detached and taken: write what is left; the closing line."""


def run(front: Front, options: dict[str, Any], requests: Sequence[ProbeText], job: Job) -> int:
    """Run a tracing command; the exit code.

    Raises:
        click.UsageError: options that exclude one another.
        TracingError: what stands against it, in one line.
    """
    try:
        return _Running(front, options, requests, job).main()
    except VerifierError as err:
        if options["verbose"]:
            for line in err.log.splitlines():
                say(line)
        raise


class _Running:
    def __init__(
        self, front: Front, options: dict[str, Any], requests: Sequence[ProbeText], job: Job
    ) -> None:
        self.front = front
        self.options = options
        self.requests = requests
        self.job = job
        self.stop = False

    def main(self) -> int:
        from usdt.engine.output.output_file import OutputFile  # noqa: PLC0415 - after the usage is known to be right
        from usdt.engine.run.registry import start_mixed  # noqa: PLC0415 - which imports this module

        options = self.options
        _check(options)
        if options.get("via") != TRACEFS and missing_capabilities():
            raise TracingError(f"tracing is not permitted: {privilege_hint()}{_without_bpf()}")
        with contextlib.ExitStack() as stack:
            sink = stack.enter_context(OutputFile(options["output"]))
            job = self.job
            started = start_mixed(stack, options, self.requests, job.session)
            tracing = started.tracing
            stack.enter_context(signals(self, tracing.wake))
            self._tell(tracing)
            self.job.begin(sink)
            if started.command is not None:
                started.command.release()
            closing = self._loop(tracing, sink)
            say(closing)
            if started.command is not None:
                code = _end(started.command)
                return code if options["exit_code"] else 0
        return 0

    def _tell(self, tracing: Tracing) -> None:
        if self.options["verbose"]:
            for line in tracing.attach_log:
                say(line)
        if self.options["verbose"] > 1:
            for line in tracing.listings:
                say(line)
        self._notices(tracing)
        number = tracing.attached
        say(f"tracing {number} site{'s' * (number != 1)}; end with ^C")

    def _notices(self, tracing: Tracing) -> None:
        for notice in tracing.notices:
            say(notice)
        tracing.notices.clear()

    def _loop(self, tracing: Tracing, sink: OutputFile) -> str:
        duration = self.options["duration"]
        deadline = math.inf if duration is None else time.monotonic() + duration
        enough = False
        while not (enough or self.stop or tracing.ended):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            batch = tracing.poll(min(_POLL, left, max(0.0, self.job.until_look())))
            self._notices(tracing)
            if batch:
                enough = self.job.take(batch)
            else:
                sink.check_reader()
            enough = self.job.look() or enough
        for batch in tracing.drain():  # detaches first: what hits meanwhile is not missed
            enough = enough or self.job.take(batch)
        self._notices(tracing)
        return self.job.finish(tracing.lost())


def _without_bpf() -> str:
    # What remains to somebody who may use tracefs.
    from usdt.tracefs.mount import find_tracefs  # noqa: PLC0415 - only for a message

    root = find_tracefs()
    if root is None or not os.access(root / "uprobe_events", os.W_OK):
        return ""
    return "; tracefs can be written here: usdt trace --via tracefs does without BPF"


def _check(options: dict[str, Any]) -> None:
    targets = bool(options["pids"]), options["command"] is not None, options["everything"]
    if sum(targets) > 1:
        raise click.UsageError("-p, -c and -a exclude one another")
    for flag, name in (("-d", "duration"), ("-i", "interval")):
        if math.isnan(options.get(name) or 0):  # which the ranges of both let through
            raise click.UsageError(f"{flag}: nan is no number of seconds")


@contextlib.contextmanager
def signals(running: Stoppable, wake: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let the signals that end a command set ``running.stop`` and call ``wake``.

    SIGINT and SIGTERM, of which the second interrupts; SIGHUP, which comes when a terminal goes,
    and perhaps twice, unless nohup(1) ignores it.
    """

    def handler(number: int, _frame: object) -> None:
        if running.stop and number != signal.SIGHUP:
            raise KeyboardInterrupt
        running.stop = True
        wake()

    caught = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        caught.append(signal.SIGHUP)
    before = [(number, signal.signal(number, handler)) for number in caught]
    try:
        yield
    finally:
        for number, old in before:
            signal.signal(number, old)


def _end(command: Command) -> int:
    # What was started for the trace ends with it, as with perf and bpftrace; the exit code.
    if command.poll() is None:
        command.kill(signal.SIGTERM)
    code = command.wait(_PATIENCE)
    return 128 + signal.SIGTERM if code is None else code


def say(text: str) -> None:
    """A line for people, on standard error."""
    click.echo(escaped(text), err=True)
