"""The options of a run: what -c splits into."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.base.errors import TargetError
from usdt.engine.run.options import split_command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("ls -l", ("ls", "-l"), id="words"),
        pytest.param("sh -c 'echo \"a b\"'", ("sh", "-c", 'echo "a b"'), id="quotes"),
        pytest.param("a\\ b  c", ("a b", "c"), id="a backslash"),
        pytest.param("a # b", ("a", "#", "b"), id="no comments"),
    ],
)
def test_commands_are_split_as_a_shell_does(text: str, words: tuple[str, ...]) -> None:
    assert split_command(text) == words


@pytest.mark.parametrize("text", ["", "  ", "echo 'a"])
def test_what_is_no_command(text: str) -> None:
    with pytest.raises(TargetError, match="command"):
        split_command(text)


@given(st.text("ab#\"'\\ \t\r\n\v\f\x1c\x85\xa0\0"))
def test_any_command_is_split_as_by_the_standard_library(text: str) -> None:
    try:
        expected = shlex.split(text)
    except ValueError:
        expected = []
    try:
        assert [*split_command(text)] == expected
    except TargetError:
        assert not expected
