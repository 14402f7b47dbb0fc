"""The traced program of the comparisons, which fires its hits in parts, and races of tracers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from typing import IO, BinaryIO

    Watch = Callable[["Loop"], AbstractContextManager[Any]]

ROOT = Path(__file__).resolve().parent.parent
LOOP = ROOT / "testbins/out/default/loop"
ATTACH_SECONDS = 20.0
PART = 2_000  # hits that fire at once: less than a slice of time of the scheduler
SETTLE_SECONDS = 0.5  # a tracer may attach a second probe at the same place


def stop(message: str) -> NoReturn:
    """Exit with one line that says why there is nothing to measure."""
    sys.exit(f"bench: {message}")


@dataclass
class Loop:
    """The fixture that does nothing but fire its probe."""

    binary: Path
    process: subprocess.Popen[str]
    input: IO[str]
    output: IO[str]

    @classmethod
    def start(cls, binary: Path, hits: int = PART) -> Loop:
        """Start the program, which fires so many hits each time it is told."""
        command = [str(binary), "-n", str(hits), "-w", "-q"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        if process.stdin is None or process.stdout is None:
            stop("no pipes to the traced program")
        loop = cls(binary, process, process.stdin, process.stdout)
        if not loop.read().startswith("ready"):
            stop(f"{binary} did not say it was ready")
        return loop

    def read(self) -> str:
        """Return the next line of output."""
        return self.output.readline()

    def fire_part(self) -> float:
        """Fire the hits of one part; return nanoseconds per hit."""
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
        with (
            self.binary.open("rb") as file,
            Path(f"/proc/{self.process.pid}/mem").open("rb") as memory,
        ):
            bias = self._bias()
            return all(_byte(file, offset) != _byte(memory, bias + offset) for offset in offsets)

    def _bias(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/maps").read_text().splitlines():
            span, _, offset, *_ = line.split()
            if line.endswith(str(self.binary)):
                return int(span.split("-")[0], 16) - int(offset, 16)
        stop(f"{self.binary} is not mapped in process {self.process.pid}")


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


# --- races --------------------------------------------------------------------------------------


@dataclass
class Series:
    """All rounds of one tracer.

    Attributes:
        parts: nanoseconds per hit of each part of each round.
        outcomes: what each round delivered.
    """

    parts: list[float] = field(default_factory=list)
    outcomes: list[Any] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Return nanoseconds per hit."""
        return statistics.median(self.parts)

    @property
    def spread(self) -> str:
        """Return where nine of ten parts are, nanoseconds per hit."""
        twentieths = statistics.quantiles(self.parts, n=20)
        return f"({twentieths[0]:.1f}–{twentieths[-1]:.1f})"

    def over(self, other: Series) -> float:
        """Return the median of the ratios of parts that ran one after the other."""
        return statistics.median(a / b for a, b in zip(self.parts, other.parts, strict=True))

    def above(self, other: Series) -> float:
        """Return the median of the differences, nanoseconds, of such parts."""
        return statistics.median(a - b for a, b in zip(self.parts, other.parts, strict=True))


def race(watches: Mapping[str, Watch | None], hits: int, rounds: int) -> dict[str, Series]:
    """Let tracers trace at once, and fire their hits in turn, part by part.

    A machine changes its speed by a third from one second to the next. Parts of some milliseconds
    that run one after the other have the same speed, so what is compared is each part with its
    neighbour. Each tracer has a program and a file of its own: no hit passes two tracers.

    Args:
        watches: name → what traces; None traces nothing.
        hits: of one round.
        rounds: how often all of it starts anew.
    """
    series = {name: Series() for name in watches}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            loops = {}
            for number, (name, watch) in enumerate(watches.items()):
                binary = Path(shutil.copy(LOOP, Path(folder, f"loop{number}")))
                loop = loops[name] = Loop.start(binary)
                stack.callback(loop.process.kill)
                if watch:
                    series[name].outcomes.append(stack.enter_context(watch(loop)))
                stack.callback(loop.end)
            _await_attachment([loops[name] for name, watch in watches.items() if watch])
            for part in range(max(1, hits // PART)):
                # Each is the first as often as the others.
                first = part % len(loops)
                names = list(loops)
                for name in names[first:] + names[:first]:
                    series[name].parts.append(loops[name].fire_part())
    return series


def _await_attachment(loops: Iterable[Loop]) -> None:
    offsets = [offset for offset, _ in probe_offsets()]
    deadline = time.monotonic() + ATTACH_SECONDS
    while not all(loop.has_breakpoints(offsets) for loop in loops):
        if time.monotonic() > deadline:
            stop(f"nothing was attached within {ATTACH_SECONDS:.0f} s")
        time.sleep(0.01)
    time.sleep(SETTLE_SECONDS)
