"""What the commands write on a terminal: colours, lines that fit, nothing hostile."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from fixtures import build
from terminals import COLOUR, on_terminal
from tracing_tools import KPROBE, USDT, run_usdt

from usdt.base.terminal.columns import columns

if TYPE_CHECKING:
    from pathlib import Path


def test_a_table_fits_the_terminal_and_the_whole_of_it_is_elsewhere() -> None:
    path = build("default", "args")
    lines = on_terminal(USDT, "list", path, columns=60).splitlines()
    assert lines[1] == "  \x1b[1mPROBE            SITES  SEMAPHORE  ARGUMENTS\x1b[0m"
    assert all(columns(line) <= 60 for line in lines[1:])
    (cut,) = [line for line in lines if "args:count12\x1b" in line]
    assert re.fullmatch(r"  \x1b\[36margs:count12\x1b\[0m +1  -  +-4@\S+ .*…", cut)
    whole = run_usdt("list", path).stdout
    assert "…" not in whole
    (row,) = [line for line in whole.splitlines() if line.startswith("  args:count12 ")]
    assert row.startswith(COLOUR.sub("", cut).rstrip("…"))
    assert len(row) > 60


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["list", "args"], id="list"),
        pytest.param(["info", "args", "args:count3"], id="info"),
        pytest.param(["check", "regs"], id="check"),
        pytest.param(["list", "args", "uprobe:main"], id="functions"),
        pytest.param(["info", "args", "uprobe:main"], id="a function"),
        pytest.param(["features"], id="features"),
    ],
)
def test_colours_are_added_to_the_same_text(words: list[str]) -> None:
    command, *rest = words
    if rest:
        rest[0] = str(build("default", rest[0]))
    plain = run_usdt(command, *rest).stdout
    assert "\x1b" not in plain
    forced = run_usdt(command, "--color", "always", *rest).stdout
    assert COLOUR.search(forced)
    assert COLOUR.sub("", forced) == plain
    shown = on_terminal(USDT, command, *rest, columns=1000)
    assert shown == forced
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_terminal(USDT, command, *rest, columns=1000, environ=environ) == plain
    assert on_terminal(USDT, command, "--color=never", *rest, columns=1000) == plain


def test_json_has_no_colours() -> None:
    path = build("default", "args")
    shown = on_terminal(USDT, "list", "--json", "--color", "always", path)
    assert "\x1b" not in shown
    assert len([*map(json.loads, shown.splitlines())]) > 10


def test_names_of_a_file_cannot_write_to_the_terminal() -> None:
    shown = on_terminal(USDT, "list", build("default", "oddnotes"), columns=200)
    rest = COLOUR.sub("", shown)
    assert "\x1b" not in rest
    assert all(line.isprintable() for line in rest.splitlines())


@pytest.mark.parametrize("command", [USDT, KPROBE], ids=["usdt", "kprobe"])
def test_errors_are_marked(command: str) -> None:
    shown = on_terminal(command, "lost")
    assert "\n\x1b[1;31mError:\x1b[0m No such command 'lost'." in shown
    shown = on_terminal(command, "lost", environ={"NO_COLOR": "1"})
    assert "\nError: No such command 'lost'." in shown
    assert on_terminal(command, "trace", "x:y(").count("\x1b[1;31mError:\x1b[0m ") == 1


def test_the_environment_forces_colours_into_a_pipe() -> None:
    words = [USDT, "list", str(build("default", "args"))]
    environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    done = subprocess.run(
        words, env=environ | {"FORCE_COLOR": "1"}, capture_output=True, text=True, check=True
    )
    assert "\x1b[36margs:count0\x1b[0m" in done.stdout


def test_merged_events_have_the_colours_of_a_trace(tmp_path: Path) -> None:
    hit = {"time": 1, "pid": 7, "tid": 7, "cpu": 0, "comm": "\x1b[2J", "probe": "a:\x1b]b"}
    events = tmp_path / "events.json"
    events.write_text(json.dumps(hit | {"args": {"arg0": "\x1b[31m"}}) + "\n")
    (line,) = [
        line for line in on_terminal(USDT, "merge", events).splitlines() if "\\x1b]b" in line
    ]
    assert re.search(r"  \x1b\[36ma:\\x1b\]b +\x1b\[0m  arg0=", line)
    assert "\x1b" not in COLOUR.sub("", line)
    assert "\x1b" not in run_usdt("merge", events).stdout
