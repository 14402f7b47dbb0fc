"""Strings and buffers at a hit: shown, cut, and compared, run on a machine of our own."""

from __future__ import annotations

import random
import re
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
from planning import EVERY_TYPE, INTEGERS, argument, plan, register

from usdt.arch.locations import Register
from usdt.base.errors import LanguageError
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.value_names import Enumerators


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


@pytest.mark.parametrize("old", [False, True], ids=["Linux 6.16", "before Linux 6.16"])
@pytest.mark.parametrize(
    ("text", "pattern", "matches"),
    [
        pytest.param(b"select * from orders where", "*orders*", True, id="inside"),
        pytest.param(b"orders", "*orders*", True, id="all of it"),
        pytest.param(b"order", "*orders*", False, id="not whole"),
        pytest.param(b"", "*orders*", False, id="nothing"),
        pytest.param(b"main.py", "*.py", True, id="the end"),
        pytest.param(b"main.pyc", "*.py", False, id="not at the end"),
        pytest.param(b".py.py", "*.py", True, id="the end, met before"),
        pytest.param(b"abXcd", "ab*cd", True, id="both ends"),
        pytest.param(b"abcd", "abc*bcd", False, id="ends that overlap"),
        pytest.param(b"aXbXc", "*a*b*c*", True, id="three parts"),
        pytest.param(b"aXcXb", "*a*b*c*", False, id="in another order"),
        pytest.param(b"aaaab", "*aab", True, id="after a false start"),
        pytest.param(b"x" * 254 + b"y", "*y", True, id="255 bytes"),
        pytest.param(b"x" * 255 + b"y", "*y", False, id="beyond 255 bytes"),
        pytest.param(b"x" * 254 + b"yx", "*y", False, id="not the end, beyond"),
        pytest.param(bytes(range(1, 42)) + b"z", f"*{'z' * 1}", True, id="many bytes"),
    ],
)
def test_strings_and_patterns(text: bytes, pattern: str, matches: bool, old: bool) -> None:
    for op, passes in (("==", matches), ("!=", not matches)):
        machine = text_machine(text + b"\0", old_strings=old)
        found = run(f'str(arg0) {op} "{pattern}", pid', machine, POINTER)
        assert (found is not None) is passes
        machine = text_machine(text + b"\0", old_strings=old)
        found = run(f'(str(arg0) {op} "{pattern}") + 0', machine, POINTER, sleepable=True)
        assert [*found.values()] == [int(passes)]
        machine = Machine(context=registers(rdi=TEXT), comm=text[:15])
        found = run(f'(comm {op} "{pattern}") + 0', machine)
        assert len(text) > 15 or [*found.values()] == [int(passes)]


def test_random_patterns() -> None:
    chance = random.Random(7)
    for _ in range(400):
        text = bytes(chance.choices(b"ab.", k=chance.choice((0, 1, 3, 8, 20, 254, 255))))
        pattern = "*" + "".join(chance.choices("ab.**", k=chance.randint(0, 8)))
        pattern = pattern[chance.randint(0, 1) :] + "*"[: chance.randint(0, 1)]
        parts = map(re.escape, re.split(r"\*+", pattern))
        expected = re.fullmatch(".*".join(parts), text.decode()) is not None
        machine = text_machine(text + b"\0")
        found = run(f'str(arg0) == "{pattern}", pid', machine, POINTER)
        assert (found is not None) is expected, (text, pattern)


def test_a_pattern_of_what_is_shown_goes_over_pieces() -> None:
    for text, size, matches in (
        (b"x" * 253 + b"abc", 256, True),  # across the pieces of 255 bytes
        (b"x" * 253 + b"abc", 255, False),
        (b"x" * 508 + b"abc" + b"x", 511, True),
        (b"x" * 508 + b"abc" + b"x", 510, False),
    ):
        machine = text_machine(text + b"\0")
        found = run(f'str(arg0, {size}) == "*abc", pid', machine, POINTER)
        assert (found is not None) is matches, size


@pytest.mark.parametrize("sleepable", [False, True], ids=["plain", "sleepable"])
@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        pytest.param(r'buf(arg0, 4) == "\x7fELF"', False, id="other bytes"),
        pytest.param(r'buf(arg0, 4) == "a\0b\xff"', True, id="with a NUL"),
        pytest.param(r'buf(arg0, 4) != "a\0b\xff"', False, id="not others"),
        pytest.param(r'buf(arg0, arg1) == "a\0b\xff"', True, id="a computed number"),
        pytest.param(r'buf(arg0, arg1) == "a\0b"', False, id="another number"),
        pytest.param(r'buf(arg0, arg1) == "*\xff"', True, id="their end"),
        pytest.param(r'buf(arg0, arg1 - 1) == "*\xff"', False, id="their end without the last"),
        pytest.param(r'contains(buf(arg0, arg1), "\0b")', True, id="inside"),
        pytest.param(r'contains(buf(arg0, 7), "\xffmore")', False, id="beyond"),
        pytest.param(r'contains(buf(arg0, 7), "\xffmor")', True, id="to the last"),
    ],
)
def test_bytes_compared(predicate: str, holds: bool, sleepable: bool) -> None:
    user = {TEXT: b"a\0b\xffmore" + bytes(300)}
    machine = Machine(context=registers(rdi=TEXT, rax=4), user=user)
    found = run(f"({predicate}) + 0", machine, POINTER, NUMBER, sleepable=sleepable)
    assert [*found.values()] == [int(holds)]


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


_STARS = [
    ('arg4 == "*"', "not a string; compare str(arg4)"),
    ('arg9 == "1*"', "not a string; compare str(arg9)"),
    ('arg11 == "a*"', "not a string; compare str(arg11)"),
    ('(long)arg7 == "1*"', "not a string"),
    ('*(int *)arg7 == "a*"', "not a string"),
    ('hex(arg7) == "0x*"', "not a string"),
    ('usym(arg7) == "main*"', "not a string"),
    ('uid == "ro*"', "not a string: uid is a number"),
    ('caller == "ma*"', "not a string: caller is a number"),
    ('ustack == "ma*"', "a stack is no number"),
    ('reg(di) == "a*"', "not a string"),
    ('contains(arg4, "a*")', "not a string; compare str(arg4)"),
    ('str(arg7) < "a*"', "strings can be compared with == and != only"),
    ('comm > "a*"', "strings can be compared with == and != only"),
    ('buf(arg7, 4) > "a*"', "strings can be compared with == and != only"),
    ('str(arg7) == "a*" == "b*"', "not a string"),
    ("arg4 == *", "expected a value after '*'"),
    ("comm == a*", "expected a value after '*'"),
    ('comm == "a"*', "expected a value after '*'"),
    ('str(arg7) == "a" * 2', "not a string"),
    ('arg4 & "a*"', "a string can only be compared"),
    ('!"a*"', "a string can only be compared"),
    ('named == "NO_*"', r"names of values are compared whole: a star has to be written \*"),
]


@pytest.mark.parametrize(("items", "reason"), _STARS, ids=[items for items, _ in _STARS])
def test_a_star_that_is_no_pattern_is_an_error(items: str, reason: str) -> None:
    names = Enumerators(((0, "NO_SOCKET"), (1, "NO_*")))
    named = Argument("named", INTEGERS["u32"], register(4), names=names)
    with pytest.raises(LanguageError) as caught:
        plan(items, (*EVERY_TYPE, named))
    assert reason in caught.value.reason
    assert plan(r'named == "NO_\*"', (named,)).predicates
