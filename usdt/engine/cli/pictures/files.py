"""Stacks of recordings, JSON streams and folded stacks, added up: pictures, or folded stacks."""

from __future__ import annotations

import contextlib
import os
from itertools import chain
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.engine.aggregate.output.profile import add_results
from usdt.engine.cli.click_group import plural, say
from usdt.engine.cli.pictures.output import PictureFiles
from usdt.engine.merge.events import is_event, replayed
from usdt.engine.merge.merge import Merge, decoded
from usdt.engine.merge.numbers import BadResultError
from usdt.engine.merge.output import closing_line, loss_lines
from usdt.engine.merge.streams import Stream
from usdt.engine.output.output_file import OutputFile
from usdt.engine.output.profiles.counts import StackCounts
from usdt.engine.output.profiles.formatter import StackFormatter
from usdt.engine.run.options import Pictures
from usdt.pictures.folded import add_folded, folded_lines
from usdt.pictures.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.engine.merge.source import Source
    from usdt.engine.recording.processes import Snapshots
    from usdt.pictures.profile import Label

__all__ = ("PictureOptions", "run_folded", "run_pictures")


@frozen
class PictureOptions:
    """What to draw.

    Attributes:
        pictures: the files to write; None for run_folded().
        symbols: makes the symbolizer, if stacks were recorded.
        wanted: whether the stacks of a probe are drawn; None draws all.
        lines: whether user stacks of recordings have source lines.
        by_host: whether machines are kept apart.
        strict: whether a problem is an error.
    """

    pictures: Pictures | None
    symbols: Callable[[], Snapshots]
    wanted: Callable[[str], bool] | None = None
    lines: bool = False
    by_host: bool = False
    strict: bool = False


def run_pictures(paths: Sequence[str], options: PictureOptions, before: Sequence[str] = ()) -> int:
    """Draw the stacks of some files; return the exit code.

    Args:
        paths: recordings, JSON streams or folded stacks, which are added up; "-" is standard input.
        options: what to draw.
        before: files with which a flame graph compares them.

    Raises:
        TargetError: a file cannot be read.
        TracingError: there are no stacks; the output is one of the files.
    """
    pictures = options.pictures or Pictures()
    for output in (pictures.flame, pictures.speedscope, pictures.pprof):
        _refuse_overwriting([*paths, *before], output)
    with PictureFiles(pictures) as files:
        first = _Reading(options).profile(before) if before else None
        files.write(_Reading(options).profile(paths), first)
    return 0


def run_folded(paths: Sequence[str], options: PictureOptions, output: str | None) -> int:
    """Write the stacks of some files as folded stacks, with their hits; return the exit code.

    Args:
        paths: recordings, JSON streams or folded stacks, which are added up; "-" is standard input.
        options: which stacks.
        output: a file; None is standard output.

    Raises:
        TargetError: a file cannot be read.
        TracingError: there are no stacks; the output is one of the files.
    """
    _refuse_overwriting(paths, output)
    with OutputFile(output) as file:
        reading = _Reading(options)
        profile = reading.profile(paths)
        file.write(folded_lines(profile))
    for notice in profile.notices():
        say(notice)
    say(closing_line(reading.merge, reading.counts.events + reading.counts.without))
    return 0


def _refuse_overwriting(paths: Sequence[str], output: str | None) -> None:
    for path in paths if output is not None else ():
        with contextlib.suppress(OSError):  # a missing file cannot be the output
            if os.path.samefile(path, output or ""):  # noqa: PTH121 - Path has no advantage
                raise TracingError(f"{path}: the output would overwrite it")


class _Reading:
    def __init__(self, options: PictureOptions) -> None:
        self.options = options
        self.merge = Merge(
            by_host=options.by_host, strict=options.strict, wanted=options.wanted, warn=say
        )
        self.made = Profile()
        self.counts = StackCounts(self.made)

    def profile(self, paths: Sequence[str]) -> Profile:
        for path in paths:
            with Stream(path) as stream:
                source = self.merge.source(stream.name)
                self._read(stream, source)
                source.close()
        without = self.counts.without
        for group in self.merge.groups():
            shape = group.shape
            without += add_results(self.made, group.results, shape.aggregation, shape.value)
        if not self.made.samples():
            raise TracingError(
                f"{', '.join(paths)}: no stacks; add --ustack, --kstack or --pystack to the "
                "command that wrote it"
            )
        if without:
            say(f"{plural(without, 'event')} left out: without a stack")
        for line in loss_lines(self.merge):
            say(line)
        self.made.title = ", ".join(self.merge.probes) or ", ".join(paths)
        return self.made

    def _read(self, stream: Stream, source: Source) -> None:
        if stream.recording:
            for hits in replayed(
                *(stream, self.merge, source, self.options.symbols, StackFormatter),
                wanted=self.options.wanted,
                lines=self.options.lines,
            ):
                self.counts.add_hits(hits, *self._labels(source.host))
            return
        lines = stream.lines(source)
        first = next(lines, None)
        if first is None:
            source.problem("empty")
        elif first.lstrip().startswith(b"{"):
            self._stream(chain([first], lines), source)
        else:
            texts = (line.decode("utf-8", "backslashreplace") for line in chain([first], lines))
            if wrong := add_folded(self.made, texts):
                source.problem(f"skipped {plural(wrong, 'line')} that end in no number")

    def _stream(self, lines: Iterable[bytes], source: Source) -> None:
        for line in lines:
            source.line += 1
            try:
                found = decoded(line)
            except BadResultError as err:
                source.problem(f"{err}: skipped")
                continue
            if not is_event(found):
                self.merge.add_object(found, source)
            elif not source.skipped and self._wanted(str(found.get("probe"))):
                host = str(found.get("host", source.host))
                self.counts.add_event(found, *self._labels(host))

    def _labels(self, host: str) -> list[Label]:
        return [("host", host)] if self.options.by_host else []

    def _wanted(self, probe: str) -> bool:
        return self.options.wanted is None or self.options.wanted(probe)
