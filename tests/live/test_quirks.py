"""Probes that do not fire, or not always: what is said of them, and that it is so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from java_programs import compiled, java
from service_processes import PYTHON
from services import Dialogue
from skips import need_program, requires_root
from tracing_tools import run_usdt, usdt

from usdt.runtimes.quirks import find_quirks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [requires_root, pytest.mark.usefixtures("ringbuf", "cookies")]

_OPTIONS = {
    "DTraceMethodProbes": {"method__entry", "method__return"},
    "DTraceAllocProbes": {"object__alloc"},
    "DTraceMonitorProbes": {
        *("monitor__contended__enter", "monitor__contended__entered", "monitor__contended__exit"),
        *("monitor__wait", "monitor__waited", "monitor__notify", "monitor__notifyAll"),
    },
}
# A loop that runs before tracing begins, and calls from C and from Python.
_CALLS = """
import sys
def inner(n):
    return n + 1
def outer(n):
    return inner(n) + 1
print("ready", flush=True)
for line in sys.stdin:
    for n in range(5):
        outer(n)
    list(map(outer, range(5)))
    print("done", flush=True)
"""


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("java"), "Contends")


@pytest.fixture
def python() -> Iterator[Dialogue]:
    with Dialogue(need_program(PYTHON, "python3.11"), "-c", _CALLS) as running:
        running.hear("ready")
        yield running


# ------------------------------------------------------------ Java


@pytest.mark.parametrize("option", [None, *_OPTIONS])
def test_marked_probes_of_java_do_not_fire_and_others_do(classes: Path, option: str | None) -> None:
    off = [names for one, names in _OPTIONS.items() if one != option]
    silent = {f"hotspot:{name}" for names in off for name in names}
    with java(classes, "Contends", *[f"-XX:+{option}"][: option is not None]) as running:
        listed = run_usdt("list", "--json", "-p", running.pid, "hotspot:*")
        probes = [json.loads(line) for line in listed.stdout.splitlines()]
        marked = {f"hotspot:{one['name']}" for one in probes if "quirks" in one}
        assert marked == silent
        assert all(one["quirks"][0]["fires"] == "never" for one in probes if "quirks" in one)
        words = ("count", "--json", "-d", 1, "-p", running.pid, "hotspot:*")
        with usdt(*words) as tool:
            tool.finish()
    fired = {one["probe"] for one in tool.records if one.get("count")}
    assert "hotspot:gc__begin" in fired
    assert not fired & silent
    if option is not None:
        assert fired & {f"hotspot:{name}" for name in _OPTIONS[option]}
    told = [line for line in tool.errors if " never fire" in line]
    assert len(told) == len(_OPTIONS) - (option is not None), tool.errors


def test_a_probe_that_never_fires_is_named_where_it_is_traced(classes: Path) -> None:
    said = (
        "hotspot:object__alloc never fires in process {}: java was started without"
        " -XX:+DTraceAllocProbes"
    )
    with java(classes, "Contends") as running:
        wanted = said.format(running.pid)
        traced = run_usdt("trace", "-d", "0.1", "-p", running.pid, "hotspot:object__alloc")
        assert wanted in traced.stderr.splitlines()
        checked = run_usdt("check", "-p", running.pid, "hotspot:object__alloc")
        assert checked.returncode == 0  # it attaches and decodes
        assert wanted in checked.stdout
        shown = run_usdt("info", "-p", running.pid, "hotspot:object__alloc").stdout
        assert f"  ! {wanted.removeprefix('hotspot:object__alloc ')}\n" in shown
        table = run_usdt("list", "-p", running.pid, "hotspot:object__alloc").stdout
        assert "\n! hotspot:object__alloc  " in table
        assert table.endswith(f"! {wanted}\n")


def test_a_virtual_machine_that_starts_is_looked_at_when_it_has_read_its_options(
    classes: Path,
) -> None:
    program = f"{need_program('java')} {{}} -cp {classes} Contends"
    for option, told in (("", 1), ("-XX:+DTraceAllocProbes", 0)):
        words = ("-c", program.format(option), "-n", 3, "hotspot:object__alloc", "hotspot:gc__end")
        done = run_usdt("count", *words)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(" never fires in process ") == told, done.stderr


def test_options_of_other_processes_are_not_known(classes: Path) -> None:
    with java(classes, "Contends") as running:
        listed = run_usdt("list", "--json", "-p", running.pid, "hotspot:gc__end").stdout
        path = json.loads(listed)["path"]
        assert find_quirks(path, ["hotspot:object__alloc"], [running.pid])
        assert not find_quirks(f"/elsewhere{path}", ["hotspot:object__alloc"], [running.pid])
    assert not find_quirks(path, ["hotspot:object__alloc"])
    assert not find_quirks(path, ["hotspot:object__alloc"], [running.pid])  # it has ended
    assert not find_quirks("/usr/bin/python3.12", ["python:function__entry"])


# ------------------------------------------------------------ Python 3.11

_REASON = "Python 3.11 fires it only while python:line is traced or the program profiles itself"
_ENTRY = f"python:function__entry: {_REASON}"


@pytest.mark.parametrize("lines", [False, True], ids=["without line", "with line"])
def test_python_fires_entries_only_while_lines_are_traced(python: Dialogue, *, lines: bool) -> None:
    name = 'str(arg1) == "inner"'
    words = [f"python:function__entry({name})", f"python:function__return({name})"]
    if lines:
        words.append("python:line(arg2 < 0)")
    with usdt("count", "--json", "-p", python.pid, *words) as tool:
        tool.wait_tracing()
        python.say("go")
        python.hear("done")
        tool.process.send_signal(2)
        tool.finish()
    counts = {one["probe"]: one["count"] for one in tool.records if "count" in one}
    assert counts["python:function__return"] == 10
    assert counts.get("python:function__entry", 0) == (10 if lines else 0)
    assert (_ENTRY in tool.errors) is not lines


def test_ends_without_a_start_have_the_reason(python: Dialogue) -> None:
    for command in ("spans", "latency"):
        pair = ("python:function__entry", "python:function__return")
        with usdt(command, "-p", python.pid, *pair) as tool:
            tool.wait_tracing()
            python.say("go")
            python.hear("done")
            tool.process.send_signal(2)
            tool.finish()
        assert f"ends without a start: {_ENTRY}" in tool.errors, command


def test_python_is_marked_in_files() -> None:
    table = run_usdt("list", need_program(PYTHON, "python3.11")).stdout
    assert table.endswith(f"! {_ENTRY}\n")
    assert table.count("\n! ") == 2
    shown = run_usdt("info", PYTHON, "python:function__entry").stdout
    assert "\n  ! Python 3.11 fires it only while" in shown
    (probe,) = map(
        json.loads,
        run_usdt("check", "--json", PYTHON, "python:function__entry").stdout.splitlines(),
    )
    assert probe["ok"]
    assert probe["quirks"] == [{"fires": "sometimes", "reason": _REASON}]
