"""What a guest runs: the feature probes, then pytest; all results go to the console as they come.

A result is a line "@usdt NUMBER CHECKSUM BASE64" in the midst of whatever else the console has: the
kernel's messages, pytest's words. So what a guest found is known even if it never ends.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

_LONGEST = 6000  # characters of a failure that are sent
# Seconds for a test, its set-up and its end each: one wait of a test is up to 100 (USDT_PATIENCE).
_LIMIT = 180
_count = 0


def send(kind: str, **fields: Any) -> None:
    """Send one result."""
    global _count  # noqa: PLW0603 - one console, one numbering
    packed = base64.b64encode(zlib.compress(json.dumps({"kind": kind, **fields}).encode()))
    # One write, begun on a line of its own: whoever else writes cannot come between.
    line = b"\n@usdt %d %08x %s\n" % (_count, zlib.crc32(packed), packed)
    _count += 1
    sys.stdout.flush()
    while line:
        line = line[os.write(1, line) :]


def _too_long(*_: object) -> None:
    pytest.fail(f"took more than {_LIMIT} s in the guest")


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    signal.alarm(_LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)


class Limits:
    """A pytest plugin that fails a test which hangs, where it hangs, and lets the others run."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Limit what comes before a test."""
        with _limited():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Limit a test."""
        with _limited():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        """Limit what comes after it."""
        with _limited():
            return (yield)


class Reporter:
    """A pytest plugin that sends each test when it begins and when it has ended."""

    def __init__(self) -> None:
        """Nothing has begun."""
        self._began = 0.0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note which test hangs, should it."""
        self._began = time.monotonic()
        send("begin", test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send outcomes: of the call, and of a set-up or an end that did not pass."""
        if report.when == "call" or report.outcome != "passed":
            took = round(time.monotonic() - self._began, 2)
            send("test", test=report.nodeid, outcome=_outcome(report), why=_why(report), took=took)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported, or skips itself."""
        if report.outcome != "passed":
            send("test", test=report.nodeid, outcome=_outcome(report), why=_why(report), took=0.0)


def _outcome(report: pytest.TestReport | pytest.CollectReport) -> str:
    return "xfailed" if report.skipped and hasattr(report, "wasxfail") else report.outcome


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):  # of a skip: file, line, reason
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext[-_LONGEST:]


def features() -> dict[str, bool | str]:
    """What the toolkit's probes say of this kernel; the text of an error where one fails."""
    from usdt.bpf import features as probes

    names = [name for name in probes.__all__ if name.startswith("have_")]
    return {name.removeprefix("have_"): _answer(getattr(probes, name)) for name in names}


def _answer(question: Callable[[], bool]) -> bool | str:
    try:
        return question()
    except Exception as err:  # noqa: BLE001 - whatever it is, the host shall know
        return f"{type(err).__name__}: {err}"


def kernel_complaints() -> str:
    """Warnings of the kernel that name a defect, its own or one that was provoked."""
    words = ("WARNING:", "BUG:", "Oops", "general protection", "hung", "stall", "Out of memory")
    log = subprocess.run(["busybox", "dmesg"], capture_output=True, text=True, check=True).stdout
    none = (
        "nvram corruption",  # of a machine without any
        "installing a program with bpf_probe_write_user",  # not a stall
    )
    found = (
        line
        for line in log.splitlines()
        if any(word in line for word in words) and not any(word in line for word in none)
    )
    return "\n".join(found)[:_LONGEST]


def main() -> None:
    """Run the job."""
    job = json.loads(Path("/job.json").read_text())
    send("start", release=os.uname().release, features=features(), uptime=time.monotonic())
    signal.signal(signal.SIGALRM, _too_long)
    os.environ["USDT_PATIENCE"] = "5"  # read by the tests when they are imported
    # pytest's own watch for tests that hang is for faster CPUs; Limits has another.
    words = [*job["pytest"], "-p", "no:cacheprovider", "-o", "hang_timeout=0"]
    words += ["--color=no"]
    code = pytest.main(words, plugins=[Reporter(), Limits()])
    send("end", code=int(code), complaints=kernel_complaints())


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        send("broken", why=traceback.format_exc()[-_LONGEST:])
        raise
