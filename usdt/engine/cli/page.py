"""``report --html``: recordings and streams as one page."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.engine.cli.click_group import say, warn
from usdt.engine.merge.inputs import Inputs
from usdt.engine.merge.merge import Merge
from usdt.engine.merge.output import closing_line, loss_lines
from usdt.engine.output.output_file import OutputFile
from usdt.engine.pages.page import report_page
from usdt.engine.pages.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.recording.processes import Snapshots

__all__ = ("PageOptions", "run_page")

_PROBLEMS = 200  # that the page shows


@frozen
class PageOptions:
    """What a page shows.

    Attributes:
        symbols: makes the symbolizer, if stacks were recorded.
        wanted: whether the events and results of a probe are shown; None shows all.
        lines: whether user stacks of recordings have source lines.
        by_host: whether machines are kept apart.
    """

    symbols: Callable[[], Snapshots]
    wanted: Callable[[str], bool] | None = None
    lines: bool = False
    by_host: bool = False


def run_page(paths: Sequence[str], output: str, options: PageOptions) -> int:
    """Write a page about recordings, streams of events and streams of results.

    Args:
        paths: the files; "-" is standard input.
        output: the page; "-" is standard output.
        options: what it shows.

    Returns:
        The exit code.

    Raises:
        TargetError: a file cannot be read, or the page cannot be written.
        TracingError: the page would overwrite one of the files.
    """
    for path in paths:
        with contextlib.suppress(OSError):  # a missing file cannot be the output
            if os.path.samefile(path, output):  # noqa: PTH121 - Path has no advantage
                raise TracingError(f"{path}: the page would overwrite it")
    problems: list[str] = []

    def problem(line: str) -> None:
        warn(line)
        if len(problems) < _PROBLEMS:
            problems.append(line)

    wanted = options.wanted
    merge, summary = (
        Merge(by_host=options.by_host, wanted=wanted, warn=problem),
        Summary(by_host=options.by_host),
    )
    with OutputFile(None if output == "-" else output) as file, contextlib.ExitStack() as stack:
        inputs = Inputs(merge, options.symbols, lines=options.lines)
        inputs.read(paths, stack)
        events = inputs.events()
        summary.add(event for event in events if wanted is None or wanted(event[2]["probe"]))
        summary.finish()
        for source in inputs.sources:
            source.close()
        file.write([report_page(merge, summary, inputs.sources, problems)])
    for line in loss_lines(merge):
        warn(line)
    say(closing_line(merge, summary.events))
    return 0
