"""Constants folded: what gcc says of the same numbers is in tests/live; here are the corners."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning import INTEGERS, register

from usdt.engine.compiler.constant_folding import fold, range_of
from usdt.engine.compiler.ir import (
    S32,
    S64,
    U32,
    U64,
    ArgumentValue,
    Arithmetic,
    Builtin,
    Compare,
    Convert,
    Deref,
    Node,
    Not,
    Number,
    ShortCircuit,
    StringEquals,
    StringEqualsConst,
    Unavailable,
    wrap,
)

if TYPE_CHECKING:
    from usdt.arch.locations import ValueType

_OPAQUE = Unavailable("thread-local", U64)
_UNKNOWN = ArgumentValue(register(), S64)
_FOLLOWED = Deref(ArgumentValue(register(), U64), S32)
_BYTE = Convert(ArgumentValue(register(1), INTEGERS["u8"]), S32)
_INT_MIN, _LONG_MIN = -(1 << 31), -(1 << 63)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        pytest.param(255, "s8", -1, id="the sign bit alone makes it negative"),
        pytest.param(-1, "u8", 255, id="negative numbers wrap"),
        pytest.param(-129, "s8", 127, id="below the least"),
        pytest.param(1 << 40, "s32", 0, id="what is cut off is gone"),
        pytest.param(1 << 63, "s64", _LONG_MIN, id="unsigned to signed, 64 bits"),
        pytest.param(-1, "u64", (1 << 64) - 1, id="signed to unsigned, 64 bits"),
        pytest.param(0x8000, "s16", -0x8000, id="16 bits"),
    ],
)
def test_conversion_is_modulo(value: int, kind: str, expected: int) -> None:
    assert wrap(value, INTEGERS[kind]) == expected
    assert fold(Convert(Number(value, S64), INTEGERS[kind])) == Number(expected, INTEGERS[kind])


@pytest.mark.parametrize(
    ("left", "op", "right", "kind", "expected"),
    [
        pytest.param((1 << 31) - 1, "+", 1, S32, _INT_MIN, id="signed overflow wraps"),
        pytest.param((1 << 32) - 1, "+", 1, U32, 0, id="unsigned overflow wraps"),
        pytest.param(0, "-", 1, U64, (1 << 64) - 1, id="below zero"),
        pytest.param(1 << 32, "*", 1 << 32, S64, 0, id="a product of more than 64 bits"),
        pytest.param(-7, "/", 2, S32, -3, id="quotients are cut towards zero"),
        pytest.param(7, "/", -2, S32, -3, id="also with the sign on the right"),
        pytest.param(-7, "%", 2, S32, -1, id="remainders have the sign of the left"),
        pytest.param(7, "%", -2, S32, 1, id="whatever the right has"),
        pytest.param(_INT_MIN, "/", -1, S32, _INT_MIN, id="the least integer over -1 wraps"),
        pytest.param(_LONG_MIN, "%", -1, S64, 0, id="and leaves no remainder"),
        pytest.param((1 << 64) - 1, "/", 2, U64, (1 << 63) - 1, id="unsigned division"),
        pytest.param((1 << 63) + 1, "%", 1 << 62, U64, 1, id="unsigned remainder, exact"),
        pytest.param(1, "<<", 31, S32, _INT_MIN, id="into the sign bit"),
        pytest.param(1, "<<", 33, S32, 2, id="counts beyond the width are masked"),
        pytest.param(1, "<<", -1, S64, _LONG_MIN, id="so are negative ones"),
        pytest.param(-8, ">>", 1, S32, -4, id="signed shifts keep the sign"),
        pytest.param((1 << 32) - 8, ">>", 1, U32, (1 << 31) - 4, id="unsigned ones bring zeros"),
        pytest.param(-1, "&", 0xF0, S64, 0xF0, id="and"),
        pytest.param(-16, "|", 1, S64, -15, id="or"),
        pytest.param(-1, "^", -1, S32, 0, id="exclusive or"),
    ],
)
def test_arithmetic(left: int, op: str, right: int, kind: ValueType, expected: int) -> None:
    node = Arithmetic(op, Number(left, kind), Number(right, kind), kind)
    assert fold(node) == Number(expected, kind)


@pytest.mark.parametrize(
    ("op", "value", "kind", "expected"),
    [
        pytest.param("-", _INT_MIN, S32, _INT_MIN, id="minus the least integer is itself"),
        pytest.param("-", 1, U32, (1 << 32) - 1, id="minus of an unsigned number"),
        pytest.param("~", 0, S64, -1, id="not of a signed number"),
        pytest.param("~", 0, U32, (1 << 32) - 1, id="not of an unsigned number"),
    ],
)
def test_unary(op: str, value: int, kind: ValueType, expected: int) -> None:
    assert fold(Arithmetic(op, Number(value, kind), None, kind)) == Number(expected, kind)


_PYTHON = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@given(st.sampled_from([*_PYTHON]), st.integers(-3, 3), st.integers(-3, 3))
def test_comparisons_give_an_int(op: str, left: int, right: int) -> None:
    node = fold(Compare(op, Number(left, S64), Number(right, S64), S64))
    assert node == Number(int(_PYTHON[op](left, right)), S32)


@pytest.mark.parametrize("op", ["/", "%"])
@pytest.mark.parametrize("left", [Number(5, S32), _UNKNOWN, Builtin("pid", U32)])
def test_division_by_a_constant_zero_is_never_a_number(op: str, left: Node) -> None:
    node = fold(Arithmetic(op, left, Number(0, left.type), left.type))
    assert node == Unavailable("division by zero", left.type)


_ZERO, _ONE = Number(0, S32), Number(7, S32)  # 7 is true as well


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(ShortCircuit("&&", _ZERO, _OPAQUE), _ZERO, id="0 && is 0 whatever follows"),
        pytest.param(
            ShortCircuit("||", _ONE, _OPAQUE), Number(1, S32), id="1 || is 1 whatever follows"
        ),
        pytest.param(
            ShortCircuit("&&", _ZERO, _UNKNOWN), _ZERO, id="also what is known at a hit only"
        ),
        pytest.param(ShortCircuit("&&", _ONE, _ONE), Number(1, S32), id="both"),
        pytest.param(ShortCircuit("||", _ZERO, _ZERO), _ZERO, id="neither"),
        pytest.param(ShortCircuit("||", _ZERO, _ONE), Number(1, S32), id="the right one"),
        pytest.param(
            ShortCircuit("&&", _ONE, _OPAQUE), Unavailable("thread-local", S32), id="1 && needs it"
        ),
        pytest.param(
            ShortCircuit("||", _OPAQUE, _ONE),
            Unavailable("thread-local", S32),
            id="the left is first",
        ),
        pytest.param(Not(_ONE), _ZERO, id="not"),
        pytest.param(Not(_ZERO), Number(1, S32), id="not 0"),
    ],
)
def test_logic(node: Node, expected: Node) -> None:
    assert fold(node) == expected


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(ShortCircuit("&&", _FOLLOWED, _ZERO), id="its left side may be unreadable"),
        pytest.param(ShortCircuit("||", _FOLLOWED, _ONE), id="as may that of an or"),
        pytest.param(ShortCircuit("||", _UNKNOWN, _OPAQUE), id="its right side may not be needed"),
        pytest.param(ShortCircuit("&&", _UNKNOWN, _FOLLOWED), id="neither side is known"),
        pytest.param(Compare("<", _FOLLOWED, Number(1 << 40, S64), S64), id="never, but readable?"),
        pytest.param(Compare("<", _BYTE, Number(255, S32), S32), id="within the range of its type"),
        pytest.param(Compare("==", _BYTE, Number(0, S32), S32), id="at the end of that range"),
        pytest.param(Arithmetic("*", _FOLLOWED, Number(0, S64), S64), id="0, if it is readable"),
        pytest.param(Arithmetic("-", Number(0, S64), _UNKNOWN, S64), id="0 - x is not x"),
        pytest.param(Arithmetic("/", _UNKNOWN, Number(-1, S64), S64), id="x / -1 is not x"),
        pytest.param(Arithmetic("&", _UNKNOWN, Number(-1, S64), S64), id="x & -1, left to itself"),
        pytest.param(Arithmetic("+", _UNKNOWN, _ONE, S64), id="half of it is unknown"),
        pytest.param(Convert(_UNKNOWN, S32), id="a conversion"),
        pytest.param(Not(_UNKNOWN), id="a negation"),
        pytest.param(
            StringEqualsConst(None, b"x", prefix=False, equal=True), id="the command's name"
        ),
    ],
)
def test_what_is_known_at_a_hit_only_stays(node: Node) -> None:
    assert fold(node) is node


_LESS = Compare("<", _UNKNOWN, _FOLLOWED, S64)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(ShortCircuit("&&", _UNKNOWN, _ZERO), _ZERO, id="x && 0"),
        pytest.param(ShortCircuit("||", _UNKNOWN, _ONE), Number(1, S32), id="x || 7"),
        pytest.param(ShortCircuit("&&", _ONE, _UNKNOWN), Not(Not(_UNKNOWN)), id="7 && x is 0 or 1"),
        pytest.param(ShortCircuit("&&", _UNKNOWN, _ONE), Not(Not(_UNKNOWN)), id="x && 7"),
        pytest.param(ShortCircuit("||", _ZERO, _LESS), _LESS, id="0 || a comparison"),
        pytest.param(ShortCircuit("&&", _FOLLOWED, _ONE), Not(Not(_FOLLOWED)), id="*x && 7"),
        pytest.param(Not(_LESS), Compare(">=", _UNKNOWN, _FOLLOWED, S64), id="not less"),
        pytest.param(
            Not(Not(ShortCircuit("&&", _LESS, _LESS))),
            ShortCircuit("&&", _LESS, _LESS),
            id="not not",
        ),
        pytest.param(Arithmetic("+", _FOLLOWED, Number(0, S32), S32), _FOLLOWED, id="x + 0"),
        pytest.param(Arithmetic("<<", _UNKNOWN, Number(0, S32), S64), _UNKNOWN, id="x << 0"),
        pytest.param(Arithmetic("*", _UNKNOWN, Number(1, S64), S64), _UNKNOWN, id="x * 1"),
        pytest.param(Arithmetic("&", _UNKNOWN, Number(0, S64), S64), Number(0, S64), id="x & 0"),
        pytest.param(Arithmetic("%", _UNKNOWN, Number(1, S64), S64), Number(0, S64), id="x % 1"),
        pytest.param(Compare("<", _BYTE, Number(256, S32), S32), Number(1, S32), id="byte < 256"),
        pytest.param(Compare("==", _BYTE, Number(-1, S32), S32), _ZERO, id="a byte == -1"),
        pytest.param(Compare("!=", _BYTE, Number(300, S32), S32), Number(1, S32), id="!= 300"),
        pytest.param(Compare(">", _BYTE, Number(255, S32), S32), _ZERO, id="a byte > 255"),
        pytest.param(Compare("<=", _BYTE, Number(255, S32), S32), Number(1, S32), id="<= 255"),
        pytest.param(Compare(">=", _BYTE, Number(0, S32), S32), Number(1, S32), id=">= 0"),
        pytest.param(Compare("<", _BYTE, Number(0, S32), S32), _ZERO, id="a byte < 0"),
        pytest.param(Compare("<", Number(-1, S32), _BYTE, S32), Number(1, S32), id="-1 < a byte"),
        pytest.param(Compare(">", _ONE, Not(_UNKNOWN), S32), Number(1, S32), id="7 > a truth"),
        pytest.param(
            Compare("<", Convert(_BYTE, U64), Number(256, U64), U64), Number(1, S32), id="widened"
        ),
    ],
)
def test_branches_that_no_value_takes_are_dropped(node: Node, expected: Node) -> None:
    if isinstance(node, Not):
        node = Not(fold(node.operand))
    assert fold(node) == expected


def test_the_range_of_a_conversion() -> None:
    byte, wide = ArgumentValue(register(1), INTEGERS["s8"]), ArgumentValue(register(), S64)
    assert range_of(Convert(byte, S32)) == (-128, 127)
    assert range_of(Convert(byte, U32)) == (0, (1 << 32) - 1), "a negative one becomes large"
    assert range_of(Convert(wide, INTEGERS["u8"])) == (0, 255)
    assert range_of(Convert(Number(300, S32), S64)) == (300, 300)
    assert range_of(_LESS) == (0, 1)


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(Convert(_OPAQUE, S32), id="converted"),
        pytest.param(Not(_OPAQUE), id="negated"),
        pytest.param(Deref(_OPAQUE, S32), id="followed"),
        pytest.param(
            StringEqualsConst(_OPAQUE, b"x", prefix=True, equal=False), id="compared as text"
        ),
        pytest.param(StringEquals(_UNKNOWN, _OPAQUE, 9, equal=True), id="with another text"),
        pytest.param(Arithmetic("-", _OPAQUE, None, S32), id="with a sign"),
        pytest.param(Arithmetic("*", _UNKNOWN, _OPAQUE, S32), id="on the right of an operator"),
        pytest.param(Arithmetic("*", _OPAQUE, _ONE, S32), id="on the left of it"),
        pytest.param(Arithmetic("/", _OPAQUE, _ZERO, S32), id="divided by zero"),
        pytest.param(Compare("<", _ONE, _OPAQUE, S64), id="compared"),
    ],
)
def test_what_cannot_be_read_spoils_the_expression(node: Node) -> None:
    assert fold(node) == Unavailable("thread-local", S32)
