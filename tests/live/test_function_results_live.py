"""What every way and every command says of the same calls of a function of the kernel.

A program writes so many bytes to /dev/null; what each of vfs_write()'s calls was given and what it
returned is known from that, and so are counts, sums, histograms and pictures of them.
"""

from __future__ import annotations

import collections
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from functions import PAIRING, WAYS, here, seen
from kernelprobes import kprobe, program, results
from tracing_tools import run_usdt, until

import kprobe as kernel
from usdt.bpf.kprobes import KprobeMethod

pytestmark = pytest.mark.usefixtures("ringbuf", "kprobes", "vmlinux_btf")

_SIZES = [4001, 4001, 5000, 9000, 70_000]
_OURS = "count > 4000"  # what tools write, of events, is less or goes elsewhere
_SOURCE = f"""
import posix
null = posix.open("/dev/null", posix.O_WRONLY)
for size in {_SIZES}:
    posix.write(null, b"x" * size)
"""


def _writes() -> None:
    # One after the other: of two tasks at once, fentry's program is not run for the one that
    # interrupts it.
    with Path(os.devnull).open("wb", buffering=0) as null:
        null.writelines(b"abc" + b"x" * (size - 3) for size in _SIZES)


def _values(found: list[dict[str, Any]], kind: str) -> list[tuple[Any, ...]]:
    mine = [event for event in found if event.get("event", "call") == kind]
    return sorted(tuple(event["args"].values()) for event in mine)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_events(way: KprobeMethod) -> None:
    entry = f"vfs_write({_OURS}, count, str(buf, 5), file->f_mode & 3)"
    both = f"vfs_write({_OURS}, return > 0, count, str(buf, 4), return)"
    probes = [entry, both] if here(way) in PAIRING else [entry]
    found = seen(_writes, *probes, way=way)
    assert _values(found, "call") == [(size, "abcxx", 2) for size in _SIZES]
    assert {event["probe"] for event in found} == {"kprobe:vfs_write"}
    if len(probes) > 1:
        assert _values(found, "return") == [(size, "abcx", size) for size in _SIZES]


def test_aggregates_are_those_of_the_events() -> None:
    seen: list[kernel.Event] = []
    began = time.monotonic_ns()
    with kernel.Session(pid=os.getpid()) as session:
        counts = session.count(f"vfs_write({_OURS})", by="count")
        sums = session.stats(f"vfs_write({_OURS}, count)")
        spread = session.hist(f"vfs_write({_OURS}, count)")
        times = session.latency(f"vfs_write({_OURS})", "vfs_write(return > 4000)")
        session.on(f"vfs_write({_OURS}, count, return)", seen.append)
        _writes()
        until(lambda: session.run(0.1) or len(seen) >= len(_SIZES), "the events")
        (value,), (buckets,), (spans,) = sums.values(), spread.values(), times.values()
        by_size = dict(counts)
    took = time.monotonic_ns() - began
    sizes = [event.args["count"] for event in seen]
    assert sorted(sizes) == [event.args["return"] for event in sorted(seen, key=_returned)]
    assert sorted(sizes) == _SIZES
    assert by_size == collections.Counter(sizes)
    shown = value.count, value.min, value.max, value.average
    assert shown == (len(sizes), min(sizes), max(sizes), sum(sizes) / len(sizes))
    whole = collections.Counter(1 << size.bit_length() - 1 for size in sizes)
    assert {low: number for (low, _), number in buckets.items()} == whole
    assert spans.count == len(sizes)
    assert 0 < spans.min <= spans.average <= spans.max < took


def _returned(event: kernel.Event) -> int:
    return int(event.args["return"])


def test_commands_say_the_same(tmp_path: Path) -> None:
    words = "-c", program(_SOURCE)
    (one,) = results("hist", f"vfs_write({_OURS}, count)", *words)
    assert one["count"] == len(_SIZES)
    (one,) = results("stats", f"vfs_write({_OURS}, count)", *words)
    assert (one["min"], one["max"], one["sum"]) == (min(_SIZES), max(_SIZES), sum(_SIZES))
    rows = results("heatmap", f"vfs_write({_OURS}, count)", "--interval", "30", *words)
    assert sum(row["count"] for row in rows) == len(_SIZES)
    recording = tmp_path / "writes.rec"
    probe = f"kprobe:vfs_write({_OURS}, count, return)"
    done = run_usdt("record", "-o", str(recording), *words, probe)
    assert done.returncode == 0, done.stderr
    events = [
        json.loads(line)
        for line in run_usdt("report", "--json", str(recording)).stdout.splitlines()
    ]
    assert [event["args"] for event in events] == [{"count": s, "return": s} for s in _SIZES]


def test_keys_by_members_of_arguments() -> None:
    source = """
import _socket as s
a = s.socket(s.AF_INET, s.SOCK_DGRAM)
a.bind(("127.0.0.1", 0))
for size in 100, 200, 200:
    a.sendto(b"x" * size, a.getsockname())
"""
    words = "--by", "dev->name,skb->len", "-c", program(source)
    found = results("count", "loopback_xmit", *words)
    assert {tuple(row["key"].values()): row["count"] for row in found} == {
        ("lo", 142): 1,
        ("lo", 242): 2,
    }


def test_a_structure_in_two_registers() -> None:
    def act() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    probe = "tcp_setsockopt(optval, optval.user, optlen)"
    (found,) = seen(act, probe, way=here(KprobeMethod.PERF_EVENT))
    assert found["args"]["optval"]["user"] == int(found["args"]["optval.user"], 16) > 4096
    assert found["args"]["optval"]["is_kernel"] == 0


def test_a_structure_that_is_returned() -> None:
    times: list[int] = []

    def act() -> None:
        times.append(time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID))

    probe = "ns_to_timespec64(nsec, return, return.tv_nsec)"
    found = [event["args"] for event in seen(act, probe, way=here(KprobeMethod.PERF_EVENT))]
    for event in found:
        parts = event["return"]
        assert parts["tv_sec"] * 10**9 + parts["tv_nsec"] == event["nsec"]
        assert parts["tv_nsec"] == event["return.tv_nsec"]
    assert times[0] in [event["nsec"] for event in found]
    assert kprobe("info", "ns_to_timespec64").stdout.startswith(
        "struct timespec64 ns_to_timespec64"
    )
