"""The processes that reach the machines, run by ClusterShell: fan-out, reading, writing, timers.

There is one worker for each machine, so that each can be written to, and given up, on its own.
Only this module and ``nodes`` import ClusterShell.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import resource
import sys
import time
from typing import TYPE_CHECKING, Any

from ClusterShell.Task import task_self
from ClusterShell.Worker.EngineClient import E_READ, E_WRITE
from ClusterShell.Worker.Exec import ExecClient, ExecWorker
from ClusterShell.Worker.fastsubprocess import PIPE, Popen

from usdt.base.frozen import frozen
from usdt.fleet.machine import State
from usdt.fleet.transport import transport_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.fleet.machine import Machine

__all__ = ("Connection", "most_at_once", "reach")

_TICK = 0.1  # seconds
_CHUNK = 1 << 16  # bytes of the toolkit that wait for one machine
_FILES = 3  # descriptors of a machine
_OWN_FILES = 64  # descriptors for all else
_BEAT = 10.0  # seconds between two bytes for each far end
_PATIENCE = 1.5  # seconds from ^C until connections are cut


@frozen
class Connection:
    """How machines are reached.

    Attributes:
        template: words of the transport.
        command: for the shell of each machine.
        app: the toolkit's bytes.
        fanout: machines that are connected at a time.
        timeout: seconds for a machine to start, and to end after its duration.
        duration: seconds that the command runs; infinite if it has no limit.
    """

    template: Sequence[str]
    command: str
    app: bytes
    fanout: int
    timeout: float
    duration: float


class _Client(ExecClient):
    """The process that reaches one machine."""

    def _build_cmd(self) -> tuple[list[str], None]:
        return self.command, None

    def _exec_nonblock(self, words: list[str], **_: object) -> Any:
        # As ClusterShell does, but in a session of its own: a terminal sends ^C to all of its own.
        process = Popen(
            words, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=PIPE, preexec_fn=os.setsid
        )
        self.streams.set_stream(self.worker.SNAME_STDERR, process.stderr, E_READ)
        self.streams.set_stream(self.worker.SNAME_STDOUT, process.stdout, E_READ)
        self.streams.set_stream(self.worker.SNAME_STDIN, process.stdin, E_WRITE, retain=False)
        return process

    def _handle_read(self, sname: str) -> None:
        # Bytes as they come: ClusterShell's own lines have no limit.
        self.worker.eh.take(sname, self._read(sname))


class _Worker(ExecWorker):
    """A worker of one machine."""

    SHELL_CLASS = _Client


class _Link:
    """What happens to one machine: the handler of the events of its worker."""

    def __init__(self, machine: Machine, connection: Connection) -> None:
        self.machine = machine
        self.started = math.inf
        self._connection = connection
        self._left = memoryview(b"")
        self._queued = 0
        words = transport_words(connection.template, machine.name, connection.command)
        self.worker = _Worker(machine.name, self, command=words, stderr=True)

    def late(self, now: float) -> str:
        """Return why the machine is given up now, or ""."""
        limit = self._connection.timeout
        if self.machine.state is State.ASKED and now > self.started + limit:
            return f"no answer within {limit:g} s"
        if now > self.started + limit + self._connection.duration:
            return f"not ended {limit:g} s after its time"
        return ""

    def send_app(self) -> None:
        """Send the toolkit."""
        self._left = memoryview(self._connection.app)
        self._send()

    def beat(self) -> None:
        """Let the far end hear that somebody is here."""
        if self.machine.state is State.RUNNING:
            self._queued += 1
            self.worker.write(b"\n")

    def _send(self) -> None:
        part, self._left = self._left[:_CHUNK], self._left[_CHUNK:]
        if part:
            self._queued += len(part)
            self.worker.write(bytes(part))

    def take(self, stream: str, data: bytes) -> None:
        """Take what the machine has sent."""
        if stream == self.worker.SNAME_STDOUT:
            self.machine.output(data)
        else:
            self.machine.errors(data)

    # ------------------------------------------------------------ events of ClusterShell

    def ev_start(self, *_: object) -> None:
        """Do nothing: ev_pickup comes as well."""

    def ev_pickup(self, *_: object) -> None:
        """Note that the process has started."""
        self.started = time.monotonic()

    def ev_written(self, _worker: object, _node: str, _stream: str, size: int) -> None:
        """Send more once all is written."""
        self._queued -= size
        if not self._queued:
            self._send()

    def ev_hup(self, _worker: object, _node: str, status: int) -> None:
        """Note the status of the process."""
        self.machine.close(status)

    def ev_close(self, *_: object) -> None:
        """Note the end of the process, if it was killed."""
        self.machine.close(None)


class _Clock:
    """What happens every tenth of a second: the handler of the events of a timer."""

    def __init__(self, links: Sequence[_Link], stop: Callable[[], bool], tick: Any) -> None:
        self._links = links
        self._stop = stop
        self._tick = tick
        self._cut = math.inf
        self._beat = time.monotonic()

    def ev_timer(self, _timer: object) -> None:
        """Look for ^C, late machines, and what is to be shown."""
        now = time.monotonic()
        if self._cut == math.inf and self._stop():
            self._cut = now + _PATIENCE
            for link in self._links:
                self._end(link)
        for link in self._links:
            if not link.machine.ended:
                self._look(link, now)
        if self._cut == math.inf and now > self._beat + _BEAT:
            self._beat = now
            for link in self._links:
                link.beat()
        self._tick()

    def _end(self, link: _Link) -> None:
        # The far end's program sees the end of its standard input.
        if link.started == math.inf:
            link.machine.give_up("not asked: interrupted before", State.FAILED)
            link.worker.abort()
        else:
            link.worker.set_write_eof()

    def _look(self, link: _Link, now: float) -> None:
        reason = "still running after ^C" if now > self._cut else link.late(now)
        if reason:
            link.machine.give_up(reason)
            link.worker.abort()


def most_at_once() -> int:
    """Return how many machines can be connected at a time; raises the limit of descriptors."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (now - _OWN_FILES) // _FILES) if now >= 0 else sys.maxsize


def reach(
    machines: Sequence[Machine],
    connection: Connection,
    *,
    stop: Callable[[], bool],
    tick: Callable[[], object],
) -> None:
    """Ask all machines, until each has answered or is given up.

    Args:
        machines: the machines; they take what is sent.
        connection: how they are reached.
        stop: returns True once everything must end.
        tick: called every tenth of a second.
    """
    logging.getLogger("ClusterShell").setLevel(logging.CRITICAL)  # the machine's end says why
    task = task_self()
    task.set_info("fanout", connection.fanout)
    for name in ("stdout_msgtree", "stderr_msgtree"):
        task.set_default(name, False)  # noqa: FBT003 - ClusterShell's signature
    links = [_Link(machine, connection) for machine in machines]
    for link in links:
        link.machine.on_need = link.send_app
        task.schedule(link.worker)
    task.timer(_TICK, _Clock(links, stop, tick), interval=_TICK, autoclose=True)
    try:
        task.run()
    finally:
        task.abort(kill=True)
