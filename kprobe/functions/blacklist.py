"""The kernel's blacklist of code that must not have kprobes, from debugfs."""

from __future__ import annotations

import bisect
import re

__all__ = ("BLACKLIST", "Blacklist", "read_blacklist")

BLACKLIST = "/sys/kernel/debug/kprobes/blacklist"
_LINE = re.compile(r"^0x([0-9a-f]+)-0x([0-9a-f]+)\t(\S+)$", re.MULTILINE)


class Blacklist:
    """Address ranges, and the names of the functions in them.

    Args:
        text: contents of the file; the addresses are 0 if the reader lacks the privilege.
    """

    def __init__(self, text: str = "") -> None:
        lines = [(int(low, 16), int(high, 16), name) for low, high, name in _LINE.findall(text)]
        self._names = {name for _, _, name in lines}
        spans = sorted((low, high) for low, high, _ in lines if high)
        self._starts = [low for low, _ in spans]
        self._ends: list[int] = []
        for _, high in spans:  # ranges may be nested: keep the highest end so far
            self._ends.append(max(high, self._ends[-1] if self._ends else 0))

    def __len__(self) -> int:
        return len(self._names)

    def names(self, name: str) -> bool:
        """Return True if a function of this name is on the list."""
        return name in self._names

    def has(self, address: int) -> bool:
        """Return True if an address is in a range of the list."""
        at = bisect.bisect_right(self._starts, address)
        return bool(at) and address < self._ends[at - 1]


def read_blacklist() -> Blacklist:
    """Read the running kernel's blacklist; empty if it cannot be read."""
    try:
        with open(BLACKLIST) as file:  # noqa: PTH123 - as in usdt.btf.files
            return Blacklist(file.read())
    except OSError:
        return Blacklist()
