"""``usdt decode``: argument strings of any CPU, as words and as JSON."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from usdt.base.errors import TargetError
from usdt.cli.files.decode import decode
from usdt.probes.argspec import parse_arguments


def run(*words: str) -> str:
    done = CliRunner().invoke(decode, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("machine", "spec", "line"),
    [
        pytest.param("x86_64", "-4@%eax", "signed, 4 bytes, in register eax", id="a register"),
        pytest.param("s390x", "8@8(%r2,%r15)", "in memory at r15 + r2 + 8", id="an index"),
        pytest.param("ppc64el", "8@9", "in register r9", id="by Debian's name of the CPU"),
        pytest.param("riscv64", "8@9", "the constant 9", id="the same text on another CPU"),
        pytest.param("arm64", "8@[x1, x2, lsl 3]", "x1 + x2 * 8", id="blanks in brackets"),
        pytest.param("armhf", "8@d0", "not readable: d0 is not saved where", id="a reason"),
        pytest.param("armhf", "8@r0", "the low 4 bytes in register r0", id="half of a pair"),
    ],
)
def test_operands_in_words(machine: str, spec: str, line: str) -> None:
    assert line in run("--machine", machine, spec)


def test_several_operands_of_several_strings() -> None:
    lines = run("--machine", "x86_64", "-4@%eax 8@$5", "1@%dl").splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["arg0", "-4@%eax"],
        ["arg1", "8@$5"],
        ["arg0", "1@%dl"],
    ]


def test_json_is_that_of_list() -> None:
    specs = ("-4@0(%r5,%r4) 8f@%f0", "-8@-1", "")
    lines = run("--machine", "s390x", "--json", *specs).splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "machine": "s390x",
            "args": spec,
            "operands": [operand.to_json() for operand in parse_arguments(spec, "s390x")],
        }
        for spec in specs
    ]


def test_control_characters_are_not_sent_to_the_terminal() -> None:
    assert "\x1b" not in run("--machine", "x86_64", "8@\x1b[31m")


def test_an_unknown_cpu_is_refused_and_those_known_are_named() -> None:
    with pytest.raises(TargetError, match=r"unknown CPU vax; .* x86_64"):
        CliRunner().invoke(decode, ["--machine", "vax", "8@r0"], catch_exceptions=False)


@pytest.mark.parametrize("words", [["--jsn", "8@%rax"], ["--machine"], []])
def test_a_wrong_option_is_no_operand(words: list[str]) -> None:
    assert CliRunner().invoke(decode, words).exit_code == 2
