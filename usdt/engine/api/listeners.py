"""The callbacks of a session: the events of all their probes are one ordered stream."""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.engine.api.attach import attach_and_release
from usdt.engine.api.stream import Stream
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.symbol_needs import wants_user_symbols
from usdt.engine.run.attach import attach_more, session_settings
from usdt.engine.runtime.session import RingBufferSession

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.api.attach import StackNames
    from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.formatters.event_records import Event
    from usdt.engine.output.formatters.formatter import FieldSource
    from usdt.engine.output.stacks import StackResolver
    from usdt.engine.run.attach import AttachedProbes
    from usdt.engine.run.options import TargetOptions, TraceOptions

__all__ = ("Listeners",)

_VARIANT = struct.Struct("=12xI")  # in bytes 8 to 40 of a record, usdt.engine.output.decode.CONTEXT


class Listeners:
    """Probes with callbacks, attached to one session: one ring buffer keeps their hits in order.

    Args:
        targets: the processes to trace.
        options: what to record.
        names: where names of user stacks come from.
    """

    def __init__(self, targets: TargetOptions, options: TraceOptions, names: StackNames) -> None:
        self._targets = targets
        self._options = options
        self._stacks = names.resolver()
        self._form = _PairFormatter(self._stacks)
        self._open: _Open | None = None

    def add(self, request: ProbeText, callback: Callable[[Event], object]) -> None:
        """Attach a probe; from now on, dispatch() calls ``callback`` with its events.

        Raises:
            TracingError: the probe cannot be attached. Those attached before stay.
        """
        listener = self._form.add(request, callback)
        try:
            self._attach(request)
        except BaseException:
            listener.callback = _ignore  # some of its sites may be attached
            raise

    def _attach(self, request: ProbeText) -> None:
        if self._open is None:
            attached, release = attach_and_release(
                self._stacks,
                self._targets,
                [request],
                functools.partial(self._session, request),
                self._options,
            )
            stream: Stream[tuple[_Listener, Event]] = Stream(
                attached.targets, release, lambda: self._stacks.observe(())
            )
            self._open = _Open(attached, stream)
            return
        if wants_user_symbols(request) and not self._stacks.wanted:
            self._stacks.wanted = True
            self._stacks.begin(())
        attached = self._open.attached
        self._open.stream.extend(lambda: attach_more(attached, [request], self._options))

    def _session(self, request: ProbeText, tasks: TaskFilter) -> _ListenerSession:
        options = self._options
        return _ListenerSession(
            self._form,
            **session_settings(options, [request], tasks),
        )

    def dispatch(self) -> bool:
        """Call the callbacks with the events that are available; return whether there were any.

        Raises:
            ProbeNotFound: no library with a requested probe was loaded in time.
        """
        pairs = [] if self._open is None else self._open.stream.poll(0.0)
        for listener, event in pairs:
            listener.callback(event)
        return bool(pairs)

    @property
    def ended(self) -> bool:
        """Whether no event follows: all processes have ended, or there is no callback."""
        return self._open is None or self._open.stream.ended

    def close(self) -> None:
        """Detach everything. Idempotent; may be called from any thread."""
        if self._open is not None:
            self._open.stream.close()


@frozen
class _Open:
    # What is attached, and the events with their listeners.
    attached: AttachedProbes
    stream: Stream[tuple[_Listener, Event]]


class _Listener:
    # A probe and its callback; requests are compared by identity, as two may have the same text.
    def __init__(self, request: ProbeText, callback: Callable[[Event], object]) -> None:
        self.request = request
        self.callback = callback


def _ignore(_event: Event) -> None:
    pass


class _PairFormatter(EventFormatter):
    # Makes pairs of the listener and the event.
    def __init__(self, stacks: StackResolver) -> None:
        super().__init__(stacks)
        self._listeners: list[_Listener] = []
        self._by_variant: dict[int, _Listener] = {}
        self.names["listener"] = self._listener
        self.return_names["listener"] = self._listener

    def add(self, request: ProbeText, callback: Callable[[Event], object]) -> _Listener:
        self._listeners.append(_Listener(request, callback))
        return self._listeners[-1]

    def announce(self, number: int, request: ProbeText) -> None:
        for listener in self._listeners:
            if listener.request is request:
                self._by_variant[number] = listener

    def record(self, values: Sequence[FieldSource]) -> str:
        return f"(listener(key), {super().record(values)})"

    def _listener(self, context: bytes) -> _Listener:
        (number,) = _VARIANT.unpack_from(context)
        return self._by_variant[number]


class _ListenerSession(RingBufferSession):
    # Tells the formatter which request a variant is of.
    def __init__(self, form: _PairFormatter, **settings: Any) -> None:
        super().__init__(form, **settings)
        self._form = form

    def _announce(self, variant: ProgramVariant, probe: str, request: ProbeText) -> None:
        super()._announce(variant, probe, request)
        self._form.announce(variant.number, request)
