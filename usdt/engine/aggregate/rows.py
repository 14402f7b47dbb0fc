"""Rows of an aggregation; those of plain keys are decoded only where somebody looks at them.

A million rows take a gigabyte as objects of Python, and 24 MiB as bytes of a map.
"""

from __future__ import annotations

import functools
from array import array
from itertools import compress
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.engine.aggregate.largest import hits_in
from usdt.engine.aggregate.values import Value, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.bpf.maps import Map
    from usdt.engine.aggregate.planning import ResultColumns, Source
    from usdt.engine.aggregate.spec import Aggregation

__all__ = ("PlainRows", "Row", "Rows", "hits_of_rows")

_REMEMBERED = 1024  # values that are hits alone: many keys have as many


@frozen
class Row:
    """One result: the aggregated value of one probe and one key."""

    source: Source
    key: tuple[Any, ...]
    value: Value


class PlainRows:
    """The rows of a map in which different keys are different results, as the map has them.

    Args:
        table: the map; it is read once, now.
        layout: the layout of all its keys and values.
        aggregation: what was aggregated, without percentiles.

    Attributes:
        layout: the layout.
        hits: the hits of each row; none has 0.
    """

    def __init__(self, table: Map, layout: ResultColumns, aggregation: Aggregation) -> None:
        self.layout = layout
        self.hits = array("Q")
        self._read_key = layout.keys.reader()
        self._aggregation = aggregation
        self._counted = functools.lru_cache(_REMEMBERED)(Value)
        self._key_size, size = table.spec.key_size, table.value_size
        # Hits alone are kept as their sum: there are as many values as CPUs.
        self._size = 0 if aggregation.counts_alone else size
        self._keys, self._values = bytearray(), bytearray()
        for keys, values in table.batches():
            hits = hits_in(values, size, aggregation)
            self.hits.extend(filter(None, hits))  # a program has just made an entry with 0
            self._keys += _of_hit(hits, keys)
            if self._size:
                self._values += _of_hit(hits, values)

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Row]:
        return map(self.row, range(len(self.hits)))

    def row(self, index: int) -> Row:
        """Decode a row."""
        start = index * self._key_size
        key = self._read_key(bytes(self._keys[start : start + self._key_size]))
        return Row(self.layout.source, key, self.value(index))

    def value(self, index: int) -> Value:
        """Decode the value of a row."""
        if not self._size:
            return self._counted(self.hits[index])
        data = bytes(self._values[index * self._size : (index + 1) * self._size])
        return unpack(self._aggregation, data, signed=self.layout.signed)

    def integers(self) -> array[int] | None:
        """Return the keys of all rows if each is one decimal integer without a name, else None."""
        if len(self.layout.keys.fields) != 1:
            return None
        (field,) = self.layout.keys.fields
        if not field.is_decimal or field.offset is None:
            return None
        words = array(field.code)
        words.frombytes(self._keys)
        return words[field.offset // 8 :: self._key_size // 8]


Rows = list[Row] | PlainRows


def hits_of_rows(rows: Rows) -> int:
    """Return the hits of all rows."""
    return sum(rows.hits) if isinstance(rows, PlainRows) else sum(row.value.count for row in rows)


def _of_hit(hits: list[int], entries: bytes) -> bytes:
    # Keys or values of the entries with hits.
    if 0 not in hits:
        return entries
    size = len(entries) // len(hits)
    each = (entries[at : at + size] for at in range(0, len(entries), size))
    return b"".join(compress(each, hits))
