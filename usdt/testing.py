"""Record the probes that fire inside a ``with`` block, for tests of programs that have probes.

    from usdt.testing import traced

    def test_order_is_reported(shop):
        with traced("shop:order") as hits:
            shop.buy("cart")
        assert hits == [(42, "cart")]

Tracing needs root, or some capabilities: ``usdt features`` shows which.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from usdt.api import attach
from usdt.base.errors import TracingError
from usdt.base.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.output.formatters.event_records import Event

__all__ = ("Hits", "traced")


class Hits(list[tuple[Any, ...]]):
    """A list of tuples, the values of each hit in order. Returned by :func:`traced`.

    Attributes:
        events: the hits as events, with time, thread and the name of the probe.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []


@contextlib.contextmanager
def traced(
    *probes: str,
    pid: int | None = None,
    command: Sequence[str] | None = None,
    max_string: int = 1024,
) -> Iterator[Hits]:
    """Trace probes while a block runs. The hits are complete when the block has ended.

    Args:
        probes: ``provider:name``, optionally with items in parentheses. Without items, a probe of
            a :class:`usdt.Provider` of this process gives the values it was fired with, strings
            included; any other probe gives its arguments as numbers.
        pid: the process to trace; by default this one.
        command: a command to start and trace instead, with its arguments; the end of the block
            waits for it.
        max_string: bytes that are kept of a string.

    Raises:
        TracingError: a probe does not exist, or hits were lost.

    Examples:
        >>> with traced("shop:order") as hits:
        ...     order.fire(42, "cart")
        >>> hits
        [(42, 'cart')]
    """
    found = Hits()
    target = None if command is not None else (pid or os.getpid())
    requests = [_with_values(text) for text in probes]
    options: dict[str, Any] = {"pid": target, "command": command, "max_string": max_string}
    with attach(*requests, **options, library_timeout=0) as events:
        yield found
        if command is not None:
            found.events += events
        found.events += events.finish()
        lost = events.lost
    found.extend(tuple(event.args.values()) for event in found.events)
    if lost:
        raise TracingError(f"{', '.join(probes)}: {plural(lost, 'hit')} lost: too many at once")


def _with_values(text: str) -> str:
    # Add items that show the values which a probe of our own was fired with.
    from usdt.provider.provider import find_probe  # noqa: PLC0415 - only where tests run

    provider, _, name = text.partition(":")
    probe = find_probe(provider, name)
    if probe is None or not probe.arguments:
        return text
    items = [
        f"str(arg{index})" if kind.name == "str" else f"arg{index}"
        for index, kind in enumerate(probe.arguments)
    ]
    return f"{text}({', '.join(items)})"
