"""The reader's side of a machine with many CPUs, simulated: its ring buffers, and lines of them.

The records are made here, as programs on so many CPUs would have written them: each CPU runs a
thread of its own, and all fire in turn. What programs wait for each other is not simulated.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from usdt.bpf.rings.time_order import TakenRecords
    from usdt.engine.compiler.record.layout import RecordLayout

__all__ = ("RECORDS", "read_in_order")

RECORDS = 2_000_000  # of all CPUs together
_TAKE = 10_000_000  # nanoseconds between two looks of the reader at the ring buffers
_GAP = 400  # nanoseconds between two records
_VARIANT = 1
_RECORD = struct.Struct("=IIQIIII16sQ")


def read_in_order(cpus: int) -> dict[str, float]:
    """Return the seconds that the reader needs to put the records in order and to make lines."""
    from usdt.bpf.rings.groups import groups_of  # noqa: PLC0415 - --help does not pay for it
    from usdt.bpf.rings.time_order import TimeOrder  # noqa: PLC0415
    from usdt.engine.output.decode import Decoder  # noqa: PLC0415
    from usdt.engine.output.formatters.text import TextFormatter  # noqa: PLC0415
    from usdt.engine.output.output_file import lines_in  # noqa: PLC0415

    layout = _layout()
    decoder = Decoder(TextFormatter(), encoded=True)
    decoder.add_layout(_VARIANT, "work:hit", layout)
    groups = groups_of(cpus)
    order = TimeOrder(groups.count)
    sorting = formatting = 0
    lines = 0
    for taken in _looks(cpus, groups.count, groups.shift, layout):
        began = time.process_time_ns()
        data = order.next(taken) if groups.count > 1 else taken.data[0]
        sorted_at = time.process_time_ns()
        lines += sum(map(lines_in, decoder.batches(data)))
        formatting += time.process_time_ns() - sorted_at
        sorting += sorted_at - began
    if lines != RECORDS:
        raise SystemExit(f"bench: {RECORDS} records became {lines} lines")
    return {"order": sorting / 1e9, "lines": formatting / 1e9}


def _layout() -> RecordLayout:
    from usdt.arch.locations import ValueClass, ValueType  # noqa: PLC0415
    from usdt.engine.compiler.record.columns import IntColumn  # noqa: PLC0415
    from usdt.engine.compiler.record.layout import RecordField, RecordLayout  # noqa: PLC0415

    column = IntColumn(ValueType(ValueClass.SIGNED, 8))
    size = _RECORD.size - 8  # the ring buffer's header is not part of it
    return RecordLayout(size, None, (RecordField("arg0", column, size - 8),))


def _looks(cpus: int, rings: int, shift: int, layout: RecordLayout) -> list[TakenRecords]:
    # What the reader takes at each look.
    from usdt.bpf.rings.time_order import TakenRecords  # noqa: PLC0415

    found = []
    now = time.monotonic_ns() // 10**9 * 10**9
    each = _TAKE // _GAP
    for begin in range(0, RECORDS, each):
        data = [bytearray() for _ in range(rings)]
        for number in range(begin, min(begin + each, RECORDS)):
            cpu = number % cpus
            written = now + number * _GAP
            body = (written, 1000 + cpu, 1000, cpu, _VARIANT, b"work", number)
            data[cpu >> shift if rings > 1 else 0] += _RECORD.pack(layout.size, 0, *body)
        before = now + (begin + each) * _GAP
        found.append(TakenRecords(before, tuple(map(bytes, data)), (True,) * rings))
    return found
