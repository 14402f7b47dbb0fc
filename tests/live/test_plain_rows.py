"""Results of plain rows, made when they are asked for, beside those that are all made at once."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from aggregating import in_process
from fixtures import build, start

import usdt
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import MapSpec
from usdt.engine.aggregate.keys import KeyField, KeyLayout
from usdt.engine.aggregate.planning import ResultColumns, Source
from usdt.engine.aggregate.results import PlainResults, Results, top_of
from usdt.engine.aggregate.rows import PlainRows, hits_of_rows
from usdt.engine.aggregate.spec import Aggregation, Log2, parse_keys
from usdt.engine.aggregate.values import unpack, value_size
from usdt.engine.compiler.record.columns import IntColumn, ValueClass, ValueType
from usdt.engine.language import parse_probe
from usdt.engine.output.stacks import StackResolver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fixtures import Fixture

pytestmark = pytest.mark.root
_KEYS = 1500  # several batches


@pytest.mark.parametrize("kind", [MapType.HASH, MapType.PERCPU_HASH])
@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
@pytest.mark.parametrize(
    "aggregation",
    [
        pytest.param(Aggregation(), id="counts"),
        pytest.param(Aggregation(stats=True), id="statistics"),
        pytest.param(Aggregation(buckets=Log2()), id="a histogram"),
    ],
)
def test_rows_of_a_map(aggregation: Aggregation, kind: MapType, *, signed: bool) -> None:
    size = value_size(aggregation)
    column = IntColumn(ValueType(ValueClass.SIGNED if signed else ValueClass.UNSIGNED, 8))
    keys = KeyLayout((KeyField("arg0", column, 8, 8),))
    layout = ResultColumns(Source(0, "p:q"), keys, signed=False)
    with MapSpec(kind, 16, size, 2 * _KEYS, "values").create() as table:
        words = table.value_size // 8
        for number in range(_KEYS):
            key = struct.pack("=IIQ", 0, 0, number if number % 2 else (1 << 64) - number - 1)
            # Every third entry has no hits yet.
            table.set(key, struct.pack(f"={words}Q", *[number % 3 and number] * words))
        rows, entries = PlainRows(table, layout, aggregation), list(table.items())
    expected = [(keys.read(key), unpack(aggregation, data, signed=False)) for key, data in entries]
    expected = [one for one in expected if one[1].count]
    assert 0 < len(expected) < _KEYS
    assert [(row.key, row.value) for row in rows] == expected
    assert len(rows) == len(expected)
    assert hits_of_rows(rows) == sum(value.count for _, value in expected) == hits_of_rows([*rows])
    assert [(number,) for number in rows.integers() or ()] == [key for key, _ in expected]


@pytest.fixture
def threads() -> Iterator[Fixture]:
    """Eight threads, each passing threads:hit(index, round, tid) twenty times."""
    with start(build("default", "threads"), "-w", "-t", 8, "-n", 20) as made:
        yield made.wait_ready()


@pytest.mark.parametrize(
    ("by", "keys", "whole"),
    [
        pytest.param("arg0", 8, True, id="one integer"),
        pytest.param("arg0 - 3", 8, True, id="negative integers"),
        pytest.param("arg1, comm", 20, False, id="an integer and a name"),
        pytest.param("hex(arg0)", 8, False, id="hexadecimal"),
    ],
)
def test_results_are_those_made_at_once(
    by: str, keys: int, threads: Fixture, *, whole: bool
) -> None:
    # Some keys have as many hits as others: 20 four times, then 18, 16, 14 and 12.
    requests = [parse_probe("threads:hit(arg1 + 2 * arg0 < 26)")]
    aggregation = Aggregation(keys=parse_keys(by, "--by"))
    with (
        in_process(aggregation, requests, threads.pid) as (tracer, session),
        StackResolver() as resolver,
    ):
        threads.fire()
        assert not [batch for batch in tracer.drain() if batch]
        rows = session.read()
        assert isinstance(rows, PlainRows)
        assert (rows.integers() is not None) is whole
        results = Results(session, requests, resolver)
        for sort in (None, "count", "key"):
            found, others = results.of(rows, sort), results.of([*rows], sort)
            assert isinstance(found, PlainResults)
            assert not isinstance(others, PlainResults)
            assert len(found) == len(others) == keys
            assert [*found] == [*others] == [found[at] for at in range(keys)]
            (shown, left_out), expected = top_of(found, 3), top_of(others, 3)
            assert ([*shown], left_out) == expected


def test_a_snapshot_has_the_most_last(threads: Fixture) -> None:
    probe = "threads:hit(arg1 + 2 * arg0 < 26)"
    with usdt.Session(pid=threads.pid) as session:
        counts = session.count(probe, by="arg0")
        stats = session.stats("threads:hit(arg1, arg1 + 2 * arg0 < 26)", by="arg0")
        threads.fire()
        hits = [(7, 12), (6, 14), (5, 16), (4, 18), (0, 20), (1, 20), (2, 20), (3, 20)]
        assert list(counts.snapshot().items()) == hits
        assert [(key, value.count) for key, value in stats.snapshot().items()] == hits
