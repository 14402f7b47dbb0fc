"""kprobe.attach and kprobe.Session: the kernel's places for Python callers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

import pytest
from tracing_tools import leftovers, until

import kprobe
import usdt
from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.engine.runtime.attach.attach_points import syscall_registers

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies")

EXEC = "tracepoint:sched:sched_process_exec(filename, pid)"
_SHOP = """
import os, sys
from usdt import Provider
shop = Provider("mixed")
probe = shop.probe("it", int)
shop.load()
print("ready", flush=True)
sys.stdin.readline()
probe.fire(1); os.getppid(); probe.fire(2)
sys.stdin.readline()
"""


@pytest.fixture
def syscalls() -> None:
    """A CPU on which system calls are found by number."""
    syscall_registers()


@pytest.fixture
def program(providers: None) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", _SHOP]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, text=True, bufsize=1, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_tracepoint_of_every_process() -> None:
    with kprobe.attach(EXEC) as events:
        done = subprocess.Popen(["/bin/true"])
        done.wait()

        def ours() -> kprobe.Event | None:
            return next((e for e in events.poll(0.1) if e.pid == done.pid), None)

        event = until(ours, "the start of /bin/true")
    assert event.probe == "tracepoint:sched:sched_process_exec"
    assert event.args["filename"].endswith("/true")
    assert event.args["pid"] == done.pid
    assert isinstance(event, usdt.Event)


def test_a_command_and_its_children_until_they_end() -> None:
    words = ["sh", "-c", "/bin/true; /bin/true; :"]
    with kprobe.attach(EXEC, command=words, follow=True) as events:
        found = list(events)
    assert [event.args["filename"] for event in found] == ["/bin/true"] * 2
    assert len({event.pid for event in found}) == 2
    assert events.ended


def test_one_process_and_system_calls_by_name(
    syscalls: None, program: subprocess.Popen[str]
) -> None:
    with kprobe.attach("syscall:getppid(return)", pid=program.pid) as events:
        os.getppid()  # not ours to see
        assert program.stdin is not None
        program.stdin.write("\n")
        (event,) = until(lambda: events.poll(0.1), "the call")
    assert event.pid == program.pid
    assert event.args == {"return": os.getpid()}


@pytest.mark.parametrize("attach", [kprobe.attach, usdt.attach], ids=["kprobe", "usdt"])
def test_probes_of_files_and_of_the_kernel_are_one_stream(
    syscalls: None, attach: object, program: subprocess.Popen[str]
) -> None:
    probes = ("usdt:mixed:it(arg0)", "syscall:getppid")
    with attach(*probes, pid=program.pid) as events:  # type: ignore[operator]
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.write("\n")
        found = list(events)  # until the process has ended
    assert [event.probe for event in found] == ["mixed:it", "syscall:getppid", "mixed:it"]
    assert [event.time for event in found] == sorted(event.time for event in found)


def test_callbacks_and_asyncio() -> None:
    seen: list[kprobe.Event] = []
    command = ["sh", "-c", "exec /bin/true"]
    with kprobe.attach(EXEC, on_event=seen.append, command=command) as events:
        assert events.run(20) == len(seen) == 1

    async def first() -> kprobe.Event:
        with kprobe.attach(EXEC, command=command) as events:
            async for event in events:
                return event
        raise AssertionError("nothing came")

    assert asyncio.run(first()).args["filename"].endswith("/true")


def test_a_session_counts_and_measures(syscalls: None) -> None:
    me = os.getpid()
    with kprobe.Session(pid=me) as session:
        calls = session.count("syscall:getppid", by="tid")
        times = session.latency("syscall:getppid", "syscall:getppid(return > 0)")
        spread = session.latency("syscall:getppid", "syscall:getppid(return > 0)", hist=True)
        seen: list[int] = []
        session.on("syscall:getppid(return)", lambda event: seen.append(event.args["return"]))
        for _ in range(20):
            os.getppid()
        session.run(0.1)
    assert calls == {threading.get_native_id(): 20}
    (value,), (histogram,) = times.values(), spread.values()
    assert value.count == histogram.count == 20
    assert 0 < value.min <= value.average <= value.max
    assert all(high == 2 * low >= 128 for low, high in histogram)
    assert seen == [os.getppid()] * 20


def test_a_start_and_its_end_may_name_their_key_apart(syscalls: None) -> None:
    with kprobe.Session(pid=os.getpid()) as session:
        seek = "_llseek" if KERNEL_WORD_SIZE == 4 else "lseek"
        times = session.latency(f"syscall:{seek}", "syscall:dup3", key="fd", end_key="oldfd")
        with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
            os.lseek(other.fileno(), 0, os.SEEK_SET)
            os.dup2(other.fileno(), one.fileno(), inheritable=False)
        assert [value.count for value in times.values()] == [1]


def test_calls_made_while_it_attaches_spoil_nothing(syscalls: None) -> None:
    words = [sys.executable, "-c", "import os\nwhile True: os.getppid()"]
    with subprocess.Popen(words) as busy:
        try:
            with kprobe.Session(pid=busy.pid) as session:
                times = session.latency("syscall:getppid", "syscall:getppid(return)")
                (value,) = until(lambda: [*times.values()], "a call that was measured")
        finally:
            busy.kill()
    assert value.count


def test_close_in_another_thread_ends_the_iteration() -> None:
    with kprobe.attach(EXEC) as events:
        timer = threading.Timer(0.2, events.close)
        timer.start()
        list(events)
        timer.join()
    assert events.ended


def test_nothing_remains() -> None:
    before = leftovers()
    with kprobe.attach(EXEC), kprobe.Session() as session:
        session.count("tracepoint:sched:sched_process_exec", by="comm")
    until(lambda: not (leftovers() - before), "everything to be gone")


@pytest.mark.parametrize(
    ("probe", "error", "says"),
    [
        pytest.param("tracepoint:sched:nothing", kprobe.ProbeNotFound, "nothing", id="no event"),
        pytest.param("syscall:opnat", kprobe.ProbeNotFound, "openat", id="the nearest call"),
        pytest.param(
            "tracepoint:sched:sched_process_exec(nothing)", kprobe.LanguageError, "nothing",
            id="no field",
        ),
        pytest.param("tracepoint:sched(", kprobe.LanguageError, "column", id="no probe"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(probe: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        kprobe.attach(probe)


def test_a_process_that_is_not_there() -> None:
    with pytest.raises(kprobe.TargetError, match="no process 999999999"):
        kprobe.attach(EXEC, pid=999_999_999)
