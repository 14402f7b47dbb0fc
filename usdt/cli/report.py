"""``usdt report``: decode a recording."""

from __future__ import annotations

import fnmatch
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdt.base.frozen import replace
from usdt.engine.cli.click_group import colour_option
from usdt.engine.cli.options import frame_options, realtime_option, symbol_options
from usdt.engine.cli.pictures.options import picture_options, pictures_of
from usdt.engine.output.parquet import is_parquet

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.cli.pictures.files import PictureOptions
    from usdt.engine.cli.report import ReportFormat, ReportOptions
    from usdt.engine.run.options import Pictures, SymbolOptions
    from usdt.symbolize import Symbolizer

__all__ = ("report",)

# \b keeps click from filling the paragraph below it.
_HELP = """Decode FILE, which usdt record wrote; - is standard input.

With PATTERN (provider:name, with * and ?), show only probes that match. Several recordings, and
streams that commands with --json have written, are shown as one, as usdt merge shows them.

\b
usdt report queries.usdt
usdt report queries.usdt --json 'postgresql:query__start'
usdt report web1.usdt web2.usdt --folded --by host
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
@click.option("--by", type=click.Choice(["host"]), help="Keep the machines apart.")
@click.option("--html", metavar="FILE", help="Write one page with charts and tables to FILE.")
@picture_options
@frame_options
@realtime_option
@click.option(
    "-o", "--output", metavar="FILE", help="Write results to FILE; as Parquet to FILE.parquet."
)
@colour_option
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
    by_host = values["by"] == "host"
    files = [file, *itertools.takewhile(_is_file, options.patterns)]
    options = replace(options, patterns=options.patterns[len(files) - 1 :])
    pictures = pictures_of(values, {name: f"--{name}" for name in (*formats, "html")})
    several = _Several(files, options, symbol_options(values), by_host=by_host)
    if values["html"]:
        return several.page(values["html"])
    if pictures is not None:
        return several.draw(pictures)
    if len(files) > 1 or by_host or _is_stream(file):
        return several.report()
    return run_report(file, options, several.symbolizer)


def _is_file(word: str) -> bool:
    # A pattern names a probe: it has a colon, or it is "*".
    return word == "-" or os.path.lexists(word) or {*":*?["}.isdisjoint(word)


def _is_stream(path: str) -> bool:
    # JSON lines. What is no regular file can be read once only: it is taken for a recording.
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(1) == b"{"
    except (OSError, ValueError):
        return False


class _Several:
    """Recordings and streams as one.

    Args:
        files: the files.
        options: what to show of them.
        symbols: where symbols come from.
        by_host: whether machines are kept apart.
    """

    def __init__(
        self, files: list[str], options: ReportOptions, symbols: SymbolOptions, *, by_host: bool
    ) -> None:
        self._files = files
        self._options = options
        self._symbols = symbols
        self._by_host = by_host

    def symbolizer(self) -> Symbolizer:
        """Return the symbolizer of recorded stacks."""
        from usdt.symbolize import Symbolizer  # noqa: PLC0415 - only for stacks
        from usdt.symbolize.sources.build_id_files import BuildIdFiles  # noqa: PLC0415

        return Symbolizer(sources=BuildIdFiles.of(self._symbols))

    def report(self) -> int:
        """Show events in the order of their time of day, and results; or folded stacks."""
        options = self._options
        if options.format == "folded":
            from usdt.engine.cli.pictures.files import run_folded  # noqa: PLC0415 - not for --help

            return run_folded(self._files, self._pictures(None), options.output)
        if options.format not in ("text", "json", "parquet"):
            raise click.UsageError(f"--{options.format} takes one recording, without --by")
        from usdt.engine.cli.merge import MergeOptions, run_merge  # noqa: PLC0415 - not for --help
        from usdt.engine.merge.output import Choice  # noqa: PLC0415 - not for --help

        merge = MergeOptions(
            Choice(realtime=options.realtime),
            by_host=self._by_host,
            as_json=options.format == "json",
            output=options.output,
            wanted=self._wanted(),
            lines=options.lines,
        )
        return run_merge(self._files, merge, self.symbolizer)

    def page(self, output: str) -> int:
        """Write a page with charts and tables."""
        from usdt.engine.cli.page import PageOptions, run_page  # noqa: PLC0415 - not for --help

        options = PageOptions(
            self.symbolizer, self._wanted(), lines=self._options.lines, by_host=self._by_host
        )
        return run_page(self._files, output, options)

    def draw(self, pictures: Pictures) -> int:
        """Draw the stacks."""
        from usdt.engine.cli.pictures.files import run_pictures  # noqa: PLC0415 - not for --help

        return run_pictures(self._files, self._pictures(pictures))

    def _pictures(self, pictures: Pictures | None) -> PictureOptions:
        from usdt.engine.cli.pictures.files import PictureOptions  # noqa: PLC0415 - not for --help

        return PictureOptions(
            pictures,
            self.symbolizer,
            wanted=self._wanted(),
            lines=self._options.lines,
            by_host=self._by_host,
        )

    def _wanted(self) -> Callable[[str], bool] | None:
        patterns = self._options.patterns
        if not patterns:
            return None
        return lambda probe: any(fnmatch.fnmatchcase(probe, pattern) for pattern in patterns)
