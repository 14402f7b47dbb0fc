"""Functions of the kernel by the thousand, as places of a few events of tracefs, for programs.

A kprobe as a perf event of its own costs grace periods when it comes and when it goes. An event of
tracefs may have many places (Linux 5.4, commit ca89bc071d5e, "tracing/kprobe: Add multi-probe per
event support"): it is one perf event with one program, which arms and disarms them all. The program
tells them apart by the instruction pointer.

Places lie behind the call of ftrace that functions begin with, where nothing has changed since
they were entered: a breakpoint there is written at once, and made a jump soon after. At the call
itself a kprobe is ftrace's, which goes through all of its records for each: in an emulated CPU 20
milliseconds to arm and to disarm, not a tenth of one.
"""

from __future__ import annotations

import errno
import os
from itertools import pairwise
from typing import TYPE_CHECKING

from usdt.base.closeable import FD
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.base.machine import KERNEL_MACHINE
from usdt.bpf.kcore import KcoreReader
from usdt.bpf.link import Link, attach_tracepoint, close_links
from usdt.bpf.rcu import expedited_rcu
from usdt.tracefs.definitions import EVENT_FILES, DefinedEvent, remove_event
from usdt.tracefs.function_entry import MAX_CODE, offset_after_entry
from usdt.tracefs.kprobe_events import kprobe_misses, new_event_name
from usdt.tracefs.mount import tracefs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.bpf.program import Program

__all__ = ("MultiProbeEvent", "MultiProbeEvents", "multi_probe_supported")

_ENDBR = 4  # bytes of the landing pad before ftrace's call, in kernels with IBT
_WORST = 3  # functions that are named where hits were missed
_BREAKPOINT = 1  # by which the registers' pointer is behind the place, in every kind of kprobe


def multi_probe_supported() -> bool:
    """Whether this CPU's functions can be taken by the thousand."""
    return KERNEL_MACHINE == "x86_64"


class MultiProbeEvent:
    """One event and its places.

    Attributes:
        name: ``GROUP/EVENT``.
        pointers: the registers' instruction pointer at a hit → which of the addresses that were
            asked for this is.
        refused: addresses that the kernel does not take, and why.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pointers: dict[int, int] = {}
        self.refused: dict[int, TracingError] = {}
        self._order: list[int] = []  # addresses, as the kernel lists their places

    def add(self, address: int, offset: int) -> None:
        """Note that an address has a place, so many bytes behind it."""
        self._order.append(address)
        self.pointers[address + offset + _BREAKPOINT] = address
        if not offset:  # the kernel moves it behind a landing pad
            self.pointers[address + _ENDBR + _BREAKPOINT] = address

    def missed(self, numbers: Sequence[int]) -> dict[int, int]:
        """Address → hits that were missed there, of those with any; given those of all places."""
        if len(numbers) != len(self._order):
            return {}
        return {at: missed for at, missed in zip(self._order, numbers, strict=True) if missed}


class MultiProbeEvents(Link):
    """Events with many places each, and the programs attached to them; closed as one.

    Attributes:
        events: that are defined.
        names: what people know addresses by.
    """

    def __init__(self) -> None:
        self.events: list[MultiProbeEvent] = []
        self.names: dict[int, str] = {}
        self._root = tracefs()
        self._links: list[Link] = []

    @property
    def detach_steps(self) -> int:
        """How many there are."""
        return sum(len(event.pointers) for event in self.events)

    def define(
        self, groups: Sequence[Sequence[int]], tell: Callable[[int], object]
    ) -> list[MultiProbeEvent]:
        """Define an event for each group of functions, at their entries; nothing is armed yet.

        Every event's first place is defined before the other ones are: the kernel looks for an
        event's name among all places of all events, in their order.

        Args:
            groups: where functions begin, in each group all different.
            tell: called with 1 after each.

        Raises:
            NotSupported: no such events here, or with one place each.
        """
        events = [MultiProbeEvent(new_event_name()) for _ in groups]
        self.events += events  # before there is anything to remove
        offsets = dict(_offsets([at for group in groups for at in group]))
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
        """Attach a program to an event's places.

        Raises:
            TracingError: what the kernel says.
        """
        try:
            number = int((self._root / "events" / event.name / "id").read_text())
        except (OSError, ValueError) as err:
            raise TracingError(f"{self._root}/events/{event.name}/id: {err}") from err
        self._links.append(attach_tracepoint(program, number))

    def missed(self) -> int:
        """Hits of which no program was told, because another probe was at work on the CPU."""
        profile: dict[str, list[int]] = {}
        for name, number in kprobe_misses(self._root):
            profile.setdefault(name, []).append(number)
        found: dict[int, int] = {}
        for event in self.events:
            found |= event.missed(profile.get(event.name.partition("/")[2], []))
        worst = sorted(found.items(), key=lambda one: -one[1])[:_WORST]
        self.most_missed = tuple((self.names.get(at, f"{at:#x}"), number) for at, number in worst)
        return sum(found.values())

    def close(self) -> None:
        """Disarm everything, then remove the definitions: each waits for a grace period."""
        with expedited_rcu():
            try:
                links, self._links = self._links, []
                close_links(links)
            finally:
                self._remove()

    def _remove(self) -> None:
        # One that is still in use does not keep the others.
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


def _offsets(addresses: Sequence[int]) -> Iterator[tuple[int, int]]:
    # Each address and how far behind it the place is; 0 where the code cannot be read.
    ordered = sorted(set(addresses))
    ends = dict(pairwise(ordered))
    try:
        code = KcoreReader()
    except NotSupported:
        yield from ((address, 0) for address in addresses)
        return
    with code:
        for address in addresses:
            size = min(ends.get(address, address + MAX_CODE) - address, MAX_CODE)
            yield address, offset_after_entry(code.read(address, size))


def _define(file: int, event: MultiProbeEvent, address: int, offset: int) -> None:
    while True:
        # Places that are addresses are taken for the same unless an argument differs: its number.
        line = f"p:{event.name} {address + offset:#x} n=\\{len(event.pointers)}\n"
        try:
            os.write(file, line.encode())
        except OSError as err:
            number = err.errno or errno.EIO
            if number == errno.EEXIST and event.pointers:
                raise NotSupported("several places under one event of tracefs", None) from err
            if not offset:
                event.refused[address] = SyscallError(number, f"defining {address:#x}")
                return
            offset = 0  # an instruction that cannot be probed: ftrace's call can
        else:
            event.add(address, offset)
            return
