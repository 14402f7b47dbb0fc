"""Which words of ``usdt run`` are options of the command, and which those of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from usdt.base.errors import TargetError
from usdt.engine.cli.programs.command import run
from usdt.engine.cli.programs.run import run_program

if TYPE_CHECKING:
    from pathlib import Path

# A command line → the words of the program
_WORDS = {
    ("-e", "x", "--aa=20", "pos1", "--bb=bye", "--", "pos2", "--cc"): (
        *("pos1", "pos2", "--cc", "--aa=20", "--bb=bye"),
    ),
    ("--aa=20", "script.bt", "5", "-q", "--flag"): ("script.bt", "5", "--aa=20", "--flag"),
    ("script.bt", "--", "--quiet"): ("script.bt", "--quiet"),
    ("-e", "--aa", "--unsafe"): (),
    ("-c", "--aa", "script.bt"): ("script.bt",),
}


@pytest.mark.parametrize("line", _WORDS)
def test_options_of_the_program_stand_anywhere(line: tuple[str, ...]) -> None:
    assert run.make_context("run", [*line]).params["words"] == _WORDS[line]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (("script.bt", "--unsfe"), "--unsafe"),
        (("--no-warning=1", "script.bt"), "--no-warnings"),
        (("-x", "script.bt"), "No such option"),
    ],
)
def test_a_misspelt_option_of_the_command_is_refused(line: tuple[str, ...], meant: str) -> None:
    with pytest.raises(click.NoSuchOption) as caught:
        run.make_context("run", [*line])
    assert meant in caught.value.format_message()


def test_the_script_is_the_first_word_that_is_no_option(tmp_path: Path) -> None:
    values = run.make_context("run", ["--aa=20", f"{tmp_path}/none.bt"]).params
    with pytest.raises(TargetError, match=r"none.bt"):
        run_program(values)
    with pytest.raises(click.UsageError, match="expected a SCRIPT"):
        run_program(run.make_context("run", ["--aa=20"]).params)
