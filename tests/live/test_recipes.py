"""Every command of docs/recipes.md runs, and finds what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from recipe_runs import events_of, need_functions, surroundings, told
from test_readme import consoles, run

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies", "vmlinux_btf")

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
_RECIPES = consoles(_PAGE.read_text())
_BY_FUNCTIONS = _PAGE.read_text().partition("## The samples by kernel functions")[2]


@pytest.mark.parametrize(("command", "shown"), _RECIPES, ids=[c[:60] for c, _ in _RECIPES])
def test_recipes_find_what_is_shown(
    command: str, shown: list[str], request: pytest.FixtureRequest
) -> None:
    if f"$ {command}\n" in _BY_FUNCTIONS:
        request.getfixturevalue("kprobes")
        need_functions({name for line in shown for name in re.findall(r"kprobe:(\w+)", line)})
    with surroundings(command):
        lines, code = run(command)
    assert code == 0, lines
    assert told(shown) <= told(lines), lines
    assert events_of(lines) > 0


def test_the_five_samples_and_ten_questions() -> None:
    page = _PAGE.read_text()
    first, second = page.split("## Ten more questions")
    assert len(re.findall(r"^### ", first, re.MULTILINE)) == 5
    second, numbers = second.split("## Percentiles, and stacks that weigh")
    numbers, third = numbers.split("## The samples by kernel functions")
    assert len(re.findall(r"^### ", second, re.MULTILINE)) == 10
    assert len(re.findall(r"^### ", numbers, re.MULTILINE)) == 5
    assert len(re.findall(r"^### ", third, re.MULTILINE)) == 5
    assert len(_RECIPES) == 5 + 11 + 5 + 6
    assert all(told(shown) for _, shown in _RECIPES)
