"""What traces the program of the comparisons: this toolkit, bpftrace, or nothing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loop import probe_offsets, stop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from resource import struct_rusage

    from loop import Loop, Watch

USDT = Path(sys.executable).parent / "usdt"
BPFTRACE = shutil.which("bpftrace")
SCRIPT = 'usdt:%s:loop:hit { printf("%%ld %%d\\n", arg0, arg1); }'
END_SECONDS = 120.0


@dataclass
class Outcome:
    """One run of a tracer: events delivered and lost, and its CPU seconds."""

    delivered: int | None = None
    lost: int | None = None
    cpu: float | None = None


@contextlib.contextmanager
def empty_uprobe(loop: Loop) -> Iterator[Outcome]:
    """Attach a program that returns at once: the kernel's own cost."""
    from usdt.bpf._uapi import AttachType  # noqa: PLC0415 - only this measurement loads programs
    from usdt.bpf.asm.assembler import Assembler  # noqa: PLC0415
    from usdt.bpf.asm.insn import R0  # noqa: PLC0415
    from usdt.bpf.link import UprobeSite, attach_uprobe_multi  # noqa: PLC0415
    from usdt.bpf.program import ProgramSpec  # noqa: PLC0415

    asm = Assembler()
    asm.mov(R0, 0)
    asm.exit()
    sites = [UprobeSite(offset, semaphore) for offset, semaphore in probe_offsets()]
    spec = ProgramSpec(asm.assemble(), attach_type=AttachType.TRACE_UPROBE_MULTI, name="empty")
    with spec.load({}) as program:
        link = attach_uprobe_multi(program, str(loop.binary), sites, pid=loop.process.pid)
        with link:
            yield Outcome()


@contextlib.contextmanager
def tracer(command: list[str], lost: str, counts: str = "") -> Iterator[Outcome]:
    """Run a tracer of the loop until the loop ends; count its lines, and what it says it lost.

    Args:
        command: writes one line per event to its standard output, or what it counted.
        lost: regular expression with a group for a number of lost events, summed over stderr
            and standard output.
        counts: regular expression with a group for a number of events, summed in the same way,
            where there is no line per event.
    """
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
            yield outcome
            usage = wait_for(process)
        text = err.read_text(errors="replace")
        if not out.stat().st_size:
            stop(f"{command[0]} delivered nothing: {text.strip()[-300:]}")
        if counts:
            text += out.read_text()
            outcome.delivered, outcome.lost = _summed(counts, text), _summed(lost, text)
        else:
            outcome.delivered, outcome.lost = _count(out, text, re.compile(lost.encode()))
        outcome.cpu = usage.ru_utime + usage.ru_stime


def wait_for(process: subprocess.Popen[bytes]) -> struct_rusage:
    """Wait until a tracer ends, and return what it used.

    It ends with its target. bpftrace does so only with -p, and not always: signal it.
    """
    deadline = time.monotonic() + END_SECONDS
    asked = time.monotonic() + 10
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage
        now = time.monotonic()
        if now > asked:
            process.send_signal(signal.SIGINT)
            asked = deadline
        if now > deadline:
            process.kill()
        time.sleep(0.01)


def _count(out: Path, text: str, lost: re.Pattern[bytes]) -> tuple[int, int]:
    delivered = missing = 0
    with out.open("rb") as file:
        for line in file:
            found = lost.search(line)
            if found:
                missing += int(found[1])
            elif line[:1].isdigit() or (line[:1] == b"{" and line[:7] != b'{"lost"'):
                delivered += 1
    missing += sum(int(number) for number in lost.findall(text.encode()))
    return delivered, missing


def _summed(pattern: str, text: str) -> int:
    return sum(int(number) for number in re.findall(pattern, text, re.MULTILINE))


def ours(loop: Loop) -> AbstractContextManager[Outcome]:
    """Run ``usdt trace`` with JSON lines to a file."""
    words = [str(USDT), "trace", "-p", str(loop.process.pid), "--json", "loop:hit(arg0, arg1)"]
    return tracer(words, r"\d+ events?, (\d+) lost")


def bpftrace(loop: Loop) -> AbstractContextManager[Outcome]:
    """Run bpftrace with two numbers per line to a file."""
    words = [str(BPFTRACE), "-p", str(loop.process.pid), "-e", SCRIPT % loop.binary]
    return tracer(words, r"[Ll]ost (\d+) events")


def our_aggregation(command: str, *words: str) -> Watch:
    """Run ``usdt count`` or ``usdt hist``: only the result leaves the kernel."""

    def watch(loop: Loop) -> AbstractContextManager[Outcome]:
        line = [str(USDT), command, "-p", str(loop.process.pid), *words]
        return tracer(line, r"^\d+ events?, (\d+) lost", r"^(\d+) events?, \d+ lost")

    return watch


def their_aggregation(*clauses: str) -> Watch:
    """Run bpftrace with the same aggregation; a clause is what follows the probe."""

    def watch(loop: Loop) -> AbstractContextManager[Outcome]:
        script = " ".join(f"usdt:{loop.binary}:loop:hit {clause}" for clause in clauses)
        words = [str(BPFTRACE), "-p", str(loop.process.pid), "-e", script]
        return tracer(
            words, r"[Ll]ost (\d+) events", r"^(?:@.*?:(?: count)?|[\[(].*[\])]) +(\d+)(?:[, ].*)?$"
        )

    return watch
