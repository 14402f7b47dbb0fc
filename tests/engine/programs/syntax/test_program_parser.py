"""Programs: what each construct means, shown with all parentheses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import debian
import pytest
from program_text import definition_text, program_text, text

from usdt.engine.programs.syntax import tree
from usdt.engine.programs.syntax.parser import parse_program
from usdt.engine.programs.syntax.source import Source

if TYPE_CHECKING:
    from usdt.engine.programs.syntax.program import Program


def parse(program: str) -> Program:
    return parse_program(Source(program, "test.bt"))


def body(statements: str) -> str:
    """The text of the body of a probe that has these statements."""
    (probe,) = parse(f"begin {{ {statements} }}").probes
    return text(probe.block)[2:-2]


EXPRESSIONS = [
    ("1 + 2 * 3 - 4", "((1 + (2 * 3)) - 4)", "multiplication binds tighter, from the left"),
    ("1 << 2 + 3 < 4 == 5", "(((1 << (2 + 3)) < 4) == 5)", "shifts, comparisons, equality"),
    ("1 & 2 ^ 3 | 4", "(((1 & 2) ^ 3) | 4)", "bits: and, exclusive or, or"),
    ("1 || 2 && 3 | 4", "(1 || (2 && (3 | 4)))", "or is the weakest"),
    ("(1 + 2) * 3", "((1 + 2) * 3)", "parentheses"),
    ("!$a && ~$b - -1", "((! $a) && ((~ $b) - (- 1)))", "prefix operators"),
    ("*(uint8 *)($p + 1)", "(* ((uint8 *) ($p + 1)))", "a value behind a pointer that was cast"),
    ("$a ? 1 : $b ? 2 : 3", "($a ? 1 : ($b ? 2 : 3))", "conditionals nest to the right"),
    ("&@m + 1", "((& @m) + 1)", "the address of a map"),
    ("&$x", "(& $x)", "the address of a variable"),
    ("0x1F + 017 + 1_000 + 2e3", "(((31 + 15) + 1000) + 2000)", "forms of numbers"),
    ("123UL + 1u + 0", "((123 + 1) + 0)", "suffixes change nothing"),
    ("1ns + 1us + 1ms", "((1 + 1000) + 1000000)", "durations are nanoseconds"),
    ("1s + 1m", "(1000000000 + 60000000000)", "seconds and minutes"),
    ("1h + 1d", "(3600000000000 + 86400000000000)", "hours and days"),
    ("18446744073709551615", "18446744073709551615", "the greatest number"),
    (r'"a\n\x41\101\0"', r'"a\012AA\000"', "escapes of strings"),
    ('"a" "b"', '"ab"', "adjacent strings are one"),
    ("true != false", "(true != false)", "booleans"),
    ("$1 + $# + $12", "(($1 + $#) + $12)", "arguments and their number"),
    ("args.x + args->y", "(args.x + args->y)", "arguments of the probe"),
    ("curtask->real_parent.pid", "curtask->real_parent.pid", "members of members"),
    ("$x.if", "$x.if", "a member may be called as a keyword is"),
    ("$t.0.1", "$t.0.1", "elements of tuples in tuples"),
    ("$a[0][1]", "$a[0][1]", "elements of elements"),
    ('@a[1, "b"]', '@a[(1, "b")]', "several keys are a tuple"),
    ("@[pid][0]", "@[pid][0]", "an element of a value of a map"),
    ("(1, (2, 3))", "(1, (2, 3))", "tuples"),
    ("(1,) == ()", "((1,) == ())", "tuples of one element and of none"),
    ("(x=1, y=(z=2))", "(x=1, y=(z=2))", "records"),
    ("str(arg0, 5)", "str(arg0, 5)", "a call"),
    ("pid() + pid", "(pid() + pid)", "a built-in with and without parentheses"),
    ("(int32)-1", "((int32) (- 1))", "a known type before a minus is a cast"),
    ("(x) - 1", "(x - 1)", "an unknown name before a minus is none"),
    ("(x_t)$p", "((x_t) $p)", "an unknown name before a variable is a cast"),
    ("(x_t **)1", "((x_t * *) 1)", "pointers of an unknown type"),
    ("(struct a *)arg0", "((struct a *) arg0)", "a pointer to a structure"),
    ("(uint8[8])1", "((uint8[8]) 1)", "a cast to an array"),
    ("(uint8[])1", "((uint8[]) 1)", "a cast to an array that is as long as needed"),
    ("(int[2][3])1", "((int[2][3]) 1)", "an array of arrays"),
    ("(const long unsigned int)1", "((unsigned long) 1)", "types of C have one spelling"),
    ("(typeof(@m))1", "((typeof(@m)) 1)", "the type of a map"),
    ("sizeof(struct a) + sizeof($x)", "(sizeof(struct a) + sizeof($x))", "sizes"),
    ("sizeof(int *) + sizeof(uint64)", "(sizeof(int *) + sizeof(uint64))", "sizes of types"),
    ("offsetof(struct a, b.c)", "offsetof(struct a, b.c)", "the place of a member"),
    ("offsetof(*curtask, comm)", "offsetof((* curtask), comm)", "the same by an expression"),
    ("typeinfo(e).1", "typeinfo(e).1", "what a type is"),
    ("comptime a == b", "(comptime (a == b))", "known when it is compiled"),
    ("{ let $b = 1; $b } + 1", "{ let $b = 1; $b }; (+ 1)", "a block begins a statement"),
    ("$x++ + --@a[1]", "(($x++) + (--@a[1]))", "postfix and prefix"),
]


@pytest.mark.parametrize(("written", "meant", "what"), EXPRESSIONS, ids=[e[2] for e in EXPRESSIONS])
def test_expressions(written: str, meant: str, what: str) -> None:
    assert body(written) == meant, what


STATEMENTS = [
    ("$x = 1; @a <<= 2", "$x = 1; @a <<= 2; ", "assignments"),
    ("@a[1] /= 2; _ = f()", "@a[1] /= 2; _ = f(); ", "compound assignment; discard"),
    ("let $a; let $b: uint8[4] = 1", "let $a; let $b : uint8[4] = 1; ", "declarations"),
    ("if (1) { 2 } else if (3) { } else { 4; }", "if (1) { 2 } else if (3) { } else { 4; }", "if"),
    ("if comptime x { 1; }", "if (comptime x) { 1; }; ", "if at compile time"),
    ("while (1) { $i++; break; continue }", "while (1) { ($i++); break; continue; }; ", "while"),
    ("for ($i : 0..$n + 1) { }", "for ($i : 0..($n + 1)) { }; ", "for over a range"),
    ("for $i : 0..2 { }", "for ($i : 0..2) { }; ", "for without parentheses"),
    ("for ($kv : @m) { $kv.0 }", "for ($kv : @m) { $kv.0 }; ", "for over a map"),
    ("unroll(5) { 1 }", "unroll (5) { 1 }; ", "unroll"),
    ("unroll($1) { 1 }", "unroll ($1) { 1 }; ", "unroll by an argument"),
    ("return; return 1 + 1", "return; return (1 + 1); ", "return"),
    ('import "stdlib/x"; 1', 'import "stdlib/x"; 1', "import in a block"),
    ("{ 1; } 2;", "{ 1; }; 2; ", "a block is a statement"),
    ("$a = { let $b = 1; $b };", "$a = { let $b = 1; $b }; ", "a block is an expression"),
    ("$a = if (1) { 2 } else { 3 };", "$a = if (1) { 2 } else { 3 }; ", "if is an expression"),
    (";; 1;;", "1; ", "semicolons alone"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "meant", "what"), STATEMENTS, ids=[s[2] for s in STATEMENTS])
def test_statements(written: str, meant: str, what: str) -> None:
    assert body(written).rstrip("; ") == meant.rstrip("; "), what


@pytest.mark.parametrize(
    ("written", "statements", "has_value"),
    [
        pytest.param("1; 2", 1, True, id="without a semicolon, the last expression is the value"),
        pytest.param("1; 2;", 2, False, id="with a semicolon it is a statement"),
        pytest.param("if (1) { 2 } else { 3 }", 0, True, id="if with two values is one"),
        pytest.param("if (1) { 2 } else { 3; }", 1, False, id="if with one value is a statement"),
        pytest.param("if (1) { 2 }", 1, False, id="if without else is a statement"),
        pytest.param("{ 1 }", 0, True, id="a block with a value is one"),
        pytest.param("$x = 1", 1, False, id="an assignment has no value"),
    ],
)
def test_values_of_blocks(written: str, statements: int, has_value: bool) -> None:
    (probe,) = parse(f"begin {{ {written} }}").probes
    assert len(probe.block.statements) == statements
    assert (probe.block.value is not None) is has_value
    assert len(probe.block.body) == statements + has_value
    assert not isinstance(probe.block.body[-1], tree.Integer)


DEFINITIONS = [
    ("struct a { int x; };", ["struct a { int x; };"], "a structure"),
    (
        "struct a { long x, *y, z[2]; }",
        ["struct a { long x; long *y; long z[2]; };"],
        "declarators",
    ),
    ("union u { char c; short s; };", ["union u { char c; short s; };"], "a union"),
    ("struct a { int x:3; int :5; };", ["struct a { int x : 3; int : 5; };"], "bit-fields"),
    ("struct a { int (*p)[4]; };", ["struct a { int (*p)[4]; };"], "a pointer to an array"),
    ("struct a { int *p[2][3]; };", ["struct a { int *p[2][3]; };"], "an array of arrays"),
    ("struct a { int (*f)(int, void *); };", ["struct a { void *f; };"], "a pointer to a function"),
    ("struct a { int (*f[2])(int); };", ["struct a { void *f[2]; };"], "pointers to functions"),
    ("struct a { char b[N + 1]; };", ["struct a { char b[(N + 1)]; };"], "a length by a constant"),
    (
        "struct a { char c; } __attribute__((packed));",
        ["struct a { char c; } __attribute__((packed));"],
        "a packed structure",
    ),
    (
        "struct a { struct b { int x; } y; enum c { P = 1, Q } z; };",
        ["struct b { int x; };", "enum c { P = 1, Q };", "struct a { struct b y; enum c z; };"],
        "inner definitions come first",
    ),
    ("typedef struct b *c, d;", ["typedef struct b *c;", "typedef struct b d;"], "typedefs"),
    ("struct a;", [], "a declaration alone"),
]


@pytest.mark.parametrize(("written", "meant", "what"), DEFINITIONS, ids=[d[2] for d in DEFINITIONS])
def test_definitions(written: str, meant: list[str], what: str) -> None:
    assert [definition_text(one) for one in parse(written).definitions] == meant, what


def test_an_anonymous_member_has_no_name_and_its_type_a_name_that_nobody_can_write() -> None:
    inner, outer = parse("struct a { union { int x; }; };").definitions
    assert inner.name == "(anonymous 11)"
    assert [(one.name, one.type.name) for one in outer.members] == [("", inner.name)]


def test_a_typedef_of_the_program_is_known_in_casts() -> None:
    program = parse("typedef int mine; begin { (mine)-1 }")
    assert text(program.probes[0].block) == "{ ((mine) (- 1)) }"


ATTACH_POINTS = [
    ("kprobe:f+0x10", ["kprobe:f+0x10"], "a function and an offset"),
    ("begin", ["begin"], "a word alone"),
    ("k:a, k:b ,\nk:c", ["k:a", "k:b", "k:c"], "several"),
    ("kprobe : m : f*", ["kprobe:m:f*"], "blanks beside colons"),
    ("usdt:/usr/lib/*.so:p:n", ["usdt:/usr/lib/*.so:p:n"], "a path with what looks like a comment"),
    ("uprobe:./a-b.so:f", ["uprobe:./a-b.so:f"], "a relative path"),
    ('uprobe:"/a b/{c}":"f(int, char)"', ['uprobe:"/a b/{c}":"f(int, char)"'], "quotes"),
    ("uprobe:./a:src/b.c:12", ["uprobe:./a:src/b.c:12"], "a line of a source file"),
    ("uprobe:/a/b:cpp:f", ["uprobe:/a/b:cpp:f"], "a language"),
    ("interval:s:$1", ["interval:s:$1"], "an argument of the script"),
    ("hardware:cpu-cycles:1e6", ["hardware:cpu-cycles:1e6"], "a dash and a number"),
    ("iter:task:/sys/fs/bpf/a", ["iter:task:/sys/fs/bpf/a"], "a pin"),
    ("w:0x1000:8:rw", ["w:0x1000:8:rw"], "a watchpoint"),
    ("usdt:*:loop", ["usdt:*:loop"], "any file"),
]


@pytest.mark.parametrize(
    ("written", "meant", "what"), ATTACH_POINTS, ids=[a[2] for a in ATTACH_POINTS]
)
@pytest.mark.parametrize("predicate", ["", "/1/", " / 1 / 1 / ", "\n/1/\n"])
def test_attach_points(written: str, meant: list[str], what: str, predicate: str) -> None:
    if predicate == "/1/" and "/" in written:
        predicate = " /1/"  # a path needs a blank before the slash
    (probe,) = parse(f"{written}{predicate} {{ }}").probes
    assert [point.text for point in probe.attach_points] == meant, what
    assert (probe.predicate is not None) is bool(predicate)


def test_names_of_probes() -> None:
    (probe,) = parse("here=kprobe:f { }").probes
    assert [(point.name, point.text) for point in probe.attach_points] == [("here", "kprobe:f")]


PARTS = """\
config = { stack_mode = perf; max_map_keys = 2; license = "GPL"; lazy = false }
import "lib/x";
let @m = lruhash(100);
macro add($x, @m, e) { $x += e; $x }
macro add() { 1 }
fn twice($a : int64, $b : struct foo *) : int32 { return ($a * 2); }
begin { }
kprobe:f /pid/ { print(1) }"""


def test_parts_of_a_program() -> None:
    assert program_text(parse(PARTS)) == PARTS


def test_places_point_at_the_text() -> None:
    written = "begin\n{\n  /* x */ $x = str(arg0) + @m[1, 2];\n}"
    program = parse(written)
    statement = program.probes[0].block.statements[0]
    assert isinstance(statement, tree.Assignment)
    assert isinstance(statement.value, tree.Binary)
    for node, expected in (
        (statement, "$x = str(arg0) + @m[1, 2]"),
        (statement.value.left, "str(arg0)"),
        (statement.value.right, "@m[1, 2]"),
        (program.probes[0].block, written[6:]),
        (program.probes[0], written),
    ):
        assert written[node.start : node.end] == expected


def _debian_scripts() -> list[tuple[str, str]]:
    folder = debian.files("bpftrace") / "usr/sbin"
    return [(one.name, one.read_text()) for one in sorted(folder.glob("*.bt"))]


def test_all_scripts_of_debian_are_parsed_and_their_text_is_parsed_to_the_same() -> None:
    scripts = _debian_scripts()
    assert len(scripts) >= 38
    for name, script in scripts:
        program = parse_program(Source(script, name))
        assert program.probes
        assert parse(program_text(program)) == program
