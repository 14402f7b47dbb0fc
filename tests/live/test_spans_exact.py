"""Spans begin and end when the program says so, ten thousand of each kind; exceptions in Python."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from exact_program import exact_program
from skips import need_program
from streams import read_events
from tracing_tools import run_usdt

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")

_ROUNDS = 9_990  # divisible by the spans of a round
_PAIR = ("exact:begin", "exact:end")
_PYTHON = "/usr/bin/python3.11"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exact_program(tmp_path_factory.mktemp("exact"))


def measured(
    program: Path, what: str, words: tuple[str, ...]
) -> tuple[dict[int, list[int]], dict[int, dict[str, Any]], str]:
    """The times that the program took, the spans by their ID, and what was said at the end."""
    output = program.parent / f"{what}.json"
    done = run_usdt("spans", "--json", "-o", output, "-c", f"{program} {what} {_ROUNDS}", *words)
    assert done.returncode == 0, done.stderr
    own = {
        int(number): [*map(int, times)]
        for number, *times in map(str.split, done.stdout.splitlines())
    }
    found = read_events(output.read_text())
    spans = {span["args"]["arg0"]: span for span in found}
    assert len(spans) == len(found)
    return own, spans, done.stderr


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("nested", _PAIR),
        ("recursive", _PAIR),
        ("calls", ("uprobe:{}:call(arg0)",)),
        ("interleaved", (*_PAIR, "--key", "arg0")),
        ("threads", (*_PAIR, "--key", "arg0")),
    ],
    ids=["nested", "recursive", "calls", "interleaved", "threads"],
)
def test_every_span_begins_and_ends_at_its_probes(
    program: Path, what: str, words: tuple[str, ...]
) -> None:
    own, spans, said = measured(program, what, tuple(word.format(program) for word in words))
    assert f"{_ROUNDS} events, 0 lost" in said
    assert spans.keys() == own.keys()
    beyond = []
    for number, span in spans.items():
        start, started, end, ended = own[number]
        assert start <= span["time"] <= started, (span, own[number])
        assert end <= span["time"] + span["duration"] <= ended, (span, own[number])
        beyond.append(abs(span["duration"] - (end - started)) - 0.05 * (end - started))
    # A thread may be preempted between a probe and the clock, but rarely is.
    assert sorted(beyond)[len(beyond) // 2] < 5000


_RAISES = """
def inner(number):
    if number % 2:
        raise ValueError(number)

def middle(number):
    inner(number)

def outer():
    for number in range(100):
        try:
            middle(number)
        except ValueError:
            pass

outer()
"""


def test_python_that_raises_loses_no_span(tmp_path: Path) -> None:
    script = tmp_path / "raises.py"
    script.write_text(_RAISES)
    python = need_program(_PYTHON, "python3.11")
    # Python 3.11 tells of entries only while it is profiled.
    command = f"{python} -m cProfile -o /dev/null {script}"
    ends = ('python:function__entry(str(arg0) == "*/raises.py", str(arg1))',)
    ends += ("python:function__return(str(arg1))",)
    done = run_usdt("spans", "--json", "-c", command, *ends)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [span["args"] for span in found] == [span["end_args"] for span in found]
    called = [span["args"]["str(arg1)"] for span in found]
    assert called == ["inner", "middle"] * 100 + ["outer", "<module>"]


def test_imports_that_fail_lose_no_span(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text("import second")
    (tmp_path / "second.py").write_text("import that_is_not_there")
    script = tmp_path / "imports.py"
    script.write_text("try: import first\nexcept ImportError: import colorsys")
    ends = ("python:import__find__load__start(str(arg0))", "python:import__find__load__done(arg1)")
    command = f"{need_program(_PYTHON, 'python3.11')} {script}"
    done = run_usdt("spans", "--json", "-c", command, *ends)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(span["args"]["str(arg0)"], span["end_args"]["arg1"]) for span in found][-4:] == [
        ("that_is_not_there", 0),
        ("second", 0),
        ("first", 0),
        ("colorsys", 1),
    ]
