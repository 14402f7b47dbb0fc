"""Keys as they are read from maps: in one call of C code, or part by part."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.arch.locations import ValueClass, ValueType
from usdt.engine.aggregate.keys import HEADER, KeyField, KeyLayout
from usdt.engine.compiler.record.columns import Column, ConstColumn, IntColumn, IntFormat

UNSIGNED, SIGNED = (
    IntColumn(ValueType(kind, 8)) for kind in (ValueClass.UNSIGNED, ValueClass.SIGNED)
)
HEX = IntColumn(ValueType(ValueClass.UNSIGNED, 4), IntFormat.HEX)
PART = IntColumn(ValueType(ValueClass.UNSIGNED, 8), part_of=16)


def layout(*columns: Column) -> KeyLayout:
    """The layout of a key of numbers."""
    at, fields = HEADER.size, []
    for column in columns:
        stored = column.stored
        fields.append(KeyField("x", column, at if stored else None, 8 if stored else 0))
        at += 8 if stored else 0
    return KeyLayout(tuple(fields))


@given(
    st.lists(st.sampled_from([UNSIGNED, SIGNED, HEX, PART]), min_size=1, max_size=4),
    st.lists(st.integers(0, (1 << 64) - 1), min_size=4, max_size=4),
)
def test_both_ways_read_the_same(columns: list[Column], words: list[int]) -> None:
    keys = layout(*columns)
    data = HEADER.pack(3, 7) + struct.pack("=4Q", *words)[: 8 * len(columns)]
    assert keys.reader()(data) == keys.read(data)
    assert list(map(type, keys.reader()(data))) == list(map(type, keys.read(data)))


@pytest.mark.parametrize("columns", [(UNSIGNED,), (SIGNED, UNSIGNED), ()], ids=len)
def test_numbers_are_read_in_one_call(columns: tuple[Column, ...]) -> None:
    keys = layout(*columns)
    assert keys.reader() != keys.read


@pytest.mark.parametrize("column", [HEX, PART, ConstColumn("f")])
def test_others_are_read_part_by_part(column: Column) -> None:
    keys = layout(UNSIGNED, column)
    assert keys.reader() == keys.read
