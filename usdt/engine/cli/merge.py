"""``merge``: the answers of several machines or runs as one."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen, replace
from usdt.engine.cli.click_group import plural, say, warn
from usdt.engine.merge.event_text import EventText
from usdt.engine.merge.events import event_json
from usdt.engine.merge.inputs import Inputs
from usdt.engine.merge.merge import MAX_KEYS, Merge
from usdt.engine.merge.output import (
    Choice,
    closing_line,
    header_line,
    lines_of,
    loss_lines,
)
from usdt.engine.output.formatters.formatter import escape
from usdt.engine.output.output_file import OutputFile
from usdt.engine.output.parquet import is_parquet
from usdt.engine.output.profiles.counts import StackCounts
from usdt.pictures.folded import folded_lines
from usdt.pictures.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.recording.processes import Snapshots

__all__ = ("MergeOptions", "run_merge")

_BATCH = 1000  # lines that are written together
_WIDEST = 64  # characters of the column of hosts; a longer name stands out of it


@frozen
class MergeOptions:
    """What to merge, and how to show it.

    Attributes:
        choice: how results are shown.
        by_host: whether machines are kept apart.
        strict: whether a problem is an error.
        as_json: whether to write a stream.
        output: a file; None is standard output.
        max_keys: the most keys that are kept.
        whole: whether intervals that a stream has only in part are left out.
        wanted: whether the events and results of a probe are shown; None shows all.
        lines: whether user stacks of recordings have source lines.
    """

    choice: Choice = Choice()
    by_host: bool = False
    strict: bool = False
    as_json: bool = False
    output: str | None = None
    max_keys: int = MAX_KEYS
    whole: bool = False
    wanted: Callable[[str], bool] | None = None
    lines: bool = False


def run_merge(paths: Sequence[str], options: MergeOptions, symbols: Callable[[], Snapshots]) -> int:
    """Merge streams and recordings; return the exit code.

    Args:
        paths: the files; "-" is standard input.
        options: what to merge, and how to show it.
        symbols: makes the symbolizer, if stacks were recorded.

    Raises:
        TargetError: a file cannot be read.
        TracingError: the merge is strict, and something is wrong with a stream; the output is one
            of the files; there is no column to sort by.
    """
    _refuse_overwriting(paths, options.output)
    with _output_file(options) as output, contextlib.ExitStack() as stack:
        run = _Run(options, output, symbols)
        run.inputs.read(paths, stack)
        run.write()
    return 0


def _output_file(options: MergeOptions) -> OutputFile:
    if is_parquet(options.output):
        from usdt.engine.output.parquet.stream import ParquetStream  # noqa: PLC0415 - few runs

        return ParquetStream(options.output)
    return OutputFile(options.output)


def _refuse_overwriting(paths: Sequence[str], output: str | None) -> None:
    for path in paths if output is not None else ():
        with contextlib.suppress(OSError):  # a missing file cannot be the output
            if os.path.samefile(path, output or ""):  # noqa: PTH121 - Path has no advantage
                raise TracingError(f"{path}: the output would overwrite it")


class _Run:
    def __init__(
        self, options: MergeOptions, output: OutputFile, symbols: Callable[[], Snapshots]
    ) -> None:
        self.options = options
        self.output = output
        self._as_json = options.as_json or is_parquet(options.output)
        self.merge = Merge(
            by_host=options.by_host,
            strict=options.strict,
            max_keys=options.max_keys,
            whole=options.whole,
            wanted=options.wanted,
            warn=warn,
        )
        self.inputs = Inputs(self.merge, symbols, lines=options.lines)
        self.shown = 0

    def write(self) -> None:
        """Write events as they come, then results and losses."""
        as_json = self._as_json
        if as_json:
            self.output.write([header_line(self.merge)])
        if self.options.choice.folded:
            self._write_folded()
        else:
            self._write_events()
        choice = replace(self.options.choice, look=self.output.look)
        self.output.write_all(lines_of(self.merge, choice, as_json=as_json))
        for source in self.inputs.sources:
            source.close()
        if self.options.whole and self.merge.partial:
            say(f"left out: {plural(self.merge.partial, 'partial interval')}")
        for line in loss_lines(self.merge):
            warn(line)
        say(closing_line(self.merge, self.shown))

    def _write_folded(self) -> None:
        profile = Profile()
        counts = StackCounts(profile)
        for _, host, found in self.inputs.events():
            self.shown += 1
            counts.add_event(found, *([("host", host)] if self.options.by_host else []))
        self.output.write(folded_lines(profile))
        notices = profile.notices()
        if counts.without:
            notices.append(f"{plural(counts.without, 'event')} left out: without a stack")
        for notice in notices:
            say(notice)

    def _write_events(self) -> None:
        realtime = self.options.choice.realtime
        width = max((len(escape(host)) for host in self.merge.hosts), default=0)
        text = EventText(min(width, _WIDEST), realtime=realtime, look=self.output.look)
        batch: list[str] = []
        for event in self.inputs.events():
            if self.options.wanted is not None and not self.options.wanted(event[2]["probe"]):
                continue
            self.shown += 1
            as_json = self._as_json
            batch.append(event_json(event, realtime=realtime) if as_json else text.lines(*event))
            if len(batch) >= _BATCH:
                self.output.write(batch)
                batch.clear()
        self.output.write(batch)
