"""``watchpoint:`` on the running kernel: accesses of the memory of a process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tracing_tools import USDT

from usdt.base.errors import SyscallError
from usdt.bpf._syscall import perf_attribute, perf_event_open
from usdt.bpf._uapi import PERF_ATTR_SIZE
from usdt.bpf.perf.breakpoints import WRITE

if TYPE_CHECKING:
    from collections.abc import Iterator

# Its second thread writes a number; the first waits.
_WRITER = """
import ctypes, threading, time
cell = ctypes.c_uint64()
print(hex(ctypes.addressof(cell)), flush=True)
def write():
    while True:
        cell.value += 1
        time.sleep(0.001)
threading.Thread(target=write).start()
"""


def _have_breakpoints() -> bool:
    attribute, _ = perf_attribute(
        "IIQQQQQIIQQ40x", 5, PERF_ATTR_SIZE, 0, 1, 0, 0, 0, 0, WRITE, 4096, 8
    )
    try:
        descriptor = perf_event_open(attribute, 0, -1)
    except SyscallError as err:
        return err.errno in (errno.EPERM, errno.EACCES)
    os.close(descriptor)
    return True


pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("ringbuf"),
    pytest.mark.skipif(
        not _have_breakpoints(),
        reason="hardware breakpoints (PERF_TYPE_BREAKPOINT) are not in this kernel",
    ),
]


@pytest.fixture
def writer() -> Iterator[tuple[int, str]]:
    """The ID of a process, and the address that it writes."""
    command = [sys.executable, "-S", "-c", _WRITER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
        process.kill()


def test_writes_of_all_threads_are_seen(writer: tuple[int, str]) -> None:
    pid, address = writer
    probe = f"watchpoint:{address}:8:w(pid, tid)"
    command = [USDT, "trace", "-p", str(pid), probe, "-n", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all(f"pid={pid}" in line and f"tid={pid}" not in line for line in lines)


def test_a_program_knows_its_watchpoint(writer: tuple[int, str]) -> None:
    pid, address = writer
    text = f"w:{address}:8:rw {{ print((pid, probe)); exit(); }}"
    command = [USDT, "run", "-q", "-p", str(pid), "-e", text]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert f"({pid}, watchpoint:{address}:8:rw)" in done.stdout


def test_memory_of_no_process_is_an_error() -> None:
    command = [USDT, "run", "-e", "w:0x601040:8:w { exit(); }"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: watchpoint:0x601040:8:w: this address is one of a process: "
        "choose the process with -p or -c, without --follow\n"
    )
