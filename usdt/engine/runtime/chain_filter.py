"""A filter of records of a call chain: holds them until the innermost function is entered.

The programs (:mod:`usdt.engine.runtime.call_chain`) pass the entries of outer functions before it
is known whether the chain will be completed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.bpf.rings.ringbuf import DISCARD, HEADER, record_words
from usdt.engine.output.decode import BadRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.output.decode import RecordConsumer
    from usdt.engine.output.python_processes import PythonProcesses

__all__ = ("ChainFilter",)

_MAX_THREADS = 1 << 16  # maximum threads with incomplete chains
_HEADER_WORDS = (HEADER + 40) // 4
_TID, _CPU, _VARIANT = ((HEADER + offset) // 4 for offset in (8, 16, 20))


class ChainFilter:
    """A consumer that holds records of calls until the innermost function is entered.

    Args:
        inner: consumes the records that are shown.
        count: number of functions.
    """

    def __init__(self, inner: RecordConsumer, count: int) -> None:
        self._inner = inner
        self._count = count
        self._positions: dict[int, tuple[int, bool]] = {}
        # Thread → its active calls: the entry's record while it is held, b"" once it is shown, None
        # if it was lost.
        self._calls: dict[int, list[bytes | None]] = {}

    def add_variant(self, variant: int, position: int, *, entry: bool) -> None:
        """Set the function and end of a variant, before its first record."""
        self._positions[variant] = position, entry

    def add(self, number: int, probe: str, plan: ProbePlan) -> None:
        """Announce a variant."""
        self._inner.add(number, probe, plan)

    def python_processes(self, pids: Sequence[int]) -> PythonProcesses:
        """Let programs that record Python stacks know the Python processes."""
        return self._inner.python_processes(pids)

    def batches(self, data: bytes) -> Iterator[list[Any]]:
        """Yield the results for the records that can be shown now."""
        shown = b"".join(self._shown(data))
        if shown:
            yield from self._inner.batches(shown)

    def _shown(self, data: bytes) -> Iterator[bytes]:
        words = memoryview(data).cast("I")
        position = 0
        while position < len(words):
            header = words[position]
            end = position + record_words(header)
            if end > len(words) or end - position < _HEADER_WORDS:
                raise BadRecord(f"a record of {header:#x} bytes is cut off")
            if not header & DISCARD:
                thread = words[position + _TID] or -1 - words[position + _CPU]
                found = self._positions.get(words[position + _VARIANT])
                record = data[position << 2 : end << 2]
                if found is None:
                    yield record
                elif found[1]:
                    yield from self._entered(thread, found[0], record)
                else:
                    yield from self._left(thread, found[0], record)
            position = end

    def _entered(self, thread: int, position: int, record: bytes) -> Iterator[bytes]:
        calls = self._calls.setdefault(thread, [])
        del calls[position:]
        calls += [None] * (position - len(calls))
        calls.append(record)
        if position == self._count - 1:
            yield from filter(None, calls)
            calls[:] = [b""] * len(calls)
        elif len(self._calls) > _MAX_THREADS:
            del self._calls[next(iter(self._calls))]

    def _left(self, thread: int, position: int, record: bytes) -> Iterator[bytes]:
        calls = self._calls.get(thread, [])
        if len(calls) > position and calls[position] == b"":
            yield record
        del calls[position:]
        if not calls:
            self._calls.pop(thread, None)
