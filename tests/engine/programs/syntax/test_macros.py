"""Macros: what a call becomes, which macro it is, and what is refused."""

from __future__ import annotations

import pytest
from program_text import text

from usdt.base.errors import ProgramError
from usdt.engine.programs.syntax.macros import expand_macros
from usdt.engine.programs.syntax.parser import parse_program
from usdt.engine.programs.syntax.source import Source


def expanded(program: str) -> str:
    source = Source(program, "test.bt")
    (probe,) = expand_macros(source, parse_program(source)).probes
    return text(probe.block)


CALLS = [
    ("one() { 1 }", "print(one());", "print({ 1 }); ", "a value"),
    ("one() { 1 }", "print(one);", "print({ 1 }); ", "a name alone calls it"),
    ("f(x) { x + 1 }", "$a = f($b * 2);", "$a = { (($b * 2) + 1) }; ", "an expression"),
    ("f(x) { x; x; }", "f(1);", "{ 1; 1; }; ", "a call that is a statement is a block"),
    ("f(x) { x; }", "f({ 1 });", "{ { 1 }; }; ", "a block for an expression"),
    ("f($x) { $x += 1; }", "f($a);", "{ $a += 1; }; ", "a variable of the caller"),
    ("f(@x) { @x[1] = 2; }", "f(@a);", "{ @a[1] = 2; }; ", "a map of the caller"),
    ("f(x) { let $y = x; $y }", "$y = f($y);", "$y = { let $y#1 = $y; $y#1 }; ", "own variables"),
    ("f(@m) { for ($k : @m) { $k.0 } }", "f(@a);", "{ for ($k#1 : @a) { $k#1.0 }; }; ", "of loops"),
    ("f(x) { g(x) } macro g(y) { y }", "f(1);", "{ { 1 } }; ", "a macro in a macro"),
    ("f(x) { x }", "f(f(f(1)));", "{ { { 1 } } }; ", "a macro in its argument"),
    ("f(f) { f }", "f(1);", "{ 1 }; ", "a parameter hides a macro"),
    ("f($x) { $x; $x }", "f({ $b++ });", "{ { ($b++) }; { ($b++) } }; ", "an expression for $x"),
    (
        "f(x) { 1 } macro f($x) { 2 }",
        "f($a) + f(3);",
        "({ 2 } + { 1 }); ",
        "the one that fits best",
    ),
    (
        "f($x) { 2 } macro f(x) { 1 }",
        "f($a) + f(3);",
        "({ 2 } + { 1 }); ",
        "the one that fits best, in any order",
    ),
    ("f() { 0 } macro f(x) { 1 }", "f + f(3);", "({ 0 } + { 1 }); ", "by the number of arguments"),
    ("f(T, m) { offsetof(T, m) }", "f($p, a.b);", "{ offsetof($p, a.b) }; ", "a member"),
    ("f(a) { a } ", "f(@m) + f($v);", "({ @m } + { $v }); ", "maps and variables are expressions"),
]


@pytest.mark.parametrize(("macro", "call", "meant", "what"), CALLS, ids=[c[3] for c in CALLS])
def test_calls(macro: str, call: str, meant: str, what: str) -> None:
    assert expanded(f"macro {macro} begin {{ {call} }}") == f"{{ {meant}}}", what


def test_two_calls_have_variables_of_their_own() -> None:
    program = "macro f(x) { let $y = x; $y } begin { $a = f(1) + f(2); }"
    assert expanded(program) == (
        "{ $a = ({ let $y#1 = 1; $y#1 } + { let $y#2 = 2; $y#2 }); }"
    )  # fmt: skip


def test_the_order_of_macros_does_not_matter() -> None:
    assert expanded("begin { g(1); } macro g(x) { f(x) } macro f(x) { x }") == "{ { { 1 } }; }"


def test_a_block_is_at_the_place_of_its_call() -> None:
    written = "macro f(x) { x } begin { $a = f(1); }"
    source = Source(written, "test.bt")
    (statement,) = expand_macros(source, parse_program(source)).probes[0].block.statements
    value = statement.value
    assert written[value.start : value.end] == "f(1)"


REFUSED = [
    ("macro §if() { 1 }", "1;", "found 'if': expected the name of the macro, which is no keyword"),
    (
        "fn §for($x : int8) : int8 { }",
        "1;",
        "found 'for': expected the name of the function, which is no keyword",
    ),
    ("macro f() { §@x++ }", "f();", "the macro f uses @x: pass maps to it by a parameter"),
    ("macro f($x) { $x }", "f(§@x);", "the macro f expects a variable as $x for $x"),
    ("macro f($x) { $x += 1; }", "f(§1 + 1);", "the macro f changes $x: pass a variable to it"),
    ("macro f($x) { $x++ }", "f(§{ 1 });", "the macro f changes $x: pass a variable to it"),
    ("macro f($x) { let $x = 1; }", "f(§1);", "the macro f changes $x: pass a variable to it"),
    ("macro f($x) { for ($x : @m) {} }", "f(§1);", "the macro f changes $x: pass a variable to it"),
    (
        "macro f($x) { $x = 1; } macro g($y) { f($y) }",
        "g(§1);",
        "the macro f changes $x: pass a variable to it",
    ),
    (
        "macro f(m) { offsetof(A, m) }",
        "f(§1);",
        "expected the name of a member, as in offsetof(…, a.b)",
    ),
    ("macro f(@x) { @x }", "f(§$x);", "the macro f expects a map as @m for @x"),
    ("macro f(a) { a }", "§f();", "the macro f takes 1 argument, found 0"),
    ("macro f() { 1 } macro f(a,b) { a }", "§f(1);", "the macro f takes 0 or 2 arguments, found 1"),
    ("macro f(a) { §f(a) }", "f(1);", "the macro f calls itself"),
    ("macro f(a) { g(a) } macro g(a) { §f(a) }", "f(1);", "the macro f calls itself"),
]  # fmt: skip


@pytest.mark.parametrize(("macro", "call", "reason"), REFUSED, ids=[r[2][:50] for r in REFUSED])
def test_refused(macro: str, call: str, reason: str) -> None:
    marked = f"{macro} begin {{ {call} }}"
    with pytest.raises(ProgramError) as caught:
        expanded(marked.replace("§", ""))
    error = caught.value
    where = error.text[: error.column] + "§" + error.text[error.column :]
    assert (where, error.reason) == (marked, reason)


@pytest.mark.parametrize(
    "macros",
    [
        pytest.param(
            [f"m{i}(x) {{ m{i + 1}(x) + m{i + 1}(x) }}" for i in range(40)] + ["m40(x) { x }"],
            id="calls that double",
        ),
        pytest.param(
            [f"m{i}(x) {{ m{i + 1}(x + x) }}" for i in range(25)] + ["m25(x) { x }"],
            id="arguments that double",
        ),
        pytest.param(
            [f"m{i}(x) {{ m{i + 1}(x) }}" for i in range(300)] + ["m300(x) { x }"],
            id="a long chain of calls",
        ),
        pytest.param(
            [f"m{i}(x) {{ m{i + 1}({'- ' * 40}x) }}" for i in range(10)] + ["m10(x) { x }"],
            id="a high argument",
        ),
    ],
)
def test_what_grows_too_large_is_refused(macros: list[str]) -> None:
    program = "\n".join(f"macro {one}" for one in macros) + "\nbegin { m0($x) }"
    with pytest.raises(ProgramError, match="grows too large"):
        expanded(program)
