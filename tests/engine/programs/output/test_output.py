"""The output of programs: printf(), histograms, values."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest

from usdt.engine.programs.check.formats import check_format, conversions
from usdt.engine.programs.output.histograms import buckets, drawn
from usdt.engine.programs.output.printf import Formatter
from usdt.engine.programs.output.symbols import time_text
from usdt.engine.programs.output.values import decode, shown
from usdt.engine.programs.types import (
    BOOLEAN,
    INT64,
    UINT64,
    Aggregate,
    AggregateType,
    ArrayType,
    BufferType,
    IntegerType,
    PointerType,
    ShownAs,
    StringType,
    TupleType,
    Type,
)


class NoSymbols:
    """Nothing is looked up."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


_NONE: Any = NoSymbols()
_BUFFER = BufferType(8)


@pytest.mark.parametrize(
    ("text", "types", "values", "printed"),
    [
        ("%d|%5d|%-5d|%05d|%+d", [INT64] * 5, [-1, 2, 3, 4, 5], "-1|    2|3    |00004|+5"),
        ("%x %X %#x %o %#o", [INT64] * 5, [255, 255, 255, 8, 8], "ff FF 0xff 10 010"),
        ("%u %lu", [INT64] * 2, [-1, -1], "4294967295 18446744073709551615"),
        ("%d %i %ld", [UINT64] * 3, [0xFFFFFFFF, 1 << 40, 1 << 40], "-1 0 1099511627776"),
        ("%d %5d", [INT64] * 2, [1 << 31, 3 << 32], "-2147483648     0"),
        ("%u %lu", [UINT64] * 2, [1 << 40 | 7, 1 << 40], "7 1099511627776"),
        ("%d", [IntegerType(4, signed=False)], [0xFFFFFFFF], "-1"),
        ("%lx %x %hx", [IntegerType(1, signed=True)] * 3, [-2] * 3, f"{'f' * 15}e fffffffe fffe"),
        ("%x", [IntegerType(4, signed=True)], [-1], "ffffffff"),
        ("%hhd %hd", [INT64] * 2, [257, 65537], "1 1"),
        ("%lld %ld %jd %zd", [INT64] * 4, [1, 2, 3, 4], "1 2 3 4"),
        ("%.3d|%8.3d", [INT64] * 2, [5, 5], "005|     005"),
        ("%c%c", [INT64] * 2, [65, 66], "AB"),
        ("%p", [PointerType()], [4096], "0x1000"),
        ("%s|%5s|%-5s|%.2s", [StringType(8)] * 4, ["a", "b", "c", "defg"], "a|    b|c    |de"),
        ("100%% %d", [INT64], [1], "100% 1"),
        ("%r %rx %rh", [_BUFFER] * 3, [b"a\n", b"a\n", b"a\n"], "a\\x0a \\x61\\x0a 61 0a"),
        ("%d", [BOOLEAN], [1], "1"),
    ],
)
def test_formats(text: str, types: list[Type], values: list[Any], printed: str) -> None:
    check_format(text, types, AssertionError)
    assert Formatter(text, types, _NONE)(values) == printed


@pytest.mark.parametrize(
    ("text", "types", "reason"),
    [
        ("%d", [], "the format has 1 conversion for 0 values"),
        ("%", [], "found '%', which is no conversion"),
        ("%y", [INT64], "found '%y', which is no conversion of printf()"),
        ("%n", [INT64], "found '%n', which is no conversion of printf()"),
        ("%s", [INT64], "%s does not go with int64"),
        ("%d", [StringType(4)], "%d does not go with string[4]"),
        ("%r", [StringType(4)], "%r does not go with string[4]"),
    ],
)
def test_formats_that_do_not_fit(text: str, types: list[Type], reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_format(text, types, ValueError)
    assert str(caught.value) == reason


def test_text_between_conversions_is_kept() -> None:
    found = conversions("a%%b%dc")
    assert [one.before for one in found] == ["a%b", "c"]


@pytest.mark.parametrize("bits", range(6))
def test_buckets_of_powers_of_two_join(bits: int) -> None:
    kind = AggregateType(Aggregate.HIST, parameters=(bits,))
    every = list(buckets(kind, {-1: 1, (60 << bits) - 1: 1}))
    assert (every[0].low, every[0].high) == (None, 0)
    assert every[1].low == 0
    for one, following in itertools.pairwise(every[1:]):
        assert one.high == following.low
        assert one.high is not None
        assert one.low is not None
        assert one.low < one.high


def test_buckets_of_one_width() -> None:
    kind = AggregateType(Aggregate.LHIST, parameters=(-10, 11, 10))
    found = [(one.low, one.high, one.hits) for one in buckets(kind, {-1: 2, 3: 1})]
    assert found == [(None, -10, 2), (-10, 0, 0), (0, 10, 0), (10, 20, 0), (11, None, 1)]


def test_a_picture_has_labels_of_1024() -> None:
    kind = AggregateType(Aggregate.HIST, parameters=(0,))
    lines = list(drawn(kind, {11: 1, 21: 2}))
    assert lines[0] == f"{'[1K, 2K)':<16}{1:>8} |{'@' * 26:<52}|"
    assert lines[-1] == f"{'[1M, 2M)':<16}{2:>8} |{'@' * 52}|"
    assert len(lines) == 11


def test_a_histogram_after_zero_has_no_buckets() -> None:
    assert not list(drawn(AggregateType(Aggregate.HIST, parameters=(0,)), {11: 0, 21: 0}))


@pytest.mark.parametrize(
    ("kind", "data", "value", "text"),
    [
        (INT64, struct.pack("=q", -5), -5, "-5"),
        (UINT64, struct.pack("=q", -1), (1 << 64) - 1, "18446744073709551615"),
        (IntegerType(1, signed=True), struct.pack("=Q", 0x1FF), -1, "-1"),
        (BOOLEAN, struct.pack("=Q", 1), 1, "true"),
        (StringType(8), b"ab\0xxxxx", "ab", "ab"),
        (StringType(8), b"a\xff\0xxxxx", "a\\xff", "a\\xff"),
        (BufferType(4), struct.pack("=Q", 2) + b"\x00a..", b"\0a", "\\x00a"),
        (
            BufferType(4, address=True),
            struct.pack("=Q", 4) + b"\x7f\0\0\1",
            b"\x7f\0\0\1",
            "127.0.0.1",
        ),
        (
            BufferType(6, hardware=True),
            struct.pack("=Q", 6) + b"\0\1\2\3\4\xff" + bytes(2),
            b"\0\1\2\3\4\xff",
            "00:01:02:03:04:FF",
        ),
        (
            ArrayType(IntegerType(2, signed=False), 3),
            struct.pack("=3H", 1, 2, 3),
            (1, 2, 3),
            "[1,2,3]",
        ),
        (TupleType((INT64, StringType(8))), struct.pack("=q8s", 1, b"x"), (1, "x"), "(1, x)"),
        (TupleType((INT64,), ("a",)), struct.pack("=q", 1), (1,), "{ .a = 1 }"),
    ],
)
def test_values_from_bytes(kind: Type, data: bytes, value: Any, text: str) -> None:
    assert decode(kind, data) == value
    assert shown(kind, value, _NONE) == text


def test_numbers_that_stand_for_something() -> None:
    def text(what: ShownAs, number: int) -> str:
        return shown(IntegerType(8, signed=False, shown=what), number, _NONE)

    assert text(ShownAs.ERROR, 2) == "No such file or directory"
    assert text(ShownAs.SIGNAL, 9) == "Killed"
    assert text(ShownAs.SIGNAL, 999) == "N/A"


def test_microseconds_of_a_time() -> None:
    assert time_text(1_500_000_000_123_456_789, "%f") == "123456"
