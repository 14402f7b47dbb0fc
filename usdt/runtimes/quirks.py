"""Probes that do not fire, or not always, and why: the switches of language runtimes.

A runtime's file has a probe, and it can be attached; but the runtime reaches it only if an option
of its process, or another probe, is on. All of these switches are in this module:

    hotspot     ``DTraceMethodProbes`` and others: options of the process, off by default
    python      3.11: ``function__entry`` is on the path of ``line`` in the interpreter
"""

# Names of files; importing pathlib takes 6 ms:
# ruff: noqa: PTH119

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from usdt.base.errors import ElfError, TargetError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ("Quirk", "find_quirks", "is_settled", "knows_quirks")

# Option of HotSpot → the probes that it switches on (dtrace.hpp, sharedRuntime.cpp and
# objectMonitor.cpp of OpenJDK). -XX:+ExtendedDTraceProbes sets all three, until Java 17.
_HOTSPOT = {
    "DTraceMethodProbes": "hotspot:method__[er]*",
    "DTraceAllocProbes": "hotspot:object__alloc",
    "DTraceMonitorProbes": "hotspot:monitor__*",
}
_LIBJVM = "libjvm.so"  # as in hotspot, which is imported for a process of Java alone
_PYTHON = "python3.11"
_PYTHONS = r"(lib)?python3\.11([.-].*)?"
_ENTRY, _LINE = "python:function__entry", "python:line"
_ENTRY_REASON = (
    "Python 3.11 fires it only while python:line is traced or the program profiles itself"
)


@frozen
class Quirk:
    """Why some probes of a file do not fire, or not always.

    Attributes:
        probes: the names of the probes, ``provider:name``.
        reason: why.
        pid: the process in which this is so; 0 for every process.
        unless: a probe; while it is traced, the probes fire. "" if they never do.
    """

    probes: tuple[str, ...]
    reason: str
    pid: int = 0
    unless: str = ""

    @property
    def note(self) -> str:
        """What is to be known of the probes, without their names."""
        if self.unless:
            return self.reason
        verb = "fires" if len(self.probes) == 1 else "fire"
        return f"never {verb} in process {self.pid}: {self.reason}"

    @property
    def text(self) -> str:
        """The sentence for the user."""
        return f"{', '.join(self.probes)}{':' if self.unless else ''} {self.note}"

    def to_json(self) -> dict[str, Any]:
        """Return the object of a probe's ``quirks`` in JSON."""
        found: dict[str, Any] = {"fires": "sometimes" if self.unless else "never"}
        if self.pid:
            found["pid"] = self.pid
        return {**found, "reason": self.reason}


def knows_quirks(path: str) -> bool:
    """Return whether a file of this name may have quirks."""
    name = os.path.basename(path)
    # Few names are worth a regular expression.
    return name == _LIBJVM or (_PYTHON in name and re.fullmatch(_PYTHONS, name) is not None)


def find_quirks(path: str, probes: Iterable[str], pids: Sequence[int] = ()) -> list[Quirk]:
    """Return the quirks of some probes of a file.

    Args:
        path: the file, as its process knows it.
        probes: their names, ``provider:name``.
        pids: processes that have mapped it. Options of others are not known.
    """
    if not knows_quirks(path):
        return []
    names = dict.fromkeys(probes)
    if os.path.basename(path) != _LIBJVM:
        return [Quirk((_ENTRY,), _ENTRY_REASON, unless=_LINE)] if _ENTRY in names else []
    import fnmatch  # noqa: PLC0415 - only for Java

    switched = {
        option: tuple(fnmatch.filter(names, pattern)) for option, pattern in _HOTSPOT.items()
    }
    wanted = [option for option, found in switched.items() if found]
    return [
        Quirk(switched[option], f"java was started without -XX:+{option}", pid)
        for pid in pids
        for option in _switched_off(pid, path, wanted)
    ]


def is_settled(path: str, pid: int) -> bool:
    """Return whether the quirks of a file are known: whether a process has read its options.

    A virtual machine handles SIGSEGV then.
    """
    if os.path.basename(path) != _LIBJVM or not pid:
        return True
    from signal import SIGSEGV  # noqa: PLC0415 - only for Java

    from usdt.procfs.process import catches  # noqa: PLC0415 - as above

    try:
        return catches(pid, SIGSEGV)
    except TargetError:
        return False


def _switched_off(pid: int, path: str, options: Sequence[str]) -> list[str]:
    # A process that has ended, or may not be read, is not said to lack anything.
    from usdt.runtimes.hotspot import find_hotspot  # noqa: PLC0415 - only for Java

    try:
        machine = find_hotspot(pid) if options else None
        if machine is None or machine.path != path or not is_settled(path, pid):
            return []
        values = machine.options(options)
    except (ElfError, TargetError):
        return []
    return [option for option in options if values.get(option) is False]
