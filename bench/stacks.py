"""What a stack as a key costs: of 20 frames, by unwind tables and by frame pointers."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

__all__ = ("stacks",)

USDT = Path(sys.executable).parent / "usdt"
BPFTRACE = shutil.which("bpftrace")
_FRAMES = 15  # of the program; the C library adds three, and main() and the probed function are two
_SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static volatile int sink;
__attribute__((noinline)) void leaf(int n) { __asm__ volatile("" :: "r"(n) : "memory"); sink += n; }
__attribute__((noinline)) int deep(int n, int calls)
{
    int found = 0;
    if (n)
        found = deep(n - 1, calls);
    else
        for (int i = 0; i < calls; i++)
            leaf(i);
    sink += found;
    return found + 1;
}
int main(int argc, char **argv)
{
    int calls = atoi(argv[2]);
    struct timespec a, b;
    getchar();
    clock_gettime(CLOCK_MONOTONIC, &a);
    sink += deep(atoi(argv[1]) - 1, calls);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%.3f\\n", ((b.tv_sec - a.tv_sec) * 1e9 + b.tv_nsec - a.tv_nsec) / calls);
}
"""


def _tools(program: Path, pid: int) -> dict[str, tuple[list[str], str]]:
    # Name → words, and what the tool prints when it traces.
    probe = f"uprobe:{program}:leaf"
    ours = [str(USDT), "count", "-p", str(pid), probe]
    found = {
        "usdt, no stack": (ours, "tracing"),
        "usdt, unwind tables": ([*ours, "--by", "ustack", "--unwind", "dwarf"], "tracing"),
        "usdt, frame pointers": ([*ours, "--by", "ustack", "--unwind", "fp"], "tracing"),
    }
    if BPFTRACE:
        script = f'BEGIN {{ printf("tracing\\n"); }} {probe} {{ @[ustack] = count(); }}'
        words = [BPFTRACE, "-p", str(pid), "-e", script]
        found["bpftrace, frame pointers"] = (words, "tracing")
    return found


def _one_run(program: Path, name: str, calls: int) -> tuple[float, float]:
    # Nanoseconds of a call, and seconds until the tool traced.
    command = [str(program), str(_FRAMES), str(calls)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        words, sign = _tools(program, process.pid)[name]
        began = time.monotonic()
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as tool:
            if tool.stdout is None:
                sys.exit("bench: no pipe to the tool")
            for line in tool.stdout:
                if line.startswith(sign):
                    break
            ready = time.monotonic() - began
            spent = float(process.communicate("\n")[0])
            tool.terminate()
            tool.communicate()
            return spent, ready


def stacks(number: int, rounds: int) -> None:
    """Measure the cost of a stack as a key, and print it."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "stacks")
        source = Path(folder, "stacks.c")
        source.write_text(_SOURCE)
        flags = ("-O2", "-w", "-fomit-frame-pointer", "-fno-optimize-sibling-calls")
        subprocess.run(["gcc", *flags, "-o", program, source], check=True)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in _tools(program, 0)}
        for _ in range(rounds):
            for name, results in found.items():
                results.append(_one_run(program, name, number))
    print(f"cost of a stack of 20 frames as a key: {number:,} hits, median of {rounds} rounds")
    plain = statistics.median(spent for spent, _ in found["usdt, no stack"])
    for name, results in found.items():
        spent = statistics.median(one for one, _ in results)
        ready = statistics.median(one for _, one in results)
        more = f"{spent - plain:+9.1f} ns" if name != "usdt, no stack" else ""
        print(f"  {name:25} {spent:9.1f} ns {more:13} ready after {ready:.2f} s")
