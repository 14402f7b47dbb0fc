"""Programs on perf counters: timers, and events of the kernel and the CPU that are counted.

A program runs each time that a counter has counted a period, on the CPU and in the task that was
interrupted (Linux 4.9, commit 0515e5999a46).

To begin one counter, the kernel stops all counters of the CPU and begins them again: a thousand of
them take a second, 2000 take six. So many begin together, by :class:`CommonStart`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
from typing import TYPE_CHECKING

from usdt.base.closeable import FD, Closeable
from usdt.base.errors import NotSupported, SyscallError
from usdt.base.frozen import frozen
from usdt.bpf._syscall import perf_attribute, perf_event_open
from usdt.bpf._uapi import PERF_ATTR_SIZE, ioctl_number
from usdt.bpf.link import Link, connect_perf_event
from usdt.bpf.maps import read_cpu_list

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.bpf.program import Program

__all__ = (
    "HARDWARE",
    "SOFTWARE",
    "CommonStart",
    "Counter",
    "EventsLink",
    "attach_counter",
    "connect_each",
)

HARDWARE, SOFTWARE = 0, 1  # enum perf_type_id
_DUMMY = 9  # enum perf_sw_ids: PERF_COUNT_SW_DUMMY
_DISABLED, _FREQUENCY = 1 << 0, 1 << 10  # struct perf_event_attr: the bits "disabled", "freq"
_ENABLE = ioctl_number("$", 0)  # PERF_EVENT_IOC_ENABLE
_MOST_MEMBERS = 128  # of a group: whoever joins waits longer, the more there are


@frozen
class Counter:
    """What is counted, and how often a program runs.

    Attributes:
        type: HARDWARE or SOFTWARE.
        config: enum perf_hw_id or perf_sw_ids.
        period: run after so many counts; of a clock, nanoseconds.
        frequency: run so many times a second instead; 0: the period decides.
        every_cpu: count on every CPU; else only on the first.
    """

    type: int
    config: int
    period: int = 0
    frequency: int = 0
    every_cpu: bool = True


class EventsLink(Link):
    """Perf events that run the same program, such as those of all CPUs."""

    def __init__(self, links: list[Link]) -> None:
        super().__init__(links[0].fd)
        self._links = links

    @property
    def detach_steps(self) -> int:
        """The number of events."""
        return len(self._links)

    def close(self) -> None:
        """Close the events."""
        for link in self._links:
            link.close()


class CommonStart(Closeable):
    """Counters of the kernel that begin together; a context manager.

    They are members of groups on their CPU, whose leaders count nothing and are disabled until
    :meth:`close` enables and closes them. After that each counter is on its own.
    """

    def __init__(self) -> None:
        self._leaders: list[FD] = []
        self._current: dict[int, tuple[FD, int]] = {}  # CPU → its latest leader, and its members

    def leader(self, cpu: int) -> FD:
        """Return the leader of one more counter on a CPU.

        Raises:
            SyscallError: any error of the kernel.
        """
        found, members = self._current.get(cpu, (None, 0))
        if found is None or members >= _MOST_MEMBERS:
            event = _open_event(Counter(SOFTWARE, _DUMMY), cpu, flags=_DISABLED)
            found, members = FD(event), 0
            self._leaders.append(found)
        self._current[cpu] = found, members + 1
        return found

    def close(self) -> None:
        """Begin; idempotent."""
        for leader in self._leaders:
            with contextlib.suppress(OSError):  # its CPU has gone offline
                fcntl.ioctl(leader.fileno(), _ENABLE, 0)
            leader.close()
        self._leaders.clear()
        self._current.clear()


def attach_counter(program: Program, counter: Counter, start: CommonStart | None = None) -> Link:
    """Attach ``program`` to a counter.

    Args:
        program: of ``ProgType.PERF_EVENT``. Its context is ``struct bpf_perf_event_data``.
        counter: the counter.
        start: begins it, if it is one of the kernel; None: it begins at once.

    Raises:
        NotSupported: this machine has no such counter; many virtual machines have none of the CPU.
        SyscallError: any other error of the kernel.
    """
    cpus = read_cpu_list("online")
    used = cpus if counter.every_cpu else cpus[:1]
    # The counters of the CPU are few: a group of more would never count.
    together = start if counter.type == SOFTWARE else None
    return EventsLink(connect_each((_open(counter, cpu, together) for cpu in used), program))


def connect_each(events: Iterable[FD | None], program: Program) -> list[Link]:
    """Return a link of the program to each perf event; those that are None are left out.

    If one cannot be opened or connected, the others are closed.
    """
    links: list[Link] = []
    try:
        for event in events:
            if event is not None:
                link = connect_perf_event(event, program, None)
                links.append(link)
    except BaseException:
        for link in links:
            link.close()
        raise
    return links


def _open(counter: Counter, cpu: int, start: CommonStart | None = None) -> FD | None:
    # None: the CPU has gone offline meanwhile.
    flags = _FREQUENCY if counter.frequency else 0
    try:
        group = -1 if start is None else start.leader(cpu).fileno()
        return FD(_open_event(counter, cpu, flags=flags, group=group))
    except SyscallError as err:
        if err.errno == errno.ENODEV and counter.type == SOFTWARE:
            return None
        if err.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
            raise NotSupported("this counter") from err
        raise


def _open_event(counter: Counter, cpu: int, *, flags: int, group: int = -1) -> int:
    every = counter.frequency or counter.period
    attribute, _ = perf_attribute(
        "IIQQQQQIIQQ40x",
        *(counter.type, PERF_ATTR_SIZE, counter.config, every, 0, 0, flags, 0, 0, 0, 0),
    )
    return perf_event_open(attribute, -1, cpu, group)
