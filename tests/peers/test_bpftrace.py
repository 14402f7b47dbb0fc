"""Aggregations beside bpftrace's, of the same hits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from fixtures import Fixture, build, start
from patience import patient
from skips import need_program
from tracing_tools import bias, until, usdt

from usdt.probes.probe import read_probes

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root

_SCRIPT = """
usdt:%(path)s:loop:hit {
    @hist = hist(arg0); @lhist = lhist(arg0, 500, 4000, 250); @stats = stats(arg0);
    @count[arg0 %% 3] = count();
    @keyed[arg0 %% 2] = hist(arg0);
}
"""


@pytest.fixture
def loop() -> Iterator[Fixture]:
    """A program that passes loop:hit(0…4999, …)."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with start(build("default", "loop"), "-w", "-q", "-n", 5000) as made:
        yield made.wait_ready()


class Peer:
    """bpftrace at work; a context manager."""

    def __init__(self, program: Fixture, path: Path) -> None:
        """Start it, and wait until it has put its breakpoint."""
        words = [need_program("bpftrace"), "-p", str(program.pid), "-e", _SCRIPT % {"path": path}]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        site = next(
            probe.sites[0] for probe in read_probes(str(path)).probes if probe.name == "hit"
        )
        assert site.offset is not None
        with path.open("rb") as file:
            untouched = os.pread(file.fileno(), 1, site.offset)
        where = bias(program.pid, path) + site.address
        until(lambda: _memory(program.pid, where) != untouched, "bpftrace to attach")

    def stop(self) -> str:
        """End it; what it printed."""
        self.process.send_signal(signal.SIGINT)
        text, errors = self.process.communicate(timeout=patient(100))
        assert self.process.returncode == 0, errors
        return text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(patient(100))
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def _memory(pid: int, address: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        return os.pread(memory.fileno(), 1, address)


def bars(text: str) -> list[str]:
    """The lines of histograms."""
    return [line.rstrip() for line in text.splitlines() if re.match(r"[\[(].*\|$", line.rstrip())]


def theirs(text: str, name: str) -> list[str]:
    """The lines of one of bpftrace's maps."""
    return bars(text.partition(f"@{name}: \n")[2].partition("\n\n")[0])


def test_histograms_are_printed_as_bpftrace_prints_them(loop: Fixture) -> None:
    value = "loop:hit(arg0)"
    commands = {
        "hist": ("hist", value),
        "lhist": ("hist", value, "--linear", "500:4000:250"),
        "stats": ("stats", value),
        "count": ("count", "loop:hit", "--by", "arg0 % 3"),
        "keyed": ("hist", value, "--by", "arg0 % 2"),
    }
    with Peer(loop, build("default", "loop")) as peer:
        tools = {
            name: usdt(command, "-p", loop.pid, *words)
            for name, (command, *words) in commands.items()
        }
        try:
            for tool in tools.values():
                tool.wait_tracing()
            loop.fire()
            for tool in tools.values():
                tool.process.send_signal(signal.SIGINT)
                tool.finish()
        finally:
            for tool in tools.values():
                tool.kill()
        text = peer.stop()
    ours = {name: "\n".join(tool.lines) for name, tool in tools.items()}
    for name in ("hist", "lhist"):
        assert bars(ours[name]) == theirs(text, name)
        assert len(bars(ours[name])) > 10
    for key in (0, 1):
        mine = ours["keyed"].partition(f"arg0%2={key}\n")[2].partition("\n\n")[0]
        assert bars(mine) == theirs(text, f"keyed[{key}]")
    numbers = re.search(r"@stats: count (\d+), average (\d+), total (\d+)", text)
    assert numbers
    titles, row = (line.split() for line in ours["stats"].splitlines()[:2])
    shown = dict(zip(titles, row, strict=False))
    average = str(int(float(shown["AVG"])))
    assert (shown["COUNT"], average, shown["SUM"]) == numbers.groups()
    counted = {line.split()[2]: line.split()[0] for line in ours["count"].splitlines()[1:]}
    assert counted == dict(re.findall(r"@count\[(\d)\]: (\d+)", text))
