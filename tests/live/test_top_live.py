"""``top`` as a user runs it: its tables, and the terminal after it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fixtures import build, start
from tmux import terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root
_USDT = [sys.executable, "-m", "usdt"]
_KPROBE = [sys.executable, "-m", "kprobe"]
_NEEDS = "needs Textual: pip install 'usdt-toolkit[tui]'"


def test_tables_follow_one_another_where_there_is_no_terminal() -> None:
    with start(build("default", "loop"), "-w", "-q", "-n", 1000) as program:
        probe = f"/proc/{program.pid}/exe:loop:*"
        words = [*_USDT, "top", "-p", str(program.pid), probe, "-n", "100", "-i", "0.2"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as top:
            assert top.stdout is not None
            assert "0 probes hit" in top.stdout.readline()
            program.fire()
            for line in top.stdout:
                if line.startswith("loop:hit"):
                    break
            top.terminate()
            assert " 1000" in line
            assert "\x1b" not in top.stdout.read()
        assert top.returncode == 0


def test_system_calls_have_rates_and_times() -> None:
    busy = [sys.executable, "-c", "import os, time\nwhile 1: os.getppid(); time.sleep(0.001)"]
    with subprocess.Popen(busy) as program:
        try:
            options = [
                "-p",
                str(program.pid),
                "syscall:getppid",
                "--latency",
                "-n",
                "3",
                "-i",
                "0.2",
            ]
            ran = subprocess.run(
                [*_KPROBE, "top", *options], capture_output=True, text=True, timeout=60, check=True
            )
        finally:
            program.kill()
    last = [line for line in ran.stdout.splitlines() if line.startswith("syscall:getppid")][-1]
    assert last.count("ns") + last.count("us") == 2


def test_the_screen_before_comes_back(tmp_path: Path) -> None:
    top = shlex.join([*_KPROBE, "top", "syscall:*", "-i", "0.2", "--plain"])
    script = f"trap : INT; echo be''fore; {top}; echo af''ter $?; sleep 100"
    with terminal(tmp_path, script) as window:
        assert "before" not in window.shown("RATE/s")
        window.resize(60, 10)
        assert len(window.shown("probes hit").splitlines()) <= 10
        window.keys("C-c")
        screen = window.shown("after 0")
        assert "before" in screen
        assert "RATE/s" not in screen


def test_keys_choose_sort_filter_and_pause(tmp_path: Path) -> None:
    pytest.importorskip("textual", reason=_NEEDS)
    with start(build("default", "loop"), "-w", "-q", "-n", 1000) as program:
        probe = f"/proc/{program.pid}/exe:loop:*"
        words = ["top", "-p", str(program.pid), probe, "syscall:*", "-i", "0.2"]
        top = shlex.join([*_USDT, *words])
        script = f"echo be''fore; {top}; echo af''ter $?; sleep 100"
        with terminal(tmp_path, script, 100, 20) as window:
            assert "before" not in window.shown("▼RATE/s", "loop:hit", "syscall:accept")
            program.fire()
            window.shown("loop:hit", " 1000")
            window.keys("s")
            window.shown("▼TOTAL")
            window.keys("/", "h", "i", "t", "Enter")
            window.gone("syscall:")
            window.keys("p")
            window.shown("paused")
            window.keys("?")
            window.shown("any key goes back")
            window.keys("q")
            window.gone("any key goes back")
            window.keys("e")
            window.shown("--filter hit")
            window.keys("Escape")
            window.gone("any key goes back")
            window.resize(60, 10)
            window.shown("loop:hit")
            window.keys("Escape")
            window.shown("syscall:")
            window.keys("q")
            screen = window.shown("after 0")
        assert "before" in screen
        assert "RATE/s" not in screen
        assert "--sort total --filter hit" in screen.replace("\n", "")


def test_interrupt_and_signal_end_it_with_0(tmp_path: Path) -> None:
    pytest.importorskip("textual", reason=_NEEDS)
    top = shlex.join([*_KPROBE, "top", "syscall:*", "-i", "0.2"])
    script = f"trap : INT; {top}; echo first $?; {top}; echo second $?; sleep 100"
    with terminal(tmp_path, script) as window:
        window.shown("RATE/s", "quit")
        window.keys("C-c")
        window.shown("first 0")
        window.shown("RATE/s", "quit")
        shell = window.tell("display-message", "-p", "#{pane_pid}").strip()
        pid = subprocess.run(
            ["pgrep", "-P", shell], capture_output=True, text=True, check=True
        ).stdout.split()[0]
        os.kill(int(pid), signal.SIGTERM)
        assert "RATE/s" not in window.shown("second 0")


def test_without_textual_it_says_how_to_get_keys(tmp_path: Path) -> None:
    program = "import sys; sys.modules['textual'] = None; import kprobe.cli; kprobe.cli.main()"
    top = shlex.join([sys.executable, "-c", program, "top", "syscall:*", "-i", "0.2"])
    script = f"trap : INT; {top}; echo af''ter $?; sleep 100"
    with terminal(tmp_path, script) as window:
        window.shown("RATE/s")
        window.keys("C-c")
        assert "pip install 'usdt-toolkit[tui]'" in window.shown("after 0")
