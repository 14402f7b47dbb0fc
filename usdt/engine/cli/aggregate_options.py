"""Options of commands that aggregate hits, or pair them: decorators that declare them.

This module imports nothing of the engine, so that ``--help`` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from usdt.engine.cli.click_group import Seconds, combined
from usdt.engine.cli.options import stack_forms, unwind_option
from usdt.engine.compiler.limits import MAX_RESOLUTION

if TYPE_CHECKING:
    from usdt.engine.cli.options import Decorator

__all__ = (
    "align_option",
    "at_start_option",
    "group_options",
    "interval_option",
    "key_options",
    "linear_option",
    "pair_options",
    "resolution_option",
    "span_options",
    "span_report_options",
)

#: Adds --by, --max-keys, --top, --sort, and --stack, --ustack, --kstack, --pystack,
#: --folded, --lines, --symbols and --unwind.
group_options = combined(
    click.option(
        "--by",
        metavar="EXPR,...",
        help="Group results by EXPR,...: integers, strings, comm, ustack, kstack, pystack.",
    ),
    click.option(
        "--top", type=click.IntRange(1), metavar="N", help="Show only the N largest groups."
    ),
    click.option(
        "--sort",
        metavar="COLUMN",
        help="Sort by COLUMN (count, avg, max, ...), key or an EXPR of --by; default count.",
    ),
    click.option(
        "--max-keys",
        type=click.IntRange(1, 1 << 24),
        metavar="N",
        default=10240,
        show_default=True,
        help="Keep at most N groups (with --interval: in each interval).",
    ),
    click.option("--stack", is_flag=True, help="Group results by user and kernel stacks."),
    click.option("--ustack", is_flag=True, help="Group results by user stack."),
    click.option("--kstack", is_flag=True, help="Group results by kernel stack."),
    click.option("--pystack", is_flag=True, help="Group results by Python functions."),
    stack_forms,
    unwind_option,
)


def interval_option(text: str, default: float | None = None) -> Decorator:
    """Return a decorator that adds -i (``interval``, seconds)."""
    return click.option(
        "-i",
        "--interval",
        type=Seconds(0.01, 86400),
        metavar="DURATION",
        default=default,
        show_default=True,
        help=text,
    )


#: Adds --align.
align_option = click.option(
    "--align",
    is_flag=True,
    help="Begin intervals at multiples of DURATION since 1970, as on every other machine.",
)

#: Adds --linear.
linear_option = click.option(
    "--linear",
    metavar="LO:HI:STEP",
    help="Use buckets of STEP from LO to HI instead of powers of two.",
)

#: Adds --resolution.
resolution_option = click.option(
    "--resolution",
    type=click.IntRange(0, MAX_RESOLUTION),
    metavar="K",
    help="Compute percentiles from 2^K buckets in each power of two, within 2^-(K+1) of their "
    "values; histograms show these buckets. The default is 5 (1.6%).",
)

#: Adds --key and --end-key, for times from a start to an end.
pair_options = combined(
    click.option(
        "--key",
        metavar="EXPR,...",
        help="Match each START to its END by EXPR,...: integers, strings; default tid.",
    ),
    click.option("--end-key", metavar="EXPR,...", help="Key at END, if it differs from --key."),
)

#: Adds --at-start.
at_start_option = click.option(
    "--at-start",
    is_flag=True,
    help="Evaluate --by at START, not at END: the stack of a thread that begins to wait.",
)

#: Adds the options that select spans: those of :data:`pair_options`, --slower and --max-open.
span_options = combined(
    pair_options,
    click.option(
        "--slower",
        type=Seconds(0),
        metavar="DURATION",
        help="Deliver only spans of at least this duration: 10ms, 500us, 2s.",
    ),
    click.option(
        "--max-open",
        type=click.IntRange(1, 1 << 24),
        metavar="N",
        default=10240,
        show_default=True,
        help="Keep at most N spans that have not ended.",
    ),
)

#: Adds --slowest, --open (``show_open``) and --tree.
span_report_options = combined(
    click.option(
        "--slowest",
        type=click.IntRange(1, 1 << 20),
        metavar="N",
        help="Show only the N longest, at the end, or after each interval.",
    ),
    click.option(
        "--open",
        "show_open",
        is_flag=True,
        help="Also show spans that have not ended: at the end, on SIGUSR1, after each interval.",
    ),
    click.option(
        "--tree", is_flag=True, help="Show the spans of a thread inside one another, at the end."
    ),
)

#: Adds the options of :data:`pair_options`, and --linear.
key_options = combined(pair_options, linear_option)
