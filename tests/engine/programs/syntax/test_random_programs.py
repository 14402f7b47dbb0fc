"""Random programs: what is parsed from the text of a tree is that tree, with right places."""

from __future__ import annotations

from typing import Any

import pytest
from program_text import program_text
from random_programs import Programs

from usdt.base.errors import ProgramError
from usdt.base.frozen import fields_of
from usdt.engine.programs.syntax.macros import expand_macros
from usdt.engine.programs.syntax.parser import parse_program
from usdt.engine.programs.syntax.source import Source

_SEEDS = [range(first, first + 50) for first in range(0, 300, 50)]


def nested(node: Any) -> bool:
    """Whether all nodes are in the place of the one around them."""
    for value in fields_of(node).values():
        for child in value if isinstance(value, tuple) else (value,):
            if not hasattr(type(child), "__match_args__"):
                continue
            inside = (
                not hasattr(node, "start") or node.start <= child.start <= child.end <= node.end
            )
            if not (inside and nested(child)):
                return False
    return True


def refusal(source: Source) -> ProgramError | None:
    try:
        expand_macros(source, parse_program(source))
    except ProgramError as error:
        return error
    return None


@pytest.mark.parametrize("seeds", _SEEDS, ids=str)
def test_the_text_of_a_tree_is_parsed_to_that_tree(seeds: range) -> None:
    for seed in seeds:
        made = Programs(seed).program()
        written = program_text(made)
        parsed = parse_program(Source(written, "test.bt"))
        assert parsed == made, seed
        assert nested(parsed), seed


@pytest.mark.parametrize("seeds", _SEEDS, ids=str)
def test_a_program_with_a_piece_left_out_is_parsed_or_refused(seeds: range) -> None:
    for seed in seeds:
        programs = Programs(seed)
        written = program_text(programs.program())
        at = programs.random.randrange(len(written))
        source = Source(written[:at] + written[at + programs.random.randint(1, 9) :], "test.bt")
        error = refusal(source)
        if error is not None:
            assert 0 <= error.column <= len(error.text), seed
            assert "\n" not in str(error), seed
