"""Options that tracing commands share: decorators that declare them, and parsed records of them.

This module imports nothing of the engine, so that ``--help`` is fast.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

import click

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen
from usdt.engine.cli.click_group import SIZE, Seconds, btf_option, colour_option, combined
from usdt.engine.cli.pictures.options import PICTURES, picture_options, pictures_of
from usdt.engine.compiler.limits import (
    DEFAULT_BACKLOG,
    DEFAULT_STACK,
    DEFAULT_STRING,
    DEFAULT_STRUCT,
    UNWIND_METHODS,
)
from usdt.engine.output.parquet import is_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from usdt.cgroups.selection import CgroupChoice
    from usdt.engine.language.tree import Item, ProbeKind, ProbeText, StackKind
    from usdt.engine.run.options import (
        OutputOptions,
        RunOptions,
        SymbolOptions,
        TargetOptions,
        TraceOptions,
    )

    Decorator: TypeAlias = Callable[[Any], Any]

__all__ = (
    "CommandOptions",
    "attach_options",
    "backlog_option",
    "buffer_option",
    "duration_option",
    "frame_options",
    "jit_map_option",
    "method_option",
    "output_options",
    "parse_options",
    "parse_requests",
    "realtime_option",
    "refuse_formats",
    "stack_forms",
    "stack_kinds",
    "stacks_of",
    "stop_options",
    "string_option",
    "struct_option",
    "symbol_options",
    "trace_options",
    "unwind_option",
    "unwind_options",
)

_CGROUP_OPTIONS: tuple[Literal["container", "pod", "unit", "cgroup"], ...]
_CGROUP_OPTIONS = "container", "pod", "unit", "cgroup"
# Attach methods of uprobes and of kernel functions. Probes ignore methods of other kinds.
_METHODS = [
    *("uprobe_multi", "fentry", "kprobe_multi", "perf-link", "perf-event"),
    *("uprobe_events", "kprobe_events"),
]


@frozen
class CommandOptions:
    """The parsed arguments and options of a tracing command.

    Attributes:
        requests: the probes.
        targets, trace, run, output: the options.
        command: name of the command.
        by: the expressions of --by; None if the command does not aggregate.
    """

    requests: tuple[ProbeText, ...]
    targets: TargetOptions
    trace: TraceOptions
    run: RunOptions
    output: OutputOptions
    command: str = ""
    by: tuple[str, ...] | None = None


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
    by: tuple[Item, ...] | None = None,
    calls: bool = False,
) -> CommandOptions:
    """Convert values parsed by click to records of options.

    Args:
        requests: the probes.
        values: the values parsed by click.
        keys: expressions of --by, --key and --end-key.
        by: those of --by, if hits are aggregated in the kernel.
        calls: whether each hit is a whole call.

    Raises:
        click.UsageError: options exclude one another, or -c cannot be split into arguments.
    """
    from usdt.engine.run import options as records  # noqa: PLC0415 - not for --help

    _check(values)
    command = values["command"]
    targets = records.TargetOptions(
        tuple(values["pids"]),
        None if command is None else _words(command),
        values["all_processes"],
        values["follow"],
        None if values["duration"] else records.LIBRARY_TIMEOUT,
        values["user"],
        _cgroups(values),
    )
    trace = records.TraceOptions(
        values.get("buffer"),
        values["max_string"],
        values.get("max_struct", records.TraceOptions().max_struct),
        stacks_of(values),
        values.get("unwind", "auto"),
        values.get("stack_bytes", DEFAULT_STACK),
        values["via"],
        keys,
        by is not None,
        calls,
        backlog=values.get("backlog", DEFAULT_BACKLOG),
    )
    names = ("duration", "count", "verbose", "exit_code", "drop", "at")
    run = records.RunOptions(*(values[name] for name in names))
    parquet = is_parquet(values["output"])
    output = records.OutputOptions(
        values["output"],
        values.get("as_json", False) or parquet,
        values.get("folded", False),
        values.get("lines", False),
        realtime=values.get("realtime", False),
        jit_map=values.get("jit_map", False),
        symbols=symbol_options(values),
        parquet=parquet,
        pictures=pictures_of(values),
    )
    texts = None if by is None else tuple(item.text for item in by)
    return CommandOptions(requests, targets, trace, run, output, values.get("name", ""), texts)


def _cgroups(values: dict[str, Any]) -> tuple[CgroupChoice, ...]:
    given = [(option, text) for option in _CGROUP_OPTIONS for text in values.get(f"{option}s", ())]
    if not given:
        return ()
    from usdt.cgroups.selection import CgroupChoice  # noqa: PLC0415 - few runs need it

    return tuple(CgroupChoice(option, text) for option, text in given)


def symbol_options(values: dict[str, Any]) -> SymbolOptions:
    """Return the parsed options of :data:`frame_options`.

    Raises:
        click.UsageError: a directory does not exist, or no server is named.
    """
    from usdt.engine.run import options as records  # noqa: PLC0415 - not for --help

    directories = tuple(values.get("symbols", ()))
    for directory in directories:
        if not os.path.isdir(directory):  # noqa: PTH112 - text
            raise click.UsageError(f"--symbols {directory}: no such directory")
    servers = records.debuginfod_servers() if values.get("debuginfod") else ()
    if values.get("debuginfod") and not servers:
        raise click.UsageError(f"--debuginfod needs {records.SERVERS_NEEDED}")
    return records.SymbolOptions(directories, servers)


def _check(values: dict[str, Any]) -> None:
    targets = bool(values["pids"]), values["command"] is not None, values["all_processes"]
    if sum(targets) > 1:
        raise click.UsageError("-p, -c and -a exclude one another")
    if values["command"] is not None and _cgroups(values):
        raise click.UsageError(
            "-c starts the command in the cgroup of this one; it excludes --cgroup, --unit, "
            "--container and --pod"
        )
    if values["user"] is not None and values["command"] is None:
        raise click.UsageError("--user is the user of a command: add -c COMMAND")
    if values["exit_code"] and values["command"] is None:
        raise click.UsageError("--exit-code is that of a command: add -c COMMAND")
    if values.get("folded") and values["as_json"]:
        raise click.UsageError("--folded and --json exclude one another")
    refuse_formats(values["output"], values)


def refuse_formats(path: str | None, values: Mapping[str, Any]) -> None:
    """Raise click.UsageError if the output is Parquet by its name, and another format was given.

    Args:
        path: the output file.
        values: the values parsed by click; the formats ``json`` and ``folded`` are refused.
    """
    for name in ("as_json", "folded") if is_parquet(path) else ():
        if values.get(name):
            option = name.removeprefix("as_")
            raise click.UsageError(f"-o {path} is Parquet: leave out --{option}")


def stacks_of(values: dict[str, Any]) -> tuple[StackKind, ...]:
    """Return the kinds of stacks that ``--ustack``, ``--pystack``, ``--stack`` … ask for."""
    from usdt.engine.language.tree import StackKind  # noqa: PLC0415 - not for --help

    whole = (StackKind.USER, StackKind.KERNEL) if values.get("stack") else ()
    given = tuple(kind for kind in StackKind if values.get(kind.value) or kind in whole)
    implied = any(values.get(name) for name in ("folded", *PICTURES))
    return given or ((StackKind.USER,) if implied else ())


# ------------------------------------------------------------ decorators


#: Adds -d (``duration``, seconds).
duration_option = click.option(
    "-d",
    "--duration",
    type=Seconds(0, min_open=True),
    metavar="DURATION",
    help="Stop after this time: seconds, or 500ms, 2m, …",
)


def stop_options(text: str = "Stop after N events.") -> Decorator:
    """Return a decorator that adds -n (``count``) and -d."""
    return combined(
        click.option("-n", "--count", type=click.IntRange(1), metavar="N", help=text),
        duration_option,
    )


#: Adds --json (``as_json``), -o (``output``) and --color.
output_options = combined(
    click.option("--json", "as_json", is_flag=True, help="Print JSON lines."),
    click.option(
        "-o", "--output", metavar="FILE", help="Write results to FILE; as Parquet to FILE.parquet."
    ),
    colour_option,
)

#: Adds --realtime.
realtime_option = click.option(
    "--realtime", is_flag=True, help="Show dates and times (ISO 8601), with --json as well."
)

#: Adds --stack, --ustack, --kstack and --pystack; see :func:`stacks_of`.
stack_kinds = combined(
    click.option("--stack", is_flag=True, help="Record user and kernel stacks."),
    click.option("--ustack", is_flag=True, help="Record the user stack of each hit."),
    click.option("--kstack", is_flag=True, help="Record the kernel stack of each hit."),
    click.option("--pystack", is_flag=True, help="Record the Python functions of each hit."),
)

#: Adds --lines, --symbols and --debuginfod; see :func:`symbol_options`.
frame_options = combined(
    click.option(
        "--lines", is_flag=True, help="Show source lines and inlined functions in user stacks."
    ),
    click.option(
        "--symbols",
        multiple=True,
        metavar="DIR",
        help="Find programs, libraries and debug files in DIR, by build ID.",
    ),
    click.option(
        "--debuginfod",
        is_flag=True,
        help="Download what else is needed from the servers in DEBUGINFOD_URLS, by build ID.",
    ),
)

#: Adds --jit-map (``jit_map``).
jit_map_option = click.option(
    "--jit-map",
    is_flag=True,
    help="Let Java virtual machines (Java 17 or newer) name what they have compiled, in stacks.",
)

#: Adds --folded, --flame, --speedscope and --pprof, which imply user stacks, --lines, --symbols and
#: --jit-map.
stack_forms = combined(
    click.option("--folded", is_flag=True, help="Print each stack on one line, for flame graphs."),
    picture_options,
    frame_options,
    jit_map_option,
)

#: Adds --unwind.
unwind_option = click.option(
    "--unwind",
    type=click.Choice(UNWIND_METHODS),
    default="auto",
    show_default=True,
    help="Unwind user stacks by unwind tables (dwarf), or by frame pointers (fp).",
)

#: Adds --unwind and --stack-bytes (``stack_bytes``).
unwind_options = combined(
    unwind_option,
    click.option(
        "--stack-bytes",
        type=SIZE,
        default=DEFAULT_STACK,
        help="Copy this much of each user stack, to unwind it by unwind tables; default 16K.",
    ),
)

#: Adds --max-string (``max_string``, bytes).
string_option = click.option(
    "--max-string",
    type=click.IntRange(1, 65534),
    metavar="N",
    default=DEFAULT_STRING,
    show_default=True,
    help="Keep at most N bytes of each str().",
)

#: Adds --max-struct (``max_struct``, bytes).
struct_option = click.option(
    "--max-struct",
    type=click.IntRange(1, 65536),
    metavar="N",
    default=DEFAULT_STRUCT,
    show_default=True,
    help="Keep at most N bytes of each structure.",
)

#: Adds --buffer.
buffer_option = click.option(
    "--buffer",
    type=SIZE,
    help="Size of the ring buffer; default 8M, or 64M if user stacks are copied. With more than "
    "two CPUs there are up to 16 of them, each of a quarter of the size at least.",
)

#: Adds --backlog (``backlog``, bytes).
backlog_option = click.option(
    "--backlog",
    type=SIZE,
    default=DEFAULT_BACKLOG,
    help="Memory for hits that wait to be written, default 64M.",
)

#: Adds the options of ``trace`` of both groups, except those of :func:`attach_options`.
trace_options = combined(
    stop_options(),
    output_options,
    realtime_option,
    string_option,
    struct_option,
    stack_kinds,
    stack_forms,
    unwind_options,
    click.option(
        "-s",
        "--sequence",
        is_flag=True,
        help="Show functions, and their returns, only when each is called by the one before it.",
    ),
    buffer_option,
    backlog_option,
)


def method_option(methods: Sequence[str], more: str = "") -> Decorator:
    """Return a decorator that adds --via (``via``)."""
    text = f"Attach by this method instead of the newest that the kernel has{more}."
    return click.option("--via", type=click.Choice(methods), help=text)


def _moment(_context: object, _option: object, text: str | None) -> int | None:
    if text is None:
        return None
    from usdt.base.moments import moment  # noqa: PLC0415 - few runs need it

    try:
        return moment(text)
    except ValueError as err:
        raise click.BadParameter(f"{err}.") from err


#: Adds --at (``at``, nanoseconds since 1970).
at_option = click.option(
    "--at",
    metavar="TIME",
    callback=_moment,
    help="Attach now, and begin at TIME: 14:30, 2026-11-24T14:30:00Z, or @SECONDS since 1970.",
)


def attach_options(*, tracefs: bool = False) -> Decorator:
    """Return a decorator that adds --at, --via, --btf, --drop and -v (``verbose``).

    Args:
        tracefs: whether the method ``tracefs``, which needs no BPF, is accepted.
    """
    from usdt.engine.run.options import TRACEFS  # noqa: PLC0415 - few commands have these

    return combined(
        at_option,
        method_option([*_METHODS, TRACEFS], "; tracefs needs no BPF")
        if tracefs
        else method_option(_METHODS),
        btf_option,
        click.option(
            "--drop/--no-drop",
            default=None,
            help="Once attached, give up capabilities not needed any more; default in services.",
        ),
        click.option(
            "-v",
            "--verbose",
            count=True,
            help="Show what is attached, and how; twice: also show the programs.",
        ),
    )


def _words(command: str) -> tuple[str, ...]:
    try:
        from usdt.engine.run.options import split_command  # noqa: PLC0415 - not for --help

        return split_command(command)
    except TargetError as err:
        raise click.UsageError(f"-c: {err}") from err
