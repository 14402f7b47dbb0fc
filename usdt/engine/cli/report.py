"""``report``: convert a recording to lines, a table, stacks or a trace of spans."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, assert_never

from usdt.base.errors import ProbeNotFound, TracingError
from usdt.base.frozen import frozen
from usdt.base.machine import KERNEL_MACHINE
from usdt.base.text import printable_lines
from usdt.engine.cli.click_group import plural, say
from usdt.engine.cli.running import closing_line, report_losses
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import FoldedFormatter, TextFormatter, titled
from usdt.engine.output.output_file import OutputFile, lines_in
from usdt.engine.output.wall_clock import WallClock
from usdt.engine.recording.processes import RecordedStacks, wants_stacks
from usdt.engine.recording.reader import Reader
from usdt.engine.recording.spans import ChromeFormatter, Spans
from usdt.engine.recording.tables import CsvFormatter, columns_of
from usdt.engine.runtime.session import Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.engine.compiler.record.layout import RecordLayout
    from usdt.engine.output.formatters.formatter import Formatter
    from usdt.engine.recording.processes import Snapshots

__all__ = ("ReportFormat", "ReportOptions", "run_report")

ReportFormat = Literal["text", "json", "csv", "folded", "chrome", "otlp", "header", "parquet"]

_MAX_FOLDED = 1 << 18  # distinct stacks counted together; flame graph tools add up repeated lines


@frozen
class ReportOptions:
    """The parts of a recording to show, and the format.

    Attributes:
        format: format of the report.
        patterns: show only probes that match one of these; if empty, show all.
        spans: pairs of probes that begin and end a span, for the format ``chrome``.
        output: a file; None is standard output.
        lines: show user stacks with source lines and inlined functions.
        realtime: show dates and times, in the formats ``text`` and ``json``.
    """

    format: ReportFormat
    patterns: tuple[str, ...] = ()
    spans: tuple[tuple[str, str], ...] = ()
    output: str | None = None
    lines: bool = False
    realtime: bool = False


def run_report(path: str, options: ReportOptions, symbols: Callable[[], Snapshots]) -> int:
    """Show a recording.

    Args:
        path: the recording; "-" is standard input.
        options: the parts to show, and the format.
        symbols: makes the symbolizer, if stacks were recorded.

    Returns:
        The exit code.

    Raises:
        RecordingError: the file is not a recording, or it is damaged; everything before the damage
            is shown.
        ProbeNotFound: a pattern matches no recorded probe.
        TracingError: the output is the recording itself, or there are no stacks to fold.
    """
    with contextlib.suppress(OSError):  # a missing file cannot be the recording
        if options.output is not None and os.path.samefile(path, options.output):  # noqa: PTH121 - Path has no advantage
            raise TracingError(f"{path}: the report would overwrite the recording")
    with contextlib.ExitStack() as stack:
        output_file = stack.enter_context(_output_file(options))
        reader = stack.enter_context(Reader.open(path))
        order = reader.header.byteorder if reader.header else sys.byteorder
        machine = reader.header.machine if reader.header else KERNEL_MACHINE
        stacks = stack.enter_context(RecordedStacks(symbols, order, machine, lines=options.lines))
        say(_Report(reader, output_file, stacks, path, options).main())
    return 0


def _output_file(options: ReportOptions) -> OutputFile:
    if options.format == "parquet":
        from usdt.engine.output.parquet.stream import ParquetStream  # noqa: PLC0415 - only for this format

        return ParquetStream(options.output)
    return OutputFile(options.output)


@contextlib.contextmanager
def _rewound(path: str) -> Iterator[None]:
    # Standard input has one file position. The second reader shares it with the first, which has
    # already read the beginning.
    try:
        position = os.lseek(0, 0, os.SEEK_CUR) if path == "-" else None
    except OSError:  # a pipe, which Reader.survey() refuses
        position = None
    if position is None:
        yield
        return
    os.lseek(0, 0, os.SEEK_SET)
    try:
        yield
    finally:
        os.lseek(0, position, os.SEEK_SET)


class _Report:
    def __init__(
        self,
        reader: Reader,
        output: OutputFile,
        stacks: RecordedStacks,
        path: str,
        options: ReportOptions,
    ) -> None:
        self.reader = reader
        self.stacks = stacks
        self.output = output
        self.path = path
        self.options = options
        self.events = 0
        self.separator = ""  # written before the next object of a list

    def main(self) -> str:
        self._write()
        self._check_patterns()
        for notice in self.stacks.take_notices():
            say(notice)
        return self._closing()

    # ------------------------------------------------------------ formats

    def _write(self) -> None:
        match self.options.format:
            case "text":
                self._text()
            case "json":
                self._json()
            case "csv":
                self._csv()
            case "folded":
                self._folded()
            case "chrome":
                self._chrome()
            case "otlp":
                self._otlp()
            case "header":
                self._header()
            case "parquet":
                self._parquet()
            case unknown:
                assert_never(unknown)

    def _text(self) -> None:
        realtime = self.options.realtime
        look = self.output.look
        form = TextFormatter(
            look=look, offset=self._offset(), stacks=self.stacks, realtime=realtime
        )
        self._lines(form)

    def _offset(self) -> int:
        # Nanoseconds from CLOCK_MONOTONIC to CLOCK_REALTIME on the recording machine.
        clock = self.reader.header.clock if self.reader.header else None
        return clock.realtime - clock.monotonic if clock else 0

    def _json(self) -> None:
        header = self.reader.header
        if header is not None and header.stream is not None:
            self.output.write([header.stream.line()])
        clock = WallClock(self._offset()) if self.options.realtime else None
        self._lines(JsonFormatter(self.stacks, clock=clock))
        for item in self._lost():
            self.output.write_loss(item.probe, item.lost)

    def _parquet(self) -> None:
        from usdt.engine.output.parquet import share_columns  # noqa: PLC0415 - only for this format
        from usdt.engine.output.parquet.formatter import RowFormatter  # noqa: PLC0415

        formatter = RowFormatter(self.stacks)
        for layout in self._layouts():
            formatter.columns.add_layout(layout)
        if self.reader.header is not None:
            self.output.write([self.reader.header.of_stream().line()])
        share_columns(self.output, formatter)
        for batch in self._replay(formatter):
            self.output.write(batch)
        for item in self._lost():
            self.output.write_loss(item.probe, item.lost)

    def _layouts(self) -> list[RecordLayout]:
        # The layouts of all records that are shown: the file is read twice.
        with _rewound(self.path), Reader.open(self.path) as survey:
            survey.survey()
            return [one.layout for one in survey.variants if self._wanted(one.probe)]

    def _csv(self) -> None:
        formatter = CsvFormatter(columns_of(self._layouts()), self.stacks)
        # In a file, cells are exactly what was traced; a terminal would obey some of it.
        shown = printable_lines if self.output.terminal else str
        self.output.write([shown(formatter.title())])
        for batch in self._replay(formatter):
            self.output.write([*map(shown, batch)])

    def _folded(self) -> None:
        counts: Counter[str] = Counter()
        for batch in self._replay(FoldedFormatter(self.stacks)):
            counts.update(batch)
            if len(counts) > _MAX_FOLDED:
                self._write_counts(counts)
        layouts = [
            variant.layout for variant in self.reader.variants if self._wanted(variant.probe)
        ]
        if layouts and not any(wants_stacks(layout) for layout in layouts):
            raise TracingError(f"{self.path}: no stacks were recorded; add --ustack to usdt record")
        self._write_counts(counts)

    def _write_counts(self, counts: Counter[str]) -> None:
        # Each line ends in " 1", the count of a single hit.
        self.output.write([f"{line[:-3]} {count}\n" for line, count in sorted(counts.items())])
        counts.clear()

    def _chrome(self) -> None:
        spans = Spans(self.options.spans)
        self.output.write(['{"traceEvents": ['])
        self.separator = "\n"
        try:
            known = 0
            for batch in self._replay(ChromeFormatter(self.stacks)):
                if len(self.reader.variants) != known:
                    spans.probes(variant.probe for variant in self.reader.variants)
                    known = len(self.reader.variants)
                self._objects(spans.events(batch))
        finally:  # the trace of a damaged recording must be valid JSON, too
            self._objects(spans.rest())
            header = self.reader.header
            about = header.to_json() if header else {}
            end = f'\n],\n"displayTimeUnit": "ns", "otherData": {json.dumps(about)}}}\n'
            self.output.write([end])
        for number, what in (
            (spans.unfinished, "without an end"),
            (spans.unbegun, "without a start"),
        ):
            if number:
                say(f"{plural(number, 'span')} {what}: shown as instants")

    def _otlp(self) -> None:
        from usdt.base.version import VERSION  # noqa: PLC0415 - only for this format
        from usdt.engine.recording.otlp import OtlpSpans  # noqa: PLC0415

        host = self.reader.header.host if self.reader.header else ""
        spans = OtlpSpans(host, self._offset(), VERSION)
        try:
            for batch in self._replay(EventFormatter(self.stacks)):
                self.output.write([*spans.lines(batch)])
        finally:
            self.output.write([*spans.rest()])
        if spans.others:
            left = plural(spans.others, "event")
            say(f"{left} left out: they are no spans, which usdt record --spans records")

    def _header(self) -> None:
        self.reader.survey()
        header, closing = self.reader.header, self.reader.closing
        shown = {
            "header": header.to_json() if header else None,
            "cases": [variant.to_json() for variant in self.reader.variants],
            "files": self.reader.files,
            "closing": closing.to_json() if closing else None,
        }
        self.events = self.reader.records
        self.output.write([json.dumps(shown, indent=2) + "\n"])

    def _objects(self, events: Iterator[str]) -> None:
        text = ",\n".join(events)
        if text:
            self.output.write([self.separator, text])
            self.separator = ",\n"

    def _lines(self, formatter: Formatter) -> None:
        for batch in self._replay(formatter, encoded=True):
            self.output.write(titled(formatter, batch))

    def _replay(self, formatter: Formatter, *, encoded: bool = False) -> Iterator[list[Any]]:
        for batch in self.reader.replay(formatter, self._wanted, self.stacks, encoded=encoded):
            self.events += lines_in(batch)
            yield batch

    # ------------------------------------------------------------ probes

    def _wanted(self, probe: str) -> bool:
        patterns = self.options.patterns
        return not patterns or any(fnmatch.fnmatchcase(probe, item) for item in patterns)

    def _check_patterns(self) -> None:
        names = list(dict.fromkeys(variant.probe for variant in self.reader.variants))
        wanted = [
            *self.options.patterns,
            *(name for pair in self.options.spans for name in pair),
        ]
        for pattern in wanted:
            if self.reader.cut < 0 and not fnmatch.filter(names, pattern):
                shown = ", ".join(names[:8]) or "none"
                raise ProbeNotFound(
                    f"{self.path}: no probe {pattern} was recorded; recorded are {shown}"
                )

    def _lost(self) -> list[Lost]:
        closing = self.reader.closing
        return [Lost(*item) for item in closing.lost if self._wanted(item[0])] if closing else []

    def _closing(self) -> str:
        if self.reader.closing is not None:
            lost = self._lost()
            report_losses(lost)
            return closing_line(self.events, lost)
        say(
            f"{self.path}: the recording ends at byte {self.reader.cut} without a closing block; "
            "shown up to its last complete record"
        )
        return f"{plural(self.events, 'event')}, lost unknown"
