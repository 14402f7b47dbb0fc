"""How CPUs share ring buffers.

Programs that write to one ring buffer wait for its lock. Two CPUs that do nothing but write take
290 nanoseconds a record; one alone takes 80 (Linux 6.18, in a virtual machine).
So a machine with many CPUs has a buffer for every few of them. Programs find theirs in an array of
maps, by the number of the CPU.

The reader reads them as one (:mod:`.several`).
"""

from __future__ import annotations

import functools

from usdt.base.frozen import frozen
from usdt.bpf.maps import read_cpu_list
from usdt.bpf.rings.ringbuf import ring_size

__all__ = ("ONE_RING", "RingGroups", "groups_of", "ring_groups", "size_of_each")

_ALONE = 2  # CPUs that share a buffer without waiting for each other: measured
_MOST = 16  # buffers
_PARTS = 4  # each buffer has a quarter at least: what one busy CPU needs does not become less


@frozen
class RingGroups:
    """How CPUs share ring buffers: the buffer of a CPU has the index ``CPU >> shift``.

    Attributes:
        count: of the ring buffers.
        shift: see above.
        array_size: bytes of each if they are in an array (:mod:`.array_rings`); 0: the kernel's.
    """

    count: int
    shift: int
    array_size: int = 0

    @property
    def cpus(self) -> int:
        """How many CPUs may share one of them."""
        return 1 << self.shift if self.count > 1 else _ALONE


ONE_RING = RingGroups(1, 0)


@functools.cache
def ring_groups() -> RingGroups:
    """Return how the CPUs of this machine share ring buffers: there are 16 of them at most."""
    return groups_of(max(read_cpu_list("possible")) + 1)


def groups_of(cpus: int) -> RingGroups:
    """Return how so many CPUs share ring buffers."""
    if cpus <= _ALONE:
        return ONE_RING
    shift = max((cpus - 1).bit_length() - _MOST.bit_length() + 1, 0)
    return RingGroups((cpus - 1 >> shift) + 1, shift)


def size_of_each(size: int, count: int) -> int:
    """Return the bytes of each of ``count`` ring buffers: a power of two, a quarter at least.

    Raises:
        TracingError: more than 2 GiB each.
    """
    return ring_size(-(-size // min(count, _PARTS)))
