"""Spans of one thread inside one another: a tree with total and self time.

Spans arrive when they end, the inner before the outer. A span that ends takes the spans before it
in its thread that began after it: they are inside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from usdt.base.durations import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ("DEPTH_MARK", "SELF_MARK", "MeasuredLine", "SpanTree")

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
        line: its line of output.
    """

    duration: int
    start: int
    thread: bytes
    line: str


class _Node(NamedTuple):
    span: MeasuredLine
    inner: list[_Node]


class SpanTree:
    """Builds trees of spans.

    Args:
        as_json: whether lines are JSON objects, which get ``self`` and ``depth``.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._threads: dict[bytes, list[_Node]] = {}
        self._number = 0

    def add(self, spans: Iterable[MeasuredLine]) -> None:
        """Add spans that have ended, in the order of their ends."""
        for span in spans:
            waiting = self._threads.setdefault(span.thread, [])
            first = len(waiting)
            while first and waiting[first - 1].span.start >= span.start:
                first -= 1
            waiting[first:] = [_Node(span, waiting[first:])]
            self._number += 1

    @property
    def full(self) -> bool:
        """Whether so many spans wait that they are to be written without those around them."""
        return self._number > _MOST

    def take(self) -> list[str]:
        """Return the lines of all trees, the outermost spans by their start, and forget them."""
        roots = [node for nodes in self._threads.values() for node in nodes]
        self._threads.clear()
        self._number = 0
        roots.sort(key=lambda node: node.span.start)
        return [line for root in roots for line in self._lines(root)]

    def _lines(self, root: _Node) -> Iterator[str]:
        ahead = [(root, 0)]
        while ahead:
            node, depth = ahead.pop()
            own = max(0, node.span.duration - sum(one.span.duration for one in node.inner))
            yield self._line(node.span, own, depth)
            ahead += [(inner, depth + 1) for inner in reversed(node.inner)]

    def _line(self, span: MeasuredLine, own: int, depth: int) -> str:
        if self._as_json:
            return span.line.replace(', "pid": ', f', "self": {own}, "depth": {depth}, "pid": ', 1)
        shown = span.line.replace(SELF_MARK, f"  {duration_text(own):>8}", 1)
        return shown.replace(DEPTH_MARK, "  " * depth, 1)
