"""Interfaces that probe providers implement; the engine does not import the providers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.stacks import UserSymbols
    from usdt.engine.recording.processes import Snapshots
    from usdt.engine.run.options import SymbolOptions, TargetOptions, TraceOptions
    from usdt.engine.runtime.session import BpfSession, Lost

    class Symbolizer(UserSymbols, Snapshots, Protocol):
        """A source of symbols for addresses of processes, now and later in a recording."""


__all__ = (
    "AttachResult",
    "ProbeProvider",
    "SpawnedCommand",
    "TargetProvider",
    "TracedTargets",
    "VariableTypeReader",
)


@frozen
class AttachResult:
    """The number of sites that a provider has attached, and its messages about them."""

    sites: int
    notices: tuple[str, ...] = ()


class VariableTypeReader(Protocol):
    """A reader of types of variables in the debug information of a kernel's image."""

    def __call__(self, paths: Iterable[str], build_id: str, name: str) -> str:
        """Return the type of a variable in C; "" if it is not known."""


class ProbeProvider(Protocol):
    """A provider of probes that exist once: those of the kernel."""

    def attach(
        self, session: BpfSession, requests: Sequence[ProbeText], options: TraceOptions
    ) -> AttachResult:
        """Attach probes to a session.

        Raises:
            ProbeNotFound: there is no such probe.
            TracingError: no site of a probe can be attached.
        """

    def defined_event(self, request: ProbeText) -> ProbeText | None:
        """Return a probe as one on an event that somebody defined in tracefs; None for others.

        Only tracefs can read such an event.
        """


class TargetProvider(Protocol):
    """A provider that finds processes and their files, and attaches the probes of those files."""

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
            stack: its exit detaches, and kills a command that was not released.
            targets: the processes.
            requests: the probes; may be empty, if only the processes are needed.
            session: makes the session that traces these processes.
            options: how to attach.

        Returns:
            The traced processes, and the started command, if there is one.
        """

    def symbolizer(
        self, options: SymbolOptions | None = None, *, jit_map: bool = False
    ) -> Symbolizer:
        """Return a symbolizer for addresses of running processes.

        Args:
            options: where symbols come from.
            jit_map: let JIT compilers that can be asked name the functions that they have compiled.
        """


class TracedTargets(Protocol):
    """Traced processes with their attached probes.

    :class:`usdt.targets.tracer.Tracer` implements it.

    Attributes:
        notices: messages for the user.
    """

    notices: list[str]

    @property
    def ended(self) -> bool:
        """True if all traced processes have ended."""

    @property
    def attach_log(self) -> list[str]:
        """Messages that say what was attached, by which attach method."""

    @property
    def listings(self) -> list[str]:
        """The instructions of every program."""

    @property
    def attached(self) -> int:
        """The number of attached sites."""

    @property
    def searching(self) -> bool:
        """Whether poll() looks for further files of processes, to attach probes in them."""

    def add(self, requests: Sequence[ProbeText]) -> None:
        """Attach further probes of files, as :meth:`TargetProvider.trace` does.

        Raises:
            TracingError: a probe cannot be attached. Those attached before stay.
        """

    def poll(self, timeout: float) -> list[Any]:
        """Return the next records; an empty list after ``timeout`` seconds."""

    def drain(self) -> Iterator[list[Any]]:
        """Detach, then yield the remaining records."""

    def lost(self) -> list[Lost]:
        """Return the losses of each probe."""

    def sites_of(self, probe: ProbeText) -> int:
        """Return the number of attached sites of a probe of files, one of those requested."""

    def children_note(self) -> str:
        """Return a message if the processes have children that are not traced, else ""."""

    def wake(self) -> None:
        """Make a waiting poll() return."""


class SpawnedCommand(Protocol):
    """A command that is stopped at its start.

    :class:`usdt.targets.spawn.StoppedCommand` implements it.

    Attributes:
        pid: its process ID.
    """

    pid: int

    def files(self) -> list[str]:
        """Return the files that it will map at its start: program, interpreters, libraries."""

    def release(self) -> None:
        """Let the command run."""

    def end(self) -> int | None:
        """Ask it to end; return the exit code, or None if it has not ended in time."""
