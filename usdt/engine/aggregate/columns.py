"""Columns of results: the numbers that a table shows, and that ``--sort`` orders by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.engine.aggregate.values import median

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.aggregate.spec import Aggregation
    from usdt.engine.aggregate.values import Value

__all__ = ("Column", "columns")


@frozen
class Column:
    """A number of each result.

    Attributes:
        name: its heading, in lower case.
        number: returns the number of a value; None if it is unknown.
        time: whether the number is in nanoseconds.
    """

    name: str
    number: Callable[[Value], float | None]
    time: bool = False


def columns(aggregation: Aggregation) -> tuple[Column, ...]:
    """Return the columns of an aggregation's results, in the order of the table."""
    count = Column("count", lambda value: value.count)
    buckets, time = aggregation.buckets, aggregation.pair is not None
    p50 = Column("p50", lambda value: median(value, buckets, aggregation.unit), time)
    least = Column("min", lambda value: value.min, time)
    average = Column("avg", lambda value: value.average, time)
    most = Column("max", lambda value: value.max, time)
    total = Column("total" if time else "sum", lambda value: value.sum, time)
    if not aggregation.stats:
        return (count,) if buckets is None else (count, p50)
    if buckets is None:
        return count, least, average, most, total
    return count, p50, average, most, total
