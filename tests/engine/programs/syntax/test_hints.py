"""Warnings about what a program says, and variables that are declared twice."""

from __future__ import annotations

import re

import pytest

from usdt.engine.programs.prepared import prepare_program
from usdt.engine.programs.syntax.source import Source

_NEVER = "Unreachable statement."
_UNUSED = "Return value discarded."


def _warnings(text: str) -> list[tuple[str, str]]:
    prepared = prepare_program(Source(text, "-e"), (), unsafe=False)
    found = [re.fullmatch(r"-e:(\d+:\d+): WARNING: (.*)", one) for one in prepared.warnings]
    return [(one[1], one[2]) for one in found if one]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return; print(1);", [("1:17", _NEVER)]),
        ("exit(); print(1); print(2);", [("1:17", _NEVER)]),
        ("return; print(1)", [("1:17", _NEVER)]),
        ("let $v; print(find(@m, 1, $v));", []),
        ("for ($i : 0..3) { break; print(1); } print(2);", [("1:34", _NEVER)]),
        ("if (pid) { return; } else if (tid) { exit(); } else { return; } @ = 1;", [
            ("1:73", _NEVER)]),
        ("if (pid) { return; } print(1);", []),
        ("if comptime (1) { return; } else { return; } print(1);", []),
        ("{ return; } print(1);", [("1:21", _NEVER)]),
        ('strlen("a");', [("1:9", _UNUSED)]),
        ("1 + 2; @m; pid; $a = 1; $a;", [
            (f"1:{column}", _UNUSED) for column in (9, 16, 20, 33)]),
        ("_ = 1 + 2; @a[1] = 1; delete(@a, 1); @n++; $i = 0; $i++;", []),
        ("pid ? print(1) : print(2);", []),
        ("let $x;", [("1:9", "Variable $x was never assigned to.")]),
        ("let $x; let $y; let $z = 1; $x = 1; $y++;", []),
        ("let $x: int64; $p = &$x;", []),
        ("$x = 1; 1", []),
    ],
)  # fmt: skip
def test_warnings(body: str, expected: list[tuple[str, str]]) -> None:
    assert _warnings(f"begin {{ {body} }}") == expected


def test_loops_that_are_deprecated() -> None:
    ((place, text),) = _warnings("begin { $i = 0;\n  while ($i < 3) { $i++; } }")
    assert place == "2:3"
    assert text.startswith("While loops are deprecated and may be removed")


def test_a_warning_about_a_macro_comes_once() -> None:
    text = "macro m($x) { 1 + 2; $x = 3; } begin { $a = 1; m($a); m($a); }"
    assert _warnings(text) == [("1:15", _UNUSED)]


def test_probes_that_are_not_run_have_none() -> None:
    assert _warnings("begin { @ = 1; } test:t { 1 + 2; }") == []
