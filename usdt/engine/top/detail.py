"""One probe in detail: what each view attaches, and what it shows.

A view is attached when it is opened, and detached when the next one is opened or it is closed.
"""

from __future__ import annotations

import contextlib
import enum
from typing import TYPE_CHECKING, Any

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.engine.top.blocks import histogram_lines, stack_lines, value_lines
from usdt.engine.top.costs import MORE, STACK
from usdt.engine.top.pairs import stacks_of
from usdt.engine.top.sampling import Argument, Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from usdt.engine.api.aggregates import Aggregate
    from usdt.engine.api.sessions import Session
    from usdt.engine.top.commands import TopOptions
    from usdt.engine.top.live import LiveProbes

__all__ = ("Detail", "Shown", "View")

_MOST_ARGUMENTS = 6  # each is a program that runs at every hit
_MOST_KEYS = 4096  # of each that the kernel keeps
_SAMPLE = 1 << 16  # bytes of hits that are looked at to learn the arguments
_WAITING = "waiting for a hit, which tells the arguments"


class View(enum.Enum):
    """What is shown of a probe."""

    VALUES = "values"
    HISTOGRAMS = "histograms"
    STACKS = "stacks"
    TIMES = "times"


@frozen
class Shown:
    """What a view shows.

    Attributes:
        lines: the text.
        nanoseconds: probe → what the view adds to the cost of a hit, estimated.
        lost: hits that are in no part of it.
    """

    lines: tuple[str, ...]
    nanoseconds: Mapping[str, int]
    lost: int = 0


@frozen
class _Part:
    # A title; what was attached, and what makes lines of it; or why it was refused. The words of
    # the command that shows the same.
    title: str
    words: tuple[str, ...]
    aggregate: Aggregate[Any] | None
    lines: Callable[[Mapping[Any, Any]], list[str]]
    refusal: str = ""


class Detail:
    """The views of one probe, one at a time.

    Args:
        live: what is attached.
        probe: the name of the probe.

    Attributes:
        probe: the name of the probe.
        views: the views that the probe has.
    """

    def __init__(self, live: LiveProbes, probe: str) -> None:
        self.probe = probe
        self._live = live
        self._end = live.end_of(probe)
        self.views = tuple(view for view in View if view is not View.TIMES or self._end is not None)
        self._view = View.VALUES
        self._resources = contextlib.ExitStack()
        self._sampler: Sampler | None = None
        self._arguments: tuple[Argument, ...] | None = None  # not known yet
        self._parts: list[_Part] = []

    def open(self, view: View) -> None:
        """Attach a view; detach the one before.

        Raises:
            TracingError: it cannot be attached.
        """
        self.close()
        self._view = view
        if view is View.STACKS:
            self._attach_stacks()
        elif view is View.TIMES:
            self._attach_times()
        elif self._arguments is not None:
            self._attach_arguments(self._arguments)
        else:
            self._sampler = Sampler(
                lambda: self._live.session(_SAMPLE),
                lambda items: self._live.text(self.probe, items),
            )
            self._resources.callback(self._sampler.close)

    def close(self) -> None:
        """Detach. Idempotent."""
        self._parts, self._sampler = [], None
        self._resources.close()

    def read(self) -> Shown:
        """Return what the view shows now.

        Raises:
            TracingError: a probe cannot be attached any more.
        """
        if self._sampler is not None:
            self._arguments = self._sampler.look()
            if self._arguments is None:
                return Shown((_WAITING,), {self.probe: MORE})
            self.close()
            self._attach_arguments(self._arguments)
        attached = [part.aggregate for part in self._parts if part.aggregate is not None]
        for aggregate in attached:
            aggregate.look()
        lines = [line for part in self._parts for line in (*_lines_of(part), "")]
        return Shown(
            tuple(lines or [f"there are no {self._view.value}"]),
            self._nanoseconds(len(attached)),
            sum(one.lost for one in attached),
        )

    def commands(self, options: TopOptions) -> list[str]:
        """Return the command lines that show the same as the view."""
        return [options.line(*part.words) for part in self._parts]

    def _nanoseconds(self, attached: int) -> dict[str, int]:
        if not attached:
            return {}
        if self._view is View.TIMES:
            return {self.probe: MORE, self._end or self.probe: MORE}
        return {self.probe: attached * (STACK if self._view is View.STACKS else MORE)}

    # ------------------------------------------------------------ attaching

    def _attach_arguments(self, arguments: tuple[Argument, ...]) -> None:
        if self.probe.startswith("syscall:"):
            arguments = (*arguments, Argument("return", "return", is_number=True))
        if self._view is View.HISTOGRAMS:
            arguments = tuple(argument for argument in arguments if argument.is_number)
        for argument in arguments[:_MOST_ARGUMENTS]:
            if self._view is View.HISTOGRAMS:
                self._attach_histogram(argument.name)
            else:
                items = "return" if argument.name == "return" else ""
                self._attach_counts(self._live.text(self.probe, items), argument.key, value_lines)

    def _attach_stacks(self) -> None:
        for stack in stacks_of(self.probe):
            self._attach_counts(self._live.text(self.probe), stack, stack_lines)

    def _attach_counts(
        self, text: str, key: str, lines: Callable[[Mapping[Any, Any]], list[str]]
    ) -> None:
        self._attach(
            key,
            ("count", text, "--by", key, "--top", "10"),
            lambda session: session.count(text, by=key, max_keys=_MOST_KEYS),
            lines,
        )

    def _attach_histogram(self, argument: str) -> None:
        text = self._live.text(self.probe, argument)
        self._attach(argument, ("hist", text), lambda session: session.hist(text), histogram_lines)

    def _attach_times(self) -> None:
        start, end = self._live.text(self.probe), self._live.end_text(self.probe)
        self._attach(
            f"from {start} to {end}",
            ("latency", start, end),
            lambda session: session.latency(start, end, hist=True),
            lambda found: histogram_lines(found, times=True),
        )

    def _attach(
        self,
        title: str,
        words: tuple[str, ...],
        attach: Callable[[Session], Aggregate[Any]],
        lines: Callable[[Mapping[Any, Any]], list[str]],
    ) -> None:
        # A part that is refused says why; the others are shown.
        session = self._resources.enter_context(self._live.session())
        try:
            self._parts.append(_Part(title, words, attach(session), lines))
        except TracingError as err:
            session.close()
            self._parts.append(_Part(title, words, None, lines, str(err)))


def _lines_of(part: _Part) -> list[str]:
    if part.aggregate is None:
        return [part.title, f"  {part.refusal}"]
    return [part.title, *(part.lines(part.aggregate.snapshot()) or ["  no hit yet"])]
