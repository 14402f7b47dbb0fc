"""One probe of top in detail: what its views show of real programs, and what they leave behind."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build, start
from tmux import terminal
from tracing_tools import until

from kprobe.api import Session as KernelSession
from usdt.engine.api.sessions import Session
from usdt.engine.top.commands import TopOptions
from usdt.engine.top.costs import MORE
from usdt.engine.top.detail import Detail, View
from usdt.engine.top.live import LiveProbes

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.root


def _links() -> list[str]:
    # Descriptors of what is attached.
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return sorted(name for name in found if "bpf" in name or "perf" in name)


def _text(detail: Detail, fire: Callable[[], Any], *wanted: str) -> str:
    # What the view shows once it shows all that is wanted; hits are fired meanwhile.
    shown = ""

    def look() -> bool:
        nonlocal shown
        fire()
        shown = "\n".join(detail.read().lines)
        return all(text in shown for text in wanted)

    until(look, f"{wanted} in the view")
    return shown


def test_views_show_values_histograms_and_stacks_and_leave_nothing() -> None:
    with start(build("default", "strings"), "-w", "-n", 1) as program:
        path = f"/proc/{program.pid}/exe"
        targets = {"pid": [program.pid]}
        with LiveProbes(Session, [f"{path}:strings:*"], targets) as live:
            before = _links()
            detail = Detail(live, "strings:long")
            assert detail.views == (View.VALUES, View.HISTOGRAMS, View.STACKS)
            detail.open(View.VALUES)
            assert "waiting for a hit" in detail.read().lines[0]
            shown = _text(detail, program.fire, "str(arg0)", '"', "arg1")
            assert "hex(arg0)" not in shown
            assert detail.read().nanoseconds == {"strings:long": 2 * MORE}
            detail.open(View.HISTOGRAMS)
            shown = _text(detail, program.fire, "|@", "p99")
            assert shown.startswith("arg1\n")
            detail.open(View.STACKS)
            _text(detail, program.fire, "fire_long+")
            (command,) = detail.commands(TopOptions("usdt", (), (program.pid,)))
            text = f"{path}:strings:long"
            assert command == f"usdt count -p {program.pid} {text} --by ustack --top 10"
            detail.close()
            assert _links() == before


def test_a_system_call_has_its_result_and_its_times() -> None:
    busy = [
        sys.executable,
        "-c",
        "import os, time\nwhile 1: os.listdir('/proc/self'); time.sleep(0.001)",
    ]
    with subprocess.Popen(busy) as program:
        try:
            targets = {"pid": [program.pid]}
            with LiveProbes(KernelSession, ["syscall:openat"], targets) as live:
                detail = Detail(live, "syscall:openat")
                detail.open(View.VALUES)
                _text(detail, lambda: None, '"/proc/self"', "return", "-100")
                detail.open(View.TIMES)
                shown = _text(detail, lambda: None, "|@", "p99")
                assert shown.startswith("from syscall:openat to syscall:openat(return)")
                assert detail.read().nanoseconds == {"syscall:openat": MORE}
                detail.close()
        finally:
            program.kill()


def test_a_refused_part_says_why() -> None:
    with start(build("default", "floats"), "-w", "-n", 1) as program:
        path = f"/proc/{program.pid}/exe"
        with LiveProbes(Session, [f"{path}:floats:*"], {"pid": [program.pid]}) as live:
            names = [row.probe for row in (live.read(), live.table.rows())[1]]
            program.fire()
            detail = Detail(live, names[0])
            detail.open(View.VALUES)
            shown = _text(detail, program.fire, "arg0")
            assert "Traceback" not in shown
            detail.close()


def test_enter_opens_a_probe_and_q_goes_back(tmp_path: Path) -> None:
    pytest.importorskip("textual", reason="needs Textual: pip install 'usdt-toolkit[tui]'")
    with start(build("default", "strings"), "-w", "-n", 1) as program:
        probe = f"/proc/{program.pid}/exe:strings:two"
        words = ["top", "-p", str(program.pid), probe, "-i", "0.2"]
        top = shlex.join([sys.executable, "-m", "usdt", *words])
        script = f"echo be''fore; NO_COLOR=1 {top}; echo af''ter $?; sleep 100"
        with terminal(tmp_path, script) as window:
            window.shown("▼RATE/s", "strings:two")
            window.keys("Enter")
            window.shown("waiting for a hit")
            window.shown('"second"', meanwhile=program.fire)
            window.keys("Right")
            window.shown("there are no histograms", "view")
            window.keys("Right")
            window.shown("fire_all", meanwhile=program.fire)
            window.keys("e")
            window.shown(f"usdt count -p {program.pid}", "ustack")
            window.keys("x")
            window.gone("any key goes back")
            window.keys("q")
            window.shown("▼RATE/s")
            window.keys("C-c")
            screen = window.shown("after 0")
        assert "before" in screen
        assert "--by ustack" in screen.replace("\n", "")
