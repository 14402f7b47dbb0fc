"""A virtual machine: one start of QEMU, watched over its serial console.

No KVM, disk or network: a kernel, an archive and a console. Every wait has an end, and the machine
ends with us, however we end. A kernel under QEMU's emulation may hang at boot now and then; that is
tried once more, and the result says so. A guest that hangs later is not tried again: that may be
what the tests are there to find.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import selectors
import shlex
import shutil
import subprocess
import tempfile
import time
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vm.apt import Unavailable
from vm.matrix import CPUS
from vm.watch import TIED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from vm.matrix import Cell
    from vm.supply import Image

__all__ = ("Run", "interactive", "need_emulator", "problem_of", "run", "take")

BOOT = 240.0  # seconds until the first result; usually 4, and 60 on a busy machine
# Seconds between results: more than the guest lets a test and its end take.
SILENCE = float(os.environ.get("USDT_VM_SILENCE", "400"))
_RESULT = re.compile(rb"^@usdt (\d+) ([0-9a-f]{8}) ([A-Za-z0-9+/=]+)\r*$")


@dataclass
class Run:
    """What came of a guest: results in their order, and whatever else the console had."""

    results: list[dict[str, Any]] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    problem: str = ""  # why there may be results missing
    retried: bool = False
    seconds: float = 0.0

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Results of one kind: start, begin, test, end, broken."""
        return [result for result in self.results if result["kind"] == kind]


def need_emulator(cell: Cell) -> None:
    """Unavailable if this machine has no QEMU for a cell."""
    cpu = CPUS[cell.cpu]
    if not shutil.which(cpu.program):
        raise Unavailable(f"needs {cpu.program}: apt-get install {cpu.package}")


def run(
    cell: Cell, image: Image, job: bytes, watch: Callable[[str], None], *, limit: float = 3600.0
) -> Run:
    """Run a job to its end, or for ``limit`` seconds.

    ``watch`` gets each line of the console, and each result as JSON.
    """
    began = time.monotonic()
    with _initrd(image, job) as initrd:
        found = _once(_command(cell, image, initrd), initrd, watch, limit)
        if not found.results and found.problem:
            first = found.problem
            found = _once(_command(cell, image, initrd), initrd, watch, limit)
            found.retried = True
            found.problem = found.problem and f"{found.problem}; before that, {first}"
    found.seconds = time.monotonic() - began
    return found


def interactive(cell: Cell, image: Image, job: bytes) -> int:
    """Connect the terminal with a guest until it ends (^A x ends it, too)."""
    with _initrd(image, job) as initrd:
        command = _command(cell, image, initrd, serial="mon:stdio")
        return subprocess.call(command, pass_fds=(initrd,))


@contextlib.contextmanager
def _initrd(image: Image, job: bytes) -> Iterator[int]:
    # A file without a name: nothing is left of it, however we end.
    with tempfile.TemporaryFile(prefix="usdt-vm-") as file:
        for archive in image.archives:
            file.write(archive.read_bytes())
        file.write(job)
        file.flush()
        yield file.fileno()


def _command(
    cell: Cell, image: Image, initrd: int, *, serial: str = "stdio"
) -> tuple[str | Path, ...]:
    cpu = CPUS[cell.cpu]
    append = (
        f"console={cpu.console} quiet loglevel=1 panic=-1 oops=panic mitigations=off {cpu.append}"
    )
    # One thread for all CPUs of a guest. With one each, an x86 guest that writes into its own code
    # (every breakpoint) panics now and then with "Oops: int3", and is slower, too.
    return (
        *(*TIED, cpu.program, *cpu.machine),
        *(
            "-accel",
            "tcg,thread=single",
            "-smp",
            str(cpu.count),
            "-m",
            str(cell.memory or cpu.memory),
        ),
        *("-nodefaults", "-no-reboot", "-display", "none", "-monitor", "none", "-serial", serial),
        *("-kernel", image.kernel, "-initrd", f"/proc/self/fd/{initrd}", "-append", append),
        *shlex.split(os.environ.get("USDT_VM_QEMU", "")),
    )


def _once(
    command: Sequence[str | Path], initrd: int, watch: Callable[[str], None], limit: float
) -> Run:
    found = Run()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(initrd,),
    ) as process:
        try:
            assert process.stdout is not None
            patience = _follow(found, process.stdout.fileno(), watch, limit)
        finally:
            process.kill()
    found.problem = problem_of(found, patience)
    return found


def _follow(found: Run, console: int, watch: Callable[[str], None], limit: float) -> str:
    """Read the console to its end; why not to its end, or ""."""
    last = time.monotonic() + limit
    deadline = min(time.monotonic() + BOOT, last)
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(console, selectors.EVENT_READ)
        while selector.select(deadline - time.monotonic()):
            data = os.read(console, 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            known = len(found.results)
            for line in lines:
                take(found, line, watch)
            if len(found.results) > known:
                deadline = min(time.monotonic() + SILENCE, last)
            if not data:
                return ""
            if time.monotonic() > deadline:
                break
    if time.monotonic() > last:
        return f"not done in {limit:.0f} s"
    return f"silent for {SILENCE if found.results else BOOT:.0f} s"


def take(found: Run, line: bytes, watch: Callable[[str], None]) -> None:
    """Add one line of the console to a run."""
    match = _RESULT.match(line)
    if match and zlib.crc32(match[3]) == int(match[2], 16):
        result = zlib.decompress(base64.b64decode(match[3])).decode()
        found.results.append({**json.loads(result), "number": int(match[1])})
        watch(result)
        return
    text = line.decode(errors="replace").rstrip("\r")
    found.console.append(text)
    if text:
        watch(text)


def problem_of(found: Run, hung: str) -> str:
    """Why a run is not whole, or "". ``hung`` says why it was given up, if it was."""
    begun, done = found.of("begin"), {result["test"] for result in found.of("test")}
    running = [result["test"] for result in begun[-1:] if result["test"] not in done]
    where = f"in {running[0]}" if running else "between tests" if begun else "before any test"
    if not found.results:
        return f"no word of the guest: {hung}" if hung else "the machine ended at boot"
    if found.of("broken"):
        return f"the guest's runner failed: {found.of('broken')[0]['why']}"
    if hung:
        return f"{hung}, {where}"
    if not found.of("end"):
        return f"the machine ended {where}"
    lost = found.results[-1]["number"] + 1 - len(found.results)
    return f"{lost} results were garbled on the console" if lost else ""
