"""Kernel maps that keep the state of functions between entry and return.

:mod:`usdt.engine.compiler.entry_return` defines entry state and its key.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from usdt.base.errors import SyscallError
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import MapSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.bpf.maps import Map

__all__ = ("EntryStateMaps",)

_MEMORY = 16 << 20  # bytes of all entry states of one size, approximately
_MAX_ENTRIES = 1 << 14  # of one size
_MIN_ENTRIES = 1 << 8
_KEY = struct.Struct("=IIQ")
_PURGE_INTERVAL = 10.0  # seconds


class EntryStateMaps:
    """The entry state maps of one session, one pair for each size of entry state.

    Attributes:
        most: the number of entries of each size; None: as many as fit some memory.
        ended: the number of calls whose threads have ended.
    """

    def __init__(self) -> None:
        self.most: int | None = None
        self.ended = 0
        self._maps: dict[int, list[Map]] = {}
        self._next = 0.0

    def maps(self, size: int, places: int = 0) -> dict[str, Map]:
        """Create and return the maps for entry state of ``size`` bytes; return {} if they exist.

        ``places`` is their number: see :mod:`usdt.engine.compiler.entry_return`.

        Raises:
            SyscallError: usually ENOMEM.
        """
        if size in self._maps:
            return {}
        from usdt.engine.compiler.entry_return import blank_map, frame_map, place_map  # noqa: PLC0415 - for functions

        entries = self.most or max(_MIN_ENTRIES, min(_MAX_ENTRIES, _MEMORY // size))
        specs = [
            MapSpec(MapType.HASH, _KEY.size, size, entries, frame_map(size)),
            MapSpec(MapType.ARRAY, 4, size, 1, blank_map(size)),
        ]
        if places:
            specs.append(MapSpec(MapType.ARRAY, 4, size, places, place_map(size)))
        created = self._maps.setdefault(size, [])
        for spec in specs:
            try:
                created.append(spec.create())
            except SyscallError as err:
                what = f"a map of {spec.entries} entry states of {size} bytes"
                raise SyscallError(err.errno or 0, what, "shorter strings need less") from err
        return {one.spec.name: one for one in created}

    def open(self) -> int:
        """Return the number of calls that have entered but not returned."""
        calls = sum(len(list(calls.keys())) for calls, *_ in self._maps.values())
        return calls + sum(1 for _ in self._placed())

    def values(self) -> Iterator[bytes]:
        """Yield the entry state of every call that has entered but not returned."""
        for calls, *_ in self._maps.values():
            yield from (value for _, value in calls.items())
        for _, _, value in self._placed():
            yield value

    def _placed(self) -> Iterator[tuple[Map, bytes, bytes]]:
        # Yields the places that are taken: (map, index, entry state).
        for _, _, *maps in self._maps.values():
            for places in maps:
                for index, value in places.items():
                    if _KEY.unpack_from(value)[2]:
                        yield places, index, value

    def purge(self, now: float) -> None:
        """Remove the entry state of threads that ended inside a function.

        Calls within ten seconds of the last purge do nothing; ``now`` is the monotonic time in
        seconds.
        """
        if now < self._next or not self._maps:
            return
        self._next = now + _PURGE_INTERVAL
        for calls, *_ in self._maps.values():
            for key in list(calls.keys()):
                thread = _KEY.unpack(key)[0]
                if _has_ended(thread):
                    calls.delete(key)
                    self.ended += 1
        for places, index, value in list(self._placed()):
            if _has_ended(_KEY.unpack_from(value)[0]):
                places.set(index, bytes(len(value)))
                self.ended += 1

    def close(self) -> None:
        """Free the maps."""
        for maps in self._maps.values():
            for one in maps:
                one.close()
        self._maps.clear()


def _has_ended(thread: int) -> bool:
    # 0: a CPU's idle task, which never ends.
    return thread != 0 and not os.path.exists(f"/proc/{thread}")  # noqa: PTH110 - slow
