"""When the text of a program is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from usdt.engine.cli.programs.text_output import TextOutput
from usdt.engine.output.output_file import OutputFile

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Output(OutputFile):
    # Keeps what each write had.
    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, lines: Sequence[str]) -> None:
        self.written.append("".join(lines))


@pytest.mark.parametrize(
    ("buffering", "expected"),
    [
        ("none", ["a\n", "b\n", "c\n", "d\n"]),
        ("line", ["a\n", "b\nc\n", "d\n"]),
        ("full", ["a\nb\nc\nd\n"]),
    ],
)
def test_the_buffering_decides_what_is_written_together(
    buffering: str, expected: list[str]
) -> None:
    output = _Output()
    text = TextOutput(output, buffering)
    text.write("a\n")
    with text.together():
        text.write("b\n")
        text.write("c\n")
    text.write("d\n")
    text.flush()
    assert output.written == expected


def _interrupted(text: TextOutput) -> None:
    with text.together():
        text.write("a\n")
        raise KeyboardInterrupt


def test_what_a_batch_has_printed_is_written_when_it_is_interrupted() -> None:
    output = _Output()
    with pytest.raises(KeyboardInterrupt):
        _interrupted(TextOutput(output, "line"))
    assert output.written == ["a\n"]


def test_a_long_batch_is_written_in_parts() -> None:
    output = _Output()
    text = TextOutput(output, "line")
    with text.together():
        text.write("x" * (1 << 16))
        text.write("y")
    assert output.written == ["x" * (1 << 16), "y"]
