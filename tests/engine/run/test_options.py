"""The options of a run: what -c splits into."""

from __future__ import annotations

import pytest

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
