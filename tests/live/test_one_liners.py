"""docs/one-liners.md: each program of bpftrace's tutorial, and its short form, on the same load."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from blockdevice import on_block_device
from house import ROOT
from patience import patient
from processes import running, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("ringbuf", "vmlinux_btf")

_PAGE = (ROOT / "docs" / "one-liners.md").read_text()
_SECTIONS = {
    int(number): re.findall(r"^    ((?:usdt|kprobe) .*)$", text, re.MULTILINE)
    for number, text in re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", _PAGE, re.MULTILINE | re.DOTALL)
}

_TRACES = re.compile(r"^(Attached|tracing) \d+ ", re.MULTILINE)

# A process that opens a file, reads 100 bytes of it, writes to a disk, and is in the kernel for a
# third of the time.
_LOAD = """
import os, sys, time
while True:
    file = os.open("/proc/self/status", os.O_RDONLY)
    os.read(file, 100)
    os.close(file)
    disk = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    os.write(disk, b"x" * 4096)
    os.fsync(disk)
    os.close(disk)
    end = time.monotonic() + 0.006
    while time.monotonic() < end:
        os.getrandom(65536)
    time.sleep(0.015)
    os.write(1, b"x")
"""
_ROUNDS = 20  # of the load, of 21 ms each, in which every program sees what it is to print


# What each of the two commands prints, of the load where its name or process is in the output.
_PRINTED = {
    1: ("python:gc__start", "^syscall:openat$"),
    2: ("^hello world$",),
    3: ("^{comm} /proc/self/status$", 'filename="/proc/self/status"'),
    4: (r"^@\[{comm}\]: \d+$", r"^ +\d+  tracepoint:raw_syscalls:sys_enter  {comm}$"),
    5: (r"^\[64, 128\) +[1-9]\d* \|@", r"^\[64, 128\) +[1-9]\d* \|@"),
    6: (r"^\[0, 200\) +[1-9]\d* \|", r"^\[0, 200\) +[1-9]\d* \|"),
    7: (r"^@ns\[{comm}\]:\n\[", r"comm={comm}\n\["),
    8: (r"^@\[tracepoint:sched:sched.*\]: [1-9]\d*$", r"^ +\d+  tracepoint:sched:sched_switch"),
    9: (r"^@\[\n(    .*\n)+\]: [1-9]\d*$", r"^ +\d+  profile:99hz\n +\w"),
    10: (r"^@\[\n( +\w.*\+\d+\n)+\]: [1-9]\d*$", r"^ +schedule\+0x"),
    11: (r"^\[4K, 8K\) +[1-9]\d* \|@", r"^\[4K, 8K\) +[1-9]\d* \|@"),
    12: ("^open path: status$", 'name\\)="status"'),
}


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """The process."""
    path = tmp_path_factory.mktemp("load") / "file"
    with on_block_device(path), running(sys.executable, "-I", "-S", "-c", _LOAD, path) as process:
        yield process


@contextlib.contextmanager
def _started(command: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = shlex.split(command)
    words[0] = str(Path(sys.executable).with_name(words[0]))
    with output.open("w") as file:
        run = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield run
    finally:
        run.kill()
        run.wait()


def _wait_rounds(load: subprocess.Popen[bytes]) -> None:
    """Wait while the load makes so many rounds from now on."""
    assert load.stdout is not None
    before = array.array("i", [0])
    fcntl.ioctl(load.stdout, termios.FIONREAD, before)
    rest = before[0] + _ROUNDS
    while rest:
        read = os.read(load.stdout.fileno(), rest)
        assert read, "the load has ended"
        rest -= len(read)


def _begun(run: subprocess.Popen[bytes], output: Path) -> bool:
    return run.poll() is not None or bool(_TRACES.search(output.read_text()))


@pytest.mark.parametrize("number", [*_PRINTED])
def test_both_forms_print_what_they_are_asked_for(
    number: int, load: subprocess.Popen[bytes], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    commands = [command.replace("PID", str(load.pid)) for command in _SECTIONS[number]]
    if re.search("kprobe:|vfs_", "".join(commands)):
        request.getfixturevalue("kprobes")
    outputs = [tmp_path / str(which) for which in range(len(commands))]
    with contextlib.ExitStack() as stack:
        pairs = zip(commands, outputs, strict=True)
        runs = [stack.enter_context(_started(*pair)) for pair in pairs]
        for run, output in zip(runs, outputs, strict=True):
            until(lambda: _begun(run, output), "the probes to be attached")  # noqa: B023 - called at once
        if not all(run.poll() is not None for run in runs):
            _wait_rounds(load)
        for run in runs:
            run.send_signal(signal.SIGINT)
        for run in runs:
            run.wait(patient(100))
    comm = re.escape(Path(f"/proc/{load.pid}/comm").read_text().strip())
    for command, pattern, output in zip(commands, _PRINTED[number], outputs, strict=True):
        found = re.search(pattern.replace("{comm}", comm), output.read_text(), re.MULTILINE)
        assert found, (command, output.read_text())


def test_all_twelve_are_there() -> None:
    assert [*_SECTIONS] == [*range(1, 13)]
    assert [len(found) for found in _SECTIONS.values()] == [len(f) for f in _PRINTED.values()]
