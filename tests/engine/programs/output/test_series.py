"""The intervals of tseries(), from the words of maps to their picture."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from usdt.engine.programs.output.series import drawn_series, interval_time, latest_intervals
from usdt.engine.programs.types import Aggregate, AggregateType

if TYPE_CHECKING:
    from collections.abc import Iterator

_MS = 1_000_000
_BUSY = (1 << 64) - 1


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Show times as in Greenwich."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _series(interval: int, count: int = 5, *, signed: bool = True) -> AggregateType:
    return AggregateType(Aggregate.TSERIES, signed, (interval, count))


def test_the_parts_of_all_processors_are_together() -> None:
    parts = [(7, 1, 10), (6, 2, 20), (7, 3, 30), (0, 0, 0)]
    assert latest_intervals(_series(1), parts) == {6: [(2, 20)], 7: [(1, 10), (3, 30)]}


def test_what_has_left_the_window_or_is_being_begun_is_left_out() -> None:
    parts = [(2, 1, 10), (3, 1, 11), (_BUSY, 1, 12), (7, 1, 13)]
    assert [*latest_intervals(_series(1), parts)] == [3, 7]


def test_interval_zero_is_one() -> None:
    assert latest_intervals(_series(1 << 62), [(0, 1, 10), (0, 0, 0)]) == {0: [(1, 10)]}


def test_a_picture() -> None:
    start = 1_000_000_000 * 10  # tenths of a second: 2001-09-09 01:46:40
    values = {start: 5, start + 1: 7, start + 3: 13}
    assert [*drawn_series(_series(100 * _MS), values)] == [
        "             5                                                  13",
        "hh:mm:ss.ms  |___________________________________________________|",
        "01:46:40.000 *                                                   | 5",
        "01:46:40.100 |            *                                      | 7",
        "01:46:40.200 |                                                   | -",
        "01:46:40.300 |                                                   * 13",
        "             v___________________________________________________v",
        "             5                                                  13",
    ]


@pytest.mark.parametrize(
    ("interval", "column"),
    [
        (2_000 * _MS, "hh:mm:ss |"),
        (1_500 * _MS, "hh:mm:ss.ms  |"),
        (500_000, "hh:mm:ss.μs     |"),
        (7, "hh:mm:ss.ns        |"),
    ],
)
def test_times_are_as_precise_as_the_interval(interval: int, column: str) -> None:
    _, header, first, *_ = drawn_series(_series(interval), {1: -1, 2: 1})
    assert header.startswith(column)
    assert first.index("*") == len(column) - 1


@pytest.mark.parametrize(
    ("value", "signed", "bounds", "place"),
    [
        (4, True, "3 5", 26),
        ((1 << 64) - 1, False, f"{(1 << 64) - 2} {(1 << 64) - 1}", 52),
        (-(1 << 63), True, f"{-(1 << 63)} {1 - (1 << 63)}", 0),
    ],
)
def test_a_value_alone_is_in_the_middle_if_it_can(
    value: int, signed: bool, bounds: str, place: int
) -> None:
    scale, header, row, *_ = drawn_series(_series(1000 * _MS, signed=signed), {1: value})
    assert " ".join(scale.split()) == bounds
    assert header.startswith("hh:mm:ss.ns        |")
    assert row.index("*") == len("hh:mm:ss.123456789 ") + place


def test_no_data() -> None:
    assert [*drawn_series(_series(1), {})] == ["<no data>"]


def test_times_have_a_date_and_nanoseconds() -> None:
    assert interval_time(1_000_000_000 * 10**9 + 5) == "2001-09-09 01:46:40.000000005"
