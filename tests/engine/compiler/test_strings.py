"""Strings and buffers at a hit: shown, cut, and compared, run on a machine of our own."""

from __future__ import annotations

from typing import Any

import pytest
from bpfmachine import Machine
from hits import (
    NUMBER,
    POINTER,
    RAX,
    TEXT,
    UNREADABLE,
    program,
    registers,
    run,
    shown,
    text_machine,
)
from planning import argument, plan

from usdt.arch.locations import Register
from usdt.base.errors import LanguageError
from usdt.engine.compiler.arguments import Argument


@pytest.mark.parametrize("old", [False, True], ids=["Linux 6.16", "before Linux 6.16"])
@pytest.mark.parametrize("sleepable", [False, True])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"GET /\0#", "GET /", id="a string"),
        pytest.param(b"\0#######", "", id="an empty one"),
        pytest.param(b"0123456789", "01234567", id="one that is cut"),
        pytest.param(b"01234", UNREADABLE, id="one that ends where memory ends"),
        pytest.param(b"", UNREADABLE, id="none"),
    ],
)
def test_strings(text: bytes, expected: Any, sleepable: bool, old: bool) -> None:
    machine = text_machine(text, old_strings=old)
    found = run("str(arg0, 8), pid", machine, POINTER, sleepable=sleepable)
    assert found == {"str(arg0,8)": expected, "pid": 10}


@pytest.mark.parametrize("old", [False, True], ids=["Linux 6.16", "before Linux 6.16"])
@pytest.mark.parametrize(
    ("text", "constant", "equal"),
    [
        pytest.param(b"GET\0", "GET", True, id="equal"),
        pytest.param(b"GETx\0", "GET", False, id="longer"),
        pytest.param(b"GE\0T", "GET", False, id="shorter"),
        pytest.param(b"GEt\0", "GET", False, id="another last byte"),
        pytest.param(b"GETx\0", "GET*", True, id="beginning"),
        pytest.param(b"GE\0x", "GET*", False, id="not the beginning"),
        pytest.param(b"\0abc", "", True, id="empty"),
        pytest.param(b"a\0bc", "", False, id="not empty"),
        pytest.param(b"\0abc", "*", True, id="anything, empty"),
        pytest.param(b"x\0", "*", True, id="anything"),
        pytest.param(b"z" * 255 + b"\0", "z" * 255, True, id="255 bytes"),
        pytest.param(b"z" * 256 + b"\0", "z" * 255, False, id="a byte more"),
        pytest.param(b"z" * 254 + b"y\0", "z" * 255, False, id="another at the very end"),
        pytest.param(b"0123456789abcde\0", "0123456789abcde", True, id="15: 8, 4, 2 and 1 bytes"),
    ],
)
def test_strings_compared(text: bytes, constant: str, equal: bool, old: bool) -> None:
    for op, passes in (("==", equal), ("!=", not equal)):
        machine = text_machine(text, old_strings=old)
        found = run(f'str(arg0) {op} "{constant}", pid', machine, POINTER)
        assert (found is not None) is passes
        machine = text_machine(text, old_strings=old)
        found = run(f'(str(arg0) {op} "{constant}") + 0', machine, POINTER, sleepable=True)
        assert [*found.values()] == [int(passes)]


_PATTERNS = {
    "inside": (b"from orders o\0#", "*orders*", True),
    "at the beginning": (b"orders\0", "*orders*", True),
    "at the end": (b"my orders\0", "*orders*", True),
    "only almost": (b"my order\0s", "*orders*", False),
    "begun twice": (b"ororders\0", "*orders*", True),
    "nothing in an empty string": (b"\0orders", "*orders*", False),
    "the end": (b"a.json\0", "*.json", True),
    "not the end": (b"a.jsonx\0", "*.json", False),
    "the end, also earlier": (b"a.json.json\0", "*.json", True),
    "both ends": (b"GET /x HTTP/1.1\0", "GET *HTTP/1.1", True),
    "both ends overlap": (b"aba\0", "ab*ba", False),
    "both ends touch": (b"abba\0", "ab*ba", True),
    "in order": (b"SELECT a FROM b\0", "SELECT*FROM*", True),
    "not in order": (b"FROM b SELECT a\0", "*SELECT*FROM*", False),
    "three parts": (b"xxaybzcyy\0", "x*a*b*c*y", True),
    "the second part missing": (b"xxayzcyy\0", "x*a*b*c*y", False),
    "the first part leaves room": (b"aab\0", "*a*ab", True),
    "a literal star": (b"count(*)\0", r"*(\*)", True),
    "no literal star": (b"count(1)\0", r"*(\*)", False),
    "the last byte searched": (b"z" * 253 + b"x\0", "*x*", True),
    "the last byte as the end": (b"z" * 253 + b"x\0", "*x", True),
    "a byte more": (b"z" * 254 + b"x\0", "*x*", False),
    "an end that is not seen": (b"z" * 253 + b"xx\0", "*x", False),
}


@pytest.mark.parametrize(("text", "pattern", "equal"), _PATTERNS.values(), ids=_PATTERNS)
def test_patterns(text: bytes, pattern: str, equal: bool) -> None:
    for op, passes in (("==", equal), ("!=", not equal)):
        found = run(f'str(arg0) {op} "{pattern}", pid', text_machine(text), POINTER)
        assert (found is not None) is passes
        items = f'(str(arg0) {op} "{pattern}") + 0'
        assert [*run(items, text_machine(text), POINTER, sleepable=True).values()] == [int(passes)]
    node = plan(f'str(arg0) == "{pattern}"', (POINTER,)).predicates[0]
    assert node.is_true(text.partition(b"\0")[0]) is equal  # type: ignore[union-attr]


def test_a_pattern_sees_the_bytes_that_are_shown() -> None:
    for text, items, truth in (
        (b"abcdef\0", 'str(arg0, 3) == "*c"', 1),
        (b"abcdef\0", 'str(arg0, 3) == "*d*"', 0),
        (b"ab\0", 'str(arg0, 3) == "*b"', 1),
        (b"abcdef\0", 'str(arg0, 6) == "a*f"', 1),
    ):
        found = run(f"({items}) + 0", text_machine(text), POINTER)
        assert [*found.values()] == [truth], items


def test_the_search_has_a_bounded_program() -> None:
    for pattern, limit, most in (("*" + "x" * 40, 254, 28), ("*" + "y*" * 40, 254, 0)):
        with pytest.raises(LanguageError, match=f"in {limit} bytes: expected at most {most}"):
            plan(f'str(arg0) == "{pattern}"', (POINTER,))
    made = plan(f'str(arg0) == "*{"x" * 28}", str(arg0, 100) == "*{"x" * 70}"', (POINTER,))
    assert len(program(made).insns) // 8 < 1 << 15


_LONG = b"x" * 300
_TWO_STRINGS = {
    "equal": (b"GET", b"GET", "", True),
    "both empty": (b"", b"", "", True),
    "one empty": (b"a", b"", "", False),
    "a prefix": (b"GETS", b"GET", "", False),
    "another first byte": (b"xbcdefghijk", b"abcdefghijk", "", False),
    "another last byte": (b"abcdefghijk", b"abcdefghijx", "", False),
    "eight bytes with the NUL": (b"1234567", b"1234567", "", True),
    "eight bytes without it": (b"12345678", b"12345678", "", True),
    "the ninth differs": (b"12345678a", b"12345678b", "", False),
    "127 bytes, a whole piece": (_LONG[:127], _LONG[:127], "", True),
    "the default of 128": (_LONG[:128], _LONG[:128], "", True),
    "beyond the default": (_LONG[:128] + b"a", _LONG[:128] + b"b", "", True),
    "the last byte compared": (_LONG[:127] + b"a", _LONG[:127] + b"b", "", False),
    "shorter than the default": (_LONG[:128], _LONG[:127], "", False),
    "255": (_LONG[:255], _LONG[:255], ", 255", True),
    "255, the last differs": (_LONG[:254] + b"a", _LONG[:254] + b"b", ", 255", False),
    "in the second piece": (_LONG[:200] + b"a", _LONG[:200] + b"b", ", 255", False),
    "ends with the second piece": (_LONG[:254], _LONG[:254], ", 254", True),
    "cut after 3": (b"GETS", b"GETX", ", 3", True),
    "differs before 3": (b"GXT", b"GET", ", 3", False),
    "cut after 1": (b"a", b"ab", ", 1", True),
    "no longer than 12": (b"abcdefghijklm", b"abcdefghijkln", ", 12", True),
    "13": (b"abcdefghijklm", b"abcdefghijkln", ", 13", False),
}


@pytest.mark.parametrize("sleepable", [False, True], ids=["plain", "sleepable"])
@pytest.mark.parametrize(("one", "two", "most", "equal"), _TWO_STRINGS.values(), ids=_TWO_STRINGS)
def test_strings_of_the_process_compared(
    one: bytes, two: bytes, most: str, equal: bool, sleepable: bool
) -> None:
    other = TEXT + 0x3000 - 2  # the second lies across two pages
    for op, old, absent in (("==", False, set()), ("!=", True, {TEXT, TEXT + 0x3000})):
        machine = Machine(
            context=registers(rdi=TEXT, rax=other),
            user={TEXT: one + b"\0" + b"\xff" * 300, other: two + b"\0" + b"\xee" * 300},
            old_strings=old,
            absent=absent if sleepable else set(),
        )
        items = f"(str(arg0{most}) {op} str(arg1{most})) + 0"
        found = run(items, machine, POINTER, NUMBER, sleepable=sleepable)
        assert [*found.values()] == [int(equal is (op == "=="))]
    machine = Machine(context=registers(rdi=TEXT, rax=64), user={TEXT: one + b"\0"})
    found = run(items, machine, POINTER, NUMBER, sleepable=sleepable)
    assert [*found.values()] == [UNREADABLE]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        pytest.param(0, "", id="0"),
        pytest.param(3, "abc", id="3"),
        pytest.param(8, "abcdefgh", id="all there is room for"),
        pytest.param(9, "abcdefgh", id="more"),
        pytest.param(1 << 62, "abcdefgh", id="far more"),
        pytest.param(-1, "", id="negative"),
        pytest.param(-(1 << 63), "", id="as negative as can be"),
    ],
)
def test_buffers_of_computed_length(length: int, expected: str) -> None:
    made = plan("buf(arg0, arg1), pid", (POINTER, NUMBER), max_string=8)
    machine = Machine(context=registers(rdi=TEXT, rax=length), user={TEXT: b"abcdefghijk"})
    machine.run(program(made))
    assert shown(made, machine) == [{"buf(arg0,arg1)": expected, "pid": 10}]
    unsigned = Argument("arg1", argument(0, "u64").type, Register(RAX, 8))
    made = plan("buf(arg0, arg1)", (POINTER, unsigned), max_string=8)
    machine = Machine(context=registers(rdi=TEXT, rax=length), user={TEXT: b"abcdefghijk"})
    machine.run(program(made))
    assert shown(made, machine) == [{"buf(arg0,arg1)": "abcdefgh" if length < 0 else expected}]
