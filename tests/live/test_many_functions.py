"""Functions of the kernel by the hundred: counts are exact, arguments right, and nothing stays.

``all_functions.py`` does the same with all of them.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
from functions import here
from kernelprobes import kprobe, program
from manyfunctions import calls, left_behind, sites_of
from patience import patient
from tracing_tools import KPROBE, Tool

from kprobe.provider import PROVIDER
from usdt.bpf import features
from usdt.bpf.kprobes import KprobeMethod
from usdt.engine.aggregate.session import AggregateSession
from usdt.engine.aggregate.spec import Aggregation
from usdt.engine.compiler.codegen.model import TaskFilter
from usdt.engine.language import parse_probe
from usdt.engine.run.options import TraceOptions
from usdt.tracefs.multi_probe_events import multi_probe_supported

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("kprobes")

_PATTERN = "*_sys_*"  # some seven hundred
_FEWER = "__*_sys_[gs]*"  # more than a hundred, where it is not their number that matters
_CALLS = 777
_SLEEPERS = 600


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    # Of one way or the other: without either, hundreds of functions take minutes.
    if not (multi_probe_supported() or features.have_kprobe_multi()):
        pytest.skip("this kernel lacks kprobe_multi, and this CPU another way to many functions")
    before = left_behind()
    yield
    assert left_behind() == before


def _counts(*words: object) -> dict[str, int]:
    done = kprobe("count", "--json", *words)
    assert sites_of(done.stderr) > 64, done.stderr  # fewer go another way
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["probe"]: row["count"] for row in rows if "count" in row}


def _known(counts: dict[str, int]) -> int:
    (found,) = [number for name, number in counts.items() if name.endswith("64_sys_getpgid")]
    return found


def test_counts_are_exact() -> None:
    counts = _counts(_PATTERN, "-c", program(calls(_CALLS)))
    assert _known(counts) == _CALLS
    assert len(counts) > 5, counts  # of what else a program calls


def test_counts_by_a_key_are_exact() -> None:
    done = kprobe("count", "--json", _FEWER, "--by", "func", "-c", program(calls(_CALLS)))
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = [row for row in rows if str(row.get("probe")).endswith("64_sys_getpgid")]
    assert [row["count"] for row in found] == [_CALLS], found


@pytest.mark.skipif(
    not multi_probe_supported(), reason="needs x86-64: its calls have their registers' names"
)
@pytest.mark.usefixtures("vmlinux_btf")
def test_arguments_are_those_of_the_entry() -> None:
    source = f"{calls(20)}\n{calls(55, 0x7654321)}"
    items = "((struct pt_regs *)arg0)->di == 0x7654321"
    counts = _counts(f"__x64_sys_*({items})", "-c", program(source))
    assert counts == {"kprobe:__x64_sys_getpgid": 55}


def test_an_interrupt_while_attaching_leaves_nothing() -> None:
    before = left_behind()
    tool = Tool("count", _FEWER, command=KPROBE)
    try:
        deadline = time.monotonic() + patient(100)
        while left_behind() == before and tool.process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            if features.have_kprobe_multi():
                break  # nothing to be seen
        tool.process.send_signal(signal.SIGINT)
        tool.process.wait(patient(100))
    finally:
        tool.kill()


def test_what_a_killed_run_leaves_is_cleaned() -> None:
    if features.have_kprobe_multi():
        pytest.skip("a link holds all functions here, and goes with its process")
    before = left_behind()
    tool = Tool("count", _FEWER, command=KPROBE)
    try:
        tool.wait_tracing()
        assert len(left_behind()) > 2 * 64
    finally:
        tool.kill()
    assert left_behind() != before
    assert "event usdt_" in kprobe("event", "clean").stdout


@pytest.mark.parametrize("way", [KprobeMethod.KPROBE_EVENTS, KprobeMethod.PERF_LINK])
def test_returns_that_the_kernel_misses_are_counted(way: KprobeMethod) -> None:
    if way is KprobeMethod.PERF_LINK and not features.have_raw_cookies():
        pytest.skip("links say what they missed since Linux 6.7; raw_cookies came with 6.10")
    request = parse_probe("hrtimer_nanosleep(return)", default="kprobe")
    only = TaskFilter(pids=(os.getpid(),))
    with AggregateSession(Aggregation(), [request], accept=only, max_string=64) as session:
        PROVIDER.attach(session, [request], TraceOptions(aggregated=True, via=here(way)))
        threads = [threading.Thread(target=time.sleep, args=(8,)) for _ in range(_SLEEPERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen = sum(row.value.count for row in session.read())
        list(session.drain())
        (missed,) = [int(line.split()[0]) for line in session.closing_notes() if "missed" in line]
    assert 0 < missed < _SLEEPERS
    assert seen + missed >= _SLEEPERS


@pytest.mark.skipif(not multi_probe_supported(), reason="needs x86-64")
def test_everything_can_be_forced_through_tracefs() -> None:
    counts = _counts(_FEWER, "--via", "kprobe_events", "-c", program(calls(_CALLS)))
    assert _known(counts) == _CALLS
