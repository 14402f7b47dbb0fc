"""Runs of programs in bpftrace's language."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from usdt.base.errors import TargetError, TracingError
from usdt.bpf.capabilities import missing_capabilities, privilege_hint
from usdt.engine.cli.click_group import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.programs.output.symbols import LiveSymbols
    from usdt.engine.programs.output.writer import Writer
    from usdt.engine.programs.session import ProbeRequest, ProgramSession
    from usdt.engine.programs.syntax.program import Program
    from usdt.engine.programs.syntax.source import Source
    from usdt.engine.run.attach import AttachedProbes
    from usdt.engine.run.loop import StopSignals

__all__ = ("run_program",)


def run_program(values: dict[str, Any]) -> int:
    """Run a program.

    Args:
        values: the values parsed by click.

    Returns:
        The exit code: that of the program.

    Raises:
        click.UsageError: there is no program.
        TracingError: the program is not valid, or its probes cannot be attached.
    """
    from usdt.engine.programs.headers import header_reader  # noqa: PLC0415 - not for --help
    from usdt.engine.programs.probes import probe_requests  # noqa: PLC0415
    from usdt.engine.programs.syntax.macros import expand_macros  # noqa: PLC0415
    from usdt.engine.programs.syntax.parser import parse_program  # noqa: PLC0415

    source, arguments = _source(values)
    folder = os.path.dirname(source.name)  # noqa: PTH120 - pathlib costs an import
    program = parse_program(source, read_header=header_reader(folder))
    program = expand_macros(source, program)
    requests = probe_requests(program, source, arguments)
    if missing_capabilities():
        raise TracingError(f"tracing is not permitted: {privilege_hint()}")
    return _Run(values, source, requests, arguments, program).run()


def _source(values: dict[str, Any]) -> tuple[Source, list[str]]:
    from usdt.engine.programs.syntax.source import Source  # noqa: PLC0415 - not for --help

    words = list(values["words"])
    if values["text"] is not None:
        return Source(values["text"], "-e"), words
    if not words:
        raise click.UsageError("expected a SCRIPT, or a program with -e")
    path = words.pop(0)
    if path == "-":
        return Source(sys.stdin.read(), "standard input"), words
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - pathlib costs an import
            return Source(file.read(), path), words
    except OSError as err:
        raise TargetError(f"{path}: cannot be read: {err.strerror}") from err


class _Run:
    # One run of a program.
    def __init__(
        self,
        values: dict[str, Any],
        source: Source,
        requests: Sequence[ProbeRequest],
        words: Sequence[str],
        program: Program,
    ) -> None:
        from usdt.engine.programs.check.settings import settings_of  # noqa: PLC0415 - not for --help
        from usdt.engine.programs.check.state import ProgramState  # noqa: PLC0415 - not for --help

        self._values = values
        self._settings = settings_of(program, source)
        self._requests = requests
        self._state = ProgramState(
            source,
            words,
            max_string=self._settings.max_string,
            began=time.clock_gettime_ns(time.CLOCK_MONOTONIC),
            unsafe=values["unsafe"],
        )
        self._state.declare(program.maps)
        if program.definitions:
            from usdt.engine.programs.definitions import Definitions  # noqa: PLC0415 - few programs

            self._state.defined = Definitions(program.definitions, source)
        self._session: ProgramSession

    def run(self) -> int:
        from usdt.engine.output.output_file import OutputFile  # noqa: PLC0415 - not for --help
        from usdt.engine.run.attach import attach_probes  # noqa: PLC0415
        from usdt.engine.run.loop import StopSignals  # noqa: PLC0415
        from usdt.engine.run.options import TargetOptions, TraceOptions, split_command  # noqa: PLC0415

        command = self._values["command"]
        targets = TargetOptions(
            tuple(self._values["pids"]), None if command is None else split_command(command)
        )
        probes = [one.request for one in self._requests if one.request is not None]
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(OutputFile(self._values["output"]))
            attached = attach_probes(stack, targets, probes, self._make_session, TraceOptions())
            if attached.command is not None:
                self._state.command = attached.command.pid
            stop = stack.enter_context(StopSignals(attached.targets.wake))
            code = self._trace(stack, attached, output, stop)
            if attached.command is not None:
                attached.command.end()
        return code

    def _make_session(self, tasks: TaskFilter) -> ProgramSession:
        from usdt.engine.compiler.limits import DEFAULT_BUFFER  # noqa: PLC0415 - not for --help
        from usdt.engine.programs.session import ProgramSession  # noqa: PLC0415

        self._session = ProgramSession(
            self._state,
            self._requests,
            max_keys=self._settings.max_keys,
            accept=tasks,
            buffer=DEFAULT_BUFFER,
        )
        return self._session

    def _trace(
        self,
        stack: contextlib.ExitStack,
        attached: AttachedProbes,
        output: OutputFile,
        stop: StopSignals,
    ) -> int:
        from usdt.engine.programs.output.results import ProgramResults  # noqa: PLC0415 - not for --help
        from usdt.engine.programs.output.symbols import LiveSymbols  # noqa: PLC0415
        from usdt.engine.run.loop import run_loop  # noqa: PLC0415
        from usdt.engine.run.registry import target_provider  # noqa: PLC0415

        symbols = LiveSymbols(target_provider().symbolizer, self._session.stacks_of)
        stack.callback(symbols.close)
        writer = self._writer(output, symbols)
        results = ProgramResults(
            self._session,
            writer,
            symbols,
            say=say,
            stop=stop.request,
            print_maps=self._settings.print_maps,
        )
        for failure in self._session.start():
            say(str(failure.error))
        if self._state.user_symbols:
            symbols.observe(self._session.pids)
        writer.attached(len(self._requests))
        attached.release()
        if all(one.request is None for one in self._requests):
            stop.request()  # nothing can come any more

        def on_poll() -> None:
            if self._state.user_symbols:
                symbols.observe(self._session.pids)

        run_loop(
            attached.targets,
            results,
            stop,
            duration=None,
            on_poll=on_poll,
            on_idle=output.check_reader,
        )
        if self._values["verbose"] > 1:
            for line in self._session.listings:
                say(line)
        return results.code

    def _writer(self, output: OutputFile, symbols: LiveSymbols) -> Writer:
        from usdt.engine.programs.output.writer import JsonWriter, TextWriter  # noqa: PLC0415 - not for --help

        def write(text: str) -> None:
            output.write([text])

        if self._values["form"] == "json":
            return JsonWriter(write, symbols)
        return TextWriter(write, symbols, quiet=self._values["quiet"])
