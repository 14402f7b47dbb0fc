"""Comments and directives of programs, and names that stand for a text."""

from __future__ import annotations

import pytest
from program_text import text

from usdt.engine.programs.syntax.parser import parse_program
from usdt.engine.programs.syntax.preprocessor import preprocess
from usdt.engine.programs.syntax.source import Source


def clean(program: str) -> str:
    return preprocess(Source(program, "test.bt"), {}, lambda _: None).text


def body(program: str, headers: dict[str, str] | None = None) -> str:
    parsed = parse_program(Source(program, "test.bt"), read_header=(headers or {}).get)
    return text(parsed.probes[0].block)


@pytest.mark.parametrize(
    ("written", "left"),
    [
        pytest.param("a // b\nc", "a     \nc", id="a comment to the end of the line"),
        pytest.param("a /* b\nc */ d", "a     \n     d", id="a comment of two lines"),
        pytest.param('"// /*" a', '"// /*" a', id="no comment in a string"),
        pytest.param("u:/a/*.so:f//x", "u:/a/*.so:f//x", id="no comment in a path"),
        pytest.param("1 ? 2 ://x\n3", "1 ? 2 :   \n3", id="a comment after a colon"),
        pytest.param("#!/bin/x\na", "        \na", id="the line of an interpreter"),
        pytest.param("# define A \\\n 1\nA", "            \n  \nA", id="a directive of two lines"),
        pytest.param(
            "#pragma x\n#line 3\na", "         \n       \na", id="directives without effect"
        ),
        pytest.param("/* #if 0 */ a", "            a", id="no directive in a comment"),
    ],
)
def test_what_is_left_out_becomes_blanks(written: str, left: str) -> None:
    assert clean(written) == left


@pytest.mark.parametrize(
    ("directives", "kept"),
    [
        pytest.param("#ifdef A\n1\n#endif", "", id="not defined"),
        pytest.param("#define A\n#ifdef A\n1\n#endif", "1", id="defined"),
        pytest.param("#ifndef A\n1\n#else\n2\n#endif", "1", id="the first branch"),
        pytest.param("#ifdef A\n1\n#else\n2\n#endif", "2", id="the second branch"),
        pytest.param("#if 0\n1\n#elif 1\n2\n#elif 1\n3\n#else\n4\n#endif", "2", id="elif"),
        pytest.param("#if 0\n#if 1\n1\n#else\n2\n#endif\n#endif", "", id="a condition in another"),
        pytest.param("#define N 5\n#if N > 4 && !defined(M)\n1\n#endif", "1", id="an expression"),
        pytest.param("#if -7 / 2 == -3 && -7 % 2 == -1\n1\n#endif", "1", id="division as in C"),
        pytest.param("#if defined N ? 1 : UNKNOWN\n1\n#endif", "", id="unknown names are 0"),
        pytest.param("#define A\n#undef A\n#ifdef A\n1\n#endif", "", id="no longer defined"),
        pytest.param("#if 0\n#error no\n#bad\ndon't\n#endif", "", id="nothing in it counts"),
    ],
)
def test_conditions(directives: str, kept: str) -> None:
    assert clean(directives).strip() == kept


def test_the_types_of_the_kernel_are_known() -> None:
    program = "begin {\n#ifdef BPFTRACE_HAVE_BTF\n1\n#else\n2\n#endif\n}"
    assert body(program) == "{ 1 }"


@pytest.mark.parametrize(
    ("defines", "written", "meant"),
    [
        pytest.param("N 5", "N + 1", "(5 + 1)", id="a constant"),
        pytest.param("N 5 // five", "N + 1", "(5 + 1)", id="a comment is no part of it"),
        pytest.param('RED "\\033[31m"', "print(RED)", 'print("\\033[31m")', id="a string"),
        pytest.param("N (1 << 3)", "N * 2", "((1 << 3) * 2)", id="an expression"),
        pytest.param("N M\n#define M 2", "N", "2", id="a name in a name"),
        pytest.param("N N", "N", "N", id="itself"),
        pytest.param("F(x) (x * x)", "F(2 + 1)", "((2 + (1 * 2)) + 1)", id="a function as in C"),
        pytest.param("F(x, y) x - y", "F((1, 2), f(3, 4))", "((1, 2) - f(3, 4))", id="two of them"),
        pytest.param("F() 7", "F()", "7", id="a function without arguments"),
        pytest.param("F(x) x", "F", "F", id="a function without a parenthesis is a name"),
        pytest.param("F(x) x + 1", "F(F(1))", "((1 + 1) + 1)", id="a function in its argument"),
    ],
)  # fmt: skip
def test_defines(defines: str, written: str, meant: str) -> None:
    assert body(f"#define {defines}\nbegin {{ {written} }}") == f"{{ {meant} }}"


def test_constants_of_headers() -> None:
    header = "#define A 5 /* a */\n# define B  (0x10UL)\n#define C f(x)\n#define D -1\n"
    program = "#include <a/b.h>\n#define B 2\nbegin { A + B + C + D }"
    assert body(program, {"a/b.h": header}) == "{ (((5 + 2) + C) + (- 1)) }"


def test_headers_that_are_not_there_are_ignored() -> None:
    assert body('#include <linux/sched.h>\n#include "x.h"\nbegin { A }') == "{ A }"


def test_places_after_directives_are_those_of_the_text() -> None:
    written = "#define LONG 123456\n/* x */\nbegin { LONG + $x }"
    parsed = parse_program(Source(written, "test.bt"))
    tree = parsed.probes[0].block.value
    assert tree is not None
    assert written[tree.start : tree.end] == "LONG + $x"
