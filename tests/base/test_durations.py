"""Durations as text."""

from __future__ import annotations

import pytest

from usdt.base.durations import duration_text, nanoseconds

_TEXTS = [
    ("500ns", 500),
    ("10us", 10_000),
    ("2.5ms", 2_500_000),
    ("1s", 1_000_000_000),
    ("2m", 120_000_000_000),
    ("0.5s", 500_000_000),
    ("1.0000000001s", 1_000_000_000),
    ("10", None),
    ("1.5", None),
    ("ms", None),
    ("1h", None),
    ("-1ms", None),
    ("1 ms", None),
    ("1e3ms", None),
    ("0x1s", None),
    (".5s", None),
    ("1.s", None),
    ("٣s", None),
]


@pytest.mark.parametrize(("text", "expected"), _TEXTS, ids=[text for text, _ in _TEXTS])
def test_a_number_with_a_unit_is_nanoseconds(text: str, expected: int | None) -> None:
    assert nanoseconds(text) == expected


_SHOWN = [
    (0, "0ns"),
    (999, "999ns"),
    (1000, "1.00us"),
    (12_345, "12.3us"),
    (999_999, "999us"),
    (2_500_000, "2.50ms"),
    (123_456_789, "123ms"),
    (1_500_000_000, "1.50s"),
    (75_400_000_000, "75.4s"),
    (7_540_000_000_000, "7540s"),
]


@pytest.mark.parametrize(("duration", "text"), _SHOWN, ids=[text for _, text in _SHOWN])
def test_a_duration_reads_well(duration: int, text: str) -> None:
    assert duration_text(duration) == text
