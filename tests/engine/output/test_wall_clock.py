"""Times of day and dates of events."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from usdt.engine.output.wall_clock import WallClock, iso_time, time_of_day

if TYPE_CHECKING:
    from collections.abc import Iterator

_WHEN = datetime(2026, 11, 24, 23, 59, 59, 123456, UTC)
_SECONDS = int(_WHEN.timestamp())


@pytest.fixture
def india(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time zone of half an hour."""
    monkeypatch.setenv("TZ", "IST-5:30")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("india")
def test_dates_have_nanoseconds_and_the_time_zone() -> None:
    clock = WallClock(_SECONDS * 1_000_000_000)
    assert clock.iso(123_456_789) == "2026-11-25T05:29:59.123456789+05:30"
    assert clock.iso(1_000_000_000) == "2026-11-25T05:30:00.000000000+05:30"
    assert clock.time_of_day(123_456_789) == "05:29:59.123456"
    zone = timezone(timedelta(hours=5, minutes=30))
    parsed = datetime.fromisoformat(iso_time(_WHEN.timestamp()))
    assert parsed.utcoffset() == zone.utcoffset(None)
    assert abs(parsed - _WHEN) < timedelta(microseconds=2)


@pytest.mark.usefixtures("india")
def test_what_times_of_a_tenth_of_a_second_have_in_common() -> None:
    clock = WallClock(_SECONDS * 1_000_000_000 + 5)
    assert clock.tenth(123_456_789, iso=False) == (99_999_995, "05:29:59.1", "")
    dates = ("2026-11-25T05:30:00.0", "+05:30")
    assert clock.tenth(1_000_000_000, iso=True) == (999_999_995, *dates)


def test_the_clock_of_this_machine() -> None:
    shown = datetime.fromisoformat(WallClock().iso(time.monotonic_ns()))
    assert abs(shown - datetime.now(UTC)) < timedelta(seconds=100)


@pytest.mark.parametrize(
    ("interval", "shown"),
    [(None, "00:00:01"), (1.0, "00:00:01"), (60, "00:00:01"), (0.5, "00:00:01.500")],
)
def test_times_of_intervals_below_a_second_have_milliseconds(
    interval: float | None, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert time_of_day(1.5, interval) == shown
    monkeypatch.undo()
    time.tzset()
