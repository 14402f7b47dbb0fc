"""Definitions of the commands that ``usdt`` and ``kprobe`` share.

This module imports nothing of the engine: a command's implementation is imported when it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from usdt.engine.cli.options import (
    attach_options,
    group_options,
    heatmap_interval_option,
    interval_option,
    key_options,
    linear_option,
    output_options,
    stop_options,
    string_option,
    target_options,
    trace_attach_options,
    trace_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.language.tree import ProbeKind

__all__ = ("tracing_command",)

_HELP = {
    "trace": "Print every hit of PROBE, with the values of its items.",
    "count": "Count hits of PROBE in the kernel. Items are predicates.",
    "hist": (
        "Show a histogram of EXPR, computed in the kernel. Further items of PROBE are predicates."
    ),
    "stats": "Show count, min, avg, max and sum of EXPR, computed in the kernel.",
    "latency": (
        "Show histograms of the time from START to END, or from a function's entry to its return. "
        "Items are predicates; --by is evaluated at END."
    ),
    "heatmap": (
        "Show a histogram over time: one row per interval, shaded by count. "
        "With -o FILE.svg, draw a picture."
    ),
}


def tracing_command(
    name: str, kind: ProbeKind, examples: str, *, probes: str, tracefs: bool = False
) -> click.Command:
    """Return one of the commands that both groups have.

    Args:
        name: ``trace``, ``count``, ``hist``, ``stats``, ``latency`` or ``heatmap``.
        kind: the kind of a probe that names none.
        examples: the end of the help text, one command per line.
        probes: a sentence of help that describes the syntax of probes.
        tracefs: whether ``trace`` has ``--via tracefs``.
    """

    def command(**values: Any) -> int:
        return _run(name, kind, values)

    # \b keeps click from filling the paragraph below it.
    text = f"{_HELP[name]} {probes}\n\n\b\n{examples.strip()}\n"
    return click.command(name, help=text)(_options(name, tracefs=tracefs)(command))


def _run(name: str, kind: ProbeKind, values: dict[str, Any]) -> int:
    if name == "trace":
        from usdt.engine.cli.trace import run_trace  # noqa: PLC0415 - not for --help

        return run_trace(kind, values)
    from usdt.engine.cli import aggregating  # noqa: PLC0415 - not for --help

    run: Callable[[ProbeKind, dict[str, Any]], int] = {
        "count": aggregating.run_count,
        "hist": aggregating.run_hist,
        "stats": aggregating.run_stats,
        "latency": aggregating.run_latency,
        "heatmap": aggregating.run_heatmap,
    }[name]
    return run(kind, values)


def _options(name: str, *, tracefs: bool) -> Callable[[Any], Any]:
    # Adds the arguments and options of a command, in the order of its help.
    def decorate(function: Any) -> Any:
        if name == "trace":
            attach = trace_attach_options if tracefs else attach_options
            return _probes("PROBE...")(trace_options(attach(function)))
        function = attach_options(function)
        for option in (string_option, output_options, stop_options, target_options):
            function = option(function)
        match name:
            case "hist":
                return _probes("PROBE(EXPR)...")(
                    group_options(interval_option(linear_option(function)))
                )
            case "latency":
                return _start_end(key_options(group_options(interval_option(function))))
            case "heatmap":
                return _probes("START END | PROBE(EXPR)")(
                    key_options(heatmap_interval_option(function))
                )
            case "stats":
                return _probes("PROBE(EXPR)...")(group_options(interval_option(function)))
        return _probes("PROBE...")(group_options(interval_option(function)))

    return decorate


def _probes(metavar: str) -> Callable[[Any], Any]:
    return click.argument("probes", metavar=metavar, nargs=-1, required=True)


def _start_end(function: Any) -> Any:
    function = click.argument("end", metavar="[END]", required=False)(function)
    return click.argument("start", metavar="START")(function)
