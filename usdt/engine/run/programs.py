"""Attach a program of bpftrace's language, and start it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError, ProbeNotFound, ProgramError
from usdt.base.frozen import replace
from usdt.engine.compiler.limits import DEFAULT_BUFFER
from usdt.engine.programs.output.results import ProgramResults
from usdt.engine.programs.output.symbols import LiveSymbols
from usdt.engine.programs.probes import placed_error
from usdt.engine.programs.session import OWN_SIGNAL, ProgramSession
from usdt.engine.run.attach import attach_probes
from usdt.engine.run.options import TraceOptions
from usdt.engine.run.registry import system_call_numbers, target_provider

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.programs.output.writer import Writer
    from usdt.engine.programs.prepared import PreparedProgram
    from usdt.engine.run.options import TargetOptions

__all__ = ("AttachedProgram",)

# Kinds whose probes the exec of a command can hit.
_SEE_EXEC = ("fentry", "kprobe", "rawtp", "tracepoint")


def _is_of_processes(request: ProbeText) -> bool:
    # Whether a pattern selects among the files of processes: usdt:*:provider:name.
    return "*" in (path := request.path or "") and "/" not in path


class AttachedProgram:
    """A program whose probes are found; :meth:`start` checks it and attaches them.

    Args:
        stack: its exit detaches the program and frees everything.
        prepared: the program.
        targets: the processes to trace.
        buffer: bytes of the ring buffer.

    Attributes:
        attached: the traced processes, and the command that waits.
        settings: what the program has set.
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
        prepared.state.system_calls = system_call_numbers
        self.settings = prepared.settings
        self._stack = stack
        self._buffer = buffer
        self.session: ProgramSession
        probes = [one.request for one in prepared.requests if one.request is not None]
        missing: list[tuple[ProbeText, ProbeNotFound]] = []
        if any(one.kind in _SEE_EXEC for one in probes):
            targets = replace(targets, before_exec=True)
        if not (targets.pids or targets.command) and any(map(_is_of_processes, probes)):
            targets = replace(targets, all_processes=True)
        options = TraceOptions(missing=lambda request, err: missing.append((request, err)))
        try:
            self.attached = attach_probes(stack, targets, probes, self._make_session, options)
        except ProgramError:
            raise
        except LanguageError as err:  # of a provider, which knows the attach point alone
            of = (one for one in prepared.requests if one.request and one.request.text == err.text)
            request = next(of, None)
            if request is None:
                raise
            raise placed_error(request, err, prepared.state.source) from err
        gone = [request for request, _ in missing]
        self._requests = [one for one in prepared.requests if one.request not in gone]
        self._notices = self._passed_over(missing)
        if self.attached.command is not None:
            prepared.state.command = self.attached.command.pid
        self.symbols = LiveSymbols(
            target_provider().symbolizer, self.session.stacks_of, system_call_numbers
        )
        self.session.code = self.symbols.code
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

    def _passed_over(self, missing: Sequence[tuple[ProbeText, ProbeNotFound]]) -> list[str]:
        # Messages about probes that do not exist; raises the error if they are not passed over.
        # Scripts name a function by its names in several kernels.
        how = self._prepared.settings.missing
        there = {one.index for one in self._requests}
        if len(missing) > 1 and not self._requests:
            raise ProbeNotFound("no probe exists: " + "; ".join(str(err) for _, err in missing))
        for request, err in missing:
            asked = self.session.asked(request)
            if how == "error" or not self._requests or not (how or asked.index in there):
                raise err
        return [] if how == "ignore" else [f"passed over: {err}" for _, err in missing]

    def start(
        self,
        writer: Writer,
        *,
        say: Callable[[str], object],
        stop: Callable[[], object],
        warn: Callable[[str], object] | None = None,
        ending: Callable[[], bool] = lambda: False,
        together: Callable[[], AbstractContextManager[object]] | None = None,
    ) -> ProgramResults:
        """Check the program, attach its probes and let the command run.

        Args:
            writer: writes the output.
            say: writes a message for the user.
            stop: ends the run.
            warn: writes a warning; by default ``say``.
            ending: whether a signal has ended the run.
            together: a context for what a batch of events prints.

        Returns:
            What takes the events of the program.

        Raises:
            LanguageError: a name is unknown, or values do not fit.
            TracingError: nothing can be attached.
        """
        warn = warn or say
        results = ProgramResults(
            self.session,
            writer,
            self.symbols,
            say=say,
            stop=stop,
            warn=warn,
            print_maps=self._prepared.settings.print_maps,
            max_cat=self._prepared.settings.max_cat,
            ending=ending,
            together=together,
        )
        for notice in self._notices:
            warn(notice)
        failures = self.session.start(ending=ending)
        if failures and not self.session.attached:
            raise failures[0].error
        for failure in failures:
            say(str(failure.error))
        for warning in self._prepared.state.unused_maps():
            warn(warning)
        if any(one.kind == "self" for one in self._requests):
            self._handle_signal()
        self.observe()
        writer.attached(self.session.attached)
        self.attached.release()
        for batch in self.session.iterate():
            results.take(batch)
            if results.exited or ending():
                break
        if all(one.kind in ("begin", "end", "iter") for one in self._requests):
            stop()  # nothing can come any more
        return results

    def _handle_signal(self) -> None:
        # Run the probes of SIGUSR1 when it comes, until the session ends.
        previous = signal.signal(signal.SIGUSR1, lambda *_: self.session.run(OWN_SIGNAL))
        self._stack.callback(signal.signal, signal.SIGUSR1, previous)

    def try_out(self, say: Callable[[str], object]) -> None:
        """Attach the probes, but run nothing of ``begin``; the command stays stopped.

        Args:
            say: writes a message for the user.

        Raises:
            LanguageError, TracingError: as start().
        """
        for notice in self._notices:
            say(notice)
        for failure in self.session.start(begin=False):
            say(str(failure.error))

    def observe(self) -> None:
        """Record the mappings of the traced processes, if the program shows their symbols."""
        if self._prepared.state.user_symbols:
            self.symbols.observe(self.session.pids)
