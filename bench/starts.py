"""CPU time of commands that trace nothing, from start to exit, beside a bare interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_RUNS = 5  # in each round
# As in bench.py, a bare interpreter starts the command: its children are this one alone.
_LAUNCHER = """
import os, sys
nothing = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_WRONLY, 0) for fd in (1, 2)]
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=nothing)
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime)
"""


def starts(rounds: int, program: Path) -> None:
    """Print the CPU time of the cheapest of many runs: what else the machine does only adds to it.

    Args:
        rounds: of :data:`_RUNS` runs of each command, in turn.
        program: a program with a probe.
    """
    folder = Path(sys.executable).parent
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "usdt --help": [str(folder / "usdt"), "--help"],
        "usdt list FILE": [str(folder / "usdt"), "list", str(program)],
        "usdt info FILE": [str(folder / "usdt"), "info", str(program)],
        "kprobe info tcp_sendmsg": [str(folder / "kprobe"), "info", "tcp_sendmsg"],
    }
    best: dict[str, float] = {}
    for _ in range(rounds * _RUNS):
        for name, command in commands.items():
            seconds = _cpu_seconds(command)
            if seconds is not None:
                best[name] = min(best.get(name, seconds), seconds)
    print(f"start to exit, CPU time: cheapest of {rounds * _RUNS} runs")
    for name, seconds in best.items():
        print(f"  {name:23} {seconds * 1000:5.0f} ms")


def _cpu_seconds(command: Sequence[str]) -> float | None:
    # None if it fails: a kernel may have no BTF.
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *command]
    words = subprocess.run(launcher, capture_output=True, text=True, check=True).stdout.split()
    return None if int(words[0]) else float(words[1])
