"""Functions of the running kernel, traced in this process: what tests of this folder share."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from kprobe.provider import PROVIDER
from usdt.base.errors import SyscallError
from usdt.bpf import features
from usdt.bpf.kprobes import KprobeMethod
from usdt.engine.compiler.codegen.model import TaskFilter
from usdt.engine.language import parse_probe
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.run.options import TraceOptions
from usdt.engine.runtime.session import RingBufferSession

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("PAIRING", "WAYS", "binds", "here", "loops", "seen", "sleepers")

#: Every way, and whether the kernel has it.
WAYS: dict[KprobeMethod, Callable[[], bool]] = {
    KprobeMethod.FENTRY: features.have_fentry,
    KprobeMethod.KPROBE_MULTI: features.have_kprobe_multi,
    KprobeMethod.PERF_LINK: features.have_cookies,
    KprobeMethod.PERF_EVENT: features.have_kprobes,
    KprobeMethod.KPROBE_EVENTS: features.have_kprobes,
}


def _sessions() -> bool:
    try:
        return all(features.kprobe_session())
    except SyscallError:  # no privilege: the tests are skipped
        return False


#: Those that keep values of a function's entry until its return.
PAIRING = [way for way in WAYS if way is not KprobeMethod.KPROBE_MULTI or _sessions()]
_SKIPS = {
    KprobeMethod.FENTRY: "fentry",
    KprobeMethod.KPROBE_MULTI: "kprobe_multi",
    KprobeMethod.PERF_LINK: "have_cookies",
    KprobeMethod.PERF_EVENT: "kprobe PMU",
    KprobeMethod.KPROBE_EVENTS: "kprobe PMU",
}


def here(way: KprobeMethod) -> KprobeMethod:
    """The way, or a skip that names what the kernel lacks."""
    if not WAYS[way]():
        pytest.skip(f"this kernel lacks {_SKIPS[way]}")
    return way


def seen(
    act: Callable[[], object],
    *probes: str,
    way: KprobeMethod | None = None,
    both_ends: bool = False,
) -> list[dict[str, Any]]:
    """The hits of this process while it does something; ``both_ends``: as kprobe trace has it."""
    lines: list[str] = []
    requests = [parse_probe(probe, default="kprobe") for probe in probes]
    accept, size = TaskFilter(pids=(os.getpid(),)), TraceOptions().max_struct
    with RingBufferSession(JsonFormatter(), accept=accept, max_struct=size) as session:
        PROVIDER.attach(session, requests, TraceOptions(via=way, both_ends=both_ends))
        act()
        for batch in session.drain():
            lines += batch
        assert not session.lost()
    return [json.loads(line) for line in lines]


def binds(*options: int) -> None:
    """Call inet_bind() twice, for a datagram socket: -EADDRNOTAVAIL (-99), then 0."""
    for address in (("192.0.2.1", 5), ("127.0.0.1", 0)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            for option in options:
                made.setsockopt(socket.SOL_SOCKET, option, 1)
            with contextlib.suppress(OSError):
                made.bind(address)


def sleepers() -> None:
    """Let two threads sleep at once, the one that begins first for longer."""
    threads = [threading.Thread(target=time.sleep, args=(span,)) for span in (0.6, 0.1)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()


def loops() -> None:
    """Let epoll look for a loop: a function of the kernel that calls itself, three deep."""
    polls = [select.epoll() for _ in range(4)]
    for inner, outer in itertools.pairwise(polls):
        outer.register(inner, select.EPOLLIN)
    for poll in polls:
        poll.close()
