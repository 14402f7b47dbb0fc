"""``usdt examples``: the programs of examples/, one line each, and their source."""

from __future__ import annotations

import ast

import pytest
from house import ROOT
from tracing_tools import one_error, run_usdt

PROGRAMS = {path.stem: path.read_text() for path in (ROOT / "examples").glob("*.py")}


def test_each_example_has_a_line() -> None:
    done = run_usdt("examples")
    shown = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert list(shown) == sorted(PROGRAMS)
    for name, text in PROGRAMS.items():
        assert shown[name] == (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
    assert done.stderr == "print one with: usdt examples NAME\n"


@pytest.mark.parametrize("name", ["exec_snoop", "exec_snoop.py"])
def test_an_example_is_printed_as_it_is(name: str) -> None:
    done = run_usdt("examples", name)
    assert (done.returncode, done.stdout, done.stderr) == (0, PROGRAMS["exec_snoop"], "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("exec_snop", "; nearest is exec_snoop"), ("zzz", ""), ("../demo", ""), ("a\x1bb", "")],
)
def test_an_unknown_example_is_an_error(name: str, hint: str) -> None:
    error = one_error(run_usdt("examples", name))
    assert error.startswith("no example ")
    assert error.endswith(f"{hint} (list them with: usdt examples)")
