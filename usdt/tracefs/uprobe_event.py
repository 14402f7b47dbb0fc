"""Uprobes as one event of tracefs: many sites of one file, armed and disarmed together.

Without uprobe_multi, each site is a perf event of its own, and closing one waits for two grace
periods: that of its program (Linux 6.1, commit ef1b808e3b7c, "bpf: Fix UAF via mismatching
bpf_prog/attachment RCU flavors", in stable kernels since 5.15) and that of its event, one site
after the other. An event of tracefs may have many sites (Linux 5.4, commit 60d53e2c3b75,
"tracing/probe: Split trace_event related data from trace_probe"): one perf event with one program
arms and disarms them all. The program tells them apart by the instruction pointer.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
from typing import TYPE_CHECKING

from usdt.base.closeable import FD
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.bpf.link import Link, attach_tracepoint
from usdt.tracefs.definitions import (
    EVENT_FILES,
    DefinedEvent,
    orphaned_events,
    remove_event,
)
from usdt.tracefs.kprobe_events import new_event_name
from usdt.tracefs.mount import tracefs, write_hint

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from usdt.bpf.link import UprobeSite
    from usdt.bpf.program import Program

__all__ = ("UprobeEvent", "attach_uprobe_event", "can_define_uprobes")

_NOT_IN_WORDS = re.compile(rb"[\s#]")  # the kernel splits a definition at spaces, and cuts comments
_GRACE_PERIODS = 4  # to close the link, the event and its definition


def can_define_uprobes() -> bool:
    """Return whether this process may define uprobes in tracefs."""
    try:
        return os.access(_file(), os.W_OK)
    except TracingError:
        return False


class UprobeEvent(Link):
    """A defined event and the link of the program attached to it.

    Args:
        root: the mount point of tracefs.
        name: ``GROUP/EVENT``, which is not in use.

    Raises:
        NotSupported: the kernel has no uprobe events.
        SyscallError: EACCES: this process may not define any.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self._root = root
        self._link: Link | None = None
        self._defined = 0
        path = root / EVENT_FILES["user"]
        try:
            # Kept for the removal, for which there may be no privileges left to open it.
            self.fd = FD(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        except FileNotFoundError as err:
            raise NotSupported("uprobe events (CONFIG_UPROBE_EVENTS)") from err
        except OSError as err:
            number = err.errno or errno.EIO
            hint = write_hint() if number == errno.EACCES else ""
            raise SyscallError(number, f"open {path}", hint) from err

    @property
    def detach_steps(self) -> int:
        """The number of grace periods for which closing waits."""
        return _GRACE_PERIODS

    def define(self, path: str, sites: Iterable[UprobeSite]) -> None:
        """Define its sites.

        Raises:
            NotSupported: the kernel has one attach point for an event.
            SyscallError: the kernel refuses a site.
        """
        name = os.fsencode(path)
        with FD(os.open(path, os.O_PATH | os.O_CLOEXEC)) as file:
            if _NOT_IN_WORDS.search(name):
                name = b"/proc/self/fd/%d" % file.fileno()
            for site in sites:
                counter = f"({site.ref_ctr_offset:#x})" if site.ref_ctr_offset else ""
                place = f":{site.offset:#x}{counter}".encode()
                try:
                    os.write(self.fd.fileno(), b"p:%b %b%b\n" % (self.name.encode(), name, place))
                except OSError as err:
                    number = err.errno or errno.EIO
                    if number == errno.EEXIST and self._defined:
                        what = "an event of tracefs with several attach points"
                        raise NotSupported(what, (5, 4)) from err
                    raise SyscallError(number, f"defining {self.name}") from err
                self._defined += 1

    def arm(self, program: Program, pid: int) -> None:
        """Attach a program of ``ProgType.KPROBE`` to all sites; pid 0: in every process.

        Raises:
            TracingError: the kernel refuses.
        """
        path = self._root / "events" / self.name / "id"
        try:
            number = int(path.read_text())
        except OSError as err:
            raise SyscallError(err.errno or errno.EIO, f"reading {path}") from err
        self._link = attach_tracepoint(program, number, pid=pid)

    def close(self) -> None:
        """Detach the program, then remove the event; waits for some grace periods."""
        link, self._link = self._link, None
        try:
            if link is not None:
                link.close()
        finally:
            self._remove()
            self.fd.close()

    def _remove(self) -> None:
        defined, self._defined = self._defined, 0
        if defined:
            event = DefinedEvent(EVENT_FILES["user"], self.name)
            remove_event(self._root, event, self.fd.fileno())


def attach_uprobe_event(
    program: Program, path: str, sites: Iterable[UprobeSite], *, pid: int = 0
) -> UprobeEvent:
    """Attach ``program`` to all sites of a file by one event.

    Args:
        program: of ``ProgType.KPROBE``; it has no cookies.
        path: of the file.
        sites: at different offsets.
        pid: only in this process (0: in every process).

    Raises:
        NotSupported: the kernel has no uprobe events, or takes one attach point for each.
        SyscallError: EACCES: this process may not define any; others: the kernel refuses a site.
    """
    root = tracefs()
    event = UprobeEvent(root, new_event_name())
    _remove_orphans(root)
    try:
        event.define(path, sites)
        event.arm(program, pid)
    except BaseException:
        event.close()
        raise
    return event


def _file() -> Path:
    return tracefs() / EVENT_FILES["user"]


@functools.cache
def _remove_orphans(root: Path) -> None:
    # Definitions that killed runs left behind. The kernel has disarmed them.
    for event in orphaned_events(root):
        with contextlib.suppress(SyscallError):  # in use: not an orphan, in another PID namespace
            remove_event(root, event)
