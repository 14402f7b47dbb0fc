"""What no kprobe may be put on: the kernel's blacklist, as debugfs shows it."""

from __future__ import annotations

import bisect
import re

__all__ = ("BLACKLIST", "Blacklist", "read_blacklist")

BLACKLIST = "/sys/kernel/debug/kprobes/blacklist"
_LINE = re.compile(r"^0x([0-9a-f]+)-0x([0-9a-f]+)\t(\S+)$", re.MULTILINE)


class Blacklist:
    """Ranges of addresses, and the names of functions in them.

    Args:
        text: of the file; addresses are 0 in it for those who may not see them.
    """

    def __init__(self, text: str = "") -> None:
        lines = [(int(low, 16), int(high, 16), name) for low, high, name in _LINE.findall(text)]
        self._names = {name for _, _, name in lines}
        spans = sorted((low, high) for low, high, _ in lines if high)
        self._starts = [low for low, _ in spans]
        self._ends: list[int] = []
        for _, high in spans:  # ranges lie within one another: how far any so far reaches
            self._ends.append(max(high, self._ends[-1] if self._ends else 0))

    def __len__(self) -> int:
        return len(self._names)

    def names(self, name: str) -> bool:
        """Whether it has a function of this name."""
        return name in self._names

    def has(self, address: int) -> bool:
        """Whether an address is in it."""
        at = bisect.bisect_right(self._starts, address)
        return bool(at) and address < self._ends[at - 1]


def read_blacklist() -> Blacklist:
    """The running kernel's; an empty one where it cannot be read."""
    try:
        with open(BLACKLIST) as file:  # noqa: PTH123 - as in usdt.btf.files
            return Blacklist(file.read())
    except OSError:
        return Blacklist()
