"""Events of the Python API: hits and spans, as named tuples."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, TypeVar

from usdt.arch.locations import Unreadable
from usdt.base.errors import TracingError
from usdt.engine.output.frames import Frame

__all__ = ("Event", "EventValue", "Span")

#: The value of an item in an event.
EventValue: TypeAlias = int | float | str | list[Any] | dict[str, Any] | Frame | Unreadable | None

T = TypeVar("T")


class Event(NamedTuple):
    """One hit of a probe.

    Attributes:
        time: CLOCK_MONOTONIC, nanoseconds.
        pid, tid: process ID and thread ID.
        cpu: number of the processor.
        comm: name of the thread, at most 15 bytes.
        probe: ``provider:name``.
        args: item as written → int, float, str (bytes that are not UTF-8 as surrogates) or
            :class:`usdt.arch.locations.Unreadable`; a stack is a list of
            :class:`usdt.engine.output.frames.Frame`; a socket address is a dict
            (:func:`usdt.engine.output.socket_addresses.socket_address`), or None for NULL.
            :meth:`value` checks the type.
        event: "return" for a function's return, else "hit".
    """

    time: int
    pid: int
    tid: int
    cpu: int
    comm: str
    probe: str
    args: dict[str, EventValue]
    event: str = "hit"

    def value(self, name: str, kind: type[T]) -> T:
        """Return an item's value, which must be of a type: ``event.value("arg0", int)``.

        Raises:
            KeyError: there is no such item.
            TracingError: the value could not be read.
            TypeError: it has another type.
        """
        return _typed(self.probe, name, self.args[name], kind)


class Span(NamedTuple):
    """A call, or a pair of hits, with its duration.

    Attributes:
        start: CLOCK_MONOTONIC, nanoseconds.
        duration: nanoseconds.
        pid, tid, cpu, comm: as in :class:`Event`, at the start.
        probe: the probe that began it.
        end_probe: the probe that ended it; a function's own return has the same name.
        args: the items of the start, as in :class:`Event`.
        end_args: those of the end.

    Examples:
        >>> span.args["str(arg0)"], span.duration // 1_000_000
        ('SELECT 1', 12)
    """

    start: int
    duration: int
    pid: int
    tid: int
    cpu: int
    comm: str
    probe: str
    end_probe: str
    args: dict[str, EventValue]
    end_args: dict[str, EventValue]

    def value(self, name: str, kind: type[T]) -> T:
        """Return the value of an item of the start or, if that has none, of the end.

        Raises:
            KeyError, TracingError, TypeError: as from :meth:`Event.value`.
        """
        args = self.args if name in self.args else self.end_args
        return _typed(self.probe, name, args[name], kind)


def _typed(probe: str, name: str, value: EventValue, kind: type[T]) -> T:
    if isinstance(value, kind):
        return value
    if isinstance(value, Unreadable):
        raise TracingError(f"{probe}: {name} is not readable: {value.reason}")
    raise TypeError(f"{probe}: {name} is {type(value).__name__} {value!r}, not {kind.__name__}")
