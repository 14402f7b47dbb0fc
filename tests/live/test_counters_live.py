"""``profile:``, ``interval:``, ``software:`` and ``hardware:`` on the running kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tracing_tools import KPROBE, USDT

import usdt
from usdt.base.errors import NotSupported, TracingError
from usdt.bpf.perf.counters import HARDWARE, Counter, _open

if TYPE_CHECKING:
    from collections.abc import Iterator

# For a third of the time: other tests need the CPU, too.
_BUSY = """
import time

def inner():
    for _ in range(1000):
        pass

def outer():
    while True:
        for _ in range(100):
            inner()
        time.sleep(0.003)

outer()
"""


@pytest.fixture(scope="module")
def busy() -> Iterator[int]:
    """A Python process that computes; its ID."""
    with subprocess.Popen([sys.executable, "-c", _BUSY]) as process:
        yield process.pid
        process.kill()


def rows(*words: object) -> list[dict[str, Any]]:
    """The results of an aggregation."""
    done = subprocess.run(
        [*map(str, words), "--json"], check=True, stdout=subprocess.PIPE, text=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [row for row in found if "count" in row]


def test_a_process_is_sampled_while_it_runs(busy: int) -> None:
    found = rows(USDT, "count", "-d", 1, "-p", busy, "profile:200hz", "--by", "pid")
    assert {row["key"]["pid"] for row in found} == {busy}
    assert 1 <= found[0]["count"] <= 250  # as much of a CPU as it gets


def test_samples_have_stacks_of_python_functions(busy: int) -> None:
    found = rows(USDT, "count", "-d", 1, "-p", busy, "profile:200hz", "--by", "pystack")
    frames = [[frame["symbol"] for frame in row["key"]["pystack"]] for row in found]
    assert ["inner", "outer", "<module>"] in frames


def test_samples_have_user_stacks(busy: int) -> None:
    found = rows(USDT, "count", "-d", 1, "-p", busy, "profile:200hz", "--by", "ustack")
    names = {frame["symbol"] for row in found for frame in row["key"]["ustack"]}
    assert "_PyEval_EvalFrameDefault" in names


def test_a_timer_fires_although_only_another_process_is_traced() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            events = 0
            with usdt.attach("interval:20ms", pid=sleeper.pid) as session:
                for _ in session:
                    events += 1
                    if events == 3:
                        break
        finally:
            sleeper.kill()
    assert events == 3


def test_events_of_the_kernel_are_counted() -> None:
    # The program faults in 512 pages more than the other.
    touch = 'b"x" * (4096 * 512)'
    counts = []
    for text in ("pass", touch):
        command = f"{sys.executable} -S -c '{text}'"
        (row,) = rows(KPROBE, "count", "-c", command, "software:minor-faults:1")
        counts.append(row["count"])
    assert counts[1] - counts[0] > 400


def test_a_counter_that_the_machine_lacks_is_named() -> None:
    try:
        event = _open(Counter(HARDWARE, 0, 1_000_000), 0)
    except NotSupported:
        with pytest.raises(TracingError, match="hardware:cycles: this machine does not count them"):
            usdt.attach("hardware:cycles")
        return
    assert event is not None
    event.close()
    with usdt.attach("hardware:cycles:1000") as session:
        assert next(iter(session)).probe == "hardware:cycles:1000"
