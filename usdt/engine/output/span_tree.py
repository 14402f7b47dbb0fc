"""Spans of one thread inside one another: a tree with total and self time.

Spans arrive when they end, the inner before the outer. A span that ends takes the spans before it
in its thread that began after it: they are inside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from usdt.base.durations import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ("DEPTH_MARK", "SELF_MARK", "MeasuredLine", "SpanNode", "SpanTree")

#: What a formatter writes where the tree puts the self time, and the depth. Neither is in its
#: texts, where control characters are escaped.
SELF_MARK, DEPTH_MARK = "\x00", "\x01"
_MOST = 1 << 16  # spans that wait for the one around them


class MeasuredLine(NamedTuple):
    """A span with what it is sorted by.

    Attributes:
        duration: nanoseconds.
        start: CLOCK_MONOTONIC, nanoseconds.
        thread: identifies its thread.
        line: its line of output, or the span itself.
    """

    duration: int
    start: int
    thread: Any
    line: Any


class SpanNode(NamedTuple):
    """A span, and those directly inside it, by their start."""

    span: MeasuredLine
    inner: list[SpanNode]


class SpanTree:
    """Builds trees of spans.

    Args:
        as_json: whether lines are JSON objects, which get ``self`` and ``depth``.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._threads: dict[Any, list[SpanNode]] = {}
        self._number = 0

    def add(self, spans: Iterable[MeasuredLine]) -> None:
        """Add spans that have ended, in the order of their ends."""
        for span in spans:
            waiting = self._threads.setdefault(span.thread, [])
            first = len(waiting)
            while first and waiting[first - 1].span.start >= span.start:
                first -= 1
            waiting[first:] = [SpanNode(span, waiting[first:])]
            self._number += 1

    @property
    def full(self) -> bool:
        """Whether so many spans wait that they are to be written without those around them."""
        return self._number > _MOST

    def take(self) -> list[str]:
        """Return the lines of all trees, as :meth:`roots`, and forget them."""
        return [line for root in self.roots() for line in self._lines(root)]

    def roots(self) -> list[SpanNode]:
        """Return all trees, the outermost spans by their start, and forget them."""
        roots = [node for nodes in self._threads.values() for node in nodes]
        self._threads.clear()
        self._number = 0
        roots.sort(key=lambda node: node.span.start)
        return roots

    def _lines(self, root: SpanNode) -> Iterator[str]:
        ahead = [(root, 0)]
        while ahead:
            node, depth = ahead.pop()
            own = max(0, node.span.duration - sum(one.span.duration for one in node.inner))
            yield self._line(node.span, own, depth)
            ahead += [(inner, depth + 1) for inner in reversed(node.inner)]

    def _line(self, span: MeasuredLine, own: int, depth: int) -> str:
        if self._as_json:
            line: str = span.line
            return line.replace(', "pid": ', f', "self": {own}, "depth": {depth}, "pid": ', 1)
        shown: str = span.line.replace(SELF_MARK, f"  {duration_text(own):>8}", 1)
        return shown.replace(DEPTH_MARK, "  " * depth, 1)
