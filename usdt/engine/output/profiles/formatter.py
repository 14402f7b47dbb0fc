"""The formatter of hits with stacks for pictures and profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from usdt.engine.output.formatters.formatter import constant
from usdt.engine.output.formatters.text import FoldedFormatter, stack_sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.record.columns import AnyStack
    from usdt.engine.compiler.record.layout import RecordLayout
    from usdt.engine.output.formatters.formatter import FieldSource
    from usdt.engine.output.stacks import StackResolver

__all__ = ("StackFormatter", "StackHit")


class StackHit(NamedTuple):
    """A hit, of which only the stacks are wanted.

    Attributes:
        comm: name of the thread.
        probe: the probe.
        duration: of a span, nanoseconds; else None.
        stacks: the kind of each stack (``ustack``, …) and its JSON.
    """

    comm: str
    probe: str
    duration: int | None
    stacks: tuple[tuple[str, str], ...]


class StackFormatter(FoldedFormatter):
    """A formatter that makes a :class:`StackHit` of each hit."""

    def __init__(self, stacks: StackResolver | None = None) -> None:
        super().__init__(stacks)
        self.names["StackHit"] = StackHit

    def begin(self, layout: RecordLayout) -> None:
        self.stacks.expect(layout)
        self._span = layout.span

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> tuple[Any, ...]:
        del tid, cpu
        return comm, probe, pid

    def record(self, values: Sequence[FieldSource]) -> str:
        found = "".join(f"({kind.value!r}, {source})," for kind, source in stack_sources(values))
        duration = None if self._span is None else values[0].source
        return f"StackHit(*contexts[key][:2], {duration}, ({found}))"

    def stack(self, column: AnyStack, value: str, length: str) -> str:
        return f"stacks.json({constant(self.names, column)}, contexts[key][2], {value}, {length})"
