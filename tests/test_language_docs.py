"""What docs/language.md says of the language is so: its items, its numbers, its examples."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from planning import INTEGERS, argument, plan, register
from support.planning import form
from test_readme import consoles, needs_python, run, shape

from usdt.arch.locations import AtFunctionReturn
from usdt.base.errors import LanguageError
from usdt.btf.files import KERNEL
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.ir import Number, Unavailable
from usdt.engine.compiler.resolve.expressions import resolve
from usdt.engine.compiler.resolve.tasks import TASK_BUILTINS
from usdt.engine.compiler.scope import Scope
from usdt.engine.language import BUILTINS, FUNCTIONS, parse_expression, parse_probe
from usdt.engine.language.tree import PRECEDENCE

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "language.md").read_text()
CONSOLES = consoles(TEXT)


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables below a heading, code spans without their marks."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    found = re.findall(r"^\| (`.*) \|$", section, re.MULTILINE)
    return [re.split(r" (?<!\\)\| ", row) for row in found]


def code(cell: str) -> list[str]:
    """The code spans of a cell."""
    return [span.replace(r"\|", "|") for span in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("probe", [code(row[0])[0] for row in rows("Naming a probe")])
def test_probes_are_named_as_said(probe: str) -> None:
    assert parse_probe(probe).name


@pytest.mark.parametrize("row", rows("Names of bpftrace"), ids=lambda row: row[0])
def test_names_of_bpftrace_mean_what_is_said(row: list[str]) -> None:
    written, meant = code(row[0]), code(row[1])
    if "return" in meant:
        meant = meant[:1]
    for short, full in zip(written, meant * (len(written) // len(meant)), strict=True):
        made = parse_probe(f"{short}name")
        assert made.kind == parse_probe(f"{full}name").kind
        assert [item.text for item in made.items] == ["return"] * ("return" in row[1])


_ARGUMENTS = (
    argument(0, "u64"),
    argument(1, "s32"),
    Argument("return", INTEGERS["s64"], AtFunctionReturn(register()), hidden=True),
)
_VALUES = [code(row[0])[0] for row in rows("Values")]


@pytest.mark.parametrize("item", _VALUES)
def test_values_can_be_shown(item: str) -> None:
    if item in TASK_BUILTINS and not Path(KERNEL).exists():
        pytest.skip("needs BTF of the kernel")
    (output,) = plan(item, _ARGUMENTS).outputs
    assert output.key == item.replace(" ", "")
    assert not plan(item, _ARGUMENTS).predicates


def test_every_name_of_the_language_is_told_of() -> None:
    named = {re.split(r"\W", value)[0] for value in _VALUES}
    named |= {re.split(r"\W", code(row[0])[0])[0] for row in rows("Strings")}
    assert named >= BUILTINS | set(FUNCTIONS)
    operators = {re.sub(r"\w|\s", "", span) for row in rows("Operators") for span in code(row[0])}
    assert operators >= set(PRECEDENCE)


def test_operators_stand_in_the_order_of_their_precedence() -> None:
    levels = [
        PRECEDENCE[span.split()[1]] for row in rows("Operators")[2:12] for span in code(row[0])
    ]
    assert levels == sorted(levels, reverse=True)
    assert len(levels) == len(PRECEDENCE)


_RESULTS = [(code(row[0])[0], row[1]) for row in rows("Operators") if len(row) == 3]


@pytest.mark.parametrize(("text", "result"), _RESULTS, ids=[text for text, _ in _RESULTS])
def test_results_are_as_said(text: str, result: str) -> None:
    node = resolve(parse_expression(text).expression, Scope(text, "p:q", {}, 0))
    if result == "unreadable":
        assert isinstance(node, Unavailable)
    else:
        assert isinstance(node, Number)
        assert code(result) == [str(node.value)]


@pytest.mark.parametrize("row", rows("Casts and pointers"), ids=lambda row: row[0])
def test_casts_are_as_said(row: list[str]) -> None:
    (item,) = code(row[0])
    if row[1].startswith("refused"):
        with pytest.raises(LanguageError):
            plan(item, _ARGUMENTS)
    else:
        assert form(plan(item, _ARGUMENTS).outputs[0]) == "integer"


@pytest.mark.parametrize("item", [code(row[0])[0] for row in rows("Strings")])
def test_strings_are_predicates(item: str) -> None:
    (parsed,) = parse_probe(f"p:q({item})").items
    assert parsed.is_predicate
    plan(item, _ARGUMENTS)


@needs_python
@pytest.mark.root
@pytest.mark.parametrize(("command", "expected"), CONSOLES, ids=[one for one, _ in CONSOLES])
def test_examples_print_what_is_shown(command: str, expected: list[str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    lines, status = run(command)
    assert status == (2 if expected[-1].startswith("Error") else 0), lines
    assert sorted(map(shape, lines)) == sorted(map(shape, expected))


def test_there_are_examples() -> None:
    assert len(CONSOLES) == 5
    assert len(_RESULTS) > 10
    assert len(_VALUES) >= len(BUILTINS) + len(FUNCTIONS) - 1
