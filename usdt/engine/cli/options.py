"""Options that tracing commands share: decorators that declare them, and parsed records of them.

This module imports nothing of the engine, so that ``--help`` is fast.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from usdt.base.frozen import frozen
from usdt.engine.cli.click_group import SIZE
from usdt.engine.run.options import (
    DEFAULT_BUFFER,
    LIBRARY_TIMEOUT,
    TRACEFS,
    OutputOptions,
    RunOptions,
    TargetOptions,
    TraceOptions,
    split_command,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.compiler.record.columns import StackKind
    from usdt.engine.language.tree import Item, ProbeKind, ProbeText

__all__ = (
    "CommandOptions",
    "attach_options",
    "group_options",
    "heatmap_interval_option",
    "interval_option",
    "key_options",
    "linear_option",
    "lines_option",
    "output_options",
    "parse_options",
    "parse_requests",
    "pid_option",
    "stack_kinds",
    "stack_options",
    "stacks_of",
    "stop_options",
    "string_option",
    "struct_option",
    "target_options",
    "trace_attach_options",
    "trace_options",
)

F = TypeVar("F", bound="Callable[..., Any]")
# Attach methods of uprobes and of kernel functions. A probe ignores a method that does not apply to
# it.
_METHODS = ["uprobe_multi", "fentry", "kprobe_multi", "perf-link", "perf-event", "kprobe_events"]


@frozen
class CommandOptions:
    """The parsed arguments and options of a tracing command."""

    requests: tuple[ProbeText, ...]
    targets: TargetOptions
    trace: TraceOptions
    run: RunOptions
    output: OutputOptions


def parse_requests(probes: Sequence[str], kind: ProbeKind) -> tuple[ProbeText, ...]:
    """Parse probes; a probe that names no kind has ``kind``.

    Raises:
        LanguageError: a probe is not valid.
    """
    from usdt.engine.language import parse_probe  # noqa: PLC0415 - not for --help

    return tuple(parse_probe(text, default=kind) for text in probes)


def parse_options(
    requests: tuple[ProbeText, ...],
    values: dict[str, Any],
    *,
    keys: tuple[Item, ...] = (),
    aggregated: bool = False,
) -> CommandOptions:
    """Convert values parsed by click to records of options.

    Args:
        requests: the probes.
        values: the values parsed by click.
        keys: expressions of --by, --key and --end-key.
        aggregated: whether hits are aggregated in the kernel.

    Raises:
        click.UsageError: options exclude one another.
        TargetError: the command of -c cannot be split into arguments.
    """
    _check(values)
    command = values["command"]
    targets = TargetOptions(
        tuple(values["pids"]),
        None if command is None else split_command(command),
        values["all_processes"],
        values["follow"],
        None if values["duration"] else LIBRARY_TIMEOUT,
    )
    trace = TraceOptions(
        values.get("buffer", DEFAULT_BUFFER),
        values["max_string"],
        values.get("max_struct", TraceOptions().max_struct),
        stacks_of(values),
        values["via"],
        keys,
        aggregated,
        progress=_show_progress if sys.stderr.isatty() else None,
    )
    run = RunOptions(values["duration"], values["count"], values["verbose"], values["exit_code"])
    output = OutputOptions(
        values["output"],
        values.get("as_json", False),
        values.get("folded", False),
        values.get("lines", False),
    )
    return CommandOptions(requests, targets, trace, run, output)


def _check(values: dict[str, Any]) -> None:
    targets = bool(values["pids"]), values["command"] is not None, values["all_processes"]
    if sum(targets) > 1:
        raise click.UsageError("-p, -c and -a exclude one another")
    if values.get("folded") and values["as_json"]:
        raise click.UsageError("--folded and --json exclude one another")
    for flag, name in (("-d", "duration"), ("-i", "interval")):
        if math.isnan(values.get(name) or 0):  # click.FloatRange accepts nan
            raise click.UsageError(f"{flag}: nan is not a number of seconds")


def stacks_of(values: dict[str, Any]) -> tuple[StackKind, ...]:
    """Return the kinds of stacks that the options ask for: ``ustack``, ``kstack``."""
    kinds: tuple[StackKind, ...] = ("ustack", "kstack")
    given = tuple(kind for kind in kinds if values.get(kind) or values.get("stack"))
    return given or (kinds[:1] if values.get("folded") else ())


def _show_progress(done: int, total: int) -> None:
    # Writes one line that overwrites itself, and clears it at the end.
    if done == total or done % 64 == 0:
        end = "\r\x1b[K" if done == total else ""
        sys.stderr.write(f"\rattaching: {done} of {total}{end}")
        sys.stderr.flush()


# ------------------------------------------------------------ decorators


def _all(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    # Combines decorators: the options appear in the order given.
    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def target_options(function: F) -> F:
    """Add -p (repeatable: ``pids``), -c (``command``), -a (``all_processes``), -f (``follow``).

    Also --exit-code (``exit_code``).
    """
    return _all(
        _pid_option("Trace the process with this ID; may be repeated."),
        click.option("-c", "--command", metavar="COMMAND", help="Start this command and trace it."),
        click.option("-a", "--all", "all_processes", is_flag=True, help="Trace all processes."),
        click.option("-f", "--follow", is_flag=True, help="Also trace children of -p and -c."),
        click.option("--exit-code", is_flag=True, help="Exit with the status of the -c command."),
    )(function)


def pid_option(function: F) -> F:
    """Add -p (``pids``) to commands that only list."""
    return _pid_option("Search the files of this process; may be repeated.")(function)


def _pid_option(text: str) -> Callable[[F], F]:
    return click.option(
        "-p",
        "--pid",
        "pids",
        type=click.IntRange(1),
        multiple=True,
        metavar="PID",
        help=text,
    )


def stop_options(function: F) -> F:
    """Add -n (``count``) and -d (``duration``, seconds)."""
    return _all(
        click.option(
            "-n", "--count", type=click.IntRange(1), metavar="N", help="Stop after N events."
        ),
        click.option(
            "-d",
            "--duration",
            type=click.FloatRange(0, min_open=True),
            metavar="SECONDS",
            help="Stop after this time.",
        ),
    )(function)


def output_options(function: F) -> F:
    """Add --json (``as_json``) and -o (``output``)."""
    return _all(
        click.option("--json", "as_json", is_flag=True, help="Print JSON lines."),
        click.option("-o", "--output", metavar="FILE", help="Write results to FILE."),
    )(function)


def stack_kinds(function: F) -> F:
    """Add --stack, --ustack and --kstack; see :func:`stacks_of`."""
    return _all(
        click.option("--stack", is_flag=True, help="Record user and kernel stacks."),
        click.option("--ustack", is_flag=True, help="Record the user stack of each hit."),
        click.option("--kstack", is_flag=True, help="Record the kernel stack of each hit."),
    )(function)


def stack_options(function: F) -> F:
    """Add --stack, --ustack, --kstack, --folded (which implies user stacks) and --lines."""
    return _all(
        stack_kinds,
        click.option(
            "--folded", is_flag=True, help="Print each stack on one line, for flame graphs."
        ),
        lines_option,
    )(function)


def lines_option(function: F) -> F:
    """Add --lines (``lines``)."""
    return click.option(
        "--lines",
        is_flag=True,
        help="Show source lines and inlined functions in user stacks.",
    )(function)


def string_option(function: F) -> F:
    """Add --max-string (``max_string``, bytes)."""
    return click.option(
        "--max-string",
        type=click.IntRange(1, 65534),
        metavar="N",
        default=128,
        show_default=True,
        help="Keep N bytes of each str().",
    )(function)


def struct_option(function: F) -> F:
    """Add --max-struct (``max_struct``, bytes)."""
    return click.option(
        "--max-struct",
        type=click.IntRange(1, 65536),
        metavar="N",
        default=4096,
        show_default=True,
        help="Keep N bytes of each structure.",
    )(function)


def _sequence_option(function: F) -> F:
    """Add -s (``sequence``)."""
    return click.option(
        "-s",
        "--sequence",
        is_flag=True,
        help="Show functions, and their returns, only when each is called by the one before it.",
    )(function)


def _buffer_option(function: F) -> F:
    """Add --buffer (``buffer``, bytes)."""
    return click.option(
        "--buffer",
        type=SIZE,
        default=DEFAULT_BUFFER,
        help="Size of the ring buffer, default 8M.",
    )(function)


def trace_options(function: F) -> F:
    """Add the options of ``trace`` of both groups, except those of :func:`attach_options`."""
    return _all(
        target_options,
        stop_options,
        output_options,
        string_option,
        struct_option,
        stack_options,
        _sequence_option,
        _buffer_option,
    )(function)


def attach_options(function: F) -> F:
    """Add --via (``via``) and -v (``verbose``, the number of times it was given)."""
    return _attach_options(_METHODS, "Attach by this method, not by the kernel's newest.")(function)


def trace_attach_options(function: F) -> F:
    """Add the options of :func:`attach_options`, with ``tracefs``, which needs no BPF."""
    text = "Attach by this method, not by the kernel's newest; tracefs needs no BPF."
    return _attach_options([*_METHODS, TRACEFS], text)(function)


def _attach_options(methods: list[str], text: str) -> Callable[[F], F]:
    return _all(
        click.option("--via", type=click.Choice(methods), help=text),
        click.option(
            "-v",
            "--verbose",
            count=True,
            help="Show what is attached, and how; twice: also show the programs.",
        ),
    )


# ------------------------------------------------------------ aggregating commands


def group_options(function: F) -> F:
    """Add --by, --max-keys, --top, and the options of stacks."""
    return _all(
        stack_options,
        click.option(
            "--by",
            metavar="EXPR,...",
            help="Group results by EXPR,...: integers, strings, comm, ustack, kstack.",
        ),
        click.option(
            "--max-keys",
            type=click.IntRange(1, 1 << 24),
            metavar="N",
            default=10240,
            show_default=True,
            help="Keep N groups (with --interval: in each interval).",
        ),
        click.option(
            "--top", type=click.IntRange(1), metavar="N", help="Show only the N largest groups."
        ),
    )(function)


def interval_option(function: F) -> F:
    """Add -i (``interval``, seconds)."""
    return click.option(
        "-i",
        "--interval",
        type=click.FloatRange(0.01, 86400),
        metavar="SECONDS",
        help="Print results and reset them after each interval.",
    )(function)


def heatmap_interval_option(function: F) -> F:
    """Add -i (``interval``, seconds) of heatmap."""
    return click.option(
        "-i",
        "--interval",
        type=click.FloatRange(0.01, 86400),
        metavar="SECONDS",
        default=1.0,
        show_default=True,
        help="Time that each row covers.",
    )(function)


def linear_option(function: F) -> F:
    """Add --linear (``linear``)."""
    return click.option(
        "--linear",
        metavar="LO:HI:STEP",
        help="Use buckets of STEP from LO to HI instead of powers of two.",
    )(function)


def key_options(function: F) -> F:
    """Add --key, --end-key, --unit and --linear, for times from a start to an end."""
    return _all(
        click.option(
            "--key",
            metavar="EXPR,...",
            help="Match each start to its end by EXPR,...: integers, strings; default tid.",
        ),
        click.option("--end-key", metavar="EXPR,...", help="Key at END, if it differs from --key."),
        click.option(
            "--unit",
            type=click.Choice(["ns", "us", "ms", "s"]),
            default="ns",
            show_default=True,
            help="Unit of the buckets.",
        ),
        linear_option,
    )(function)
