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
import signal
import sys
import threading
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
_FILES = 4  # descriptors of a machine
_OWN_FILES = 64  # descriptors for all else
_DEAF = 1.0  # seconds without a look at the machines
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
        silence: seconds without a byte after which the other end is taken for lost.
        beat: seconds between two bytes for each far end.
    """

    template: Sequence[str]
    command: str
    app: bytes
    fanout: int
    timeout: float
    duration: float
    silence: float
    beat: float


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
        self.worker.eh.opened(process.stdin)
        return process

    def _close(self, abort: bool, timeout: bool) -> None:  # noqa: FBT001 - ClusterShell's signature
        if abort and self.popen.poll() is None:  # with what a template has started
            with contextlib.suppress(OSError):
                os.killpg(self.popen.pid, signal.SIGKILL)
        super()._close(abort, timeout)

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
        self.heard = math.inf
        self._connection = connection
        self._pulse = -1  # a descriptor of the standard input of the process
        self._lock = threading.Lock()  # for it: a thread writes, and another closes
        self._left = memoryview(b"")
        self._queued = 0
        words = transport_words(connection.template, machine.name, connection.command)
        self.worker = _Worker(machine.name, self, command=words, stderr=True)

    def look(self, now: float) -> None:
        """Give the machine up if it is late, or lost."""
        limit, silence = self._connection.timeout, self._connection.silence
        state = self.machine.state
        if state is State.RUNNING and now > self.heard + silence:
            reason = f"the connection was lost: nothing was heard for {silence:g} s"
            self.give_up(reason, State.FAILED)
        elif state is State.ASKED and now > self.started + limit:
            self.give_up(f"no answer within {limit:g} s")
        elif now > self.started + limit + self._connection.duration:
            self.give_up(f"not ended {limit:g} s after its time")

    def give_up(self, reason: str, state: State = State.LATE) -> None:
        """End the process; what has come stays."""
        self.machine.give_up(reason, state)
        self.hang_up()
        self.worker.abort()

    def end(self) -> None:
        """Let the far end's program see the end of its standard input."""
        if self.started == math.inf:
            self.give_up("not asked: interrupted before", State.FAILED)
        else:
            self.hang_up()
            self.worker.set_write_eof()

    def send_app(self) -> None:
        """Send the toolkit."""
        self._left = memoryview(self._connection.app)
        self._send()

    def opened(self, number: int) -> None:
        """Note the standard input of the process."""
        self._pulse = os.dup(number)

    def beat(self) -> None:
        """Let the far end hear that somebody is here; called by another thread."""
        with self._lock:
            # The toolkit has been sent before: no other thread writes now.
            if self._pulse >= 0 and self.machine.state is State.RUNNING:
                with contextlib.suppress(OSError):
                    os.write(self._pulse, b"\n")

    def hang_up(self) -> None:
        """Give up what beat() writes to. Idempotent."""
        with self._lock:
            number, self._pulse = self._pulse, -1
            if number >= 0:
                os.close(number)

    def _send(self) -> None:
        part, self._left = self._left[:_CHUNK], self._left[_CHUNK:]
        if part:
            self._queued += len(part)
            self.worker.write(bytes(part))

    def take(self, stream: str, data: bytes) -> None:
        """Take what the machine has sent."""
        self.heard = time.monotonic()
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
        self.hang_up()
        self.machine.close(status)

    def ev_close(self, *_: object) -> None:
        """Note the end of the process, if it was killed."""
        self.hang_up()
        self.machine.close(None)


class _Heart(threading.Thread):
    """Writes to all far ends at regular times, also while the main thread writes to a slow reader.

    A context manager.
    """

    def __init__(self, links: Sequence[_Link], beat: float) -> None:
        super().__init__(daemon=True)
        self._links = links
        self._beat = beat
        self._stopped = threading.Event()

    def run(self) -> None:
        """Write until it is stopped."""
        while not self._stopped.wait(self._beat):
            for link in self._links:
                link.beat()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()
        for link in self._links:
            link.hang_up()


class _Clock:
    """What happens every tenth of a second: the handler of the events of a timer."""

    def __init__(self, links: Sequence[_Link], stop: Callable[[], bool], tick: Any) -> None:
        self._links = links
        self._stop = stop
        self._tick = tick
        self._cut = math.inf
        self._seen = time.monotonic()

    def ev_timer(self, _timer: object) -> None:
        """Look for ^C, late machines, and what is to be shown."""
        now = time.monotonic()
        if self._cut == math.inf and self._stop():
            self._cut = now + _PATIENCE
            for link in self._links:
                link.end()
        deaf = now - self._seen
        self._seen = now
        for link in self._links:
            if deaf > _DEAF:  # this end was busy, or stopped: nothing could be heard
                link.heard += deaf
            if not link.machine.ended and now > self._cut:
                link.give_up("still running after ^C")
            elif not link.machine.ended:
                link.look(now)
        self._tick()


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
        with _Heart(links, connection.beat):
            task.run()
    finally:
        task.abort(kill=True)
