"""What is said about programs that are not valid, and where: § marks the place."""

from __future__ import annotations

import pytest

from usdt.base.errors import ProgramError
from usdt.engine.language.rendering import caret
from usdt.engine.programs.syntax.parser import MAX_LENGTH, parse_program
from usdt.engine.programs.syntax.source import Source


def refusal(text: str) -> ProgramError:
    with pytest.raises(ProgramError) as caught:
        parse_program(Source(text, "test.bt"))
    return caught.value


ERRORS = [
    ("begin { $x = §; }", "found ';': expected a value"),
    (
        "begin { $x = 1 §$y = 2 }",
        "found '$y': expected an operator, ';' or '}' after the statement",
    ),
    (
        'begin { print(§"a }',
        "the string that begins here is not closed: expected '\"' at its end, on this line",
    ),
    (
        "begin { print(§'a') }",
        "found a single quote: strings have double quotes, and characters are numbers, as 65",
    ),
    ("begin { $x = §1.5; }", "floating-point numbers are not part of the language"),
    (
        "begin { $x = §09; }",
        "found '09': a number that begins with 0 is octal, with digits from 0 to 7",
    ),
    (
        "begin { $x = §1x; }",
        "found '1x': expected a number, or a duration in ns, us, ms, s, m, h or d",
    ),
    (
        "begin { $x = §18446744073709551616; }",
        "'18446744073709551616' is beyond 64 bits: expected at most 18446744073709551615",
    ),
    (
        "begin { $x = §1e-3; }",
        "found '1e': expected a number, or a duration in ns, us, ms, s, m, h or d",
    ),
    ("begin { if §$x == 1 { } }", "found '$x': expected '(' after if"),
    (
        "begin { if ($x §= 1) { } }",
        "found '=': expected '==' to compare; '=' assigns, which is a statement",
    ),
    ("begin { if ($x) §print(1) }", "found 'print': expected '{' after the condition of if"),
    (
        "begin { §$t.0 = 1; }",
        "tuples cannot be changed: make a new one and assign it to the variable",
    ),
    ("begin { §x = 1; }", "'=' assigns to variables and maps: did you mean $x or @x?"),
    ("begin { §f() = 1; }", "'=' assigns to variables ($x) and maps (@m), not to this"),
    ("begin { pid§++; }", "'++' changes a variable or a map: expected one before it"),
    ("begin { §++pid; }", "'++' changes a variable or a map: expected one after it"),
    ("begin { _ §+= 1; }", "found '+=': expected '=' after '_', which has no value to change"),
    (
        "begin { let §@x = 1; }",
        "found '@x': expected a variable as $x: maps are declared before the probes",
    ),
    ("begin { let §x = 1; }", "found 'x': expected a variable as $x after let"),
    ("begin { §whle (1) { } }", "found 'whle': did you mean while?"),
    (
        "begin { fr ($i §: 0..3) { } }",
        "found ':': expected an operator, ',' or ')' in the call of fr",
    ),
    (
        "begin { for ($i : 0..3 §{ } }",
        "found '{': expected an operator, '..' or ')' after what for runs over",
    ),
    ("begin { print(1§; }", "found ';': expected an operator, ',' or ')' in the call of print"),
    (
        "begin §{ print(1) ",
        "the '{' that begins here is not closed: expected '}' before the program ends",
    ),
    ("begin { @x[1 §= 2; }", "found '=': expected an operator, ',' or ']' after the key"),
    ("begin { @x[§] = 2; }", "found ']': expected a value"),
    ("begin { $x = (1, 2§; }", "found ';': expected an operator, ',' or ')' in the tuple"),
    ("begin { $x = (a=1, §2); }", "found '2': expected a name and '=' in the record"),
    ("begin { $x = (a=1, §a=2); }", "the record has two fields 'a'"),
    (
        "begin { §$x[1,2]; }",
        "found 2 values between brackets: an index is one, only maps have more",
    ),
    ("begin { §$0 }", "found '$0': arguments have numbers from $1 to $65536"),
    ("begin { §$ }", "found '$': expected a variable, as $x, or an argument, as $1"),
    ("begin { §# }", "found '#', which is no part of the language"),
    ('begin { $x = "§\\q"; }', "found the escape '\\q', which C does not have"),
    ("§begin", "the probe 'begin' has no block: expected { … } after it"),
    (
        "kprobe:f /pid == 1 §{ }",
        "found '{': expected an operator, or '/' and '{' after the predicate",
    ),
    ("kprobe:f /pid == 1/§", "found the end of the program: expected '{' after the predicate"),
    ("§kprobe:f // { }", "the probe 'kprobe:f' has no block: expected { … } after it"),
    ("kprobe:f §foo { }", "found 'foo': expected ',', a /predicate/ or '{' after the probe"),
    ("kprobe:f, §{ }", "found '{': expected a probe, as kprobe:vfs_read or begin"),
    ("§, kprobe:f { }", "found ',': expected a probe, as kprobe:vfs_read or begin"),
    ("§} begin { }", "found '}': expected a probe, as kprobe:vfs_read or begin"),
    ("begin { } §}", "found '}': expected a probe, as kprobe:vfs_read or begin"),
    ("§strct foo { int x; };", "found 'strct': did you mean struct?"),
    ("§confg = { a = 1 }", "found 'confg': did you mean config?"),
    ("config = { a §1 }", "found '1': expected '=' after a"),
    ("config = { a = 1 §b = 2 }", "found 'b': expected ';' or '}' after the setting"),
    ("config = { a = 1§+2 }", "found '+': expected ';' or '}' after the setting"),
    ("config = { a = 1 } §config = { }", "the program has a second config: expected only one"),
    (
        "macro f(§1) { }",
        "found '1': expected a parameter: $variable, @map or a name for an expression",
    ),
    ("macro f($x, §$x) { }", "'f' has two parameters '$x'"),
    ("macro §{ }", "found '{': expected the name of the macro"),
    ("fn f($x§) : int { }", "found ')': expected ':' and a type after $x"),
    ("fn f() §{ }", "found '{': expected ':' and the type of the result after the parameters"),
    ("struct foo { int x; int §x; };", "found a second member 'x'"),
    ("struct foo { int§; };", "found ';': expected the name of a member"),
    ("struct foo { int §f(int); };", "a function is no type of a member: expected a pointer"),
    ("struct foo { foo bar §baz; };", "found 'baz': expected ';' after the member"),
    (
        "§struct foo { int x; ",
        "the struct that begins here is not closed: expected '}' after its members",
    ),
    ("struct foo { unsigned struct §bar x; };", "found 'bar': expected ';' after the member"),
    ("struct foo { int x; } y§;", "found ';': expected ',', a /predicate/ or '{' after the probe"),
    (
        "struct foo { int x §__attribute__((aligned(8))); };",
        "the attribute 'aligned' is not supported: add members that fill up",
    ),
    ("enum { A = §, B };", "found ',': expected a value"),
    ("enum E { A §B };", "found 'B': expected ',' or '}' after the constant"),
    ("typedef int§;", "found ';': expected the new name of the type"),
    ("begin { sizeof §x }", "found 'x': expected '(' after sizeof"),
    ("begin { offsetof(struct foo§) }", "found ')': expected ',' after the type of offsetof"),
    ("begin { (int §}", "found '}': expected ')' after the type of the cast"),
    ("begin { (§short long)1 }", "'short long' is no type of C"),
    ("begin { $x = sizeof(§); }", "found ')': expected a value"),
    (
        "begin { import §x; }",
        "found 'x': expected a path in double quotes after import, as in import \"lib\"",
    ),
    ("begin { return §return; }", "found 'return': expected a value"),
    ("begin { a ? b §}", "found '}': expected ':' between the two values after '?'"),
    ("begin { §struct foo x; }", "found 'struct': expected a value"),
    ("begin { §1 = 2 }", "'=' assigns to variables ($x) and maps (@m), not to this"),
    ("begin { §/* never closed }", "this comment is not closed: expected */"),
    ("§#ifdef X", "this condition is not closed: expected #endif after it"),
    ("§#endif", "#endif without an #if before it"),
    ("§#else", "#else without an #if before it"),
    ("§#if 1 +", "in this condition: found the end of the program: expected a value"),
    ("§#if 1 / 0", "in this condition: division by zero"),
    ("§#iff X", "'#iff' is no directive; did you mean #if?"),
    ("§#define", "#define needs a name, found ''"),
    ("§#define A(1) 2", "'1' is no parameter of A"),
    ("§#define A(x) #x", "# and ## in the text of A are not supported"),
    ("§#error no", "#error no"),
    ("§#include foo", "#include needs <FILE> or \"FILE\", found 'foo'"),
    ("let @x = §1;", "found '1': expected a kind of map, as lruhash(100)"),
    ("let §$x = 1;", "found '$x': expected a map as @m: before the probes, let declares maps"),
    (
        "import §foo",
        "found 'foo': expected a path in double quotes after import, as in import \"lib\"",
    ),
    ('usdt:§"/a:b { }', "the string that begins here is not closed: expected '\"'"),
    ("begin { $x = §é; }", "found 'é', which is no part of the language"),
    ("struct gr§öße { int x; } begin { }", "found 'ö', which is no part of the language"),
    ("enum gr§öße { A } begin { }", "found 'ö', which is no part of the language"),
    (
        "begin { $x = 1 §and 2; }",
        "found 'and': expected an operator, ';' or '}' after the statement",
    ),
    ("begin { §else { } }", "found 'else': expected a value"),
    ("begin { $x§..0 }", "found '..': expected an operator, ';' or '}' after the statement"),
    ("begin { $x.§99999 }", "found '99999': expected the number of an element of the tuple"),
    ("begin { $x-> §}", "found '}': expected the name of a member after '->'"),
    ("begin { §0x }", "found '0x': expected a number, or a duration in ns, us, ms, s, m, h or d"),
    ("begin { & §}", "found '}': expected a value"),
]


@pytest.mark.parametrize(("marked", "reason"), ERRORS, ids=[error[1][:60] for error in ERRORS])
def test_errors(marked: str, reason: str) -> None:
    error = refusal(marked.replace("§", ""))
    assert (error.text[: error.column] + "§" + error.text[error.column :], error.reason) == (
        marked,
        reason,
    )


def test_an_error_names_the_file_the_line_and_the_column() -> None:
    error = refusal("begin\n{\n\tprint(1 2);\n}\n")
    assert str(error) == (
        "test.bt:3:10: found '2': expected an operator, ',' or ')' in the call of print"
    )
    assert (error.file, error.line, error.column) == ("test.bt", 3, 9)
    assert caret(error) == " print(1 2);\n         ^"


def test_an_error_in_the_text_of_a_define_is_at_its_use() -> None:
    error = refusal("#define WRONG 1 +\nbegin { $x = WRONG; }")
    assert (error.line, error.column, error.reason) == (2, 18, "found ';': expected a value")
    assert refusal('#define S "\\q"\nbegin { S }').column == 8


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("begin { $x = " + "(" * 5000, id="parentheses"),
        pytest.param("begin {" + "{" * 5000, id="blocks"),
        pytest.param("begin { $x = " + "1+" * 5000 + "1 }", id="a sum"),
        pytest.param("begin { $x = " + "-" * 5001 + "1 }", id="prefixes"),
        pytest.param("begin { $x = $a" + ".b" * 5000 + " }", id="members"),
        pytest.param("begin {" + "if (1) { } else " * 5000 + "{} }", id="else if"),
        pytest.param("begin { $x = " + "1?1:" * 5000 + "1 }", id="conditionals"),
        pytest.param("begin { (int" + "*" * 5000 + ")1 }", id="pointers in a cast"),
        pytest.param("begin { " + "(a)" * 5000 + "1 }", id="casts"),
        pytest.param("begin {" + "@x[" * 5000 + "}", id="keys"),
        pytest.param("begin { $x = " + "sizeof(" * 5000, id="sizes"),
        pytest.param("begin {" + "comptime " * 5000 + "1 }", id="comptime"),
        pytest.param("begin {" + "f(" * 5000 + "}", id="calls"),
        pytest.param("struct a {" * 5000, id="structures"),
        pytest.param("struct a { int " + "*" * 5000 + "x; };", id="pointers"),
        pytest.param("struct a { int " + "(" * 5000 + "x; };", id="declarators"),
        pytest.param("struct a { int x" + "[1]" * 5000 + "; };", id="arrays"),
        pytest.param("#if 1\n" * 5000, id="conditions"),
        pytest.param("#if " + "(" * 5000, id="a condition"),
        pytest.param("#define f(x) x\nbegin {" + "f(" * 5000 + ")" * 5000 + "}", id="macros"),
        pytest.param(
            "".join(f"#define X{i} X{i + 1} X{i + 1}\n" for i in range(40)) + "begin { X0 }",
            id="replacements that double",
        ),
        pytest.param('begin { "' + '\\"' * 50_000, id="a string that is not closed"),
        pytest.param("/*" * 50_000, id="a comment that is not closed"),
        pytest.param("k:" * 20_000, id="attach points"),
        pytest.param('import "a" ' * 20_000 + "+", id="imports"),
        pytest.param("x" * (MAX_LENGTH + 1), id="a long text"),
    ],
)
def test_what_is_too_deep_or_too_long_is_refused(text: str) -> None:
    assert len(str(refusal(text))) < 300
