"""What it costs to name the frames of stacks: a million of 50 processes, in stacks of 20.

    python bench/frames.py DISTINCT         one case: so many addresses of each process

The addresses are random ones in the code of all files that an interpreter maps. Each case runs in
a process of its own, whose CPU time and largest resident set are told.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("frames",)

PROCESSES = 50
FRAMES = 1_000_000
DEPTH = 20
CASES = (4, 400, 20_000)  # distinct addresses of a process
_PROGRAM = "import ctypes, sqlite3, ssl, sys; print('ready', flush=True); sys.stdin.read()"


@contextlib.contextmanager
def _interpreters(number: int) -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        words = [sys.executable, "-I", "-S", "-c", _PROGRAM]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started = [
            stack.enter_context(subprocess.Popen(words, text=True, **pipes))  # type: ignore[call-overload]
            for _ in range(number)
        ]
        for one in started:
            one.stdout.readline()
        yield [one.pid for one in started]
        for one in started:
            one.communicate()


def _addresses(pid: int, number: int, chance: random.Random) -> array[int]:
    # Random addresses in the executable parts of mapped files.
    from usdt.procfs.maps import read_maps  # noqa: PLC0415 - the other process needs none of it

    code = [one for one in read_maps(pid) if one.executable and one.inode]
    sizes = [one.end - one.start for one in code]
    found: set[int] = set()
    while len(found) < number:
        (one,) = chance.choices(code, sizes)
        found.add(chance.randrange(one.start, one.end))
    return array("Q", chance.sample(sorted(found), number))


def _measure(distinct: int) -> None:
    from usdt.symbolize import Symbolizer  # noqa: PLC0415

    chance = random.Random(1)  # noqa: S311 - not for secrets
    with _interpreters(PROCESSES) as pids, Symbolizer(track_mappings=True) as symbolizer:
        addresses = {pid: _addresses(pid, distinct, chance) for pid in pids}
        stacks = FRAMES // PROCESSES // DEPTH
        unnamed = 0
        base, began = _resident("VmRSS"), time.process_time()
        for number in range(stacks):
            at = number * DEPTH
            for pid in pids:
                known = addresses[pid]
                stack = [known[(at + depth) % distinct] for depth in range(DEPTH)]
                unnamed += sum(not one.symbol for one in symbolizer.frames(pid, stack))
        spent = time.process_time() - began
        most = _resident("VmHWM")
    print(json.dumps({"seconds": spent, "base": base, "most": most, "unnamed": unnamed}))


def _resident(field: str) -> float:
    # MiB. VmHWM begins at execve(2), which ru_maxrss does not.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


def frames(rounds: int) -> None:
    """Measure every case, and print the best of some rounds."""
    print(f"{FRAMES:,} frames of {PROCESSES} processes: best of {rounds} rounds")
    for distinct in CASES:
        command = [sys.executable, __file__, str(distinct)]
        found = [
            json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            for _ in range(rounds)
        ]
        best = min(found, key=lambda one: one["seconds"])
        print(
            f"  {distinct * PROCESSES:9,} different addresses: {best['seconds']:6.2f} s of CPU,"
            f" {best['most']:6.1f} MiB at most ({best['base']:.1f} before),"
            f" {best['unnamed'] / FRAMES:.0%} without a name"
        )


if __name__ == "__main__":
    _measure(int(sys.argv[1]))
