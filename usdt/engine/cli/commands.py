"""Definitions of the commands that ``usdt`` and ``kprobe`` share.

Options and implementation of a command are imported when it runs, not for the help of a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from usdt.engine.cli.click_group import combined

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from click.shell_completion import CompletionItem

    from usdt.engine.cli.options import Decorator
    from usdt.engine.language.tree import ProbeKind

__all__ = ("tracing_commands",)

_LINES = {
    "trace": "Print every hit.",
    "spans": "Print calls and pairs of probes with their duration.",
    "count": "Count hits in the kernel.",
    "hist": "Show a histogram of a value, computed in the kernel.",
    "stats": "Show count, percentiles, avg and sum of a value or a time.",
    "latency": "Show a histogram of the time between two probes.",
    "heatmap": "Show a histogram over time.",
}

_HELP = {
    "trace": "Print every hit of PROBE, with the values of its items.",
    "spans": (
        "Print each call of a function, or each pair of hits of START and END, as one line with "
        "its duration and the items of both ends. Items of START are taken at the start."
    ),
    "count": "Count hits of PROBE in the kernel. Items are predicates.",
    "hist": (
        "Show a histogram of EXPR, computed in the kernel. Further items of PROBE are predicates."
    ),
    "stats": (
        "Show count, min, percentiles, avg, max and sum of EXPR, computed in the kernel; with "
        "START END, those of the time from one to the other, paired as latency does."
    ),
    "latency": (
        "Show histograms of the time from START to END, or from a function's entry to its return. "
        "Items are predicates. With --by, which is evaluated at END (or, with --at-start, at "
        "START), show a table. --folded prints nanoseconds."
    ),
    "heatmap": (
        "Show a histogram over time: one row per interval, shaded by count. "
        "With -o FILE.svg, draw a picture."
    ),
}


def tracing_commands(
    kind: ProbeKind, probes: str, examples: Mapping[str, str]
) -> dict[str, tuple[Callable[[str], click.Command], str]]:
    """Return the commands that both groups have, for :class:`LazyGroup`.

    Args:
        kind: the kind of a probe that names none.
        probes: a sentence of help that describes the syntax of probes.
        examples: command → the end of its help, one command line per line.
    """

    def command(name: str) -> click.Command:
        def run(**values: Any) -> int:
            return _run(name, kind, values)

        # \b keeps click from filling the paragraph below it.
        text = f"{_HELP[name]} {probes}\n\n\b\n{examples[name].strip()}\n"
        return click.command(name, help=text)(_options(name)(run))

    return {name: (command, line) for name, line in _LINES.items()}


def _run(name: str, kind: ProbeKind, values: dict[str, Any]) -> int:
    values["name"] = name
    if name == "trace":
        from usdt.engine.cli.trace import run_trace  # noqa: PLC0415 - not for --help

        return run_trace(kind, values)
    if name == "spans":
        from usdt.engine.cli.spans import run_spans  # noqa: PLC0415 - not for --help

        return run_spans(kind, values)
    from usdt.engine.cli.aggregates import commands  # noqa: PLC0415 - not for --help

    run: Callable[[ProbeKind, dict[str, Any]], int] = {
        "count": commands.run_count,
        "hist": commands.run_hist,
        "stats": commands.run_stats,
        "latency": commands.run_latency,
        "heatmap": commands.run_heatmap,
    }[name]
    return run(kind, values)


def _options(name: str) -> Decorator:
    # Adds the arguments and options of a command, in the order of its help.
    from usdt.engine.cli import options, target_options  # noqa: PLC0415 - not for the group

    targets = target_options.target_options
    if name == "trace":
        attach = options.attach_options(tracefs=True)
        return combined(_probes("PROBE..."), targets, options.trace_options, attach)
    if name == "spans":
        return _span_options()
    from usdt.engine.cli import aggregate_options as more  # noqa: PLC0415 - for results

    interval = more.interval_option("Print results and reset them after each interval.")
    stop = options.stop_options("Stop after N events; with -i, after N intervals.")
    own: tuple[Decorator, ...]
    match name:
        case "hist":
            own = (
                _probes("PROBE(EXPR)..."),
                more.linear_option,
                more.resolution_option,
                more.group_options,
                interval,
            )
        case "latency":
            targets = target_options.timed_target_options
            own = (
                *(_start_and_end(), more.key_options, more.resolution_option),
                *(more.group_options, more.at_start_option, interval),
                click.option("--hist", is_flag=True, help="With --by: show histograms."),
            )
        case "heatmap":
            targets = target_options.timed_target_options
            interval = more.interval_option("Time that each row covers.", default=1.0)
            stop = options.stop_options("Stop after N rows.")
            own = (_probes("START END | PROBE(EXPR)"), more.key_options, interval)
        case "stats":
            probes = _probes("PROBE(EXPR)... | START END")
            own = (
                *(probes, more.pair_options, more.resolution_option),
                *(more.group_options, more.at_start_option, interval),
            )
        case _:
            own = (_probes("PROBE..."), more.group_options, interval)
    return combined(
        targets,
        stop,
        options.output_options,
        options.realtime_option,
        *own,
        more.align_option,
        options.string_option,
        options.attach_options(),
    )


def _span_options() -> Decorator:
    from usdt.engine.cli import aggregate_options as more  # noqa: PLC0415 - not for the group
    from usdt.engine.cli import options, target_options  # noqa: PLC0415 - not for the group
    from usdt.engine.cli.pictures.options import picture_options  # noqa: PLC0415 - not for the group

    return combined(
        _start_and_end(),
        target_options.target_options,
        options.stop_options("Stop after N spans."),
        options.output_options,
        options.realtime_option,
        more.span_options,
        more.span_report_options,
        more.interval_option("Print what --slowest, --open and --tree collect, and reset it."),
        options.string_option,
        options.struct_option,
        options.stack_kinds,
        picture_options,
        options.frame_options,
        options.jit_map_option,
        options.unwind_options,
        options.buffer_option,
        options.backlog_option,
        options.attach_options(),
    )


def _complete_probes(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from usdt.engine.cli.completion.values import complete_probes  # noqa: PLC0415 - for shells

    return complete_probes(context, parameter, incomplete)


def _probes(metavar: str) -> Decorator:
    return click.argument(
        "probes", metavar=metavar, nargs=-1, required=True, shell_complete=_complete_probes
    )


def _start_and_end() -> Decorator:
    return combined(
        click.argument("start", metavar="START", shell_complete=_complete_probes),
        click.argument("end", metavar="[END]", required=False, shell_complete=_complete_probes),
    )
