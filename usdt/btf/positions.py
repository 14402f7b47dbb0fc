"""Where the records of BTF begin, and where words occur in it.

The kernel's own BTF is the same until the machine starts again. Its positions are kept in a file,
because finding those of some 150,000 records takes a large part of a short command's time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.base.files import load_of_boot, store_of_boot
from usdt.btf.format import kind_of

if TYPE_CHECKING:
    import mmap
    from array import array
    from collections.abc import Iterator, Sequence

    #: Kind of a record → bytes after its first 12: once, and per item.
    Sizes = dict[int, tuple[int, int]]

__all__ = ("kernel_positions", "occurrences", "record_positions")

_FILE = "kernel.positions"
_VERSION = 1  # of the file's contents


class _Steps(dict[int, int]):
    # Info word → length of the whole record in words, computed once for each distinct info word.
    def __init__(self, sizes: Sizes, name: str) -> None:
        self._sizes = sizes
        self._name = name

    def __missing__(self, info: int) -> int:
        kind, items = kind_of(info), info & 0xFFFFFF
        sizes = self._sizes.get(kind)
        if sizes is None or not kind:
            raise BtfError(
                f"{self._name}: BTF kind {kind} is unknown, and no layout section gives the size"
                " of its records"
            )
        extra = sizes[0] + items * sizes[1]
        if extra % 4:
            raise BtfError(f"{self._name}: BTF kind {kind} has records that are not whole words")
        self[info] = steps = 3 + extra // 4
        return steps


def record_positions(words: Sequence[int], sizes: Sizes, first: int, name: str) -> array[int]:
    """Return the index of each record's first word.

    Args:
        words: the records.
        sizes: the sizes of records by kind.
        first: the first type's ID.
        name: of the BTF, for messages.

    Raises:
        BtfError: the size of a record is unknown, or the last one is cut off.
    """
    # A plain dict is faster than one with __missing__, and indexing ``infos`` faster than adding 1.
    end, infos = len(words), words[1:]
    every, steps = _Steps(sizes, name), dict[int, int]()
    positions: list[int] = []
    append = positions.append
    at = 0
    try:
        while at < end:
            append(at)
            try:
                at += steps[infos[at]]
            except KeyError:
                at += steps.setdefault(infos[at], every[infos[at]])
    except IndexError:
        at = end + 1
    if at > end:
        type_id = first + len(positions) - 1
        raise BtfError(f"{name}: BTF type {type_id} is cut off at the end of the types")
    from array import array  # noqa: PLC0415 - a library of its own, and most look for one word

    return array("I", positions)


def kernel_positions(words: Sequence[int], sizes: Sizes, name: str) -> Sequence[int]:
    """Return :func:`record_positions` of the running kernel's own BTF, from a file if it has them.

    Raises:
        BtfError: as there.
    """
    about = f"positions {_VERSION} of {len(words)} words"
    data = load_of_boot(_FILE, about)
    if data and not len(data) % 4:
        positions = memoryview(data).cast("I")
        last = positions[-1]
        if last + 1 < len(words) and last + _Steps(sizes, name)[words[last + 1]] == len(words):
            return positions
    found = record_positions(words, sizes, 1, name)
    store_of_boot(_FILE, about, memoryview(found))
    return found


def occurrences(
    data: bytes | mmap.mmap, word: int, order: str, types: tuple[int, int]
) -> Iterator[int]:
    """Yield where a word's bytes are among the records, from the start of the data.

    A regular expression looks for the first byte, the one that varies most; bytes.find() and so for
    the last one, which is 0 in most words, and it cannot search mapped memory.
    """
    pattern = re.compile(re.escape(word.to_bytes(4, "little" if order == "little" else "big")))
    start, end = types
    with memoryview(data)[start:end] as records:
        match = pattern.search(records)
        while match:
            yield start + match.start()
            match = pattern.search(records, match.start() + 1)  # the bytes may overlap themselves
