"""``top`` as a user runs it: its tables, and the terminal after it."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from fixtures import build, start
from skips import need_program

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root
_USDT = [sys.executable, "-m", "usdt"]
_KPROBE = [sys.executable, "-m", "kprobe"]


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
    busy = [sys.executable, "-c", "import os\nwhile 1: os.getppid()"]
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
    need_program("tmux", "tmux")
    tmux = ["tmux", "-S", str(tmp_path / "tmux")]

    def shown(text: str) -> str:
        for _ in range(300):
            screen = subprocess.run(
                [*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True
            ).stdout
            if text in screen:
                return screen
            time.sleep(0.1)
        raise AssertionError(screen)

    top = shlex.join([*_KPROBE, "top", "syscall:*", "-i", "0.2"])
    script = f"trap : INT; echo be''fore; {top}; echo af''ter; sleep 100"
    subprocess.run(
        [*tmux, "new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", script], check=True
    )
    try:
        assert "before" not in shown("RATE/s")
        subprocess.run([*tmux, "resize-window", "-x", "60", "-y", "10"], check=True)
        assert len(shown("probes hit").splitlines()) <= 10
        subprocess.run([*tmux, "send-keys", "C-c"], check=True)
        screen = shown("after")
        assert "before" in screen
        assert "RATE/s" not in screen
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
