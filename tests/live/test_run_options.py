"""Options of programs, ``usdt run SCRIPT -- --name=value`` and getopt(), and their settings."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fixtures import build
from program_runs import VALUES

from usdt.base.errors import LanguageError, TracingError
from usdt.engine.cli.programs.run import run_program

if TYPE_CHECKING:
    from program_runs import Run

_TEXT = (
    'BEGIN { print((getopt("flag"), getopt("number", 10, "how many"), getopt("word", "x"),'
    ' getopt("on", true), $1, $#)); exit(); }'
)
_GIVEN = {
    (): "(false, 10, x, true, 0, 0)",
    ("--flag", "--number=-5"): "(true, -5, x, true, 0, 0)",
    ("7", "--number=0x10", "--word=a b=c", "--on=False", "--flag=1"): (
        "(true, 16, a b=c, false, 7, 1)"
    ),
    ("--word", "--on=0"): "(false, 10, , false, 0, 0)",
    ("--number=False",): "(false, 0, x, true, 0, 0)",
}


@pytest.mark.parametrize("words", _GIVEN)
def test_what_getopt_returns(run: Run, words: tuple[str, ...]) -> None:
    assert run(_TEXT, *words) == f"{_GIVEN[words]}\n"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("--flag=2", "--flag: expected true or false, found '2'"),
        ("--number=many", "--number: expected a number, found 'many'"),
        ("--number", "--number: expected a number, found nothing"),
        (f"--number={1 << 64}", f"--number: expected a number, found '{1 << 64}'"),
        (
            "--nubmer=1",
            (
                "--nubmer: the program asks for no such option; "
                "it takes --flag, --number, --on, --word"
            ),
        ),
    ],
)
def test_options_that_do_not_fit(run: Run, word: str, reason: str) -> None:
    with pytest.raises(TracingError) as caught:
        run(_TEXT, word)
    assert str(caught.value) == reason


def test_options_are_listed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for text, lines in {
        _TEXT: ["  --flag", "  --number=10  how many", "  --on", "  --word=x"],
        "BEGIN { exit(); }": ["  none"],
    }.items():
        assert run_program({**VALUES, "text": text, "words": ("--help",)}) == 0
        assert capsys.readouterr().out.splitlines() == ["Options of the program:", *lines]
    assert run('BEGIN { print(getopt("help", 1)); exit(); }', "--help=5") == "5\n"


def test_defaults_are_constants(run: Run) -> None:
    with pytest.raises(LanguageError, match="the default of getopt"):
        run('BEGIN { print(getopt("a", pid)); }')
    with pytest.raises(TracingError, match=r"no such option with getopt\(\)"):
        run("BEGIN { exit(); }", "--a=1")


@pytest.mark.parametrize(
    ("config", "environment", "shown"),
    [
        ("", None, r"main\+\d+"),
        ("config = { stack_mode = raw }", None, "[0-9a-f]+"),
        ("config = { BPFTRACE_STACK_MODE = raw }", "perf", r"[0-9a-f]+ main\+\d+.*"),
        ("", "raw", "[0-9a-f]+"),
    ],
)
def test_how_stacks_are_shown(
    run: Run,
    config: str,
    environment: str | None,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if environment is not None:
        monkeypatch.setenv("BPFTRACE_STACK_MODE", environment)
    path = build("default", "loop")
    text = f"{config} uprobe:{path}:main {{ print(ustack(1)); exit(); }}"
    assert re.fullmatch(shown, run(text, command=f"{path} -q -n 1").strip())


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("MAX_STRLEN", "abc", "takes a number from 1 to 16384, not 'abc'"),
        ("MAX_STRLEN", "0", "takes a number from 1 to 16384, not '0'"),
        ("MAX_STRLEN", "9" * 5000, "takes a number from 1 to 16384"),
        ("STRLEN", "16385", "takes a number from 1 to 16384, not '16385'"),
        ("PRINT_MAPS_ON_EXIT", "2", "takes a number from 0 to 1, not '2'"),
        ("STACK_MODE", "junk", "is one of bpftrace, perf, raw, build_id, not 'junk'"),
    ],
)
def test_variables_of_the_environment_that_do_not_fit(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(f"BPFTRACE_{variable}", value)
    with pytest.raises(TracingError) as caught:
        run("BEGIN { exit(); }")
    assert f"BPFTRACE_{variable} {reason}" in str(caught.value)


def test_names_of_settings_that_bpftrace_had(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "print((config().max_strlen, config().max_map_keys, config().max_cat_bytes))"
    given = "config = { strlen = 7; map_keys_max = 8; cat_bytes_max = 9 }"
    assert run(f"{given} BEGIN {{ {asked}; exit(); }}") == "(7, 8, 9)\n"
    monkeypatch.setenv("BPFTRACE_STRLEN", "70")
    monkeypatch.setenv("BPFTRACE_MAP_KEYS_MAX", "80")
    monkeypatch.setenv("BPFTRACE_CAT_BYTES_MAX", "90")
    assert run(f"{given} BEGIN {{ {asked}; exit(); }}") == "(70, 80, 90)\n"
    monkeypatch.setenv("BPFTRACE_MAX_STRLEN", "700")
    assert run(f"BEGIN {{ {asked}; exit(); }}") == "(700, 80, 90)\n"


def test_maps_are_not_printed_by_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BPFTRACE_PRINT_MAPS_ON_EXIT", "false")
    assert run("BEGIN { @a = 1; exit(); }") == ""


def test_an_argument_of_more_than_64_bits(run: Run) -> None:
    number = str(1 << 64)
    with pytest.raises(LanguageError, match=rf"-e:1:15: \$1 is beyond 64 bits: {number}"):
        run("BEGIN { print($1); exit(); }", number)
    assert run("BEGIN { print(str($1)); exit(); }", number) == f"{number}\n"
    assert run("BEGIN { print($1); exit(); }", str((1 << 64) - 1)) == f"{(1 << 64) - 1}\n"


def test_arguments_have_the_types_of_constants(run: Run) -> None:
    text = "BEGIN { print($1); print($1 < 0); print(sizeof($1)); $x = $1; print($x - 1); exit(); }"
    assert run(text, "-5") == "-5\ntrue\n1\n-6\n"
    assert run(text, str(-(1 << 63))).startswith(f"{-(1 << 63)}\ntrue\n8\n")
    assert run(text, "300") == "300\nfalse\n2\n299\n"


@pytest.mark.parametrize("words", [("-e",), ("-qe",), ("-e", "BEGIN { }", "--output"), ("-c",)])
def test_an_option_without_its_value(words: tuple[str, ...]) -> None:
    command = Path(sys.executable).with_name("usdt")
    done = subprocess.run([command, "run", *words], capture_output=True, text=True, check=False)
    option = f"-{words[-1][-1]}" if words[-1] != "--output" else "--output"
    assert done.stderr.splitlines()[-1] == f"Error: Option '{option}' requires an argument."
    assert done.returncode == 2
