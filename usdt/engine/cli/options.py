"""Options that tracing commands share, as decorators; imports nothing of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from usdt.engine.cli.click_group import SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = (
    "DEFAULT_BUFFER",
    "TRACEFS",
    "attach_options",
    "check_lines",
    "lines_option",
    "output_options",
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
TRACEFS = "tracefs"  # the way that needs no BPF
# Of files, and of functions of the kernel; what does not serve one of them leaves it as it is.
_WAYS = ["uprobe_multi", "fentry", "kprobe_multi", "perf-link", "perf-event", "kprobe_events"]
DEFAULT_BUFFER = (
    8 << 20
)  # of usdt.engine.runtime.session; given here so that --help does not import it


def _all(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    # One decorator of several: the options appear in the order given.
    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def target_options(function: F) -> F:
    """-p (repeatable: ``pids``), -c (``command``), -a (``everything``), -f (``follow``)."""
    return _all(
        click.option(
            "-p", "--pid", "pids", type=click.IntRange(1), multiple=True, help="A process."
        ),
        click.option("-c", "--command", help="Start a command and trace it."),
        click.option("-a", "--all", "everything", is_flag=True, help="Every process."),
        click.option("-f", "--follow", is_flag=True, help="Children of -p and -c as well."),
        click.option(
            "--exit-code", is_flag=True, help="End with the exit code of the command of -c."
        ),
    )(function)


def stop_options(function: F) -> F:
    """-n (``count``), -d (``duration``, seconds)."""
    return _all(
        click.option("-n", "--count", type=click.IntRange(1), help="Stop after so many."),
        click.option(
            "-d",
            "--duration",
            type=click.FloatRange(0, min_open=True),
            help="Stop after so many seconds.",
        ),
    )(function)


def output_options(function: F) -> F:
    """--json (``as_json``), -o (``output``)."""
    return _all(
        click.option("--json", "as_json", is_flag=True, help="JSON lines."),
        click.option("-o", "--output", help="Write to a file."),
    )(function)


def stack_kinds(function: F) -> F:
    """--stack, --ustack, --kstack; :func:`stacks_of` says which are asked for."""
    return _all(
        click.option("--stack", is_flag=True, help="User and kernel stacks."),
        click.option("--ustack", is_flag=True, help="The user stack of each hit."),
        click.option("--kstack", is_flag=True, help="The kernel stack of each hit."),
    )(function)


def stack_options(function: F) -> F:
    """The same, and --folded, which asks for user stacks, and --lines."""
    return _all(
        stack_kinds,
        click.option("--folded", is_flag=True, help="Stacks in one line each, for flame graphs."),
        lines_option,
    )(function)


def lines_option(function: F) -> F:
    """--lines (``lines``)."""
    return click.option(
        "--lines", is_flag=True, help="Source lines of user stacks, and functions inlined there."
    )(function)


def check_lines(options: dict[str, Any], *, names: bool) -> bool:
    """Whether --lines was given; ``names``: whether names of functions of processes are shown."""
    if options.get("lines") and not names:
        raise click.UsageError(
            "--lines is about user stacks: give --ustack or --folded as well, or an item ustack"
        )
    return bool(options.get("lines"))


def stacks_of(options: dict[str, Any]) -> tuple[str, ...]:
    """``ustack`` and ``kstack``, as far as the options ask for them."""
    chosen = [kind for kind in ("ustack", "kstack") if options[kind] or options["stack"]]
    return tuple(chosen or (["ustack"] if options["folded"] else []))


def string_option(function: F) -> F:
    """--max-string (``max_string``)."""
    return click.option(
        "--max-string",
        type=click.IntRange(1, 65534),
        default=128,
        show_default=True,
        help="Bytes that str() keeps.",
    )(function)


def struct_option(function: F) -> F:
    """--max-struct (``max_struct``)."""
    return click.option(
        "--max-struct",
        type=click.IntRange(1, 65536),
        default=4096,
        show_default=True,
        help="Bytes that are kept of a structure.",
    )(function)


def _sequence_option(function: F) -> F:
    """-s (``sequence``)."""
    return click.option(
        "-s",
        "--sequence",
        is_flag=True,
        help="Functions: only where each is called by the one before it; entries and returns.",
    )(function)


def _buffer_option(function: F) -> F:
    """--buffer (``buffer``, bytes)."""
    return click.option(
        "--buffer", type=SIZE, default=DEFAULT_BUFFER, help="Ring buffer, default 8M."
    )(function)


def trace_options(function: F) -> F:
    """What ``trace`` of both commands takes, but for how it attaches."""
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
    """--via (``via``), -v (``verbose``, how often it was given)."""
    return _attach_options(_WAYS, "Attach this way instead of the kernel's newest.")(function)


def trace_attach_options(function: F) -> F:
    """The same with ``tracefs``, which does without BPF."""
    text = "Attach this way instead of the kernel's newest; tracefs: without BPF."
    return _attach_options([*_WAYS, TRACEFS], text)(function)


def _attach_options(ways: list[str], text: str) -> Callable[[F], F]:
    return _all(
        click.option("--via", type=click.Choice(ways), help=text),
        click.option(
            "-v",
            "--verbose",
            count=True,
            help="What is attached, by which kernel path; twice: the programs as well.",
        ),
    )
