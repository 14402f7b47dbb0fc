"""Scripts of Debian's package bpftrace that need no functions of the kernel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import patient

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = Path("/usr/sbin")
_COMMAND = Path(sys.executable).with_name("usdt")

# What a process does that is named by its PID below; the number of a system call is that of x86-64.
_SLEEP = """
import ctypes
class Time(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
ctypes.CDLL(None).syscall(35, ctypes.byref(Time(0, 123456789)), None)
"""
_OPEN = "import os\ntry: os.open('/no/such/file', os.O_RDONLY)\nexcept OSError: pass\n"
_KILL = "import os, signal\nos.kill(os.getpid(), signal.SIGCONT)\n"
_USER = "import os\nos.setresuid(0, 0, 0)\n"
_SYNC = "import os\nos.sync()\n"
_STAT = "import os\ntry: os.statvfs('/no/such/file')\nexcept OSError: pass\n"
_EXEC = "import os\nos.execv('/bin/echo', ['echo', 'one', 'two words'])\n"
_BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"  # some thirty samples of cpuwalk

# Script → what a process does, and what the script prints of it while it runs or at the end.
_SCRIPTS = {
    "naptime": (_SLEEP, r"^[\d:]{8} +\d+ +\S+ +{pid} +\S+ +0\.123$"),
    "opensnoop": (_OPEN, r"^{pid} +\S+ +-1 +2 /no/such/file$"),
    "killsnoop": (_KILL, rf"^[\d:]{{8}} +{{pid}} +\S+ +{signal.SIGCONT:d} +\d+ +0$"),
    "setuids": (_USER, r"{pid} +\S+ +0 +setresuid +ruid=0 euid=0 suid=0 \(0\)$"),
    "syncsnoop": (_SYNC, r"^[\d:]{8} +{pid} +\S+ +tracepoint:syscalls:sys_enter_sync$"),
    "statsnoop": (_STAT, r"^{pid} +\S+ +2 /no/such/file$"),
    "execsnoop": (_EXEC, r"^\d+ +{pid} +echo one two words$"),
    "pidpersec": (_BUSY, r"^[\d:]{8} PIDs/sec: @: \d+$"),
    "cpuwalk": (_BUSY, r"^\[[^|]+ [1-9]\d* \|@"),
    "runqlat": (_BUSY, r"^\[[^|]+ [1-9]\d* \|@"),
    "syscount": (_BUSY, r"^@process\[\S+\]: [1-9]\d*$"),
}
_AT_END = ("cpuwalk", "runqlat", "syscount")


@pytest.fixture
def outputs(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A script that runs, and the file that it prints to."""
    script = _FOLDER / f"{request.param}.bt"
    if not script.exists():
        pytest.skip(f"needs {script}: apt-get install bpftrace")
    output = tmp_path / "output"
    with output.open("w") as file:
        words = [str(_COMMAND), "run", str(script)]
        run = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, text=True)
    try:
        yield output, run
    finally:
        run.kill()
        run.wait()


def _await(output: Path, run: subprocess.Popen[str], pattern: str) -> bool:
    end = time.monotonic() + patient(10)
    while time.monotonic() < end:
        if re.search(pattern, output.read_text(), re.MULTILINE):
            return True
        if run.poll() is not None:
            break
        time.sleep(0.05)
    return False


@pytest.mark.root
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs nanosleep(2)'s number on x86-64")
@pytest.mark.parametrize(
    ("outputs", "name"), [(n, n) for n in _SCRIPTS], indirect=["outputs"], ids=_SCRIPTS
)
def test_what_a_script_prints(outputs: tuple[Path, subprocess.Popen[str]], name: str) -> None:
    output, run = outputs
    assert _await(output, run, "^Attach"), output.read_text()
    load, pattern = _SCRIPTS[name]
    with subprocess.Popen([sys.executable, "-c", load], stdout=subprocess.DEVNULL) as process:
        process.wait()
    wanted = pattern.replace("{pid}", str(process.pid))
    if name not in _AT_END:
        assert _await(output, run, wanted), output.read_text()
    run.send_signal(signal.SIGINT)
    assert run.wait(patient(20)) == 0, output.read_text()
    assert re.search(wanted, output.read_text(), re.MULTILINE), output.read_text()
