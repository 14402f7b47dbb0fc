"""Parts of a block of records: a tenth of a second, one context, or a column of numbers."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from usdt.bpf.rings.ringbuf import HEADER, run_length
from usdt.engine.compiler.record.columns import WORD
from usdt.engine.compiler.record.layout import HEADER_SIZE
from usdt.engine.output.wall_clock import TENTH

if TYPE_CHECKING:
    from usdt.engine.output.wall_clock import WallClock

__all__ = (
    "CONTEXT_KEY",
    "CONTEXT_WORDS",
    "LEAST",
    "TIME_WORD",
    "Column",
    "all_equal",
    "changes",
    "turns",
)

TIME_WORD = HEADER // WORD
CONTEXT_KEY = slice(HEADER + WORD, HEADER + HEADER_SIZE)  # the bytes of a record's context
CONTEXT_WORDS = range(CONTEXT_KEY.start // WORD, CONTEXT_KEY.stop // WORD)
LEAST = 512  # lines of a block for which arrays of numpy are worth it
_TURN = 64  # records of a tenth of a second, on average, for which blocks are worth it
_CHANGE = 512  # records of a context, on average, of which lines are made apart


class Column(NamedTuple):
    """Numbers of eight bytes in records, or texts of their contexts.

    Attributes:
        offset: bytes from the start of a record, with the ring buffer's header.
        signed: whether they may be negative.
        digits: if not 0, they are times, of which so many digits behind the tenth of a second are
            shown.
        context: if not -1, a text of the context with this index is shown.
    """

    offset: int
    signed: bool = False
    digits: int = 0
    context: int = -1


def turns(times: memoryview, count: int, clock: WallClock) -> list[int]:
    """Return the first time of each tenth of a second; none if these are many.

    Args:
        times: nanoseconds, which grow.
        count: how many there are.
        clock: the clock of the tenths of a second.
    """
    starts = [0]
    while len(starts) <= 1 + count // _TURN:
        begin, *_ = clock.tenth(times[starts[-1]], iso=False)
        end = bisect_left(times, begin + TENTH, starts[-1])
        if end == count:
            return starts
        starts.append(end)
    return []


def changes(words: memoryview, step: int, count: int) -> list[int]:
    """Return where the context changes among records of several; nothing if it often does.

    Args:
        words: the records in words of eight bytes.
        step: words of a record.
        count: how many records there are.
    """
    starts = [0]
    while len(starts) <= 1 + count // _CHANGE:
        at, left = starts[-1], count - starts[-1]
        for word in CONTEXT_WORDS:
            left = run_length(words, at * step + word, step, left)
        if at + left == count:
            return starts
        starts.append(at + left)
    return []


def all_equal(column: memoryview) -> bool:
    """Whether the words of a column are the same."""
    return bool(column[:-1] == column[1:])
