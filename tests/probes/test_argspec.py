"""Splitting argument strings, sizes, and what no text may do to the parser."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.probes.argspec import MAX_ARGUMENTS, MAX_LENGTH, Operand, parse_arguments, split_arguments

MACHINES = ("x86_64", "i386", "s390x", "machine-4711")


@pytest.mark.parametrize(
    ("args", "pieces"),
    [
        pytest.param("", (), id="an empty string has no arguments"),
        pytest.param("   ", (), id="blanks alone are no arguments"),
        pytest.param(":", (), id="a colon means no arguments"),
        pytest.param(":8@%rax", (), id="whatever follows a leading colon is no argument"),
        pytest.param("-4@%eax", ("-4@%eax",), id="one argument"),
        pytest.param("  8@%rax   -4@%ebx  ", ("8@%rax", "-4@%ebx"), id="blanks around count "),
        pytest.param("8@%rax\t4@%ebx\n1@%cl", ("8@%rax", "4@%ebx", "1@%cl"), id="tabs are blanks"),
        pytest.param(
            "8f@[x4, #:lo12:.LANCHOR1] 4@[r2, r0, lsl #2] 1@x0",
            ("8f@[x4, #:lo12:.LANCHOR1]", "4@[r2, r0, lsl #2]", "1@x0"),
            id="blanks inside brackets belong to the operand",
        ),
        pytest.param(
            "8@(%rax, %rdi, 8) 8@%rax", ("8@(%rax, %rdi, 8)", "8@%rax"), id="and inside parentheses"
        ),
        pytest.param("8@[x1,  x2] 4@x3", ("8@[x1,  x2]", "4@x3"), id="two blanks stay two blanks"),
        pytest.param(
            "8@(%rax 4@%ebx 1@%cl",
            ("8@(%rax", "4@%ebx", "1@%cl"),
            id="a bracket never closed swallows no other argument",
        ),
        pytest.param("-4 @ -20 ( %rbp )", ("-4@-20(%rbp)",), id="blanks where libbpf takes them"),
        pytest.param(
            " -4@ %eax 8 @%rax -1@ ( %rdi , %rsi , 4 ) 8f @ $5",
            ("-4@%eax", "8@%rax", "-1@(%rdi , %rsi , 4)", "8f@$5"),
            id="blanks around @ in each",
        ),
        pytest.param("8@ [ x0 , 16 ] 4 @x1", ("8@[x0 , 16]", "4@x1"), id="blanks in brackets"),
        pytest.param("8@ 4@%ebx", ("8@", "4@%ebx"), id="a size and nothing takes no other's"),
        pytest.param("8@12 (%rax)", ("8@12(%rax)",), id="a blank before a parenthesis"),
        pytest.param("8@%rax (%rdi)", ("8@%rax", "(%rdi)"), id="after a register it separates"),
        pytest.param("8@%rax) 4@%ebx", ("8@%rax)", "4@%ebx"), id="a bracket never opened splits"),
        pytest.param("4@a:b 8@%rax", ("4@a:b", "8@%rax"), id="a later colon is text"),
    ],
)
def test_split(args: str, pieces: tuple[str, ...]) -> None:
    assert split_arguments(args) == pieces


def test_more_arguments_than_are_read_stay_in_one_piece_that_says_so() -> None:
    args = " ".join(["8@%rax"] * (MAX_ARGUMENTS + 5))
    operands = parse_arguments(args, "x86_64")
    assert len(operands) == len(split_arguments(args)) == MAX_ARGUMENTS
    assert {operand.kind for operand in operands[:-1]} == {"register"}
    assert operands[-1].text == " ".join(["8@%rax"] * 6)
    assert operands[-1].kind == "unknown"
    assert operands[-1].error == f"more than {MAX_ARGUMENTS} arguments; the rest is ignored"


def test_exactly_as_many_arguments_as_are_read_are_all_read() -> None:
    operands = parse_arguments(" ".join(["8@(%rax, %rdi)"] * MAX_ARGUMENTS), "x86_64")
    assert len(operands) == MAX_ARGUMENTS
    assert {operand.error for operand in operands} == {None}


def test_a_string_too_long_is_one_unknown_operand() -> None:
    args = "8@%rax " * (MAX_LENGTH // 7 + 1)
    (operand,) = parse_arguments(args, "x86_64")
    assert operand.text == args
    assert operand.error == f"the argument string has {len(args)} characters (at most 65536)"


@pytest.mark.parametrize(
    ("text", "size", "number_type"),
    [
        pytest.param("-4@%eax", 4, "signed", id="a minus means signed"),
        pytest.param("4@%eax", 4, "unsigned", id="no minus means unsigned"),
        pytest.param("8f@%rax", 8, "float", id="f after the digits means floating point"),
        pytest.param("-8f@%rax", 8, "float", id="a signed float is a float"),
        pytest.param("16f@8(%rsp)", 16, "float", id="a long double"),
        pytest.param("24@(%rdi)", 24, "unsigned", id="a struct by value"),
        pytest.param("%rdi", 8, "unsigned", id="no size: the machine's word, unsigned"),
        pytest.param("%eax", 8, "unsigned", id="no size: not the register's width"),
        pytest.param("40+sv@GOTOFF(%rbx)", 8, "unsigned", id="the @ of a relocation ends no size"),
        pytest.param("8@40+sv@GOTOFF(%rbx)", 8, "unsigned", id="the first @ ends the size"),
    ],
)
def test_size_and_type(text: str, size: int, number_type: str) -> None:
    (operand,) = parse_arguments(text, "x86_64")
    assert (operand.text, operand.size, operand.type) == (text, size, number_type)
    assert operand.kind != "unknown"


def test_no_size_on_a_32_bit_machine_is_4_bytes() -> None:
    assert parse_arguments("%edi", "i386")[0].size == 4


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("0@%eax", "'0@%eax' has a size of 0 or of more than 9 digits", id="size 0"),
        pytest.param(
            "9999999999@%eax",
            "'9999999999@%eax' has a size of 0 or of more than 9 digits",
            id="a size of ten digits",
        ),
        pytest.param("8@", "'8@' is not one operand", id="a size and nothing"),
        pytest.param("@%eax", None, id="@ and no size"),
        pytest.param("f@%eax", None, id="f without digits is no size"),
        pytest.param("--4@%eax", None, id="two signs are no size"),
        pytest.param("٤@%eax", None, id="digits of other scripts are no size"),
        pytest.param("4_0@%eax", None, id="an underscore is no size"),
    ],
)
def test_damaged_sizes(text: str, error: str | None) -> None:
    (operand,) = parse_arguments(text, "x86_64")
    assert operand.kind == "unknown"
    assert operand.size > 0
    assert operand.error if error is None else operand.error == error


def test_a_machine_without_a_grammar_keeps_sizes_and_says_so() -> None:
    first, second = parse_arguments("-4@XXX 8f@ZZZ(9)", "machine-4711")
    assert (first.size, first.type, first.kind) == (4, "signed", "unknown")
    assert (second.size, second.type, second.kind) == (8, "float", "unknown")
    assert first.error == second.error == "operands of machine-4711 are not supported yet"


def test_parsing_the_same_string_again_gives_the_same_objects() -> None:
    assert parse_arguments("8@%rax 4@%ebx", "x86_64") is parse_arguments("8@%rax 4@%ebx", "x86_64")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(
            "-4@%eax",
            {"kind": "register", "size": 4, "type": "signed", "register": "eax"},
            id="a register",
        ),
        pytest.param(
            "-8@$-5",
            {"kind": "constant", "size": 8, "type": "signed", "value": -5},
            id="a constant",
        ),
        pytest.param(
            "8@$sv+4",
            {"kind": "constant", "size": 8, "type": "unsigned", "displacement": 4, "symbol": "sv"},
            id="a symbol's address",
        ),
        pytest.param(
            "8@-24(%rbp)",
            {"kind": "memory", "size": 8, "type": "unsigned", "base": "rbp", "displacement": -24},
            id="memory on the stack",
        ),
        pytest.param(
            "8@(%rsp)",
            {"kind": "memory", "size": 8, "type": "unsigned", "base": "rsp"},
            id="memory without a displacement",
        ),
        pytest.param(
            "-4@12+sv(%rdi,%rcx,8)",
            {
                "kind": "memory",
                "size": 4,
                "type": "signed",
                "base": "rdi",
                "index": "rcx",
                "scale": 8,
                "displacement": 12,
                "symbol": "sv",
            },
            id="memory with everything",
        ),
        pytest.param(
            "4@0",
            {"kind": "memory", "size": 4, "type": "unsigned", "displacement": 0},
            id="memory at an absolute address",
        ),
        pytest.param(
            "-4@%fs:tl@tpoff",
            {
                "kind": "memory",
                "size": 4,
                "type": "signed",
                "symbol": "tl",
                "relocation": "tpoff",
                "segment": "fs",
                "error": "thread-local: the thread pointer is not among the saved registers",
            },
            id="thread-local memory",
        ),
        pytest.param(
            "4@%foo",
            {
                "kind": "unknown",
                "size": 4,
                "type": "unsigned",
                "error": "x86_64 has no register 'foo'",
            },
            id="what is not understood",
        ),
    ],
)
def test_json(text: str, shown: dict[str, object]) -> None:
    assert parse_arguments(text, "x86_64")[0].to_json() == shown


def check(args: str, machine: str) -> None:
    operands = parse_arguments(args, machine)
    assert isinstance(operands, tuple)
    assert len(operands) == len(split_arguments(args))
    for operand, text in zip(operands, split_arguments(args), strict=True):
        assert isinstance(operand, Operand)
        assert operand.text == text
        assert operand.size > 0
        assert operand.kind != "unknown" or operand.error
        assert "\n" not in (operand.error or "")
        operand.to_json()


@given(st.text(), st.sampled_from(MACHINES))
def test_no_text_raises(args: str, machine: str) -> None:
    check(args, machine)


@given(st.text(alphabet="-4810f@$%()[],+: .x_abcdegilrspw", max_size=60), st.sampled_from(MACHINES))
def test_no_text_of_the_grammars_own_characters_raises(args: str, machine: str) -> None:
    check(args, machine)


PIECES = ["8@", "-4@", "8f@", "$", "%rax", "%eax", "%ah", "(", ")", ",", "4", "sv", "@GOTOFF", "+"]


@given(st.lists(st.sampled_from([*PIECES, "-", " ", "%fs:", "%rip", ".LC0", "@GOTPCREL", "0x10"])))
def test_no_shuffled_operand_raises(pieces: list[str]) -> None:
    check("".join(pieces), "x86_64")
    check("".join(pieces), "i386")


@pytest.mark.parametrize(
    "args",
    [
        pytest.param("(" * 65536, id="open parentheses"),
        pytest.param("( " * 32768, id="open parentheses and blanks"),
        pytest.param("8@" + "1+" * 32760, id="a sum of thousands"),
        pytest.param("8@" + "-" * 65000, id="signs"),
        pytest.param("@" * 65536, id="at-signs"),
        pytest.param("8@$" + "9" * 65000, id="a number of 65,000 digits"),
        pytest.param("8@(" + "," * 65000 + ")", id="commas"),
        pytest.param("8@a" + "@a" * 32000, id="relocations"),
    ],
)
def test_work_is_bounded(args: str) -> None:
    started = time.process_time()
    check(args, "x86_64")
    assert time.process_time() - started < 1
