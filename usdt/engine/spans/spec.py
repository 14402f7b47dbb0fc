"""The spans that a command line asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError
from usdt.base.frozen import frozen
from usdt.base.text import plural
from usdt.engine.aggregate.spec import Items, parse_keys

if TYPE_CHECKING:
    from usdt.engine.language.tree import ProbeText

__all__ = ("MAX_OPEN", "SpanSpec", "span_spec")

MAX_OPEN = 10240  # open spans that are kept by default
_THREAD = "tid"


@frozen
class SpanSpec:
    """Spans: calls of a function, or pairs of probes.

    Attributes:
        start: the function, or the probe that begins a span.
        end: the probe that ends a span; None for calls.
        key: what pairs a start with its end.
        end_key: the same at the end.
        slower: the least duration in nanoseconds that is delivered; 0 for all.
        max_open: the number of open spans that are kept.
    """

    start: ProbeText
    end: ProbeText | None = None
    key: Items = Items()
    end_key: Items = Items()
    slower: int = 0
    max_open: int = MAX_OPEN

    @property
    def by_thread(self) -> bool:
        """Whether a start and its end are in one thread by their key."""
        keys = ([item.text for item in items.items] for items in (self.key, self.end_key))
        return all(key == [_THREAD] for key in keys)

    @property
    def measures_intervals(self) -> bool:
        """Whether each hit of a probe of programs ends a span and starts the next one."""
        start, end = self.start, self.end
        same = end is not None and (start.kind, start.pattern) == (end.kind, end.pattern)
        return same and start.kind in ("usdt", "uprobe")

    @property
    def requests(self) -> tuple[ProbeText, ...]:
        """The probes."""
        return (self.start,) if self.end is None else (self.start, self.end)


def span_spec(
    start: ProbeText,
    end: ProbeText | None,
    *,
    key: str | None = None,
    end_key: str | None = None,
    slower: int = 0,
    max_open: int = MAX_OPEN,
) -> SpanSpec:
    """Return spans with the keys of ``--key`` and ``--end-key``.

    Raises:
        LanguageError: a key is not valid, or there is one without an end.
    """
    given = end_key if end_key is not None else key
    if end is None and given is not None:
        reason = "a function's calls need no key: --key pairs START with END, which is missing"
        raise LanguageError(given, 0, reason)
    keys = parse_keys(key if key is not None else _THREAD, "--key")
    end_keys = parse_keys(given if given is not None else _THREAD, "--end-key")
    if len(keys.items) != len(end_keys.items):
        reason = f"--key has {plural(len(keys.items), 'value')} and --end-key {len(end_keys.items)}"
        raise LanguageError(end_keys.text, 0, f"{reason}: write as many, in the same order")
    return SpanSpec(start, end, keys, end_keys, slower, max_open)
