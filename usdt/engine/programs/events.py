"""What a program sends to user space: one record for each call of printf(), print() and others."""

from __future__ import annotations

import enum
import itertools
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.engine.programs.types import size_of

if TYPE_CHECKING:
    from usdt.engine.programs.types import Type
    from usdt.engine.programs.variables import MapVariable

__all__ = ("EVENT_HEADER", "EVENT_NUMBER", "Event", "EventKind")

EVENT_NUMBER = 8  # offset of a u32; before it the time, if there are several ring buffers
EVENT_HEADER = 16


class EventKind(enum.Enum):
    """What user space does with an event."""

    PRINTF = "printf"
    ERRORF = "errorf"
    WARNF = "warnf"
    SYSTEM = "system"
    CAT = "cat"
    PRINT = "print"  # a value
    PRINT_MAP = "print_map"
    CLEAR = "clear"
    ZERO = "zero"
    EXIT = "exit"
    RETURN = "return"  # of a probe of the kind test
    TIME = "time"
    JOIN = "join"
    PACKET = "packet"  # the bytes of a packet and how many it has, and when
    DEBUG = "debug"  # debugf(): it goes to the kernel's trace, not to user space
    WARNING = "warning"  # of the toolkit: a division by 0
    HELPER_ERROR = "helper_error"  # a helper of the kernel has failed, its result is the value


@frozen
class Event:
    """A call whose effect is in user space.

    Attributes:
        number: its index in the events of the program.
        kind: what to do.
        types: the types of its values, which the record holds one after the other.
        text: the format of printf() and the like, or of time(); the separator of join(); the
            warning; the name of the helper that has failed; the file of packets.
        map: the map that it is about.
        keyed: for PRINT_MAP, whether the first value is a key, so that one entry is printed.
        at_end: whether the probe ``end`` makes it: others do not count behind exit().
        start: for HELPER_ERROR, where in the text.
    """

    number: int
    kind: EventKind
    types: tuple[Type, ...] = ()
    text: str = ""
    map: MapVariable | None = None
    keyed: bool = False
    at_end: bool = False
    start: int = -1

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of the values in the record, and the record's size behind them."""
        return tuple(itertools.accumulate(map(size_of, self.types), initial=EVENT_HEADER))
