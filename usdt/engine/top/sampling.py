"""The arguments of a probe, learnt from its hits: their names, and which are strings.

Only a hit tells whether an address is that of a string.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from usdt.engine.api.sessions import Session

__all__ = ("Argument", "Sampler")

_HITS = 64  # that are looked at
_WAIT = 0.2  # seconds that a look waits for one
_LOWEST_ADDRESS = 1 << 16  # of memory that a process may map
_ADDRESSES = 1 << 40  # numbers from here on are shown as addresses


@frozen
class Argument:
    """An argument.

    Attributes:
        name: its name in items.
        key: what hits are grouped by.
        is_number: whether a histogram of it says something.
    """

    name: str
    key: str
    is_number: bool = False


class Sampler:
    """Records a few hits of a probe until its arguments are known; a hit costs more meanwhile.

    Args:
        session: makes a session; it is closed with the sampler.
        text: returns the text of the probe with items.

    Raises:
        TracingError: the probe cannot be attached.
    """

    def __init__(self, session: Callable[[], Session], text: Callable[[str], str]) -> None:
        self._make, self._text = session, text
        self._known: dict[str, Any] | None = None  # name → a value
        self._session = session()
        self._attach("")

    def _attach(self, items: str) -> None:
        try:
            self._events = self._session.attach(self._text(items))
        except BaseException:
            self._session.close()
            raise

    def look(self) -> tuple[Argument, ...] | None:
        """Return the arguments; None until there was a hit.

        Raises:
            TracingError: the probe cannot be attached any more.
        """
        events = self._events.poll(_WAIT)[:_HITS]
        if not events:
            return None
        if self._known is not None:
            return self._arguments([event.args for event in events])
        self._known = {}
        for event in events:
            self._known |= event.args
        addresses = [name for name, value in self._known.items() if _may_be_address(name, value)]
        if not addresses:
            return self._arguments(())
        self._session.close()
        self._session = self._make()
        self._attach(", ".join(f"str({name})" for name in addresses))
        return self.look()

    def close(self) -> None:
        """Detach. Idempotent."""
        self._session.close()

    def _arguments(self, hits: Iterable[dict[str, Any]]) -> tuple[Argument, ...]:
        seen: dict[str, list[Any]] = {}
        for args in hits:
            for key, value in args.items():
                seen.setdefault(key, []).append(value)
        found = []
        for name, value in (self._known or {}).items():
            number = isinstance(value, int) and not isinstance(value, bool)
            if _are_strings(seen.get(f"str({name})", ())):
                found.append(Argument(name, f"str({name})"))
            elif number and abs(value) >= _ADDRESSES:
                found.append(Argument(name, f"hex({name})"))
            else:
                found.append(Argument(name, name, number))
        return tuple(found)


def _may_be_address(name: str, value: object) -> bool:
    # The names of arguments of which no type is known are arg0, arg1, ….
    unnamed = name.startswith("arg") and name[3:].isdecimal()
    return unnamed and isinstance(value, int) and value >= _LOWEST_ADDRESS


def _are_strings(values: Iterable[object]) -> bool:
    values = list(values)
    readable = [value for value in values if isinstance(value, str)]
    texts = [value for value in readable if value and value.isprintable()]
    return bool(texts) and 2 * len(texts) >= len(values)
