"""``report``: a recording becomes lines, a table, stacks or a trace of spans."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from usdt.base.errors import ProbeNotFound, TracingError
from usdt.engine.cli.click_group import plural, say
from usdt.engine.cli.running import closing_line, report_losses
from usdt.engine.output.formatters import FoldedFormatter, JsonFormatter, TextFormatter, titled
from usdt.engine.output.output_file import OutputFile
from usdt.engine.recording.processes import RecordedStacks, wants_stacks
from usdt.engine.recording.reader import Reader
from usdt.engine.recording.spans import ChromeForm, Spans
from usdt.engine.recording.tables import CsvForm, columns_of
from usdt.engine.runtime.session import Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.engine.output.formatters import Formatter
    from usdt.engine.recording.processes import Snapshots

__all__ = ("run_report",)

_FOLDED = 1 << 18  # distinct stacks counted together; what reads them adds up the rest


def run_report(path: str, options: dict[str, Any], symbols: Callable[[], Snapshots]) -> int:
    """Show a recording; the exit code.

    Args:
        path: of the file; "-" is standard input.
        options: ``patterns`` of probes, ``form`` (text, json, csv, folded, chrome or header),
            ``spans``, ``output``.
        symbols: makes what restores processes, if stacks were recorded.

    Raises:
        RecordingError: no recording, or a damaged one; what came before that was written.
    """
    output = options["output"]
    with contextlib.suppress(OSError):  # one of them is not there: no danger
        if output is not None and os.path.samefile(path, output):  # noqa: PTH121 - Path is no help
            raise TracingError(f"{path}: a report written here would destroy the recording")
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(OutputFile(output))
        reader = stack.enter_context(Reader.open(path))
        order = reader.header.byteorder if reader.header else sys.byteorder
        lines = options.get("lines", False)
        stacks = stack.enter_context(RecordedStacks(symbols, order, lines=lines))
        say(_Report(reader, sink, stacks, path, options).main())
    return 0


@contextlib.contextmanager
def _from_its_beginning(path: str) -> Iterator[None]:
    # Whoever opens standard input shares its one place in the file with the reader that has begun.
    try:
        place = os.lseek(0, 0, os.SEEK_CUR) if path == "-" else None
    except OSError:  # a pipe, which the survey refuses
        place = None
    if place is None:
        yield
        return
    os.lseek(0, 0, os.SEEK_SET)
    try:
        yield
    finally:
        os.lseek(0, place, os.SEEK_SET)


class _Report:
    def __init__(
        self,
        reader: Reader,
        sink: OutputFile,
        stacks: RecordedStacks,
        path: str,
        options: dict[str, Any],
    ) -> None:
        self.reader = reader
        self.stacks = stacks
        self.sink = sink
        self.path = path
        self.options = options
        self.events = 0
        self.separator = ""  # before the next object of a list

    def main(self) -> str:
        writers = {
            "text": self._text,
            "json": self._json,
            "csv": self._csv,
            "folded": self._folded,
            "chrome": self._chrome,
            "header": self._header,
        }
        writers[self.options["form"]]()
        self._check_patterns()
        for notice in self.stacks.take_notices():
            say(notice)
        return self._closing()

    # ------------------------------------------------------------ what is written

    def _text(self) -> None:
        clock = self.reader.header.clock if self.reader.header else None
        colour = self.sink.terminal and "NO_COLOR" not in os.environ
        offset = clock.realtime - clock.monotonic if clock else 0
        self._lines(TextFormatter(colour=colour, offset=offset, stacks=self.stacks))

    def _json(self) -> None:
        self._lines(JsonFormatter(self.stacks))
        for item in self._lost():
            self.sink.write_loss(item.probe, item.lost)

    def _csv(self) -> None:
        with _from_its_beginning(self.path), Reader.open(self.path) as survey:
            survey.survey()
            columns = columns_of(c.layout for c in survey.cases if self._wanted(c.probe))
        form = CsvForm(columns, self.stacks)
        self.sink.write([form.title()])
        self._lines(form)

    def _folded(self) -> None:
        counts: Counter[str] = Counter()
        for batch in self._replay(FoldedFormatter(self.stacks)):
            counts.update(batch)
            if len(counts) > _FOLDED:
                self._counted(counts)
        layouts = [case.layout for case in self.reader.cases if self._wanted(case.probe)]
        if layouts and not any(wants_stacks(layout) for layout in layouts):
            raise TracingError(f"{self.path}: no stacks were recorded; give usdt record --ustack")
        self._counted(counts)

    def _counted(self, counts: Counter[str]) -> None:
        # Each line ends in the 1 of a single hit.
        self.sink.write([f"{line[:-3]} {count}\n" for line, count in sorted(counts.items())])
        counts.clear()

    def _chrome(self) -> None:
        spans = Spans(self.options["spans"])
        self.sink.write(['{"traceEvents": ['])
        self.separator = "\n"
        try:
            known = 0
            for batch in self._replay(ChromeForm(self.stacks)):
                if len(self.reader.cases) != known:
                    spans.probes(case.probe for case in self.reader.cases)
                    known = len(self.reader.cases)
                self._objects(spans.events(batch))
        finally:  # a damaged recording's trace is one that can be read, too
            self._objects(spans.rest())
            header = self.reader.header
            about = header.to_json() if header else {}
            end = f'\n],\n"displayTimeUnit": "ns", "otherData": {json.dumps(about)}}}\n'
            self.sink.write([end])
        for number, what in (
            (spans.unfinished, "begun and not ended"),
            (spans.unbegun, "ended and not begun"),
        ):
            if number:
                say(f"{plural(number, 'span')} {what}: shown as instants")

    def _header(self) -> None:
        self.reader.survey()
        header, closing = self.reader.header, self.reader.closing
        shown = {
            "header": header.to_json() if header else None,
            "cases": [case.to_json() for case in self.reader.cases],
            "files": self.reader.files,
            "closing": closing.to_json() if closing else None,
        }
        self.events = self.reader.records
        self.sink.write([json.dumps(shown, indent=2) + "\n"])

    def _objects(self, events: Iterator[str]) -> None:
        found = ",\n".join(events)
        if found:
            self.sink.write([self.separator, found])
            self.separator = ",\n"

    def _lines(self, form: Formatter) -> None:
        for batch in self._replay(form):
            self.sink.write(titled(form, batch))

    def _replay(self, form: Formatter) -> Iterator[list[Any]]:
        for batch in self.reader.replay(form, self._wanted, self.stacks):
            self.events += len(batch)
            yield batch

    # ------------------------------------------------------------ which probes

    def _wanted(self, probe: str) -> bool:
        patterns: Sequence[str] = self.options["patterns"]
        return not patterns or any(fnmatch.fnmatchcase(probe, item) for item in patterns)

    def _check_patterns(self) -> None:
        names = list(dict.fromkeys(case.probe for case in self.reader.cases))
        wanted = [
            *self.options["patterns"],
            *(name for pair in self.options["spans"] for name in pair),
        ]
        for pattern in wanted:
            if self.reader.cut < 0 and not fnmatch.filter(names, pattern):
                shown = ", ".join(names[:8]) or "none"
                raise ProbeNotFound(
                    f"{self.path}: no probe {pattern} was recorded; there are {shown}"
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
            f"{self.path}: the recording ends at byte {self.reader.cut} without having been "
            "closed: shown up to its last whole record"
        )
        return f"{plural(self.events, 'event')}, lost unknown"
