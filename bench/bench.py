"""Measure what a hit costs and how fast a trace starts, beside bpftrace, in one run.

    make bench                              all comparisons, and attaching beside libbpf
    make bench BENCH_ARGS='--rounds 7'      more rounds; --hits N; --only NAME

Every round runs each tracer once, in turn, so that a slow minute of the machine hits all of them
alike; medians and their ratios are printed and nothing is asserted. Every tracer watches the same
program and writes to a file: the same two arguments of every hit, or what the same aggregation
found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from attach import attaching
from cgroups import cgroups
from debuginfo import debug_files
from programs import programs
from providers import providers
from rendering import rendering
from rings import rings
from scale import scale
from spans import spans
from stacks import stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from resource import struct_rusage
    from typing import IO, BinaryIO

    Watch = Callable[["Loop"], AbstractContextManager["Outcome"]]

ROOT = Path(__file__).resolve().parent.parent
LOOP = ROOT / "testbins/out/default/loop"
USDT = Path(sys.executable).parent / "usdt"
BPFTRACE = shutil.which("bpftrace")
SCRIPT = 'usdt:%s:loop:hit { printf("%%ld %%d\\n", arg0, arg1); }'
ATTACH_SECONDS = 20.0
PARTS = 20  # of the hits of a run
SETTLE_SECONDS = 0.5  # a tracer may attach a second probe at the same place
END_SECONDS = 120.0


def stop(message: str) -> NoReturn:
    """Exit with one line that says why there is nothing to measure."""
    sys.exit(f"bench: {message}")


# --- the traced program -------------------------------------------------------------------------


@dataclass
class Loop:
    """The fixture that does nothing but fire its probe."""

    process: subprocess.Popen[str]
    input: IO[str]
    output: IO[str]

    @classmethod
    def start(cls, hits: int) -> Loop:
        """Start the program, which fires ``hits`` in :data:`PARTS` parts, each when it is told."""
        command = [str(LOOP), "-n", str(max(1, hits // PARTS)), "-w", "-q"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        if process.stdin is None or process.stdout is None:
            stop("no pipes to the traced program")
        loop = cls(process, process.stdin, process.stdout)
        if not loop.read().startswith("ready"):
            stop(f"{LOOP} did not say it was ready")
        return loop

    def read(self) -> str:
        """Return the next line of output."""
        return self.output.readline()

    def fire(self) -> float:
        """Fire all hits; return nanoseconds per hit of the cheapest part: what else runs adds."""
        return min(self._fire_part() for _ in range(PARTS))

    def _fire_part(self) -> float:
        self.input.write("fire\n")
        nanoseconds = float(json.loads(self.read())["ns_per_hit"])
        self.read()  # "done"
        return nanoseconds

    def end(self) -> None:
        """Let the program end, and wait for it."""
        self.process.communicate()

    def has_breakpoints(self, offsets: list[int]) -> bool:
        """Whether the kernel has changed the instruction at every one of those file offsets.

        The same question for every tracer: what each says about itself comes before or after.
        """
        with LOOP.open("rb") as file, Path(f"/proc/{self.process.pid}/mem").open("rb") as memory:
            bias = self._bias()
            return all(_byte(file, offset) != _byte(memory, bias + offset) for offset in offsets)

    def _bias(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/maps").read_text().splitlines():
            span, _, offset, *_ = line.split()
            if line.endswith(str(LOOP)):
                return int(span.split("-")[0], 16) - int(offset, 16)
        stop(f"{LOOP} is not mapped in process {self.process.pid}")


def _byte(file: BinaryIO, offset: int) -> bytes:
    return os.pread(file.fileno(), 1, offset)


def probe_offsets() -> list[tuple[int, int]]:
    """Return (file offset, semaphore offset) of each site of ``loop:hit``."""
    from usdt.probes.probe import read_probes  # noqa: PLC0415 - --help does not pay for it

    return [
        (site.offset, site.semaphore_offset)
        for probe in read_probes(LOOP).probes
        if probe.full_name == "loop:hit"
        for site in probe.sites
        if site.offset is not None
    ]


# --- what traces it -----------------------------------------------------------------------------


@dataclass
class Outcome:
    """One run of a tracer: events delivered and lost, and its CPU seconds."""

    delivered: int | None = None
    lost: int | None = None
    cpu: float | None = None


@contextlib.contextmanager
def untraced(loop: Loop) -> Iterator[Outcome]:
    """Measure without a tracer: the cost of the nop."""
    del loop
    yield Outcome()


@contextlib.contextmanager
def empty_uprobe(loop: Loop) -> Iterator[Outcome]:
    """Attach a program that returns at once: the kernel's own cost."""
    from usdt.bpf._uapi import AttachType  # noqa: PLC0415 - only this measurement loads programs
    from usdt.bpf.asm.assembler import Assembler  # noqa: PLC0415
    from usdt.bpf.asm.insn import R0  # noqa: PLC0415
    from usdt.bpf.link import UprobeSite, attach_uprobe_multi  # noqa: PLC0415
    from usdt.bpf.program import ProgramSpec  # noqa: PLC0415

    asm = Assembler()
    asm.mov(R0, 0)
    asm.exit()
    sites = [UprobeSite(offset, semaphore) for offset, semaphore in probe_offsets()]
    spec = ProgramSpec(asm.assemble(), attach_type=AttachType.TRACE_UPROBE_MULTI, name="empty")
    with spec.load({}) as program:
        link = attach_uprobe_multi(program, str(LOOP), sites, pid=loop.process.pid)
        with link:
            yield Outcome()


@contextlib.contextmanager
def tracer(command: list[str], lost: str, counts: str = "") -> Iterator[Outcome]:
    """Run a tracer of the loop until the loop ends; count its lines, and what it says it lost.

    Args:
        command: writes one line per event to its standard output, or what it counted.
        lost: regular expression with a group for a number of lost events, summed over stderr
            and standard output.
        counts: regular expression with a group for a number of events, summed in the same way,
            where there is no line per event.
    """
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
            yield outcome
            usage = _wait(process)
        text = err.read_text(errors="replace")
        if not out.stat().st_size:
            stop(f"{command[0]} delivered nothing: {text.strip()[-300:]}")
        if counts:
            text += out.read_text()
            outcome.delivered, outcome.lost = _summed(counts, text), _summed(lost, text)
        else:
            outcome.delivered, outcome.lost = _count(out, text, re.compile(lost.encode()))
        outcome.cpu = usage.ru_utime + usage.ru_stime


def _wait(process: subprocess.Popen[bytes]) -> struct_rusage:
    # The tracer ends with its target. bpftrace does so only with -p, and not always: signal it.
    deadline = time.monotonic() + END_SECONDS
    asked = time.monotonic() + 10
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage
        now = time.monotonic()
        if now > asked:
            process.send_signal(signal.SIGINT)
            asked = deadline
        if now > deadline:
            process.kill()
        time.sleep(0.01)


def _count(out: Path, text: str, lost: re.Pattern[bytes]) -> tuple[int, int]:
    delivered = missing = 0
    with out.open("rb") as file:
        for line in file:
            found = lost.search(line)
            if found:
                missing += int(found[1])
            elif line[:1].isdigit() or (line[:1] == b"{" and line[:7] != b'{"lost"'):
                delivered += 1
    missing += sum(int(number) for number in lost.findall(text.encode()))
    return delivered, missing


def _summed(pattern: str, text: str) -> int:
    return sum(int(number) for number in re.findall(pattern, text, re.MULTILINE))


def ours(loop: Loop) -> AbstractContextManager[Outcome]:
    """Run ``usdt trace`` with JSON lines to a file."""
    words = [str(USDT), "trace", "-p", str(loop.process.pid), "--json", "loop:hit(arg0, arg1)"]
    return tracer(words, r"\d+ events?, (\d+) lost")


def bpftrace(loop: Loop) -> AbstractContextManager[Outcome]:
    """Run bpftrace with two numbers per line to a file."""
    words = [str(BPFTRACE), "-p", str(loop.process.pid), "-e", SCRIPT % LOOP]
    return tracer(words, r"[Ll]ost (\d+) events")


def our_aggregation(command: str, *words: str) -> Watch:
    """Run ``usdt count`` or ``usdt hist``: only the result leaves the kernel."""

    def watch(loop: Loop) -> AbstractContextManager[Outcome]:
        line = [str(USDT), command, "-p", str(loop.process.pid), *words]
        return tracer(line, r"^\d+ events?, (\d+) lost", r"^(\d+) events?, \d+ lost")

    return watch


def their_aggregation(*clauses: str) -> Watch:
    """Run bpftrace with the same aggregation; a clause is what follows the probe."""

    def watch(loop: Loop) -> AbstractContextManager[Outcome]:
        script = " ".join(f"usdt:{LOOP}:loop:hit {clause}" for clause in clauses)
        words = [str(BPFTRACE), "-p", str(loop.process.pid), "-e", script]
        return tracer(
            words, r"[Ll]ost (\d+) events", r"^(?:@.*?:(?: count)?|[\[(].*[\])]) +(\d+)(?:[, ].*)?$"
        )

    return watch


# hist, stats and latency have percentiles, bpftrace's have none. latency: every second hit ends a
# time, and both tracers attach two probes at the place.
AGGREGATIONS = {
    "count": (our_aggregation("count", "loop:hit"), ("{ @ = count(); }",)),
    "count by key": (
        our_aggregation("count", "loop:hit", "--by", "arg0 % 64"),
        ("{ @[arg0 % 64] = count(); }",),
    ),
    "hist": (our_aggregation("hist", "loop:hit(arg0)"), ("{ @ = hist(arg0); }",)),
    "stats": (our_aggregation("stats", "loop:hit(arg0)"), ("{ @ = stats(arg0); }",)),
    "stats by key": (
        our_aggregation("stats", "loop:hit(arg0)", "--by", "arg0 % 64"),
        ("{ @[arg0 % 64] = stats(arg0); }",),
    ),
    "latency": (
        our_aggregation("latency", "loop:hit(arg0 % 2 == 0)", "loop:hit(arg0 % 2 == 1)"),
        (
            "/arg0 % 2 == 0/ { @s[tid] = nsecs; }",
            "/arg0 % 2 == 1/ { @ = hist(nsecs - @s[tid]); delete(@s[tid]); }",
        ),
    ),
}


# --- (a) the cost of a hit ----------------------------------------------------------------------


@dataclass
class Series:
    """All rounds of one tracer."""

    nanoseconds: list[float] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Return nanoseconds per hit."""
        return statistics.median(self.nanoseconds)


def one_run(watch: Watch, hits: int) -> tuple[float, Outcome]:
    """Run one fresh process with one tracer, all hits."""
    loop = Loop.start(hits)
    try:
        with watch(loop) as outcome:
            if watch is not untraced:
                _await_attachment(loop)
            nanoseconds = loop.fire()
            loop.end()
    finally:
        loop.process.kill()
    return nanoseconds, outcome


def _await_attachment(loop: Loop) -> None:
    offsets = [offset for offset, _ in probe_offsets()]
    deadline = time.monotonic() + ATTACH_SECONDS
    while not loop.has_breakpoints(offsets):
        if time.monotonic() > deadline:
            stop(f"nothing was attached within {ATTACH_SECONDS:.0f} s")
        time.sleep(0.01)
    time.sleep(SETTLE_SECONDS)


def cost_of_a_hit(hits: int, rounds: int) -> None:
    """Measure the cost of a hit, and print it."""
    watches: dict[str, Watch] = {"untraced": untraced, "empty uprobe": empty_uprobe, "usdt": ours}
    if BPFTRACE:
        watches["bpftrace"] = bpftrace
    for name, (mine, clauses) in AGGREGATIONS.items():
        watches[f"usdt {name}"] = mine
        if BPFTRACE:
            watches[f"bpftrace {name}"] = their_aggregation(*clauses)
    series = {name: Series() for name in watches}
    for _ in range(rounds):
        for name, watch in watches.items():
            nanoseconds, outcome = one_run(watch, hits)
            series[name].nanoseconds.append(nanoseconds)
            series[name].outcomes.append(outcome)
    print(
        f"cost of a hit: {hits:,} hits of two arguments, the cheapest of {PARTS} parts,"
        f" median (range) of {rounds} rounds"
    )
    for name, one in series.items():
        spread = f"({min(one.nanoseconds):.1f}–{max(one.nanoseconds):.1f})"
        print(f"  {name:21} {one.median:9.1f} ns {spread:19}{_delivery(one)}")
    if BPFTRACE:
        for name in ("", *(f" {name}" for name in AGGREGATIONS)):
            _ratios(series, name)


def _delivery(one: Series) -> str:
    last = [outcome for outcome in one.outcomes if outcome.delivered is not None]
    if not last:
        return ""
    delivered = statistics.median(outcome.delivered or 0 for outcome in last)
    lost = statistics.median(outcome.lost or 0 for outcome in last)
    cpu = statistics.median(outcome.cpu or 0 for outcome in last)
    return f"   {delivered:11,.0f} delivered {lost:11,.0f} lost   {cpu:6.2f} s CPU of the tracer"


def _ratios(series: dict[str, Series], what: str) -> None:
    names = ("empty uprobe", f"usdt{what}", f"bpftrace{what}")
    floor, we, they = (series[name].median for name in names)
    above = f"above the empty uprobe {we - floor:.1f} ns and {they - floor:.1f} ns"
    print(f"  usdt / bpftrace,{what or ' trace'}: {we / they:.2f} in all; {above}")


# --- (b) start, one event, exit -----------------------------------------------------------------

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
        "cgroup",
        "span",
        "stack",
        "program",
        "start",
        "attach",
        "debuginfo",
        "fire",
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
    if options.only in (None, "cgroup"):
        cgroups(options.hits // 300, 3 * options.rounds, one_run, our_aggregation)
    if options.only in (None, "span"):
        spans(options.hits // 5, options.rounds)
    if options.only in (None, "stack"):
        stacks(options.hits // 10, options.rounds)
    if options.only in (None, "program"):
        programs(
            options.hits,
            options.rounds,
            LOOP,
            one_run=one_run,
            tracer=tracer,
            start_to_exit=start_to_exit,
        )
    if options.only in (None, "start"):
        start_and_stop(options.rounds)
    if options.only in (None, "attach"):
        attaching(options.rounds)
    if options.only in (None, "debuginfo"):
        debug_files(options.rounds)
    if options.only in (None, "fire"):
        providers(options.rounds)
    if options.only in (None, "rings"):
        rings(options.hits, options.rounds)
    if options.only in (None, "render"):
        rendering()
    if options.only in (None, "scale"):
        scale()


if __name__ == "__main__":
    main()
