"""Spans beside the tools of bcc that do the same job, on the same process with the same work.

They run in turn: bcc attaches to USDT probes without their semaphore, and to functions with a
reference counter that is none; the kernel then refuses every other tracer at that place. So the
program has a Python and a C library of its own, where no tracer of other tests finds its way.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from bccpeer import running_tool
from services import Dialogue, backend, running_cluster
from skips import need_program
from tracing_tools import until, usdt

from usdt.procfs.maps import read_maps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.root

_PYTHON = "/usr/bin/python3.11"
_PROGRAM = """
import cProfile, gc, os, socket, sys, threading

def inner(number):
    return number + 1

def outer(number):
    return inner(inner(number))

def resolve():
    for host in ("localhost", "127.0.0.1"):
        socket.getaddrinfo(host, 80)

def write():
    reader, writer = os.pipe()
    for size in (65537, 65538, 65539):
        late = threading.Timer(0.05, os.read, (reader, 1 << 20))
        os.write(writer, bytes(10))
        late.start()
        os.write(writer, bytes(size))
        late.join()
        os.read(reader, 1 << 20)

def collect():
    kept = [[number] for number in range(200_000)]
    for _ in range(3):
        gc.collect()

def call():
    # Not cProfile.runctx(): it imports pstats to print, thousands of calls, and uflow loses some.
    cProfile.Profile().runctx("outer(1); outer(2)", globals(), {})

gc.disable()
print("ready", flush=True)
for line in sys.stdin:
    globals()[line.strip()]()
    print("done", flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Dialogue]:
    """A program that does what it is told."""
    python = shutil.copy(need_program(_PYTHON, "python3.11"), tmp_path)
    (libc,) = {one.path for one in read_maps(os.getpid()) if one.path.endswith("/libc.so.6")}
    shutil.copy(libc, tmp_path)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    with Dialogue(python, "-c", _PROGRAM, env=environment) as started:
        started.hear("ready")
        yield started


def told(program: Dialogue, what: str) -> Callable[[], None]:
    """Return a function that tells the program what to do, and waits until it is done."""

    def work() -> None:
        program.say(what)
        program.hear("done")

    return work


def theirs(
    work: Callable[[], None], count: int, row: str, name: str, ready: str, *words: object
) -> list[tuple[str, ...]]:
    """The groups of the lines of a tool that match ``row``: so many, while work is done."""
    with running_tool(name, ready, *words) as tool:
        work()
        rows = lambda: [m.groups() for line in tool.lines if (m := re.match(row, line))]  # noqa: E731
        until(lambda: len(rows()) >= count, f"{count} lines of {name}, not {tool.lines}")
        return rows()  # it is killed: some end by no other signal


def ours(work: Callable[[], None], *words: object) -> list[dict[str, Any]]:
    """The spans while work is done."""
    with usdt("spans", "--json", *words) as tool:
        tool.wait_tracing()
        work()
        return tool.stop()


def milliseconds(spans: list[dict[str, Any]]) -> list[float]:
    return [span["duration"] / 1e6 for span in spans]


def test_dbslower_shows_the_same_statements() -> None:
    with running_cluster() as cluster, cluster.session() as session:
        pid = backend(session)

        def work() -> None:
            for number in range(3):
                session.say("select 'fast';")
                session.say(f"select 'slow {number}' from pg_sleep(0.05);")
                session.hear(f"slow {number}")

        words = ("postgres", "-p", pid, "-m", 40)
        rows = theirs(
            work, 3, rf"[\d.]+ +{pid} +([\d.]+) b.(.*).$", "dbslower-bpfcc", "Tracing", *words
        )
        ends = ("postgresql:query__start(str(arg0))", "postgresql:query__done")
        spans = ours(work, "-p", pid, *ends, "--slower", "40ms")
    assert [text for _, text in rows] == [span["args"]["str(arg0)"] for span in spans]
    assert len(spans) == 3
    assert min(*(float(time) for time, _ in rows), *milliseconds(spans)) >= 50


def test_gethostlatency_shows_the_same_names(program: Dialogue) -> None:
    work = told(program, "resolve")
    row = r"[\d:]+ +\d+ +\S+ +[\d.]+ (.*)$"
    rows = theirs(work, 2, row, "gethostlatency-bpfcc", "TIME", "-p", program.pid)
    spans = ours(work, "-p", program.pid, "uprobe:libc:getaddrinfo(str(arg0), return)")
    assert [host for (host,) in rows] == [span["args"]["str(arg0)"] for span in spans]
    assert len(spans) == 2


def test_funcslower_shows_the_same_writes(program: Dialogue, tmp_path: Path) -> None:
    work = told(program, "write")
    row = r"\S+ +\d+ +([\d.]+) +(\S+) \S+:write"
    words = ("-p", program.pid, "-m", 30, f"{tmp_path}/libc.so.6:write")
    rows = theirs(work, 3, row, "funcslower-bpfcc", "Tracing", *words)
    spans = ours(work, "-p", program.pid, "uprobe:libc:write(arg2, return)", "--slower", "30ms")
    written = [span["end_args"]["return"] for span in spans]
    assert [int(result, 16) for _, result in rows] == written == [65537, 65538, 65539]
    assert min(*(float(time) for time, _ in rows), *milliseconds(spans)) >= 30


def test_ugc_shows_the_same_collections(program: Dialogue) -> None:
    work = told(program, "collect")
    words = ("-l", "python", "-M", 1, program.pid)
    rows = theirs(work, 3, r"[\d.]+ +([\d.]+) +None", "ugc", "Tracing", *words)
    ends = ("python:gc__start(arg0)", "python:gc__done(arg0)")
    spans = ours(work, "-p", program.pid, *ends, "--slower", "1ms")
    assert [span["args"]["arg0"] for span in spans] == [2] * 3
    assert len(rows) == 3
    assert min(*(float(time) / 1000 for (time,) in rows), *milliseconds(spans)) >= 1


def test_uflow_shows_the_same_calls(program: Dialogue) -> None:
    work = told(program, "call")
    row = r"\d+ +\d+ +\d+ +[\d.]+ ( +)-> <string>\.(inner|outer) "
    rows = theirs(work, 6, row, "uflow", "CPU", "-l", "python", program.pid)
    ends = ('python:function__entry(str(arg1), str(arg1) == "*er")', "python:function__return")
    spans = ours(work, "-p", program.pid, *ends, "--tree")
    shallowest = min(len(indent) for indent, _ in rows)
    calls = [((len(indent) - shallowest) // 2, name) for indent, name in rows]
    assert calls == [(span["depth"], span["args"]["str(arg1)"]) for span in spans]
    assert calls == [(0, "outer"), (1, "inner"), (1, "inner")] * 2
