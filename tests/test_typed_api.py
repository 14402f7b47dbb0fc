"""What the type checker of a caller knows of events and aggregates, and what a value says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import usdt

ROOT = Path(__file__).resolve().parent.parent
_MYPY = ROOT / "tools/mypy.sh"
_CALLER = """
from typing import Any, assert_type
import kprobe
import usdt

def use(event: usdt.Event, session: usdt.Session, span: kprobe.Span) -> None:
    assert_type(event.args["arg0"], usdt.EventValue)
    assert_type(event.value("arg0", int), int)
    assert_type(span.value("str(arg0)", str), str)
    assert_type(session.count("p:n")["p:n"], int)
    assert_type(session.stats("p:n(arg0)")["p:n"], usdt.Value)
    assert_type(session.hist("p:n(arg0)")["p:n"], usdt.Histogram)
    assert_type(session.latency("p:a", "p:b", key="arg0")["p:b"], usdt.Value)
    assert_type(session.latency("p:a", "p:b", hist=True)["p:b"], usdt.Histogram)
    assert_type(session.latency("p:a", "p:b", linear="0:9:1")["p:b"], usdt.Histogram)
    assert_type(dict(kprobe.Session().count("vfs_read")), dict[Any, int])
    for name, value in session.count("p:n", by="str(arg0)").items():
        assert_type(value, int)
    print(event.args["arg0"] + 1)  # it may be unreadable
"""


def test_types_that_a_caller_sees(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="needs mypy, of the development tools")
    path = tmp_path / "caller.py"
    path.write_text(_CALLER)
    words = [_MYPY, sys.executable, "-m", "mypy", "--strict", path]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert errors, done.stdout + done.stderr
    unreadable = _CALLER[: _CALLER.index("    print(")].count("\n") + 1
    assert {int(line.split(":")[1]) for line in errors} == {unreadable}


def test_checkouts_share_what_the_checker_has_found_where_it_can_be_kept(tmp_path: Path) -> None:
    kept = tmp_path / "usdt-toolkit/mypy"
    for home, words in ((tmp_path, f"--strict --cache-dir {kept}\n"), ("/dev/null", "--strict\n")):
        done = subprocess.run(
            [_MYPY, "echo", "--strict"],
            env=os.environ | {"XDG_CACHE_HOME": str(home)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert (done.stdout, done.stderr) == (words, "")
    assert kept.is_dir()


def event(**args: usdt.EventValue) -> usdt.Event:
    return usdt.Event(1, 2, 3, 0, "comm", "p:n", args)


def test_a_value_has_the_type_that_is_asked_for() -> None:
    one = event(arg0=5, text="GET", nothing=None)
    assert one.value("arg0", int) + 1 == 6
    assert one.value("text", str) == "GET"
    assert one.value("nothing", type(None)) is None
    with pytest.raises(TypeError, match="p:n: text is str 'GET', not int"):
        one.value("text", int)
    with pytest.raises(KeyError, match="arg1"):
        one.value("arg1", int)
    with pytest.raises(usdt.TracingError, match="p:n: arg0 is not readable: memory not readable"):
        event(arg0=usdt.Unreadable("memory not readable")).value("arg0", int)


def test_a_span_has_the_values_of_both_ends() -> None:
    span = usdt.Span(1, 2, 3, 3, 0, "comm", "p:a", "p:b", {"arg0": 1}, {"arg0": 2, "return": -2})
    assert (span.value("arg0", int), span.value("return", int)) == (1, -2)
