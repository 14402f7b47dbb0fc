"""Starts and ends of an aggregation: when the kernel pairs them, and what was no pair.

A gate in the kernel lets hits through while a start and an end are attached. Probes are attached
one after the other, seconds apart if they are in libraries that are loaded later. Starts that came
before the first end would stay in progress.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.engine.aggregate.codegen.pairs import (
    COUNTS,
    GATE,
    PLACES,
    STARTS,
    TOO_DEEP,
    UNMATCHED,
    UNPAIRED,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from usdt.bpf.maps import Map

__all__ = ("Pairing", "UnpairedCounts")

_BOTH = {0, 1}  # the indices of the requests: the start and the end
_INDEX, _COUNTS = struct.Struct("=I"), struct.Struct("=QQ")


@frozen
class UnpairedCounts:
    """The numbers of starts and ends without a counterpart.

    Attributes:
        unfinished: starts without an end.
        unmatched: ends without a start.
        deep: ends whose start one nested too deeply in it had replaced.
    """

    unfinished: int
    unmatched: int
    deep: int


class Pairing:
    """The gate and the counts of a session.

    Args:
        maps: the session's maps, by name; they may be made later.
    """

    def __init__(self, maps: Mapping[str, Map]) -> None:
        self._maps = maps
        self._wanted = False
        self._attached: set[int] = set()

    def begin(self) -> None:
        """Pair starts and ends, as soon as both are attached somewhere."""
        self._wanted = True
        self.set_gate()

    def stop(self) -> None:
        """Ignore further hits."""
        self._wanted = False
        self.set_gate()

    def attached(self, number: int) -> None:
        """Note that the request with this index is attached somewhere."""
        self._attached.add(number)
        self.set_gate()

    def set_gate(self) -> None:
        """Open or close the gate; to be called when the maps have been made."""
        if UNPAIRED in self._maps:
            opened = self._wanted and self._attached == _BOTH
            self._maps[UNPAIRED].set(_INDEX.pack(GATE), _COUNTS.pack(opened, 0))

    def counts(self) -> UnpairedCounts:
        """Return the numbers of starts and ends without a counterpart."""
        if STARTS not in self._maps:
            return UnpairedCounts(0, 0, 0)
        found = [
            one
            for name in (STARTS, PLACES)
            if name in self._maps
            for one in self._maps[name].items()
        ]
        depths = (int(struct.unpack_from("=q", value)[0]) for _, value in found)
        unfinished = sum(depth for depth in depths if depth > 0)
        odd = self._maps[UNPAIRED].get(_INDEX.pack(COUNTS)) or bytes(_COUNTS.size)
        unmatched, deep = (
            int(struct.unpack_from("=Q", odd, offset)[0]) for offset in (UNMATCHED, TOO_DEEP)
        )
        return UnpairedCounts(unfinished, unmatched, deep)
