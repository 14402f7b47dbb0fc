"""For tests of programs that carry probes: what fired inside a ``with`` block.

    from usdt.testing import traced

    def test_an_order_is_told(shop):
        with traced("shop:order") as hits:
            shop.buy("cart")
        assert hits == [(42, "cart")]

Needs what tracing needs: root, or CAP_BPF and CAP_PERFMON. Import it where it is used.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from usdt.api import attach
from usdt.base.errors import TracingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.output.formatters import Event

__all__ = ("Hits", "traced")


class Hits(list[tuple[Any, ...]]):
    """The values of each hit, in order; compares as a list of tuples. Made by :func:`traced`.

    Attributes:
        events: the same as events, with time, thread and the name of the probe.
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
    """Trace probes while a block runs; the hits are there when it has ended.

    Args:
        probes: ``provider:name``, with items in parentheses or without. Without, a probe of a
            :class:`usdt.Provider` of this process gives what it was fired with, strings
            included; any other its arguments as numbers.
        pid: the process to trace; this one if neither it nor ``command`` is given.
        command: a program to start and trace; the block's end waits for its end.
        max_string: bytes that are kept of a string.

    Raises:
        TracingError: a probe that does not exist, or hits that were lost.

    Example:
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
        raise TracingError(f"{', '.join(probes)}: {lost} hits were lost: too many at once")


def _with_values(text: str) -> str:
    # The items that show what a probe of our own was fired with.
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
