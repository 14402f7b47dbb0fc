"""The starts of pairs that have no end yet, as user space reads them from the maps.

:mod:`usdt.engine.spans.pairs` defines the maps.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from usdt.engine.compiler.entry_return import TIME_OFFSET
from usdt.engine.spans.pairs import DEPTHS, NESTED, SPANS, THREADS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from usdt.bpf.maps import Map

__all__ = ("PairStarts", "is_open")

_U64 = struct.Struct("=Q")
_HEADER = bytes(8)  # of a key
_IDLE = 1 << 32  # and above: the idle task of a CPU, as a key


class PairStarts:
    """The starts in the maps of a session.

    Args:
        maps: the maps, by name.
        state: offset of the entry state in an entry of THREADS.

    Attributes:
        dead: the number of starts whose threads have ended.
    """

    def __init__(self, maps: Mapping[str, Map], state: int) -> None:
        self.dead = 0
        self._maps = maps
        self._state = state

    def states(self) -> Iterator[bytes]:
        """Yield the entry states of starts without an end, without those that an end dropped."""
        depths = dict(self._maps[DEPTHS].items())
        for _, key, entry in self._threads():
            depths[key] = entry[:8]
            if _depth(entry):
                yield entry[self._state : -8]
        for key, state in list(self._maps[SPANS].items()):
            if _U64.unpack_from(state)[0] < _depth(depths.get(bytes(4) + key[4:])):
                yield state

    def purge(self) -> None:
        """Remove the starts of threads that have ended; the keys must be threads."""
        for place, key, entry in list(self._threads()):
            if _has_ended(key):
                self._remove(key, _depth(entry), first=1)
                self.dead += bool(_depth(entry)) and is_open(entry[self._state :])
                self._maps[THREADS].set(place, bytes(len(entry)))
        for key in list(self._maps[DEPTHS].keys()):
            if _has_ended(key):
                self._remove(key, _depth(self._maps[DEPTHS].get(key)))
                self._maps[DEPTHS].delete(key)

    def _threads(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        # Yields the entries of THREADS that are in use: (index, key of the thread, entry).
        if THREADS not in self._maps:
            return
        for place, entry in self._maps[THREADS].items():
            if any(entry[-8:]):
                yield place, _HEADER + entry[-8:], entry

    def _remove(self, key: bytes, depth: int, first: int = 0) -> None:
        for slot in range(first, NESTED):
            found = struct.pack("=I", slot) + key[4:]
            state = self._maps[SPANS].get(found)
            if state is not None:
                self.dead += is_open(state) and _U64.unpack_from(state)[0] < depth
                self._maps[SPANS].delete(found)


def is_open(state: bytes) -> bool:
    """Return whether a start has filled its entry state: the time is written last."""
    return any(state[TIME_OFFSET : TIME_OFFSET + 8])


def _depth(value: bytes | None) -> int:
    return int(_U64.unpack_from(value)[0]) if value else 0


def _has_ended(key: bytes) -> bool:
    (thread,) = _U64.unpack_from(key, len(_HEADER))
    return thread < _IDLE and not os.path.exists(f"/proc/{thread}")  # noqa: PTH110 - slow
