"""Attach a program of bpftrace's language, and start it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.compiler.limits import DEFAULT_BUFFER
from usdt.engine.programs.output.results import ProgramResults
from usdt.engine.programs.output.symbols import LiveSymbols
from usdt.engine.programs.session import ProgramSession
from usdt.engine.run.attach import attach_probes
from usdt.engine.run.options import TraceOptions
from usdt.engine.run.registry import target_provider

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.programs.output.writer import Writer
    from usdt.engine.programs.prepared import PreparedProgram
    from usdt.engine.run.options import TargetOptions

__all__ = ("AttachedProgram",)


class AttachedProgram:
    """A program whose probes are found; :meth:`start` checks it and attaches them.

    Args:
        stack: its exit detaches the program and frees everything.
        prepared: the program.
        targets: the processes to trace.
        buffer: bytes of the ring buffer.

    Attributes:
        attached: the traced processes, and the command that waits.
        session: the session that runs the program.
        symbols: names for what it shows.

    Raises:
        TracingError: a probe does not exist, or a process.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        prepared: PreparedProgram,
        targets: TargetOptions,
        *,
        buffer: int = DEFAULT_BUFFER,
    ) -> None:
        self._prepared = prepared
        self._buffer = buffer
        self.session: ProgramSession
        probes = [one.request for one in prepared.requests if one.request is not None]
        self.attached = attach_probes(stack, targets, probes, self._make_session, TraceOptions())
        if self.attached.command is not None:
            prepared.state.command = self.attached.command.pid
        self.symbols = LiveSymbols(target_provider().symbolizer, self.session.stacks_of)
        stack.callback(self.symbols.close)

    def _make_session(self, tasks: TaskFilter) -> ProgramSession:
        self.session = ProgramSession(
            self._prepared.state,
            self._prepared.requests,
            max_keys=self._prepared.settings.max_keys,
            accept=tasks,
            buffer=self._buffer,
        )
        return self.session

    def start(
        self, writer: Writer, *, say: Callable[[str], object], stop: Callable[[], object]
    ) -> ProgramResults:
        """Check the program, attach its probes and let the command run.

        Args:
            writer: writes the output.
            say: writes a message for the user.
            stop: ends the run.

        Returns:
            What takes the events of the program.

        Raises:
            LanguageError: a name is unknown, or values do not fit.
            TracingError: nothing can be attached.
        """
        results = ProgramResults(
            self.session,
            writer,
            self.symbols,
            say=say,
            stop=stop,
            print_maps=self._prepared.settings.print_maps,
        )
        for failure in self.session.start():
            say(str(failure.error))
        self.observe()
        writer.attached(len(self._prepared.requests))
        self.attached.release()
        if all(one.request is None for one in self._prepared.requests):
            stop()  # nothing can come any more
        return results

    def observe(self) -> None:
        """Record the mappings of the traced processes, if the program shows their symbols."""
        if self._prepared.state.user_symbols:
            self.symbols.observe(self.session.pids)
