"""Measure what a hit costs and how fast a trace starts, beside bpftrace, in one run.

    make bench                              all comparisons, and attaching beside libbpf
    make bench BENCH_ARGS='--rounds 7'      more rounds; --hits N; --only NAME

Every round runs each tracer once, in turn, so that a slow minute of the machine hits all of them
alike; where hits are compared, tracers run at once and fire in turn within milliseconds. Medians
and their ratios are printed and nothing is asserted. Every tracer watches a copy of the same
program and writes to a file: the same two arguments of every hit, or what the same aggregation
found.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

from attach import attaching
from cgroups import cgroups
from consumers import consumers
from debuginfo import debug_files
from frames import frames
from hit_cost import cost_of_a_hit
from loop import LOOP, stop
from programs import programs
from providers import providers
from rendering import rendering
from rings import rings
from scale import scale
from spans import spans
from stacks import stacks
from starts import starts
from tracers import BPFTRACE, SCRIPT, USDT, our_aggregation

# This runs between the benchmark and the tracer, because maxrss includes the memory before exec(2)
# and a bare interpreter is smaller than anything measured here.
LAUNCHER = """
import os, sys, time
nothing = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_WRONLY, 0) for fd in (1, 2)]
began = time.monotonic()
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=nothing)
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), time.monotonic() - began, usage.ru_maxrss)
"""


def start_to_exit(command: list[str]) -> tuple[float, float]:
    """Return seconds from start to exit, and the largest resident set in MiB."""
    launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, *command]
    words = subprocess.run(launcher, capture_output=True, text=True, check=True).stdout.split()
    if int(words[0]):
        stop(f"exit code {words[0]} from: {' '.join(command)}")
    return float(words[1]), int(words[2]) / 1024


def start_and_stop(rounds: int) -> None:
    """Measure the start of a trace, and print it."""
    target = f"{LOOP} -n 1"
    commands = {"usdt": [str(USDT), "trace", "-c", target, "loop:hit(arg0, arg1)"]}
    if BPFTRACE:
        commands["bpftrace"] = [BPFTRACE, "-c", target, "-e", SCRIPT % LOOP]
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            results[name].append(start_to_exit(command))
    print(f"start, one event, exit: median of {rounds} rounds")
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in results.items()
    }
    for name, (seconds, size) in medians.items():
        print(f"  {name:13} {seconds * 1000:7.0f} ms   {size:6.1f} MiB at most")
    if "bpftrace" in medians:
        (time_a, size_a), (time_b, size_b) = medians["usdt"], medians["bpftrace"]
        print(f"  usdt / bpftrace: time {time_a / time_b:.2f}, memory {size_a / size_b:.2f}")


def main() -> None:
    """Parse the command line, report what is missing, measure."""
    parser = argparse.ArgumentParser(prog="bench.py", description="usdt beside bpftrace")
    parser.add_argument("--hits", type=int, default=1_000_000, help="hits of one run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each tracer")
    parts = [
        "hit",
        "consumer",
        "cgroup",
        "span",
        "stack",
        "program",
        "start",
        "attach",
        "debuginfo",
        "fire",
        "frames",
        "rings",
    ]
    parser.add_argument("--only", choices=[*parts, "render", "scale"], help="one comparison")
    options = parser.parse_args()
    if os.geteuid():
        stop("tracing needs root")
    if not LOOP.exists():
        stop("the traced program is missing; make testbins builds it (gcc, systemtap-sdt-dev)")
    if BPFTRACE:
        version = subprocess.run(
            [BPFTRACE, "--version"], capture_output=True, text=True, check=False
        )
        print(f"beside {version.stdout.strip()}, Linux {os.uname().release}, {os.cpu_count()} CPUs")
    else:
        print("bpftrace is not installed (apt-get install bpftrace): usdt alone")
    if options.only in (None, "hit"):
        cost_of_a_hit(options.hits, options.rounds)
    if options.only in (None, "consumer"):
        consumers(options.hits * 5, options.rounds)
    if options.only in (None, "cgroup"):
        cgroups(options.hits // 100, options.rounds, our_aggregation)
    if options.only in (None, "span"):
        spans(options.hits // 5, options.rounds)
    if options.only in (None, "stack"):
        stacks(options.hits // 10, options.rounds)
    if options.only in (None, "program"):
        programs(options.hits, options.rounds, start_to_exit)
    if options.only in (None, "start"):
        start_and_stop(options.rounds)
        starts(options.rounds, LOOP)
    if options.only in (None, "attach"):
        attaching(options.rounds)
    if options.only in (None, "debuginfo"):
        debug_files(options.rounds)
    if options.only in (None, "fire"):
        providers(options.rounds)
    if options.only in (None, "frames"):
        frames(options.rounds)
    if options.only in (None, "rings"):
        rings(options.hits, options.rounds)
    if options.only in (None, "render"):
        rendering()
    if options.only in (None, "scale"):
        scale()


if __name__ == "__main__":
    main()
