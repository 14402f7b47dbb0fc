"""Answers of machines: the same ones are shown once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from usdt.fleet import answers
from usdt.fleet.answers import Answers
from usdt.fleet.machine import Machine

if TYPE_CHECKING:
    import pytest

RUN = b"usdt-fleet W run\n"
EXIT = b"usdt-fleet W exit 0\n"


def asked(found: Answers, name: str, text: bytes) -> Machine:
    one = Machine(name, "W", lambda *_: None, found.add)
    one.output(RUN + text + EXIT)
    one.close(0)
    return one


def test_the_same_answers_are_shown_once_and_the_most_frequent_first() -> None:
    found = Answers()
    asked(found, "web1", b"old\n")
    for number in (2, 3, 5):
        asked(found, f"web{number}", b"new\n\nlines\n")
    rule = "---------------\n"
    assert found.lines() == [
        *(rule, "web[2-3,5] (3)\n", rule, "new\n", "\n", "lines\n"),
        *(rule, "web1 (1)\n", rule, "old\n"),
    ]


def test_text_of_a_machine_is_escaped_but_for_tabs() -> None:
    found = Answers()
    asked(found, "a", b"x\x1b[2J\ty\xff\n")
    assert found.lines()[-1] == "x\\x1b[2J\ty\\udcff\n"


def test_objects_are_grouped_too_and_what_is_none_is_counted() -> None:
    found = Answers()
    for name in ("a1", "a2"):
        asked(found, name, b'{"x": 1}\n[]\n{"x": \n')
    assert json.loads(found.json()[0]) == {"nodes": "a[1-2]", "count": 2, "answer": [{"x": 1}]}
    assert found.left_out == 4


def test_a_machine_that_prints_nothing_has_answered() -> None:
    found = Answers()
    found.expect([asked(found, "a", b"")])
    assert found.groups() == [(["a"], ())]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_MOST_TEXT", 3)
    monkeypatch.setattr(answers, "_MOST_LINES", 4)
    found = Answers()
    asked(found, "a", b"xx\nx\nyyyy\n")
    asked(found, "b", b"zz\nx\nx\nx\n")
    assert [lines for _, lines in found.groups()] == [(b"xx", b"x"), (b"x", b"x")]
    assert found.left_out == 3
