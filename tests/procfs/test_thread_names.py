"""Names of threads, as a stream of records tells them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from usdt.procfs.thread_names import ThreadNames


def test_a_thread_that_lives_has_its_name() -> None:
    own = Path("/proc/self/comm").read_bytes().rstrip(b"\n")
    names = ThreadNames()
    names.observe([os.getpid()])
    assert names.name(os.getpid()) == own
    assert ThreadNames().name(threading.get_native_id()) == own  # read when it is asked for


def test_names_follow_births_and_changes() -> None:
    names = ThreadNames()
    ended = (1 << 22) + 5  # above the largest ID of a thread
    assert names.name(ended) == b""
    names.named(ended, "sh")
    assert names.name(ended) == b"sh"
    names.named(ended, "caf\udcff")
    assert names.name(ended) == b"caf\xff"
