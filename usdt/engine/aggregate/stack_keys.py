"""Stacks in keys: how they are unwound, their maps, and reading them.

A user stack is walked by the program with unwind tables (:mod:`.stack_walks`), or followed by the
kernel with frame pointers. A stack of the kernel is followed by the kernel.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.bpf._uapi import MapType
from usdt.bpf.maps import MapSpec
from usdt.engine.aggregate.codegen.keys import python_map, stack_map, walk_map
from usdt.engine.aggregate.keys import NO_FRAMES
from usdt.engine.compiler.record.columns import StackColumn
from usdt.engine.language.tree import StackKind
from usdt.engine.runtime.unwinding import walks_by_tables
from usdt.engine.walks.stack_walks import StackWalks
from usdt.engine.walks.walk_state import VALUE_HEADER
from usdt.engine.walks.walked import StackAddresses, walked_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from usdt.bpf.maps import Map
    from usdt.engine.aggregate.keys import KeyLayout, Stack
    from usdt.engine.compiler.limits import UnwindMethod
    from usdt.engine.output.stacks import CodeSource
    from usdt.engine.runtime.attach.requests import AttachRequest

__all__ = ("StackKeys",)


_STACK_BUCKETS = 1 << 15  # fewest buckets of the map of stacks


def _followed(data: bytes) -> StackAddresses:
    """Return the stack in a value of a map of stacks that the kernel has recorded."""
    words = struct.unpack(f"={len(data) // 8}Q", data)
    return StackAddresses(tuple(word for word in words if word))


class StackKeys:
    """The stacks among the keys of an aggregation.

    Args:
        columns: their columns.
        unwind: how user stacks are unwound.
        code: returns what knows the code of processes; without it, frame pointers are followed.
        pids: the processes that are traced from the start.
    """

    def __init__(
        self,
        columns: Sequence[StackColumn],
        unwind: UnwindMethod,
        code: Callable[[], CodeSource | None] | None,
        pids: Sequence[int],
    ) -> None:
        self._user = any(one.kind is StackKind.USER for one in columns)
        self._unwind: UnwindMethod = unwind
        self._code, self._pids = code, pids
        self._walks: StackWalks | None = None
        self._known: dict[tuple[str, int], StackAddresses] = {}

    def walked(self, kernel: bool) -> bool:  # noqa: FBT001 - the only argument
        """Return whether programs walk user stacks, at probes of the kernel or of programs.

        Raises:
            NotSupported: the kernel cannot unwind stacks as the user asks.
        """
        if not self._user or self._code is None:
            return False
        return walks_by_tables(self._unwind, kernel=kernel)

    @staticmethod
    def maps_of(keys: KeyLayout, most: int) -> Iterator[MapSpec]:
        """Yield the maps of stacks for so many keys."""
        stacks = _stack_entries(most)
        for field in keys.fields:
            column = field.column
            if isinstance(column, StackColumn) and column.kind is StackKind.PYTHON:
                yield MapSpec(MapType.HASH, 8, 8 + column.size, most, python_map(column))
            elif isinstance(column, StackColumn) and field.walked:
                size = VALUE_HEADER.size + column.size
                yield MapSpec(MapType.HASH, 8, size, stacks, walk_map(column))
            elif isinstance(column, StackColumn):
                name = stack_map(column)
                yield MapSpec(MapType.STACK_TRACE, 4, column.size, stacks, name)

    def make_walks(self, keys: KeyLayout) -> StackWalks | None:
        """Return new maps of walks if a stack is walked; None if none is, or they exist."""
        if self._walks is not None or not any(field.walked for field in keys.fields):
            return None
        source = self._code() if self._code is not None else None
        if source is None:
            return None
        self._walks = StackWalks(source, every=not self._pids)
        self._walks.update(self._pids)
        return self._walks

    def update(self) -> None:
        """Load the unwind tables of new code."""
        if self._walks is not None:
            self._walks.update()

    def load_files(self, requests: Sequence[AttachRequest]) -> None:
        """Load the unwind tables of the files that probes are attached in.

        Processes that start later may be hit before their mappings are seen.
        """
        files = (one.point.open_path for one in requests if one.point.kernel_target is None)
        if self._walks is not None:
            self._walks.load_files(dict.fromkeys(files))

    def expect(self, pid: int, files: Iterable[str]) -> None:
        """Load the unwind tables of a process, and of files that it will map."""
        if self._walks is not None:
            self._walks.load_files(files)
            self._walks.update((pid,))

    @property
    def notices(self) -> list[str]:
        """Messages for the user: tables for which there was no space."""
        return [] if self._walks is None else self._walks.notices

    @property
    def report(self) -> list[str]:
        """How user stacks are unwound, for ``-v``."""
        if not self._user:
            return []
        if self._walks is None:
            return ["user stacks by frame pointers, followed in the kernel"]
        return [self._walks.report]

    def read(self, stack: Stack, maps: Mapping[str, Map]) -> StackAddresses:
        """Return the addresses of a stack; none if the kernel recorded none."""
        if not stack.walked and stack.number == NO_FRAMES:
            return StackAddresses()
        key = (walk_map if stack.walked else stack_map)(stack.column), stack.number
        if key not in self._known:
            data = maps[key[0]].get(struct.pack("=Q" if stack.walked else "=I", stack.number))
            self._known[key] = (walked_addresses if stack.walked else _followed)(data or b"")
        return self._known[key]


def _stack_entries(keys: int) -> int:
    # Returns the size of a map of stacks that has at least 4 buckets for each key: of two stacks in
    # one bucket the kernel keeps the first. It rounds the number of buckets up to a power of two,
    # but makes only this many entries of 1 KiB.
    buckets = max(_STACK_BUCKETS, 1 << (4 * keys - 1).bit_length())
    return buckets // 2 + 1
