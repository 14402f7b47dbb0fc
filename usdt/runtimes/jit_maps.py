"""Ask the Java virtual machine of a process for its perf map, when stacks are shown.

A virtual machine writes the names of its compiled methods to ``/tmp/perf-PID.map`` when it is
told to (``jcmd PID Compiler.perfmap``, Java 17). It compiles methods all the time, most of them
soon after its start: it is asked again after 1, 2, 4, … 64 seconds, and at once, or after a
second, for an address that the last map lacks.
"""

# dir_fd, which pathlib does not support:
# ruff: noqa: PTH116

from __future__ import annotations

import math
import os
import signal
import stat
import time

from usdt.base.errors import TargetError
from usdt.procfs.access import open_tmp
from usdt.procfs.namespaces import namespace_pids
from usdt.procfs.process import catches
from usdt.runtimes.hotspot import HotSpot, find_hotspot
from usdt.runtimes.jvm_attach import run_jcmd

__all__ = ("JavaProcess",)

_TIMEOUT = 5.0  # seconds that a virtual machine has to answer; then it is not asked again
_SHORTEST, _LONGEST = 1.0, 64.0  # seconds between two requests
_SHARE = 20  # a request that took a second is not repeated for so many
_LOOK = 1.0  # seconds between two looks whether the process has become a virtual machine


class JavaProcess:
    """The Java virtual machine that a process perhaps is.

    Args:
        pid: the process.

    Attributes:
        notices: messages for the user.
    """

    def __init__(self, pid: int) -> None:
        self.notices: list[str] = []
        self._pid = pid
        self._machine: HotSpot | None = None
        self._look_at = 0.0
        self._asked_at = -math.inf
        self._pause, self._interval = 0.0, _SHORTEST
        self._given_up = False
        self._hinted = self._reported = False

    def request_map(self, *, missing: bool = False, now: bool = False) -> bool:
        """Let the virtual machine write its perf map, if it is time to; return whether it did.

        Args:
            missing: whether an address is not in the last map.
            now: whether this is the last request, which does not wait for its time.
        """
        since = time.monotonic() - self._asked_at
        wait = self._pause if missing else max(self._pause, self._interval)
        if self._given_up or (since < wait and not now):
            return False
        machine = self._find()
        if machine is None or not self._ready():
            if missing:
                self._report_not_asked(machine)
            return False
        began = time.monotonic()
        first = self._asked_at == -math.inf
        try:
            _write_map(machine)
        except TargetError as err:
            self._given_up = True
            self.notices.append(f"--jit-map: {err}")
            return False
        self._asked_at = time.monotonic()
        self._pause = max(_SHORTEST, _SHARE * (self._asked_at - began))
        self._interval = _SHORTEST if first or missing else min(2 * self._interval, _LONGEST)
        return True

    def _report_not_asked(self, machine: HotSpot | None) -> None:
        if self._reported:
            return
        self._reported = True
        reason = (
            "has compiled code and is no Java virtual machine: let it write a perf map "
            "(node --perf-basic-prof, python3.12 -X perf)"
            if machine is None
            else "does not handle SIGQUIT, the signal by which it is asked (java -Xrs)"
        )
        self.notices.append(f"--jit-map: process {self._pid} {reason}")

    def suggest_frame_pointers(self) -> None:
        """Add a notice if its compiled methods keep no frame pointers; once."""
        machine = None if self._hinted else self._find()
        if machine is None:
            return
        self._hinted = True
        try:
            kept = machine.options(["PreserveFramePointer"]).get("PreserveFramePointer", True)
        except TargetError:
            return
        if not kept:
            self.notices.append(
                f"process {self._pid}: stacks end at, or skip, methods that Java has compiled; "
                "to see their callers, start java with -XX:+PreserveFramePointer"
            )

    def _find(self) -> HotSpot | None:
        now = time.monotonic()
        if self._machine is None and now >= self._look_at:
            self._look_at = now + _LOOK
            try:
                self._machine = find_hotspot(self._pid)
            except TargetError:
                return None
        return self._machine

    def _ready(self) -> bool:
        # A virtual machine that starts does not handle the signal yet.
        try:
            return self._asked_at > -math.inf or catches(self._pid, signal.SIGQUIT)
        except TargetError:
            return False


def _write_map(machine: HotSpot) -> None:
    name = f"perf-{namespace_pids(machine.pid)[-1]}.map"
    before = _map_state(machine.pid, name)
    run_jcmd(machine, "Compiler.perfmap", timeout=_TIMEOUT)
    if _map_state(machine.pid, name) in (before, None):
        raise TargetError(f"process {machine.pid} has written no {name} in its /tmp")


def _map_state(pid: int, name: str) -> tuple[int, ...] | None:
    # What changes when the map is written. The virtual machine would follow a link in its place.
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
        folder = open_tmp(pid)
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(folder)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_uid != owner:
        raise TargetError(f"{name} in /tmp of process {pid} is not its own file: remove it")
    return found.st_ino, found.st_size, found.st_mtime_ns
