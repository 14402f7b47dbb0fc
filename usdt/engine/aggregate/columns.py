"""Columns of results: the numbers that a table shows, and that ``--sort`` orders by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.engine.aggregate.distribution import PERCENTILES

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.aggregate.spec import Aggregation
    from usdt.engine.aggregate.values import Value

__all__ = ("Column", "columns", "percentile_columns", "summary_columns")


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
    time = aggregation.pair is not None
    count, least, average, most = summary_columns(time=time)
    percentiles = percentile_columns(time=time) if aggregation.resolution is not None else ()
    if not aggregation.stats:
        return count, *percentiles
    total = Column("total" if time else "sum", lambda value: value.sum, time)
    lowest = () if aggregation.buckets is not None else (least,)
    return count, *lowest, *percentiles, average, most, total


def summary_columns(*, time: bool) -> tuple[Column, ...]:
    """Return the columns of count, minimum, average and maximum; ``time``: of nanoseconds."""
    return (
        Column("count", lambda value: value.count),
        Column("min", lambda value: value.min, time),
        Column("avg", lambda value: value.average, time),
        Column("max", lambda value: value.max, time),
    )


def percentile_columns(*, time: bool) -> tuple[Column, ...]:
    """Return the columns of percentiles; ``time``: of nanoseconds."""

    def column(name: str, percent: float) -> Column:
        return Column(name, lambda value: value.percentile(percent), time)

    return tuple(column(name, percent) for name, percent in PERCENTILES.items())
