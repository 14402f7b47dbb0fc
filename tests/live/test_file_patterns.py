"""Processes by their names, and probes in every file that a pattern selects."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from fixtures import Fixture, build, start
from tracing_tools import run_usdt, usdt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def ready(program: Path) -> Iterator[Fixture]:
    """A copy of args that waits to fire its probes twice."""
    with start(program, "-w", "-n", 2) as fixture:
        yield fixture.wait_ready()


def test_a_process_by_its_name_and_functions_in_any_of_its_files(tmp_path: Path) -> None:
    program = tmp_path / "named-args-1.0"
    shutil.copy(build("default", "args"), program)
    with ready(program) as one, ready(program) as two:
        with usdt("trace", "--json", "-p", "named-args", "named*:args:count3(arg0)") as tool:
            tool.wait_tracing()
            one.fire()
            two.fire()
            events = tool.wait_events(4)
            tool.stop()
        assert {event["pid"] for event in events} == {one.pid, two.pid}
        done = run_usdt("count", "-v", "-d", "0.1", "-p", one.pid, "uprobe:*:getenv")
        assert "libc.so" in done.stdout
        assert "tracing 1 site; end" in done.stderr
        done = run_usdt("count", "-d", "0.1", "-p", one.pid, "uprobe:named*:no_such_function")
        assert f"in files named* of process {one.pid} yet: waiting for a library" in done.stderr
        assert run_usdt("trace", "-p", "named-arg", "a:b").stderr == (
            "Error: -p named-arg: no process of this name; did you mean named-args-1.0?\n"
        )


def test_probes_in_every_program_that_a_path_with_a_star_selects(tmp_path: Path) -> None:
    for name in ("test_1", "test_2"):
        shutil.copy(build("default", "args"), tmp_path / name)
    (tmp_path / "test_3").write_text("not a program")
    with (
        ready(tmp_path / "test_1") as one,
        ready(tmp_path / "test_2") as two,
        usdt("trace", "--json", f"{tmp_path}/test_*:args:count3(arg0)") as tool,
        usdt("count", "--json", f"uprobe:{tmp_path}/t*:main") as functions,
    ):
        assert tool.wait_tracing().sites == functions.wait_tracing().sites == 2
        one.fire()
        two.fire()
        assert {event["pid"] for event in tool.wait_events(4)} == {one.pid, two.pid}
        tool.stop()
    for words in (("list", f"{tmp_path}/t*"), ("info", f"{tmp_path}/t*:args:count3")):
        assert run_usdt(*words).stdout.count(f"{tmp_path}/test_") == 2
    done = run_usdt("trace", f"uprobe:{tmp_path}/t*:no_such_function")
    assert f"no function no_such_function in files {tmp_path}/t* of the files" in done.stderr
