"""The largest entries of maps, and what the others are, beside all entries decoded one by one."""

from __future__ import annotations

import random
import struct

import pytest

from usdt.bpf._uapi import MapType
from usdt.bpf.maps import Map, MapSpec, possible_cpus
from usdt.engine.aggregate.largest import Largest, hits_of, largest
from usdt.engine.aggregate.spec import Aggregation, Log2
from usdt.engine.aggregate.values import unpack, value_size

pytestmark = pytest.mark.root
_KEYS = 1500  # several batches


def filled(kind: MapType, aggregation: Aggregation, most: int) -> Map:
    """A map with small random numbers; some values have no hits."""
    size = value_size(aggregation)
    table = MapSpec(kind, 12, size, 2 * _KEYS, "values").create()
    chosen = random.Random(most)
    words = table.value_size // 8
    for number in range(_KEYS):
        numbers = [chosen.randrange(most) if chosen.random() < 0.7 else 0 for _ in range(words)]
        table.set(struct.pack("=III", 0, 0, number), struct.pack(f"={words}Q", *numbers))
    return table


@pytest.mark.parametrize("number", [1, 7, 2 * _KEYS])
@pytest.mark.parametrize("most", [2, 1000])
@pytest.mark.parametrize("kind", [MapType.HASH, MapType.PERCPU_HASH])
@pytest.mark.parametrize(
    "aggregation",
    [
        pytest.param(Aggregation(), id="counts"),
        pytest.param(Aggregation(stats=True), id="statistics"),
        pytest.param(Aggregation(buckets=Log2()), id="a histogram"),
    ],
)
def test_the_largest(aggregation: Aggregation, kind: MapType, most: int, number: int) -> None:
    with filled(kind, aggregation, most) as table:
        entries = list(table.items())
        assert len(entries) == _KEYS
        found, hits = largest(table, aggregation, number), hits_of(table, aggregation)
    counted = [(unpack(aggregation, data, signed=False).count, key, data) for key, data in entries]
    ranked = sorted(one for one in counted if one[0])
    shown, others = ranked[-number:], [count for count, *_ in ranked[:-number]]
    assert sorted(found.entries) == sorted((key, data) for _, key, data in shown)
    assert found == Largest(found.entries, len(others), sum(others), max(others, default=0))
    assert hits == sum(count for count, *_ in ranked)
    assert (
        possible_cpus() > 1 or kind is MapType.HASH or len(entries[0][1]) == value_size(aggregation)
    )
