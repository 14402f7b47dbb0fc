"""Beside a C compiler: precedence, constants, escapes and integer types are C's own."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pytest
from skips import need_program

from usdt.engine.language import parse_expression, render
from usdt.engine.language.c_type_names import NAMED_TYPES
from usdt.engine.language.tree import PRECEDENCE, Cast, Integer, Text

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """\
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
static long a = 3, b = -7, c = 1000003, d = 0, e = 0x123456789abL;
static void bytes(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        printf("%02x", (unsigned char)text[i]);
    puts("");
}
int main(void)
{
    (void)a, (void)b, (void)c, (void)d, (void)e;
    if (sizeof(long) != 8)
        return 77;
"""

EXPRESSIONS = 400
# Those that keep more than one bit of their operands are taken more often.
OPERATORS = [*PRECEDENCE, *("|", "^", "&", "<<", ">>", "+", "-", "*", "/", "%") * 3]

CONSTANTS = [
    *("0", "7", "2147483647", "2147483648", "4294967295", "4294967296", "9223372036854775807"),
    *("0x7fffffff", "0x80000000", "0xffffffff", "0x100000000", "0x7fffffffffffffff"),
    *("0x8000000000000000", "0xFFFFFFFFFFFFFFFF", "00", "017", "037777777777", "0b101", "0B1u"),
    *("1u", "1U", "1l", "1L", "1ul", "1lu", "1ull", "1LLU", "4294967295u", "4294967296u", "0xfful"),
    *("'A'", "' '", r"'\0'", r"'\n'", r"'\x7f'", r"'\101'", r"'\''", "'\"'", r"'\e'"),
]

# C takes any number of digits after \x; this language takes two, so that "\x7fELF" is four bytes.
STRINGS = [
    *(r'""', r'"GET"', r'"\a\b\e\f\n\r\t\v\\\'\"\?"', r'"\0\18\1234"', r'"\x41g"', '"é€"'),
    *(r'"\u00e9\U0001F600"', r'"a\377b"', '"it\'s"'),
]

KERNEL_ONLY = {"gfp_t", "ktime_t", "sector_t", "umode_t"}
TYPES = [
    *("char", "signed char", "unsigned char", "char unsigned", "short", "int short", "unsigned"),
    *("signed", "int", "long", "long int", "int unsigned long", "long long", "long unsigned long"),
    *("_Bool", "const int", "unsigned long const int"),
    *(name for name in NAMED_TYPES if name not in KERNEL_ONLY and name.strip("_")[:1] not in "us"),
    *("uint8_t", "uint16_t", "uint32_t", "uint64_t", "uintptr_t", "size_t", "ssize_t", "uid_t"),
]


def run_c(folder: Path, statements: list[str]) -> list[str]:
    """The lines that a program of these statements prints."""
    compiler = need_program("gcc")
    source, program = folder / "peer.c", folder / "peer"
    source.write_text(HEAD + "\n".join(statements) + "\nreturn 0;\n}\n")
    subprocess.run([compiler, "-w", "-std=gnu17", "-fwrapv", "-o", program, source], check=True)
    done = subprocess.run([program], check=False, capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("needs a CPU whose long has eight bytes")
    assert done.returncode == 0
    return done.stdout.splitlines()


def expression(chance: random.Random, depth: int = 0) -> str:
    """A random text of operands and operators, with few parentheses."""
    pieces = [operand(chance, depth)]
    for _ in range(chance.randint(1, 6)):
        op = chance.choice(OPERATORS)
        # Nothing is divided by 0, and what no sanitizer would like is at least the same twice.
        right = chance.choice("23579") if op in "/%" else operand(chance, depth)
        pieces += [op, right]
    return " ".join(pieces)


def operand(chance: random.Random, depth: int) -> str:
    prefix = "".join(chance.choice(["", "", "", "-", "~", "!", "(short)", "+"]) for _ in "12")
    prefix = prefix.replace("--", "-").replace("++", "+")
    if depth < 2 and chance.random() < 0.1:
        return f"{prefix}({expression(chance, depth + 1)})"
    return prefix + chance.choice("abcde12345")


def test_precedence_is_what_the_compiler_says(tmp_path) -> None:
    chance = random.Random(20)
    texts = [expression(chance) for _ in range(EXPRESSIONS)]
    lines = run_c(
        tmp_path,
        [
            f'printf("%ld %ld\\n", (long)({text}), (long)({render(tree, full=True)}));'
            for text in texts
            for tree in [parse_expression(text).expression]
        ],
    )
    pairs = dict(zip(texts, map(str.split, lines), strict=True))
    assert {text: pair for text, pair in pairs.items() if pair[0] != pair[1]} == {}
    assert len({pair[0] for pair in pairs.values()}) > EXPRESSIONS // 10, "they say too little"


def test_each_pair_of_operators_groups_as_the_compiler_has_it(tmp_path) -> None:
    texts = [f"x {first} y {second} z" for first in PRECEDENCE for second in PRECEDENCE]
    statements = ["long x, y, z, theirs, ours;"]
    for text in texts:
        _, first, _, second, _ = text.split()
        y, z = (int(op in "/%") for op in (first, second))
        full = render(parse_expression(text).expression, full=True)
        statements += [
            "theirs = ours = 0;",
            f"for (x = 0; x < 5; x++) for (y = {y}; y < 5; y++) for (z = {z}; z < 5; z++)",
            f"    theirs = theirs * 31 + ({text}), ours = ours * 31 + ({full});",
            'printf("%d\\n", theirs == ours);',
        ]
    lines = run_c(tmp_path, statements)
    assert [text for text, same in zip(texts, lines, strict=True) if same != "1"] == []


def test_constants_have_the_compilers_value_and_type(tmp_path) -> None:
    lines = run_c(
        tmp_path,
        [
            f'printf("%llu %d %zu\\n", (unsigned long long)({text}),'
            f" (typeof({text}))-1 > 0, sizeof({text}));"
            for text in CONSTANTS
        ],
    )
    theirs = {
        text: (int(value), bool(int(unsigned)), int(size))
        for text, line in zip(CONSTANTS, lines, strict=True)
        for value, unsigned, size in [line.split()]
    }
    ours = {}
    for text in CONSTANTS:
        tree = parse_expression(text).expression
        assert isinstance(tree, Integer)
        ours[text] = (tree.value, tree.unsigned, tree.size)
    assert ours == theirs


def test_strings_have_the_compilers_bytes(tmp_path) -> None:
    lines = run_c(tmp_path, [f"bytes({text}, sizeof({text}) - 1);" for text in STRINGS])
    ours = []
    for text in STRINGS:
        tree = parse_expression(text).expression
        assert isinstance(tree, Text)
        [value] = tree.parts  # a constant, not a pattern
        ours.append(value.hex())
    assert ours == lines


def test_integer_types_have_the_compilers_size_and_sign(tmp_path) -> None:
    lines = run_c(
        tmp_path,
        [f'printf("%zu %d\\n", sizeof({name}), ({name})-1 < 0);' for name in TYPES],
    )
    theirs = {
        name: (int(size), bool(int(signed)))
        for name, line in zip(TYPES, lines, strict=True)
        for size, signed in [line.split()]
    }
    ours = {}
    for name in TYPES:
        tree = parse_expression(f"({name})-1").expression
        assert isinstance(tree, Cast)
        ours[name] = (tree.type.size, tree.type.signed)
    # What a plain char is depends on the CPU; here it is signed, as on x86.
    del ours["char"], theirs["char"]
    assert ours == theirs
