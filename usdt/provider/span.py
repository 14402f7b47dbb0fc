"""Spans: operations with a probe at their start, one at their end, and a duration."""

from __future__ import annotations

import functools
import inspect
import itertools
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from usdt.provider.probe import FiredProbe

__all__ = ("Span",)

P = ParamSpec("P")
R = TypeVar("R")

_numbers = itertools.count(1)


class Span:
    """An operation with a probe at its start and one at its end.

    :meth:`usdt.Provider.span` creates it. The probes are ``NAME__start(u64 id, str what)`` and
    ``NAME__done(u64 id, u64 nanoseconds, str what, str error)``. ``what`` is the qualified name of
    a decorated function, or else the name of the span; ``error`` is the class of an exception that
    ended the operation, or NULL. The ID pairs the two probes. It is unique in a process, even for
    nested and interleaved spans (threads, asyncio tasks). A span that started before tracing is not
    reported.

    Examples:
        >>> request = shop.span("request")
        >>> @request
        ... def handle(path): ...
        >>> with request:
        ...     handle("/")
    """

    def __init__(self, name: str, start: FiredProbe, done: FiredProbe) -> None:
        self.name = name
        self.start = start
        self.done = done
        # Per task and thread, because their spans interleave.
        self._open: ContextVar[tuple[tuple[int, int], ...]] = ContextVar(f"span {name}", default=())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function or coroutine function: report each call."""
        what = f"{function.__module__}.{function.__qualname__}"
        start, done = self.start, self.done
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waited(*args: Any, **named: Any) -> Any:
                if not (start.enabled or done.enabled):
                    return await function(*args, **named)
                begun = self._begin(what)
                try:
                    result = await function(*args, **named)
                except BaseException as err:
                    self._end(begun, what, err)
                    raise
                self._end(begun, what, None)
                return result

            return cast("Callable[P, R]", waited)

        @functools.wraps(function)
        def called(*args: P.args, **named: P.kwargs) -> R:
            if not (start.enabled or done.enabled):
                return function(*args, **named)
            begun = self._begin(what)
            try:
                result = function(*args, **named)
            except BaseException as err:
                self._end(begun, what, err)
                raise
            self._end(begun, what, None)
            return result

        return called

    def __enter__(self) -> Self:
        self._open.set((*self._open.get(), self._begin(self.name)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        *rest, begun = self._open.get()
        self._open.set(tuple(rest))
        self._end(begun, self.name, error)

    def _begin(self, what: str) -> tuple[int, int]:
        # (ID, start in nanoseconds); (0, 0) while the probes are not traced.
        if not (self.start.enabled or self.done.enabled):
            return (0, 0)
        number = next(_numbers)
        self.start.fire(number, what)
        return (number, time.monotonic_ns())

    def _end(self, begun: tuple[int, int], what: str, error: BaseException | None) -> None:
        number, when = begun
        if number and self.done.enabled:
            duration = time.monotonic_ns() - when
            self.done.fire(number, duration, what, error and type(error).__qualname__)
