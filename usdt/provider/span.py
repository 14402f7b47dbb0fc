"""Spans: a probe where a piece of work begins, one where it ends, and the time between."""

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
    """A piece of work with a probe at either end; made by :meth:`usdt.Provider.span`.

    ``NAME__start(u64 id, str what)`` and ``NAME__done(u64 id, u64 nanoseconds, str what, str
    error)``: ``what`` is the qualified name of a decorated function and else the span's own;
    ``error`` the class of an exception that ended it, or NULL. Ids pair the two: they are unique
    in a process, nested and interleaved spans (threads, asyncio tasks) included. A span that
    began before a tracer came is not reported. Raises nothing of its own.

    Example:
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
        # Each task and thread has its own: spans of several interleave.
        self._open: ContextVar[tuple[tuple[int, int], ...]] = ContextVar(f"span {name}", default=())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Report every call of a function, or every run of a coroutine function."""
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
        # (id, when); nothing is timed while nobody looks.
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
