"""Files of pictures, and the output of live commands that takes stacks in place of lines."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from usdt.engine.cli.click_group import plural, say
from usdt.engine.output.output_file import OutputFile
from usdt.engine.output.profiles.counts import StackCounts
from usdt.pictures.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.aggregate.results import Result
    from usdt.engine.aggregate.spec import Aggregation
    from usdt.engine.run.options import Pictures

__all__ = ("PictureFiles", "PictureOutput")


class PictureFiles(contextlib.ExitStack):
    """The files of pictures, opened before there is anything to write; a context manager.

    Args:
        pictures: the files.

    Raises:
        TargetError: a file cannot be opened.
    """

    def __init__(self, pictures: Pictures) -> None:
        super().__init__()
        self._flame, self._speedscope, self._pprof = (
            None if path is None else self.enter_context(OutputFile(path))
            for path in (pictures.flame, pictures.speedscope, pictures.pprof)
        )

    def write(self, profile: Profile, before: Profile | None = None) -> None:
        """Write all files.

        Args:
            profile: the stacks.
            before: what a flame graph compares them with.
        """
        if self._flame is not None:
            self._flame.write([_flame(self._flame.name, profile, before)])
        if self._speedscope is not None:
            from usdt.pictures.speedscope import speedscope  # noqa: PLC0415 - only for this format

            self._speedscope.write([speedscope(profile)])
        if self._pprof is not None:
            from usdt.pictures.pprof import pprof  # noqa: PLC0415 - only for this format

            self._pprof.write_bytes(pprof(profile))
        for notice in profile.notices():
            say(notice)


def _flame(name: str, profile: Profile, before: Profile | None) -> str:
    from usdt.pictures.tree import difference, tree_of  # noqa: PLC0415 - only for this format

    tree = tree_of(profile) if before is None else difference(before, profile)
    if name.lower().endswith(".svg"):
        from usdt.pictures.svg import flame_svg  # noqa: PLC0415 - only for this format

        return flame_svg(tree)
    from usdt.pictures.flame import flame_page  # noqa: PLC0415 - only for this format

    return flame_page(tree)


class PictureOutput(OutputFile):
    """The output of a live command: it takes stacks, and writes pictures at the end.

    Args:
        pictures: the files.
        title: what is traced.

    Attributes:
        profile: what was added so far.
    """

    def __init__(self, pictures: Pictures, title: str) -> None:
        super().__init__(None)
        self.profile = Profile(title=title)
        self._counts = StackCounts(self.profile)
        self._files = PictureFiles(pictures)

    @property
    def terminal(self) -> bool:
        """Return False: nothing is shown."""
        return False

    def write(self, lines: Sequence[Any]) -> None:
        """Take hits, of :class:`usdt.engine.output.profiles.formatter.StackFormatter`."""
        self._counts.add_hits(lines)

    def add_results(self, results: Sequence[Result], aggregation: Aggregation, what: str) -> None:
        """Take results; ``what`` are the values that were added up."""
        from usdt.engine.aggregate.output.profile import add_results  # noqa: PLC0415 - not for events

        self._counts.without += add_results(self.profile, results, aggregation, what)

    def check_reader(self) -> None:
        """Do nothing: no pipe is written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # the files stay as they were
            self._files.__exit__(kind, None, None)
            return
        with self._files as files:
            files.write(self.profile)
        if self._counts.without:
            say(f"{plural(self._counts.without, 'event')} left out: without a stack")
