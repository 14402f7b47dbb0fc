"""``usdt report``: decode a recording."""

from __future__ import annotations

import fnmatch
import itertools
import os
from typing import TYPE_CHECKING, Any

import click

from usdt.base.frozen import replace
from usdt.engine.cli.options import frame_options, realtime_option, symbol_options
from usdt.engine.cli.pictures.options import picture_options, pictures_of
from usdt.engine.output.parquet import is_parquet

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.cli.report import ReportFormat, ReportOptions
    from usdt.engine.run.options import Pictures, SymbolOptions
    from usdt.symbolize import Symbolizer

__all__ = ("report",)

# \b keeps click from filling the paragraph below it.
_HELP = """Decode FILE, which usdt record wrote; - is standard input.

With PATTERN (provider:name, with * and ?), show only probes that match. Events of several
recordings are shown in the order of their time of day, as usdt merge shows them.

\b
usdt report queries.usdt
usdt report queries.usdt --json 'postgresql:query__start'
usdt report web1.usdt web2.usdt
usdt report queries.usdt --chrome -o queries.json     # for ui.perfetto.dev
usdt report queries.usdt --html queries.html          # also of JSON streams and of usdt merge
"""

_FORMATS: dict[ReportFormat, str] = {
    "json": "Print JSON lines, as usdt trace --json does.",
    "csv": "Print one table of comma-separated values.",
    "folded": "Print each stack with its number of hits, for flame graphs.",
    "chrome": "Print a trace of spans, for Perfetto and chrome://tracing.",
    "otlp": "Print spans as OTLP/JSON, one line for each process, for OpenTelemetry.",
    "header": "Print the metadata of the recording, as JSON.",
}


def _format_options(function: Any) -> Any:
    for name, text in reversed(_FORMATS.items()):
        function = click.option(f"--{name}", is_flag=True, help=text)(function)
    return click.option(
        "--format",
        "report_format",
        type=click.Choice(["text", *_FORMATS]),
        help="The same by name: --format otlp is --otlp.",
    )(function)


@click.command("report", help=_HELP)
@click.argument("file")
@click.argument("patterns", metavar="[FILE...] [PATTERN...]", nargs=-1)
@_format_options
@click.option(
    "--span",
    "spans",
    nargs=2,
    multiple=True,
    metavar="START END",
    help="With --chrome: show START and END as a span, besides x__start and x__done.",
)
@click.option("--html", metavar="FILE", help="Write one page with charts and tables to FILE.")
@picture_options
@frame_options
@realtime_option
@click.option(
    "-o", "--output", metavar="FILE", help="Write results to FILE; as Parquet to FILE.parquet."
)
def report(file: str, **values: Any) -> int:
    """Decode a recording."""
    given = values["report_format"]
    formats: list[ReportFormat] = [name for name in _FORMATS if values[name] or name == given]
    if given == "text" and formats:
        raise click.UsageError(f"--format text and --{formats[0]} exclude one another")
    if len(formats) > 1:
        raise click.UsageError(f"--{formats[0]} and --{formats[1]} exclude one another")
    if is_parquet(values["output"]):
        if formats or given:
            option = "format" if given else formats[0]
            raise click.UsageError(f"-o {values['output']} is Parquet: leave out --{option}")
        formats = ["parquet"]
    if values["spans"] and formats != ["chrome"]:
        raise click.UsageError("--span needs --chrome")
    if values["realtime"] and formats not in ([], ["json"], ["parquet"]):
        raise click.UsageError("--realtime is for text and --json")
    if values["html"] and (given or formats or values["output"] or values["realtime"]):
        raise click.UsageError("--html excludes other formats, --realtime and -o")
    if any(start == end for start, end in values["spans"]):
        raise click.UsageError("--span: START and END must differ")
    from usdt.engine.cli.report import ReportOptions, run_report  # noqa: PLC0415 - not for --help

    report_format: ReportFormat = formats[0] if formats else "text"
    options = ReportOptions(
        report_format,
        values["patterns"],
        values["spans"],
        values["output"],
        values["lines"],
        values["realtime"],
    )
    symbols = symbol_options(values)
    if values["html"]:
        return _page([file, *options.patterns], values["html"], symbols, lines=options.lines)
    pictures = pictures_of(values, {name: f"--{name}" for name in formats})
    others = [*itertools.takewhile(_is_file, options.patterns)]
    if others:
        patterns = options.patterns[len(others) :]
        options = replace(options, patterns=patterns)
    if pictures is not None:
        return _draw([file, *others], options, pictures, lambda: _symbolizer(symbols))
    if others:
        return _report_several([file, *others], options, lambda: _symbolizer(symbols))
    return run_report(file, options, lambda: _symbolizer(symbols))


def _is_file(word: str) -> bool:
    # A pattern names a probe: it has a colon, or it is "*".
    return word == "-" or os.path.lexists(word) or {*":*?["}.isdisjoint(word)


def _report_several(
    files: list[str], options: ReportOptions, symbols: Callable[[], Symbolizer]
) -> int:
    if options.format not in ("text", "json", "parquet"):
        raise click.UsageError(f"--{options.format} takes one recording")
    from usdt.engine.cli.merge import MergeOptions, run_merge  # noqa: PLC0415 - not for --help
    from usdt.engine.merge.output import Choice  # noqa: PLC0415 - not for --help

    merge = MergeOptions(
        Choice(realtime=options.realtime),
        as_json=options.format == "json",
        output=options.output,
        wanted=_wanted(options.patterns),
        lines=options.lines,
    )
    return run_merge(files, merge, symbols)


def _page(words: list[str], output: str, symbols: SymbolOptions, *, lines: bool) -> int:
    from usdt.engine.cli.page import run_page  # noqa: PLC0415 - not for --help

    files = [words[0], *itertools.takewhile(_is_file, words[1:])]
    wanted = _wanted(tuple(words[len(files) :]))
    return run_page(files, output, lambda: _symbolizer(symbols), wanted, lines=lines)


def _wanted(patterns: tuple[str, ...]) -> Callable[[str], bool] | None:
    if not patterns:
        return None
    return lambda probe: any(fnmatch.fnmatchcase(probe, pattern) for pattern in patterns)


def _draw(
    files: list[str],
    options: ReportOptions,
    pictures: Pictures,
    symbols: Callable[[], Symbolizer],
) -> int:
    from usdt.engine.cli.pictures.files import PictureOptions, run_pictures  # noqa: PLC0415 - not for --help

    wanted = _wanted(options.patterns)
    return run_pictures(
        files, PictureOptions(pictures, symbols, wanted=wanted, lines=options.lines)
    )


def _symbolizer(options: SymbolOptions) -> Symbolizer:
    from usdt.symbolize import Symbolizer  # noqa: PLC0415 - only for stacks
    from usdt.symbolize.sources.build_id_files import BuildIdFiles  # noqa: PLC0415

    return Symbolizer(sources=BuildIdFiles.of(options))
