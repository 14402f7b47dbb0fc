"""Counts by time, in bins whose width doubles whenever there are too many."""

from __future__ import annotations

__all__ = ("LANES", "TimeBins")

LANES = 1 << 20
_WIDTH = 1_000_000  # nanoseconds, at first


class TimeBins:
    """Counts by time and lane; memory is bounded whatever the times are.

    A lane is a number below LANES: a probe, or a bucket of durations.

    Args:
        most: the most bins from the first to the last.
        cells: the most counts that are kept apart, as far as wider bins help.
        width: nanoseconds of a bin, at first.

    Attributes:
        width: nanoseconds of a bin.
        cells: number of the bin × LANES + lane → count; bins are numbered from the epoch.
        first, last: the numbers of the first and the last bin; -1 before the first count.
    """

    def __init__(self, most: int, cells: int = 100_000, width: int = _WIDTH) -> None:
        self.width = width
        self.cells: dict[int, int] = {}
        self.first = self.last = -1
        self._most = most
        self._most_cells = cells

    def add(self, time: int, lane: int, count: int = 1) -> None:
        """Add to the count of a lane at a time, nanoseconds; times need no order."""
        index = time // self.width
        if not self.first <= index <= self.last:
            index = self._reach(time)
        cell = index * LANES + lane
        known = self.cells.get(cell)
        if known is None:
            self.cells[cell] = count
            while len(self.cells) > self._most_cells and self.first < self.last:
                self._fold()
        else:
            self.cells[cell] = known + count

    @property
    def bins(self) -> int:
        """The number of bins from the first to the last."""
        return self.last - self.first + 1 if self.cells else 0

    def rows(self) -> list[tuple[int, int, int]]:
        """Return (bin, counted from the first; lane; count), in order."""
        start = self.first
        return [
            (cell // LANES - start, cell % LANES, count)
            for cell, count in sorted(self.cells.items())
        ]

    def _reach(self, time: int) -> int:
        index = time // self.width
        if self.last < 0:
            self.first = self.last = index
        self.first, self.last = min(self.first, index), max(self.last, index)
        while self.last - self.first >= self._most:
            self._fold()
        return time // self.width

    def _fold(self) -> None:
        self.width *= 2
        self.first //= 2
        self.last //= 2
        folded: dict[int, int] = {}
        for cell, count in self.cells.items():
            wider = cell // LANES // 2 * LANES + cell % LANES
            folded[wider] = folded.get(wider, 0) + count
        self.cells = folded
