r"""All functions of the kernel counted at once: a test that is run by name alone.

    USDT_VM_QEMU='-smp 1 -icount shift=0' USDT_VM_SILENCE=3000 \
        make vm KERNEL=6.1 TEST='tests/live/all_functions.py -s'

The clock of the guest goes by instructions, a thousand millions a second: by that of the host, an
emulated CPU with a probe in every function would do nothing but take interrupts of its timer. It
takes minutes, and says how many functions there were, how long it took to attach and
to detach, and what the kernel missed. ``test_many_functions.py`` does the same with hundreds.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from kernelprobes import program
from manyfunctions import calls, complaints, left_behind, sites_of
from tracing_tools import KPROBE

from usdt.tracefs.mount import tracefs

pytestmark = pytest.mark.usefixtures("kprobes")

_CALLS = 1234
_LONG = 3000  # seconds, where the guest's runner would end a test long before


def _log() -> str:
    return subprocess.run(
        ["busybox", "dmesg"], capture_output=True, text=True, check=True, errors="replace"
    ).stdout


def test_all_functions_are_counted_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    signal.alarm(_LONG)
    before, log = left_behind(), _log()
    text = (tracefs() / "available_filter_functions").read_text()
    available = len({tuple(line.split()) for line in text.splitlines()})
    began = time.monotonic()
    done = subprocess.run(
        [KPROBE, "count", "-v", "--json", "*", "-c", program(calls(_CALLS))],
        capture_output=True,
        text=True,
        check=False,
        timeout=_LONG,
    )
    took = time.monotonic() - began
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    counts = {row["probe"]: row["count"] for row in rows if "count" in row}
    with capsys.disabled():
        print(f"\n{available} functions available; {took:.0f} s in all; {len(counts)} were called")
        print("\n".join(f"  {line[:300]}" for line in done.stderr.splitlines()))
    assert done.returncode == 0, done.stderr
    (known,) = [number for name, number in counts.items() if name.endswith("64_sys_getpgid")]
    assert known == _CALLS
    assert sites_of(done.stderr) > 0.98 * available
    assert re.search(r"^attaching \d+ functions took [\d.]+ s$", done.stderr, re.MULTILINE)
    assert re.search(r"^detaching took [\d.]+ s$", done.stderr, re.MULTILINE)
    # The guest is as it was: nothing stays, nothing complains, and it answers at once.
    assert left_behind() == before
    assert complaints(_log().removeprefix(log)) == []
    began = time.monotonic()
    assert subprocess.run(["/bin/true"], check=False).returncode == 0
    assert Path("/proc/self/stat").read_text()
    assert time.monotonic() - began < 5
