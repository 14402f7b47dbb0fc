"""Pages of ``trace_pipe_raw``: the ring buffer of the kernel's event tracer, as bytes.

    page     u64 time, long commit: bytes used (below bit 20), bit 31: events were lost before,
             bit 30: their number is after the data
    event    u32: type and length in 5 bits, time since the last event in 27, then
             0       u32 size of the data, including this u32
             1…28    data of that many u32
             29      discarded: u32 size of the data, including this u32; or, if the time is 0,
                     padding: the rest of the page
             30      time extension: add (u32 << 27) + delta to the time
             31      absolute time stamp: (u32 << 27) + delta

The bit-fields are in reverse order on big-endian machines. Sources: kernel/trace/ring_buffer.c
(rb_event_length(), rb_event_discard() and RB_MISSED_EVENTS), include/linux/ring_buffer.h.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("Page", "PageLayout", "read_page")

_WORD = struct.Struct("=I")
_TIME = struct.Struct("=Q")
_COMMIT = 0xFFFFF
_MISSED, _STORED = 1 << 31, 1 << 30
_PADDING, _EXTEND, _STAMP = 29, 30, 31
_TIME_BITS = 27
#: An absolute time stamp has 59 bits; the highest five are taken from the page's time.
_STAMP_BITS = 59


@frozen
class PageLayout:
    """The layout of a page, as ``events/header_page`` gives it.

    Attributes:
        commit: offset of the field with the number of bytes used.
        commit_size: bytes of that field.
        data: offset of the first event.
        size: bytes of a page.
    """

    commit: int = 8
    commit_size: int = struct.calcsize("L")
    data: int = 8 + struct.calcsize("L")
    size: int = 4096

    @classmethod
    def parse(cls, text: str) -> PageLayout:
        """Parse a ``header_page`` file.

        Raises:
            TracingError: a field is missing.
        """
        found: dict[str, tuple[int, int]] = {}
        for line in text.splitlines():
            parts = [part.strip() for part in line.strip().split(";")]
            if parts[0].startswith("field:") and len(parts) > 2:
                name = parts[0].split()[-1]
                numbers = [part.partition(":")[2] for part in parts[1:3]]
                if all(number.isdigit() for number in numbers):
                    found.setdefault(name, (int(numbers[0]), int(numbers[1])))
        try:
            commit, data = found["commit"], found["data"]
        except KeyError as err:
            raise TracingError(f"events/header_page: no field {err} in {text[:80]!r}") from err
        return cls(commit[0], commit[1], data[0], data[0] + data[1])


@frozen
class Page:
    """The events of a page.

    Attributes:
        lost: number of events that were overwritten before the page; -1: an unknown number.
        events: (time in the buffer's clock, record), in order.
        damaged: whether an event ends outside the page; ``events`` has those before it.
    """

    lost: int
    events: list[tuple[int, memoryview]]
    damaged: bool = False


def read_page(data: bytes, layout: PageLayout) -> Page:
    """Decode a page; never fails, whatever the bytes."""
    if len(data) < layout.data:
        return Page(0, [], damaged=bool(data))
    time = _TIME.unpack_from(data)[0]
    word = data[layout.commit : layout.commit + layout.commit_size]
    commit = int.from_bytes(word, sys.byteorder)
    used = min(commit & _COMMIT, len(data) - layout.data)
    view = memoryview(data)[layout.data : layout.data + used]
    lost = 0
    if commit & _MISSED:
        lost = -1
        stored = data[layout.data + used : layout.data + used + 8]
        if commit & _STORED and len(stored) == 8:
            lost = int.from_bytes(stored, sys.byteorder)
    events: list[tuple[int, memoryview]] = []
    damaged = False
    for item in _events(view, time):
        if item is None:
            damaged = True
        else:
            events.append(item)
    return Page(lost, events, damaged=damaged)


def _head(word: int) -> tuple[int, int]:
    # Type and length, then the time since the event before.
    if sys.byteorder == "little":
        return word & 31, word >> 5
    return word >> _TIME_BITS, word & ((1 << _TIME_BITS) - 1)


def _events(view: memoryview, time: int) -> Iterator[tuple[int, memoryview] | None]:
    # None: the page is damaged here, and the rest cannot be decoded.
    position, end = 0, len(view)
    while position + 4 <= end:
        kind, delta = _head(_WORD.unpack_from(view, position)[0])
        position += 4
        if 0 < kind < _PADDING:
            size = 4 * kind
        elif position + 4 > end:
            if not (kind == _PADDING and not delta):
                yield None
            return
        else:
            following = _WORD.unpack_from(view, position)[0]
            if kind == _PADDING:
                if not delta:
                    return
                position += following
                time += delta
                continue
            position += 4
            if kind == _EXTEND:
                time += (following << _TIME_BITS) + delta
                continue
            if kind == _STAMP:
                stamp = (following << _TIME_BITS) + delta
                time = stamp | time >> _STAMP_BITS << _STAMP_BITS
                continue
            if following < 4:
                yield None
                return
            size = following - 4
        if position + size > end:
            yield None
            return
        time += delta
        yield time, view[position : position + size]
        position += -(-size // 4) * 4
