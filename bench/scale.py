"""Measure how costs grow with the work: sites, probes, processes, keys, stacks, hits, CPUs.

    make bench BENCH_ARGS='--only scale'       print the tables
    make performance                           write them, and a plot, to docs/performance.md

Every row is a process of its own, so that its peak of memory is its own. Growth is the exponent
between a row and the one above it: 1.0 is linear, 0.0 does not depend on the size at all.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scale_plot import plot
from scale_program import Program, build, programs
from simulated_cpus import RECORDS, read_in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Times = dict[str, float]

__all__ = ("AXES", "Axis", "Row", "measured", "scale")

MIB = 1024.0


@dataclass(frozen=True, slots=True)
class Axis:
    """What grows: its name, sizes, and what is timed at each of them."""

    title: str
    unit: str
    sizes: tuple[int, ...]
    measure: Callable[[Path, int], Times]
    note: str


@dataclass(frozen=True, slots=True)
class Row:
    """One size: seconds of each phase, and MiB at most."""

    size: int
    times: Times
    memory: float


def _attached(probe: str, **target: object) -> Times:
    import usdt  # noqa: PLC0415 - --help does not pay for it

    began = time.monotonic()
    events = usdt.attach(probe, **target)  # type: ignore[arg-type]
    attached = time.monotonic()
    events.close()
    return {"attach": attached - began, "detach": time.monotonic() - attached}


def _sites(folder: Path, size: int) -> Times:
    import usdt  # noqa: PLC0415

    path = build(folder, size)
    began = time.monotonic()
    usdt.list_probes(str(path))
    listed = time.monotonic() - began
    with Program(path) as program:
        return {"list": listed, **_attached("scale:site", pid=program.pid)}


def _probes(folder: Path, size: int) -> Times:
    with Program(build(folder, size, names=True)) as program:
        return _attached("scale:site*", pid=program.pid)


def _all_processes(folder: Path, size: int) -> Times:
    path = build(folder, 1)
    with programs(path, size):
        return _attached("work:hit", all_processes=True)


def _given_processes(folder: Path, size: int) -> Times:
    path = build(folder, 1)
    with programs(path, size) as running:
        return _attached("work:hit", pid=[one.pid for one in running])


def _keys(folder: Path, size: int) -> Times:
    return _aggregated(folder, "fire", size, "arg0")


def _stacks(folder: Path, size: int) -> Times:
    return _aggregated(folder, "stacks", size, "ustack")


def _command_keys(folder: Path, size: int) -> Times:
    # From the signal that ends the command to its end; the peak is that of its process.
    with Program(build(folder, 1)) as program:
        words = ["-p", program.pid, "work:hit", "--by", "arg0", "--max-keys", max(size, 1024)]
        command = subprocess.Popen(
            [sys.executable, "-m", "usdt", "count", "--json", *map(str, words)],
            stdout=(folder / "lines").open("wb"),
            stderr=subprocess.PIPE,
        )
        while command.stderr and b"tracing" not in command.stderr.readline():
            pass
        program.fire("fire", size, size)
        began = time.monotonic()
        command.send_signal(signal.SIGINT)
        usage = os.wait4(command.pid, 0)[2]
        seconds = time.monotonic() - began
    lines = (folder / "lines").read_bytes().count(b'"key"')
    if lines != size:
        raise SystemExit(f"bench: {size} keys became {lines} lines")
    return {"write": seconds, "memory": usage.ru_maxrss / MIB}


def _aggregated(folder: Path, word: str, size: int, by: str) -> Times:
    import usdt  # noqa: PLC0415

    with Program(build(folder, 1)) as program, usdt.Session(pid=program.pid) as session:
        found = session.count("work:hit", by=by, max_keys=max(size, 1024))
        hit = program.fire(word, size, size)
        began = time.monotonic()
        read = found.snapshot()
        seconds = time.monotonic() - began
        if sum(read.values()) + found.lost < size:
            raise SystemExit(f"bench: {size} hits became {sum(read.values())}")
        return {"hits": hit * size / 1e9, "read": seconds}


def _hits(folder: Path, size: int) -> Times:
    import usdt  # noqa: PLC0415

    with Program(build(folder, 1)) as program, usdt.Session(pid=program.pid) as session:
        found = session.count("work:hit")
        hit = program.fire("fire", size)
        if found.snapshot() != {"work:hit": size}:
            raise SystemExit(f"bench: {size} hits became {found.snapshot()}")
        return {"count": hit * size / 1e9}


def _cpus(folder: Path, size: int) -> Times:
    # The same number of hits on each CPU: with no shared lock the time is the same.
    import usdt  # noqa: PLC0415

    path, hits, found = build(folder, 1), 200_000, {}
    running = [Program(path, cpu=cpu) for cpu in range(size)]
    pids = [one.pid for one in running]
    with usdt.Session(pid=pids) as session:
        session.count("work:hit")
        found["count"] = _together(running, hits)
    with usdt.Session(pid=pids, buffer=64 << 20) as session:
        session.attach("work:hit(arg0)")
        found["trace"] = _together(running, hits)
    for one in running:
        one.__exit__()
    return found


def _simulated_cpus(folder: Path, size: int) -> Times:  # noqa: ARG001 - needs no program
    return read_in_order(size)


def _together(running: list[Program], hits: int) -> float:
    for one in running:
        one.ask("fire", hits)
    return max(one.answer() for one in running) * hits / 1e9


def _decades(first: int, last: int) -> tuple[int, ...]:
    return tuple(10**power for power in range(first, last + 1))


AXES: dict[str, Axis] = {
    "sites": Axis("Sites of a probe", "sites", _decades(1, 5), _sites, "in one process"),
    "probes": Axis("Probes of a command", "probes", _decades(0, 3), _probes, "by a pattern"),
    "all": Axis(
        *("Processes with -a", "processes", (1, 10, 100, 1000, 2000)),
        *(_all_processes, "that run the same file"),
    ),
    "given": Axis(
        *("Processes given by -p", "processes", (1, 10, 100, 500)),
        _given_processes,
        "each with a link; at the end of a link the kernel asks all others about every process",
    ),
    "keys": Axis("Keys", "keys", _decades(1, 6), _keys, "each hit once, then read"),
    "command": Axis(
        *("Keys of a command", "keys", _decades(1, 6), _command_keys),
        "each hit once; from its end by a signal to its last line of JSON",
    ),
    "stacks": Axis("Stacks", "stacks", _decades(1, 5), _stacks, "18 frames, read with names"),
    "hits": Axis("Hits", "hits", _decades(5, 8), _hits, "counted"),
    "cpus": Axis("CPUs", "CPUs", (1, 2), _cpus, "200,000 hits on each at once"),
    "simulated": Axis(
        *("Simulated CPUs", "CPUs", (1, 2, 4, 16, 64), _simulated_cpus),
        f"CPU time of the reader: {RECORDS:,} records, made as programs on so many CPUs write "
        "them, each with a thread of its own; up to 16 ring buffers are put in order, and made "
        "lines (two CPUs share one); what programs wait for each other is not simulated",
    ),
}


def measured(axis: str) -> Iterator[Row]:
    """A row for each size of an axis, each of a process of its own."""
    for size in AXES[axis].sizes:
        words = [sys.executable, __file__, axis, str(size)]
        run = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(run.stdout.splitlines()[-1])
        yield Row(size, row["times"], row["memory"])


def _growth(row: Row, before: Row | None, name: str) -> str:
    if before is None or before.times[name] <= 0 or row.times[name] <= 0:
        return ""
    ratio = row.times[name] / before.times[name]
    return f"{math.log(ratio) / math.log(row.size / before.size):.2f}"


def _table(axis: Axis, rows: list[Row]) -> Iterator[str]:
    names = list(rows[0].times)
    cells = [cell for name in names for cell in (f"{name}, ms", "growth")]
    yield "| " + " | ".join([axis.unit, *cells, "MiB"]) + " |"
    yield "|" + "---:|" * (len(cells) + 2)
    for before, row in zip([None, *rows], rows, strict=False):
        numbers = [f"{row.size:,}"]
        for name in names:
            numbers += [f"{row.times[name] * 1000:,.1f}", _growth(row, before, name)]
        yield "| " + " | ".join([*numbers, f"{row.memory:.0f}"]) + " |"


def scale(*only: str) -> dict[str, list[Row]]:
    """Measure, print the lines of a page in Markdown, and return the rows."""
    found = {}
    for name in only or AXES:
        axis = AXES[name]
        print(f"\n## {axis.title}\n\n{axis.title}, {axis.note}:\n")
        found[name] = list(measured(name))
        print("\n".join(_table(axis, found[name])), flush=True)
    return found


_PAGE = """\
# How costs grow

`make performance` measured this page on Linux {release}, {cpus} CPUs.
Every row is a process of its own, and MiB is its peak of memory. Growth is the exponent between
a row and the one above it: 1.0 is linear, 0.0 does not depend on the size. In the first rows, the
fixed cost of a start hides it.

![Seconds over sizes, both logarithmic](images/scale.svg)
"""


def write_page(docs: Path) -> None:
    """Measure all axes, and write ``performance.md`` and its plot."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        found = scale()
    machine = {"release": os.uname().release.split("-")[0], "cpus": os.cpu_count()}
    page = _PAGE.format(**machine)
    (docs / "performance.md").write_text(page + output.getvalue())
    lines = {
        f"{AXES[name].title}: {phase}": [(row.size, row.times[phase]) for row in rows]
        for name, rows in found.items()
        for phase in [list(rows[0].times)[-1 if name in ("keys", "stacks") else 0]]
    }
    (docs / "images").mkdir(exist_ok=True)
    (docs / "images/scale.svg").write_text(plot(lines))


def _child(name: str, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        times = AXES[name].measure(Path(folder), size)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB
    peak = times.pop("memory", own)
    print(json.dumps({"times": times, "memory": peak}))


if __name__ == "__main__":
    if os.geteuid():
        sys.exit("bench: tracing needs root")
    if len(sys.argv) == 3:
        _child(sys.argv[1], int(sys.argv[2]))
    else:
        write_page(Path(__file__).resolve().parent.parent / "docs")
