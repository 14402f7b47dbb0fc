"""``ppid`` and ``pcomm`` of real processes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from function_programs import calls
from skips import need_program
from streams import read_events
from tracing_tools import KPROBE, run_usdt

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf", "vmlinux_btf")

# A process starts the program from another thread than its first, and stays its parent.
_STARTER = """
import subprocess, sys, threading
def start():
    child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    child.wait()
with open("/proc/self/comm", "w") as file:
    file.write("starter")
thread = threading.Thread(target=start)
thread.start()
thread.join()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calls(tmp_path_factory.mktemp("tasks"))


@pytest.fixture
def starter(tmp_path: Path) -> str:
    path = tmp_path / "starter.py"
    path.write_text(_STARTER)
    return f"{sys.executable} {path}"


def shown(text: str) -> list[dict[str, Any]]:
    return read_events(line for line in text.splitlines() if line.startswith("{"))


def test_the_parent_is_the_process_whose_thread_forked(program: Path, starter: str) -> None:
    probe = f'uprobe:{program}:level(ppid, pcomm, pcomm == "start*", return)'
    done = run_usdt("trace", "--json", "-f", "-c", f"{starter} {program} level", probe)
    events = shown(done.stdout)
    assert len(events) == 10, done.stderr
    (child,) = {event["pid"] for event in events}
    assert str(child) in done.stdout.split()
    (parent,) = {event["args"]["ppid"] for event in events}
    assert parent not in (child, 0)
    assert {event["args"]["pcomm"] for event in events} == {"starter"}


def test_hits_by_parent(program: Path, starter: str) -> None:
    probe = f"uprobe:{program}:level(ppid != 1)"
    command = f"{starter} {program} level"
    done = run_usdt("count", "--json", "--by", "pcomm", "-f", "-c", command, probe)
    (row,) = shown(done.stdout)
    assert (row["key"], row["count"]) == ({"pcomm": "starter"}, 10)


def test_system_calls_have_a_parent() -> None:
    words = "trace", "--json", "-n", "1", "-c", "/bin/true", "syscall:openat(ppid, pcomm, return)"
    with subprocess.Popen([KPROBE, *words], stdout=subprocess.PIPE, text=True) as tool:
        (event,) = shown(tool.communicate()[0])
    assert event["args"]["ppid"] == tool.pid
    assert event["args"]["pcomm"] == "kprobe"


def test_in_a_pid_namespace(program: Path, starter: str) -> None:
    need_program("unshare", "util-linux")
    before = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    probe = f"uprobe:{program}:level(ppid, pcomm)"
    words = "trace", "--json", "-f", "-c", f"{starter} {program} level", probe
    events = shown(run_usdt(*words, before=before).stdout)
    assert len(events) == 10
    assert {(event["args"]["ppid"], event["args"]["pcomm"]) for event in events} == {(2, "starter")}
