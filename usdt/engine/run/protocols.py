"""What the kinds of probes provide to the engine, which does not import them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Protocol

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterator, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.stacks import UserSymbols
    from usdt.engine.recording.processes import Snapshots
    from usdt.engine.run.options import TargetOptions, TraceOptions
    from usdt.engine.runtime.session import BpfSession, Lost

    class Symbolizer(UserSymbols, Snapshots, Protocol):
        """Names addresses of processes now, and in a recording later."""


__all__ = (
    "AttachResult",
    "ProbeProvider",
    "SpawnedCommand",
    "TargetProvider",
    "TracedTargets",
)


@frozen
class AttachResult:
    """How many sites a provider has attached, and what it reports about them."""

    sites: int
    notices: tuple[str, ...] = ()


class ProbeProvider(Protocol):
    """Attaches probes that exist once: those of the kernel."""

    def attach(
        self, session: BpfSession, requests: Sequence[ProbeText], options: TraceOptions
    ) -> AttachResult:
        """Attach probes to a session.

        Raises:
            ProbeNotFound: there is no such probe.
            TracingError: no site of a probe can be attached.
        """


class TargetProvider(Protocol):
    """Finds processes and the files they map, and attaches the probes of those files."""

    def trace(
        self,
        stack: contextlib.ExitStack,
        targets: TargetOptions,
        requests: Sequence[ProbeText],
        session: Callable[[TaskFilter], BpfSession],
        options: TraceOptions,
    ) -> tuple[TracedTargets, SpawnedCommand | None]:
        """Attach the probes of files, now and when processes map more files.

        Args:
            stack: detaches, and kills a command that was not released.
            targets: the processes.
            requests: the probes; may be empty, if only the processes are needed.
            session: makes the session that traces these processes.
            options: how to attach.
        """

    def symbolizer(self) -> Symbolizer:
        """Return a symbolizer for addresses of running processes."""


class TracedTargets(Protocol):
    """Processes with probes attached; :class:`usdt.targets.tracer.Tracer` is one."""

    notices: list[str]
    ended: bool

    @property
    def attach_log(self) -> list[str]:
        """What was attached, by which kernel path."""

    @property
    def listings(self) -> list[str]:
        """The instructions of every program."""

    @property
    def attached(self) -> int:
        """The number of attached sites."""

    def poll(self, timeout: float) -> list[Any]:
        """Return the next records; empty after ``timeout`` seconds."""

    def drain(self) -> Iterator[list[Any]]:
        """Detach, then yield the records that are left."""

    def lost(self) -> list[Lost]:
        """Return what each probe did not deliver."""

    def wake(self) -> None:
        """Let poll() return."""


class SpawnedCommand(Protocol):
    """A command that is held at its start; :class:`usdt.targets.spawn.StoppedCommand` is one."""

    def release(self) -> None:
        """Let it run."""

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit code, or None after ``timeout`` seconds."""

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
