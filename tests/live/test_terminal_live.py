"""What traces and aggregations write on a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fixtures import build, start
from terminals import COLOUR, on_terminal
from tracing_tools import USDT

from usdt.base.terminal.columns import columns

if TYPE_CHECKING:
    from pathlib import Path

_WIDTH = 50


def shown(command: str, *words: object) -> list[str]:
    """The lines of a command on a narrow terminal, about one round of a program with strings.

    Some of its strings have more than 200 characters.
    """
    with start(build("default", "strings"), "-w") as program:
        program.wait_ready()

        def fire() -> None:
            program.fire()
            program.finish()  # which ends the command as well

        text = on_terminal(
            *(USDT, command, "-p", program.pid, *words), columns=_WIDTH, once=("tracing ", fire)
        )
    return text.splitlines()


def test_a_table_fits_and_a_file_has_the_whole_of_it(tmp_path: Path) -> None:
    words = ["strings:*", "--by", "str(arg0, 200)"]
    lines = shown("count", *words, "-i", 10)
    (head,) = [line for line in lines if "PROBE" in line]
    assert head.startswith("\x1b[1m   COUNT  PROBE")
    rows = [line for line in lines if "\x1b[36mstrings:" in line]
    assert rows
    assert all(columns(line) <= _WIDTH for line in rows)
    assert any(line.endswith("…") for line in rows)

    shown("count", *words, "-o", tmp_path / "whole", "--color", "always")
    whole = (tmp_path / "whole").read_text()
    assert "\x1b" not in whole
    assert max(map(len, whole.splitlines())) > 200


def test_a_trace_has_whole_lines() -> None:
    lines = shown("trace", "strings:*(str(arg0, 200))")
    hits = [line for line in lines if "\x1b[36mstrings:" in line]
    assert hits
    assert all(len(COLOUR.findall(line)) == 2 for line in hits)
    assert max(columns(line) for line in hits) > 200


def test_json_has_neither() -> None:
    lines = shown("trace", "--json", "--color=always", "strings:*(str(arg0, 200))")
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    assert any(len(str(one.get("args"))) > 200 for one in objects)
    assert not any("\x1b" in line for line in lines if line.startswith("{"))
