"""Distributions: how often values occurred in each log-linear bucket, and their percentiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from usdt.engine.aggregate.spec import LogLinear

__all__ = ("PERCENTILES", "Distribution")

#: The percentiles that results show, by name.
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}
_STEPS = 1_000_000  # of one percent: 99.9 is not exact as a float


@frozen
class Distribution:
    """The hits of each bucket.

    Attributes:
        buckets: the edges of the buckets.
        counts: bucket → hits; buckets without hits are left out.
        unplaced: hits for whose bucket the kernel had no space.
    """

    buckets: LogLinear
    counts: dict[int, int]
    unplaced: int = 0

    def plus(self, other: Distribution, sign: int = 1) -> Distribution:
        """Return the hits of both; with ``sign`` -1, those that ``other`` does not have."""
        counts = dict(self.counts)
        for bucket, number in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + sign * number
        counts = {bucket: number for bucket, number in counts.items() if number}
        return Distribution(self.buckets, counts, self.unplaced + sign * other.unplaced)

    def percentile(
        self, percent: float, least: int | None = None, greatest: int | None = None
    ) -> int | None:
        """Return the smallest value that at least ``percent`` of the hits do not exceed.

        Args:
            percent: from 0 (the smallest value) to 100 (the largest).
            least: the smallest value, if it is known.
            greatest: the largest value, if it is known.

        Returns:
            The value, with the relative error of the buckets at most. None without hits, or if
            hits without a bucket leave it open.
        """
        total = sum(self.counts.values()) + self.unplaced
        if not total:
            return None
        rank = max(1, -(-total * round(percent * _STEPS) // (100 * _STEPS)))
        if rank == 1 and least is not None:
            return least
        if rank == total and greatest is not None:
            return greatest
        # Hits without a bucket may be above all others, or below.
        bucket, lowest = self._bucket_of(rank), self._bucket_of(rank - self.unplaced)
        if bucket is None or bucket != lowest:
            return None
        value = self.buckets.middle(bucket)
        value = value if least is None else max(value, least)
        return value if greatest is None else min(value, greatest)

    def _bucket_of(self, rank: int) -> int | None:
        # Returns the bucket of the hit that is the rank-th from below, counted from 1.
        if rank < 1:
            return None
        for bucket in sorted(self.counts):
            rank -= self.counts[bucket]
            if rank <= 0:
                return bucket
        return None
