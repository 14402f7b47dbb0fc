"""Specs, values and keys of aggregations: bytes and numbers, no kernel."""

from __future__ import annotations

import struct

import pytest
from planning import EVERY_TYPE
from planning import plan as planned

from usdt.base.errors import LanguageError, TracingError
from usdt.engine.aggregate.keys import Address, KeyLayout, Stack, lay_out
from usdt.engine.aggregate.spec import (
    MAX_BUCKETS,
    Aggregation,
    Linear,
    Log2,
    are_start_and_end,
    parse_keys,
    parse_linear,
)
from usdt.engine.aggregate.values import NONE, Value, total, unpack, value_size
from usdt.engine.compiler.record.columns import SymbolKind, stack_column
from usdt.engine.language import parse_items, parse_probe
from usdt.engine.language.tree import StackKind
from usdt.engine.output.truncated import TruncatedStr

_SIGN, _ALL = 1 << 63, (1 << 64) - 1


# ---------------------------------------------------------------- what is asked for


@pytest.mark.parametrize(
    ("probes", "pair"),
    [
        (["p:a", "p:b"], True),
        (["p:a(arg0 > 1)", "p:b"], True),
        (["uprobe:c:f", "uprobe:c:f(return)"], True),
        (["uprobe:c:f(return)", "uprobe:c:g"], True),
        (["uprobe:c:f(return)", "uprobe:c:g(return)"], False),
        (["p:a(arg0)", "p:b"], False),
        (["p:a"], False),
        (["p:a", "p:b", "p:c"], False),
    ],
)
def test_two_probes_without_values_are_a_start_and_an_end(probes: list[str], pair: bool) -> None:
    assert are_start_and_end([parse_probe(text) for text in probes]) is pair


def test_powers_of_two_leave_no_gap() -> None:
    edges = [Log2().edges(index) for index in range(Log2().number)]
    assert edges[:4] == [(None, 0), (0, 1), (1, 2), (2, 4)]
    assert edges[-1] == (1 << 63, 1 << 64)
    assert [high for _, high in edges[:-1]] == [low for low, _ in edges[1:]]


@pytest.mark.parametrize("text", ["0:100:10", "-7:8:3", "-0x10:0x10:1", "5:6:100", "0:1000:1"])
def test_equal_steps_leave_no_gap(text: str) -> None:
    linear = parse_linear(text)
    edges = [linear.edges(index) for index in range(linear.number)]
    assert edges[0] == (None, linear.low)
    assert edges[-1] == (linear.high, None)
    assert [high for _, high in edges[:-1]] == [low for low, _ in edges[1:]]


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "1:2", "5:1:1", "3:3:1", "0:10:0", "0:10:-1", f"0:{MAX_BUCKETS + 1}:1"),
        *("a:b:c", "0:10:1:2", "0:1.5:1", f"0:{1 << 63}:{1 << 60}", f"-{(1 << 63) + 1}:0:1"),
    ],
)
def test_steps_that_are_none(text: str) -> None:
    with pytest.raises(TracingError, match="--linear"):
        parse_linear(text)


def test_keys_are_taken_once() -> None:
    keys = parse_keys("tid, comm,tid , str(arg0)", "--by")
    assert [item.text for item in keys.items] == ["tid", "comm", "str(arg0)"]
    assert not parse_keys(None, "--by")


@pytest.mark.parametrize(
    ("text", "option", "reason"),
    [
        pytest.param(" ", "--by", "expected an expression", id="none"),
        pytest.param("tid, arg0 > 1", "--by", "a comparison is a predicate", id="a comparison"),
        pytest.param(
            "ustack", "--key", "a stack cannot pair a start with its end", id="a stack for a pair"
        ),
    ],
)
def test_keys_that_are_none(text: str, option: str, reason: str) -> None:
    with pytest.raises(LanguageError, match=reason):
        parse_keys(text, option)


@pytest.mark.parametrize(
    ("aggregation", "text", "value"),
    [
        pytest.param(Aggregation(), "a:b", None, id="a count"),
        pytest.param(Aggregation(), "a:b(arg0 > 1)", None, id="a count of some"),
        pytest.param(Aggregation(stats=True), "a:b(arg0 > 1, arg1)", "arg1", id="a value of some"),
        pytest.param(Aggregation(buckets=Log2()), "a:b(arg0 + 1)", "arg0+1", id="a histogram"),
    ],
)
def test_the_value_of_a_probe(aggregation: Aggregation, text: str, value: str | None) -> None:
    item = aggregation.check(parse_probe(text))
    assert (item.text if item else None) == value


@pytest.mark.parametrize(
    ("aggregation", "text"),
    [
        pytest.param(Aggregation(), "a:b(arg0)", id="a value to count"),
        pytest.param(Aggregation(stats=True), "a:b", id="no value"),
        pytest.param(Aggregation(stats=True), "a:b(arg0 > 1)", id="only a predicate"),
        pytest.param(Aggregation(buckets=Log2()), "a:b(arg0, arg1)", id="two values"),
        pytest.param(
            Aggregation(stats=True, pair=parse_keys("tid", "--key")), "a:b(arg0)", id="of a pair"
        ),
    ],
)
def test_values_that_are_none(aggregation: Aggregation, text: str) -> None:
    with pytest.raises(LanguageError, match="expected"):
        aggregation.check(parse_probe(text))


# ---------------------------------------------------------------- values


def packed(values: list[int], *, signed: bool) -> bytes:
    """The five words of statistics, as the kernel would leave them."""
    if not values:
        return bytes(40)
    turned = [(v & _ALL) ^ (_SIGN if signed else 0) for v in values]
    low = sum(v & 0xFFFFFFFF for v in values)
    high = sum(v >> 32 for v in values)
    words = (len(values), low, high & _ALL, max(turned), max(v ^ _ALL for v in turned))
    return struct.pack("=5Q", *words)


@pytest.mark.parametrize(
    ("values", "signed"),
    [
        pytest.param([0], True, id="zero"),
        pytest.param([-1, 5, -(1 << 63), (1 << 63) - 1], True, id="signed, to both ends"),
        pytest.param([-(1 << 63)] * 9, True, id="a sum below 64 bits"),
        pytest.param([_ALL, 0, _ALL], False, id="unsigned, a sum beyond 64 bits"),
        pytest.param([7, 3, 5], False, id="small"),
        pytest.param([], True, id="none"),
    ],
)
@pytest.mark.parametrize("cpus", [1, 3])
def test_statistics(values: list[int], signed: bool, cpus: int) -> None:
    data = b"".join(packed(values[cpu::cpus], signed=signed) for cpu in range(cpus))
    found = unpack(Aggregation(stats=True), data, signed=signed)
    assert found == Value(
        len(values), sum(values), min(values, default=None), max(values, default=None)
    )


def test_counts_and_buckets_of_all_processors_are_added() -> None:
    assert unpack(Aggregation(), struct.pack("=3Q", 1, 0, 41), signed=False) == Value(42)
    linear = Aggregation(buckets=Linear(0, 2, 1))
    assert value_size(linear) == 32
    data = struct.pack("=8Q", 1, 2, 3, 4, 10, 20, 30, 40)
    assert unpack(linear, data, signed=True) == Value(110, buckets=(11, 22, 33, 44))


def test_both_in_one_value() -> None:
    both = Aggregation(stats=True, buckets=Linear(0, 1, 1))
    data = packed([4, 6], signed=False) + struct.pack("=3Q", 0, 0, 2)
    assert unpack(both, data, signed=False) == Value(2, 10, 4, 6, (0, 0, 2))


def test_what_has_been_added_since() -> None:
    earlier = Value(2, 10, 4, 6, (1, 1))
    assert earlier.minus(NONE) == earlier
    assert Value(5, 30, 1, 6, (3, 2)).minus(earlier) == Value(3, 20, 1, None, (2, 1))
    assert Value(3, 15, 4, 6, (1, 2)).minus(earlier) == Value(1, 5, 5, 5, (0, 1))
    assert total([earlier, NONE, Value(1, 7, 7, 7, (0, 1))]) == Value(3, 17, 4, 7, (1, 2))
    assert NONE.average == 0


# ---------------------------------------------------------------- keys


def layout(text: str) -> KeyLayout:
    items = parse_items(text)
    plain = [item for item in items if item.text not in ("ustack", "kstack")]
    words = ", ".join(item.text for item in plain)
    return lay_out(items, planned(words, EVERY_TYPE).outputs if plain else ())


def test_parts_lie_behind_one_another() -> None:
    found = layout("arg0, str(arg7, 9), comm, ustack, arg11, buf(arg7, 3)")
    assert [field.offset for field in found.fields] == [8, 16, 32, 48, 56, 80]
    assert found.size == 96
    assert layout("func").size == 8


@pytest.mark.parametrize(
    ("text", "data", "value"),
    [
        pytest.param("arg0", struct.pack("=q", -5), -5, id="signed"),
        pytest.param("arg7", struct.pack("=Q", _ALL), _ALL, id="unsigned"),
        pytest.param("hex(arg0)", struct.pack("=q", -5), "0xfb", id="hexadecimal of a byte"),
        pytest.param("arg9", struct.pack("=d", 1.5), 1.5, id="a double"),
        pytest.param("arg10", struct.pack("=f", 0.25), 0.25, id="a float"),
        pytest.param("arg11", bytes(range(24)), bytes(range(24)).hex(), id="an aggregate"),
        pytest.param("comm", b"name\0rest", "name", id="a thread's name"),
        pytest.param("str(arg7, 7)", b"whole", "whole", id="a string"),
        pytest.param("str(arg7, 7)", b"\xff" + b"x" * 6, "\udcff" + "x" * 6, id="one that is cut"),
        pytest.param("buf(arg7, 5)", struct.pack("=Q", 3) + b"a\0bcd", "a\0b", id="a buffer"),
        pytest.param("buf(arg7, 5)", b"\xff" * 8 + b"abcde", "abcde", id="a length beyond it"),
        pytest.param(
            "kstack",
            struct.pack("=II", 9, 0),
            Stack(stack_column(StackKind.KERNEL), 9, 0),
            id="a stack",
        ),
        pytest.param(
            "usym(arg7)",
            struct.pack("=QQ", 4096, 7),
            Address(SymbolKind.USER, 4096, 7),
            id="a symbol",
        ),
    ],
)
def test_parts_are_read_back(text: str, data: bytes, value: object) -> None:
    found = layout(text)
    assert found.read((bytes(8) + data).ljust(found.size, b"\0")) == (value,)


def test_a_string_says_whether_it_may_go_on() -> None:
    found = layout("str(arg7, 3)")
    whole, cut = (found.read(bytes(8) + data.ljust(8, b"\0"))[0] for data in (b"ab", b"abc"))
    assert not isinstance(whole, TruncatedStr)
    assert isinstance(cut, TruncatedStr)
