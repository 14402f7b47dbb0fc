"""What an event costs the tracer that reads it: as text, as JSON, and as a recording."""

from __future__ import annotations

import contextlib
import re
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loop import ATTACH_SECONDS, LOOP, Loop, probe_offsets, stop
from tracers import BPFTRACE, USDT, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Command = tuple[list[str], int]  # its words, "{pid}" among them, and the hits of a run

__all__ = ("consumers",)

_FEW = 20  # hits of a run that costs what start and end cost
_FEWER = 50  # bpftrace wakes its reader for each event: a hit costs so much more by the clock
_PRINTF = (
    'usdt:%s:loop:hit { printf("%%s %%d %%d %%s %%s arg0=%%ld arg1=%%d\\n", '
    'strftime("%%H:%%M:%%S.%%f", nsecs), cpu, tid, comm, probe, arg0, arg1); }'
)
_PROBE = "loop:hit(arg0, arg1)"


@dataclass(frozen=True, slots=True)
class _Run:
    events: int
    lost: int
    cpu: float  # seconds


def consumers(hits: int, rounds: int) -> None:
    """Measure the CPU time of the tracer for each event, and print the medians.

    Args:
        hits: of one run; bpftrace has fewer.
        rounds: runs of each tracer.
    """
    print(f"CPU time of the tracer: {hits:,} hits at once; medians of {rounds} rounds")
    with tempfile.TemporaryDirectory() as folder:
        ours = {
            "text": [str(USDT), "trace"],
            "JSON": [str(USDT), "trace", "--json"],
            "recording": [str(USDT), "record", "-o", str(Path(folder, "recording"))],
        }
        theirs = {"text": [str(BPFTRACE)], "JSON": [str(BPFTRACE), "-f", "json"]}
        for name, words in ours.items():
            commands = {"usdt": ([*words, "-p", "{pid}", _PROBE], hits)}
            if BPFTRACE and name in theirs:
                their_words = [*theirs[name], "-p", "{pid}", "-e", _PRINTF % LOOP]
                commands["bpftrace"] = (their_words, max(1, hits // _FEWER))
            _compare(name, Path(folder), commands, rounds)


def _compare(name: str, folder: Path, commands: dict[str, _Command], rounds: int) -> None:
    costs: dict[str, list[float]] = {tracer: [] for tracer in commands}
    for _ in range(rounds):
        for tracer, (words, hits) in commands.items():
            start, run = _run(folder, words, _FEW), _run(folder, words, hits)
            costs[tracer].append((run.cpu - start.cpu) / max(1, run.events - start.events) * 1e6)
            if run.lost:
                print(f"  {tracer}, {name}: {run.lost:,} events of {hits:,} lost")
    medians = {tracer: statistics.median(found) for tracer, found in costs.items()}
    for tracer, cost in medians.items():
        least = min(costs[tracer])
        print(f"  {f'{tracer}, {name}':22} {cost:9.3f} us an event   {least:.3f} at least")
    if "bpftrace" in medians:
        print(f"  usdt / bpftrace: {medians['usdt'] / medians['bpftrace']:.3f}")


def _run(folder: Path, command: Sequence[str], hits: int) -> _Run:
    # One tracer of one program, until that ends.
    loop = Loop.start(LOOP, hits)
    with contextlib.ExitStack() as undo:
        undo.callback(loop.process.kill)
        words = [loop.process.pid if word == "{pid}" else word for word in command]
        out, err = folder / "out", folder / "err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen([str(word) for word in words], stdout=stdout, stderr=stderr)
            undo.callback(process.kill)
            _await_breakpoints(loop, process)
            loop.fire_part()
            loop.end()
            usage = wait_for(process)
        text = err.read_text(errors="replace")
        said = re.search(r"^(\d+) events?, (\d+) lost", text, re.MULTILINE)
        lost = sum(int(number) for number in re.findall(r"[Ll]ost (\d+) events", text))
        events = int(said[1]) if said else _lines(out)
        return _Run(events, int(said[2]) if said else lost, usage.ru_utime + usage.ru_stime)


def _await_breakpoints(loop: Loop, process: subprocess.Popen[bytes]) -> None:
    offsets = [offset for offset, _ in probe_offsets()]
    deadline = time.monotonic() + ATTACH_SECONDS
    while not loop.has_breakpoints(offsets):
        if time.monotonic() > deadline or process.poll() is not None:
            stop(f"nothing was attached by: {process.args!r}")
        time.sleep(0.01)
    time.sleep(0.3)


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"arg0=") for block in iter(lambda: file.read(1 << 20), b""))
