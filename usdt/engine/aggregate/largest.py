"""Find the largest of many results before any of them is decoded.

A million results take a gigabyte as objects of Python. Their hits alone are numbers in arrays.
"""

from __future__ import annotations

import heapq
import operator
from array import array
from functools import reduce
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.engine.aggregate.values import COUNT, buckets_at, value_size
from usdt.engine.compiler.record.columns import (
    BufferColumn,
    BytesColumn,
    CommColumn,
    ConstColumn,
    FloatColumn,
    IntColumn,
    StringColumn,
)

if TYPE_CHECKING:
    from usdt.bpf.maps import Map
    from usdt.engine.aggregate.keys import KeyLayout
    from usdt.engine.aggregate.spec import Aggregation

__all__ = ("Largest", "are_distinct", "hits_in", "hits_of", "largest")

# Columns of which different bytes are different values.
_PLAIN = (
    BufferColumn | BytesColumn | CommColumn | ConstColumn | FloatColumn | IntColumn | StringColumn
)


@frozen
class Largest:
    """The largest entries of a map, and what the others are.

    Attributes:
        entries: key and value of each, in no order.
        others: the number of others.
        hits: all their hits.
        most: the most hits of one of them.
    """

    entries: tuple[tuple[bytes, bytes], ...]
    others: int
    hits: int
    most: int


def are_distinct(layout: KeyLayout) -> bool:
    """Return whether different keys in the map are always different results.

    The stacks of two processes may be one result, and two addresses one name.
    """
    return all(isinstance(field.column, _PLAIN) for field in layout.fields)


def largest(table: Map, aggregation: Aggregation, number: int) -> Largest:
    """Return the ``number`` entries with the most hits; of equal ones, those with greater keys."""
    key_size, size = table.spec.key_size, table.value_size
    found: list[tuple[int, bytes, bytes]] = []
    entries = total = most_of_others = 0
    for keys, values in table.batches():
        hits = hits_in(values, size, aggregation)
        entries += len(hits) - hits.count(0)
        total += sum(hits)
        least = found[0][0] if len(found) == number else 1
        for index, count in enumerate(hits):
            if count < least:
                most_of_others = max(most_of_others, count)
                continue
            key = keys[index * key_size : (index + 1) * key_size]
            one = count, key, values[index * size : (index + 1) * size]
            if len(found) < number:
                heapq.heappush(found, one)
            else:
                most_of_others = max(most_of_others, heapq.heappushpop(found, one)[0])
                least = found[0][0]
    shown = sum(count for count, _, _ in found)
    kept = tuple((key, value) for _, key, value in found)
    return Largest(kept, entries - len(kept), total - shown, most_of_others)


def hits_of(table: Map, aggregation: Aggregation) -> int:
    """Return the hits of all entries."""
    return sum(sum(hits_in(values, table.value_size, aggregation)) for _, values in table.batches())


def hits_in(values: bytes, size: int, aggregation: Aggregation) -> list[int]:
    """Return the hits of each of some values: of all CPUs, and of all buckets without a count.

    Args:
        values: the values, one after the other.
        size: the bytes of each.
        aggregation: what was aggregated.
    """
    words = array("Q")
    words.frombytes(values)
    one, step = value_size(aggregation) // 8, size // 8
    first = COUNT // 8 if aggregation.stats else buckets_at(aggregation) // 8
    last = first + 1 if aggregation.stats else one
    columns = [
        words[start + word :: step] for start in range(0, step, one) for word in range(first, last)
    ]
    return list(reduce(lambda a, b: array("Q", map(operator.add, a, b)), columns))
