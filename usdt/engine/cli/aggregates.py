"""``count``, ``hist``, ``stats``, ``latency`` and ``heatmap`` of every front.

A front makes its commands of these builders and gives the examples of their help::

    count = count_command(FRONT, '''usdt count -p 1234 'postgresql:*' ''')

What a command does when it runs is in :mod:`usdt.engine.cli.aggregating`, imported then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from usdt.engine.cli.options import (
    attach_options,
    output_options,
    stack_options,
    stop_options,
    string_option,
    target_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.cli.running import Front

__all__ = (
    "count_command",
    "heatmap_command",
    "hist_command",
    "latency_command",
    "stats_command",
)

_LINEAR = "Buckets of STEP from LO to HI instead of powers of two."
_KEY = "What a start and its end have in common: integers, strings; default tid."
_UNITS = click.Choice(["ns", "us", "ms", "s"])


def _help(text: str, examples: str) -> str:
    # \b keeps click from filling the paragraph below it.
    return f"{text}\n\n\b\n{examples.strip()}\n"


def _by(function: Any) -> Any:
    for option in (
        click.option("--top", type=click.IntRange(1), help="Only so many, the largest."),
        click.option(
            "--max-keys",
            type=click.IntRange(1, 1 << 24),
            default=10240,
            show_default=True,
            help="Keys that are kept (with --interval: in each).",
        ),
        click.option("--by", help="Divide by EXPR,…: integers, strings, comm, ustack, kstack."),
    ):
        function = option(function)
    return stack_options(function)


_interval = click.option(
    "-i",
    "--interval",
    type=click.FloatRange(0.01, 86400),
    help="Print and begin anew every so many seconds.",
)


def _command(
    name: str,
    text: str,
    examples: str,
    arguments: Callable[[Any], Any],
    run: Callable[[dict[str, Any]], int],
) -> click.Command:
    # The options of all five, in the order of help.
    @click.command(name, help=_help(text, examples))
    @arguments
    @target_options
    @stop_options
    @output_options
    @string_option
    @attach_options
    def command(**options: Any) -> int:
        return run(options)

    return command


def _several(function: Any) -> Any:
    return click.argument("probes", metavar="PROBE...", nargs=-1, required=True)(
        _by(_interval(function))
    )


def count_command(front: Front, examples: str) -> click.Command:
    """``count PROBE…``."""

    def run(options: dict[str, Any]) -> int:
        from usdt.engine.cli.aggregating import run_count  # noqa: PLC0415 - --help does not pay

        return run_count(front, options)

    text = "Count hits of PROBE in the kernel. Items are predicates."
    return _command("count", text, examples, _several, run)


def hist_command(front: Front, examples: str) -> click.Command:
    """``hist PROBE(EXPR)``."""

    def run(options: dict[str, Any]) -> int:
        from usdt.engine.cli.aggregating import run_hist  # noqa: PLC0415 - --help does not pay

        return run_hist(front, options)

    def arguments(function: Any) -> Any:
        linear = click.option("--linear", metavar="LO:HI:STEP", help=_LINEAR)
        return _several(linear(function))

    text = "A histogram of EXPR, made in the kernel: PROBE(EXPR); further items are predicates."
    return _command("hist", text, examples, arguments, run)


def stats_command(front: Front, examples: str) -> click.Command:
    """``stats PROBE(EXPR)``."""

    def run(options: dict[str, Any]) -> int:
        from usdt.engine.cli.aggregating import run_stats  # noqa: PLC0415 - --help does not pay

        return run_stats(front, options)

    text = "Count, least, average, greatest and sum of EXPR: PROBE(EXPR)."
    return _command("stats", text, examples, _several, run)


def _pair(function: Any) -> Any:
    unit = click.option("--unit", type=_UNITS, default="ns", show_default=True, help="Of buckets.")
    linear = click.option("--linear", metavar="LO:HI:STEP", help=_LINEAR)
    end_key = click.option("--end-key", help="The same of END, where it is named otherwise.")
    return click.option("--key", help=_KEY)(end_key(unit(linear(function))))


def latency_command(front: Front, examples: str) -> click.Command:
    """``latency START [END]``."""

    def run(options: dict[str, Any]) -> int:
        from usdt.engine.cli.aggregating import run_latency  # noqa: PLC0415 - --help does not pay

        return run_latency(front, options)

    def arguments(function: Any) -> Any:
        function = _pair(_by(_interval(function)))
        function = click.argument("end", metavar="[END]", required=False)(function)
        return click.argument("start", metavar="START")(function)

    text = (
        "Times from START to END, as histograms; of a function alone, from its entry to its "
        "return. Items are predicates; --by is taken at END."
    )
    return _command("latency", text, examples, arguments, run)


def heatmap_command(front: Front, examples: str) -> click.Command:
    """``heatmap START END`` or ``heatmap PROBE(EXPR)``."""

    def run(options: dict[str, Any]) -> int:
        from usdt.engine.cli.aggregating import run_heatmap  # noqa: PLC0415 - --help does not pay

        return run_heatmap(front, options)

    def arguments(function: Any) -> Any:
        interval = click.option(
            "-i",
            "--interval",
            type=click.FloatRange(0.01, 86400),
            default=1.0,
            show_default=True,
            help="Seconds of a row.",
        )
        return click.argument("probes", metavar="START END | PROBE(EXPR)", nargs=-1, required=True)(
            _pair(interval(function))
        )

    text = (
        "A histogram over time: one row an interval, the shade is the count. "
        "With -o FILE.svg a picture."
    )
    return _command("heatmap", text, examples, arguments, run)
