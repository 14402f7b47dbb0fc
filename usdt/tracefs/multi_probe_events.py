"""Multi-probe events: thousands of kernel functions as attach points of a few events of tracefs.

A kprobe with a perf event of its own costs grace periods when it is created and removed. An event
of tracefs may have many attach points (Linux 5.4, commit ca89bc071d5e, "tracing/kprobe: Add
multi-probe per event support"): one perf event with one program arms and disarms them all. The
program tells them apart by the instruction pointer.

The attach points are after the call to ftrace with which functions begin, where all registers
still have their values of the entry. There the kernel writes a breakpoint at once, and replaces it
by a jump soon after. A kprobe at the call itself is an ftrace kprobe: ftrace goes through all of
its records to arm and to disarm it, which takes 20 milliseconds on an emulated CPU instead of less
than 0.1.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from usdt.base.closeable import FD
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.base.machine import KERNEL_MACHINE
from usdt.bpf.link import Link, attach_tracepoint, close_links
from usdt.bpf.rcu import expedited_rcu
from usdt.tracefs.definitions import EVENT_FILES, DefinedEvent, kprobe_misses, remove_event
from usdt.tracefs.function_entry import entry_offsets
from usdt.tracefs.kprobe_events import new_event_name
from usdt.tracefs.mount import tracefs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.bpf.program import Program

__all__ = ("MultiProbeEvent", "MultiProbeEvents", "multi_probe_supported")

_ENDBR = 4  # bytes of the landing pad before ftrace's call, in kernels with IBT
_MOST_MISSED = 3  # functions that are named if hits were missed
_BREAKPOINT = 1  # bytes from the attach point to pt_regs' instruction pointer, for every kprobe


def multi_probe_supported() -> bool:
    """Return whether multi-probe events are implemented for this CPU."""
    return KERNEL_MACHINE == "x86_64"


class MultiProbeEvent:
    """One event and its attach points.

    Attributes:
        name: ``GROUP/EVENT``.
        pointers: instruction pointer of pt_regs at a hit → address of the function.
        refused: addresses that the kernel refuses → the error.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pointers: dict[int, int] = {}
        self.refused: dict[int, TracingError] = {}
        self._order: list[int] = []  # addresses, in the kernel's order

    def add(self, address: int, offset: int) -> None:
        """Add the attach point ``offset`` bytes after a function's address."""
        self._order.append(address)
        self.pointers[address + offset + _BREAKPOINT] = address
        if not offset:  # the kernel moves it after a landing pad
            self.pointers[address + _ENDBR + _BREAKPOINT] = address

    def missed(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return address → missed hits, if any; ``numbers`` are those of all attach points."""
        if len(numbers) != len(self._order):
            return {}
        return {at: missed for at, missed in zip(self._order, numbers, strict=True) if missed}


class MultiProbeEvents(Link):
    """Multi-probe events and the programs attached to them; closed as one link.

    Attributes:
        events: the defined ones.
        names: address → function name, for messages.
    """

    def __init__(self) -> None:
        self.events: list[MultiProbeEvent] = []
        self.names: dict[int, str] = {}
        self._root = tracefs()
        self._links: list[Link] = []

    @property
    def detach_steps(self) -> int:
        """The number of attach points."""
        return sum(len(event.pointers) for event in self.events)

    def define(
        self, groups: Sequence[Sequence[int]], tell: Callable[[int], object]
    ) -> list[MultiProbeEvent]:
        """Define an event for each group of functions, at their entries, without arming it.

        The first attach point of every event is defined before all others, because the kernel
        searches all attach points of all events for an event's name, in order of definition.

        Args:
            groups: addresses of functions; no address twice in one group.
            tell: called with 1 after each function.

        Raises:
            NotSupported: no kprobe events, or only with one attach point each.
        """
        events = [MultiProbeEvent(new_event_name()) for _ in groups]
        self.events += events  # before there is anything to remove
        offsets = dict(entry_offsets([at for group in groups for at in group]))
        path = self._root / EVENT_FILES["p"]
        try:
            file = FD(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        except OSError as err:
            raise NotSupported(f"{path} ({err.strerror})", None) from err
        with file:
            waiting = [iter(group) for group in groups]
            for first in (True, False):
                for event, addresses in zip(events, waiting, strict=True):
                    for address in addresses:
                        _define(file.fileno(), event, address, offsets[address])
                        tell(1)
                        if first and event.pointers:
                            break
        return events

    def arm(self, event: MultiProbeEvent, program: Program) -> None:
        """Attach a program to an event.

        Raises:
            TracingError: the kernel refuses.
        """
        try:
            number = int((self._root / "events" / event.name / "id").read_text())
        except (OSError, ValueError) as err:
            raise TracingError(f"{self._root}/events/{event.name}/id: {err}") from err
        self._links.append(attach_tracepoint(program, number))

    def missed(self) -> int:
        """Return the hits that were missed because another kprobe ran on the same CPU."""
        profile: dict[str, list[int]] = {}
        for name, number in kprobe_misses(self._root):
            profile.setdefault(name, []).append(number)
        found: dict[int, int] = {}
        for event in self.events:
            found |= event.missed(profile.get(event.name.partition("/")[2], []))
        worst = sorted(found.items(), key=lambda one: -one[1])[:_MOST_MISSED]
        self.most_missed = tuple((self.names.get(at, f"{at:#x}"), number) for at, number in worst)
        return sum(found.values())

    def close(self) -> None:
        """Disarm all events, then remove them: each step waits for a grace period."""
        with expedited_rcu():
            try:
                links, self._links = self._links, []
                close_links(links)
            finally:
                self._remove()

    def _remove(self) -> None:
        # An event that is still in use does not prevent the removal of the others.
        stuck: list[SyscallError] = []
        while self.events:
            event = DefinedEvent(EVENT_FILES["p"], self.events[-1].name)
            try:
                remove_event(self._root, event)
            except SyscallError as err:
                stuck.append(err)
            self.events.pop()
        if stuck:
            raise stuck[0]


def _define(file: int, event: MultiProbeEvent, address: int, offset: int) -> None:
    while True:
        # The kernel takes attach points given by address for the same unless an argument differs.
        line = f"p:{event.name} {address + offset:#x} n=\\{len(event.pointers)}\n"
        try:
            os.write(file, line.encode())
        except OSError as err:
            number = err.errno or errno.EIO
            if number == errno.EEXIST and event.pointers:
                raise NotSupported("events with several attach points", None) from err
            if not offset:
                event.refused[address] = SyscallError(number, f"defining {address:#x}")
                return
            offset = 0  # this instruction cannot be probed: try the call to ftrace
        else:
            event.add(address, offset)
            return
