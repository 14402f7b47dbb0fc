"""Runs of programs in bpftrace's language."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from usdt.base.errors import TargetError, TracingError
from usdt.base.text import printable_lines
from usdt.bpf.capabilities import missing_capabilities, privilege_hint
from usdt.engine.cli.click_group import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.programs.output.symbols import LiveSymbols
    from usdt.engine.programs.output.writer import Writer
    from usdt.engine.programs.prepared import PreparedProgram
    from usdt.engine.programs.syntax.source import Source
    from usdt.engine.run.programs import AttachedProgram

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
    from usdt.engine.programs.prepared import prepare_program  # noqa: PLC0415 - not for --help

    if values["info"]:
        from usdt.engine.cli.programs.info import kernel_info  # noqa: PLC0415 - not for --help

        click.echo(kernel_info(), nl=False)
        return 0
    if values["listing"]:
        return _list(values)
    source, words = _source(values)
    prepared = prepare_program(
        source,
        words,
        unsafe=values["unsafe"],
        folders=values["folders"],
        headers=values["headers"],
        mode=values["mode"] or "",
        helper_errors=values["helper_errors"],
    )
    if missing_capabilities():
        raise TracingError(f"tracing is not permitted: {privilege_hint()}")
    from usdt.engine.programs.check.program import OptionsAsked  # noqa: PLC0415 - not for --help

    try:
        return _run(values, prepared)
    except OptionsAsked as options:
        click.echo(printable_lines(str(options)))
        return 0


def _list(values: dict[str, Any]) -> int:
    from usdt.engine.cli.programs.listing import list_probes  # noqa: PLC0415 - not for --help

    words = values["words"]
    program = values["text"] is not None or (words and os.path.isfile(words[0]))  # noqa: PTH113 - pathlib costs an import
    if words and words[0].endswith(".bt") and not program:
        say(
            f"WARNING: It appears that '{words[0]}' is a filename but the file does not exist. "
            f"Treating '{words[0]}' as a search pattern."
        )
    source, rest = _source(values) if program else (None, words)
    for name in list_probes(source, rest, values["pids"], verbose=values["verbose"] > 0):
        click.echo(name)
    return 0


def _source(values: dict[str, Any]) -> tuple[Source, list[str]]:
    from usdt.engine.programs.syntax.parser import MAX_LENGTH  # noqa: PLC0415 - not for --help
    from usdt.engine.programs.syntax.source import Source  # noqa: PLC0415

    words = list(values["words"])
    if values["text"] is not None:
        return Source(values["text"], "-e"), words
    path = next((word for word in words if not word.startswith("--")), None)
    if path is None:
        raise click.UsageError("expected a SCRIPT, or a program with -e")
    words.remove(path)
    name, file = ("standard input", 0) if path == "-" else (path, path)
    if file == 0 and sys.stdin is None:  # the number may be that of another file
        raise TargetError("standard input is closed: there is no script")
    try:
        # Editors of Windows begin files with a byte order mark; /dev/zero has no end.
        with open(file, encoding="utf-8-sig", errors="surrogateescape", closefd=file != 0) as text:
            return Source(text.read(MAX_LENGTH + 1), name), words
    except OSError as err:
        raise TargetError(f"failed to open file '{name}': {err.strerror}") from err


def _run(values: dict[str, Any], prepared: PreparedProgram) -> int:
    from usdt.engine.cli.programs.text_output import TextOutput  # noqa: PLC0415 - not for --help
    from usdt.engine.output.output_file import OutputFile  # noqa: PLC0415
    from usdt.engine.run.loop import StopSignals, run_loop  # noqa: PLC0415
    from usdt.engine.run.options import TargetOptions, split_command  # noqa: PLC0415
    from usdt.engine.run.programs import AttachedProgram  # noqa: PLC0415

    command = values["command"]
    targets = TargetOptions(
        tuple(values["pids"]), None if command is None else split_command(command)
    )
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(OutputFile(values["output"]))
        program = AttachedProgram(stack, prepared, targets)
        if values["dry_run"]:
            program.try_out(say)
            return 0
        attached = program.attached
        stop = stack.enter_context(StopSignals(attached.targets.wake))
        text = TextOutput(output, values["buffering"])
        stack.callback(text.flush)

        def message(line: str) -> None:
            text.flush()  # standard error may be the same terminal
            say(line)

        warn = (lambda _: None) if values["no_warnings"] else message
        for warning in prepared.warnings:
            warn(warning)
        if values["mode"]:
            return _report(values, program, text.write, message, warn)
        results = program.start(
            _writer(values, text.write, program.symbols),
            say=message,
            stop=stop.request,
            warn=warn,
            ending=lambda: stop.signalled,
            together=text.together,
        )
        run_loop(
            attached.targets,
            results,
            stop,
            duration=None,
            on_poll=program.observe,
            on_idle=output.check_reader,
        )
        if values["verbose"] > 1:
            for line in program.session.listings:
                say(line)
        if attached.command is not None:
            attached.command.end()
    return results.code


def _report(
    values: dict[str, Any],
    program: AttachedProgram,
    write: Callable[[str], None],
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> int:
    from usdt.engine.cli.programs.selftests import report_benches, report_tests  # noqa: PLC0415 - for --test

    if values["mode"] == "test":
        return report_tests(program, write, form=values["form"], say=say, warn=warn)
    report_benches(program, write, form=values["form"])
    return 0


def _writer(values: dict[str, Any], write: Callable[[str], None], symbols: LiveSymbols) -> Writer:
    from usdt.engine.programs.output.writer import JsonWriter, TextWriter  # noqa: PLC0415 - not for --help

    if values["form"] == "json":
        return JsonWriter(write, symbols, quiet=values["quiet"])
    return TextWriter(write, symbols, quiet=values["quiet"])
