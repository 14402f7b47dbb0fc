"""``usdt merge``: the answers of several machines or runs as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from usdt.engine.cli.options import output_options, realtime_option, refuse_formats
from usdt.engine.cli.pictures.options import picture_options, pictures_of

if TYPE_CHECKING:
    from usdt.symbolize import Symbolizer

__all__ = ("merge",)

# \b keeps click from filling the paragraph below it.
_HELP = """Add up the results in FILE..., as if one machine had seen it all.

FILE is a stream that a command with --json has written, or a recording; - is standard input.
Events are shown in the order of their time of day.

\b
usdt merge web1.json web2.json
usdt merge *.json --by host --top 20
usdt merge *.json --json -o all.json     # can be merged again
"""


@click.command("merge", help=_HELP)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--by", type=click.Choice(["host"]), help="Keep the machines apart.")
@click.option("--top", type=click.IntRange(1), metavar="N", help="Show only the N largest groups.")
@click.option(
    "--sort",
    metavar="COLUMN",
    help="Sort by COLUMN (count, avg, max, ...), key or an EXPR of --by; default count.",
)
@click.option("--hist", is_flag=True, help="Show times with keys as histograms.")
@click.option("--folded", is_flag=True, help="Print each stack with its count, for flame graphs.")
@picture_options
@click.option(
    "--max-keys",
    type=click.IntRange(1, 1 << 24),
    metavar="N",
    default=1_000_000,
    show_default=True,
    help="Keep at most N groups.",
)
@click.option(
    "--whole", is_flag=True, help="Leave out intervals that a stream has only in part (--align)."
)
@click.option("--strict", is_flag=True, help="Refuse streams with which anything is wrong.")
@output_options
@realtime_option
def merge(files: tuple[str, ...], **values: Any) -> int:
    """Add up the results of several machines or runs."""
    if values["as_json"] and values["folded"]:
        raise click.UsageError("--json and --folded exclude one another")
    refuse_formats(values["output"], values)
    pictures = pictures_of(values, {"top": "--top"})
    if pictures is not None:
        from usdt.engine.cli.pictures.files import PictureOptions, run_pictures  # noqa: PLC0415 - not for --help

        by_host = values["by"] == "host"
        drawn = PictureOptions(pictures, recorded_symbols, by_host=by_host, strict=values["strict"])
        return run_pictures(files, drawn)
    from usdt.engine.cli.merge import MergeOptions, run_merge  # noqa: PLC0415 - not for --help
    from usdt.engine.merge.output import Choice  # noqa: PLC0415 - not for --help

    options = MergeOptions(
        Choice(
            values["top"],
            values["sort"],
            values["hist"],
            values["folded"],
            realtime=values["realtime"],
        ),
        values["by"] == "host",
        values["strict"],
        values["as_json"],
        values["output"],
        values["max_keys"],
        values["whole"],
    )
    return run_merge(files, options, recorded_symbols)


def recorded_symbols() -> Symbolizer:
    """Return the symbolizer of recorded stacks."""
    from usdt.symbolize import Symbolizer  # noqa: PLC0415 - only for stacks

    return Symbolizer()
