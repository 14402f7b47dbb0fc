"""The aggregation that a command line requests."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError, TracingError
from usdt.base.frozen import frozen
from usdt.cgroups.labels import CgroupName
from usdt.engine.compiler.record.columns import StackColumn, stack_column
from usdt.engine.language import parse_items
from usdt.engine.language.tree import RESULT_OF_BPFTRACE, Call, Name, stack_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.language.tree import Item, ProbeText

__all__ = (
    "MAX_BUCKETS",
    "Aggregation",
    "Bounds",
    "Buckets",
    "Items",
    "Linear",
    "Log2",
    "LogLinear",
    "are_start_and_end",
    "is_pattern",
    "is_return",
    "is_stack",
    "parse_keys",
    "parse_linear",
)

MAX_BUCKETS = 1000  # limit of a linear histogram, as in bpftrace
_S64 = 1 << 63


@frozen
class Log2:
    """Buckets of powers of two: negative, 0, 1, [2, 4), [4, 8) … [2^63, 2^64)."""

    @property
    def number(self) -> int:
        """The number of buckets."""
        return 66

    def edges(self, index: int) -> tuple[int | None, int | None]:
        """Return the lowest value of a bucket and the lowest above it; None means unbounded."""
        if index < 2:
            return (None, 0) if index == 0 else (0, 1)
        return 1 << index - 2, 1 << index - 1

    def bucket(self, value: int) -> int:
        """Return the bucket of a value."""
        return 0 if value < 0 else value.bit_length() + 1


@frozen
class LogLinear:
    """The buckets of percentiles: 2^resolution of equal width in each power of two.

    They are numbered from 0 up. Below 2^(resolution + 1) each value has a bucket of its own. The
    buckets of negative values mirror those of positive ones and have negative numbers.
    """

    resolution: int

    @property
    def error(self) -> float:
        """The largest relative error of :meth:`middle`."""
        return 2.0 ** -(self.resolution + 1)

    def edges(self, bucket: int) -> tuple[int, int]:
        """Return the lowest value of a bucket and the lowest above it."""
        if bucket < 0:
            low, high = self.edges(-bucket)
            return 1 - high, 1 - low
        shift = max(0, (bucket >> self.resolution) - 1)
        low = bucket - (shift << self.resolution)
        return low << shift, low + 1 << shift

    def bucket(self, value: int) -> int:
        """Return the bucket of a value."""
        if value < 0:
            return -self.bucket(-value)
        shift = max(0, value.bit_length() - 1 - self.resolution)
        return (value >> shift) + (shift << self.resolution)

    def middle(self, bucket: int) -> int:
        """Return the number that stands for all values of a bucket."""
        low, high = self.edges(abs(bucket))
        middle = (low + high - 1) // 2
        return -middle if bucket < 0 else middle


@frozen
class Linear:
    """Buckets of ``step`` from ``low`` to ``high``, one for values below, one from ``high`` on."""

    low: int
    high: int
    step: int

    @property
    def inner(self) -> int:
        """The number of buckets between low and high."""
        return -(-(self.high - self.low) // self.step)

    @property
    def number(self) -> int:
        """The number of buckets."""
        return self.inner + 2

    def edges(self, index: int) -> tuple[int | None, int | None]:
        """Return the lowest value of a bucket and the lowest above it; None means unbounded."""
        if index == 0:
            return None, self.low
        if index > self.inner:
            return self.high, None
        return self.low + (index - 1) * self.step, min(self.high, self.low + index * self.step)

    def bucket(self, value: int) -> int:
        """Return the bucket of a value."""
        if value >= self.high:
            return self.inner + 1
        return 0 if value < self.low else (value - self.low) // self.step + 1


@frozen
class Bounds:
    """Buckets by the highest value of each, ascending, and one for all values above."""

    highest: tuple[int, ...]

    @property
    def number(self) -> int:
        """The number of buckets."""
        return len(self.highest) + 1

    def edges(self, index: int) -> tuple[int | None, int | None]:
        """Return the lowest value of a bucket and the lowest above it; None means unbounded."""
        return (
            self.highest[index - 1] + 1 if index else None,
            self.highest[index] + 1 if index < len(self.highest) else None,
        )

    def bucket(self, value: int) -> int:
        """Return the bucket of a value."""
        return bisect_left(self.highest, value)


Buckets = Log2 | Linear | Bounds


@frozen
class Items:
    """The items of an option, and its ``text``, to which error columns refer."""

    text: str = ""
    items: tuple[Item, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.items)


@frozen
class Aggregation:
    """An aggregation that programs compute.

    Attributes:
        stats: whether to compute count, minimum, maximum and sum of a value.
        buckets: buckets of a histogram of the value. Without it and ``stats``, hits are counted.
        keys: what groups results, in addition to the probe.
        pair: for a time between two probes: the key that matches a start to its end.
        pair_end: the key at the end, if it differs from ``pair``.
        at_start: for a time between two probes: whether ``keys`` are evaluated at the start.
        unit: for a time between two probes: nanoseconds in one unit of its buckets.
        resolution: that of the buckets for percentiles; None: there are no percentiles.
        max_keys: maximum distinct keys that are kept, in each interval if there are intervals.
        intervals: whether results are read at intervals.
    """

    stats: bool = False
    buckets: Buckets | None = None
    keys: Items = Items()
    pair: Items | None = None
    pair_end: Items | None = None
    at_start: bool = False
    unit: int = 1
    resolution: int | None = None
    max_keys: int = 10240
    intervals: bool = False

    @property
    def needs_value(self) -> bool:
        """Whether probes must have a value: ``PROBE(EXPR)``."""
        return (self.stats or self.buckets is not None) and self.pair is None

    @property
    def by_thread(self) -> bool:
        """Whether the thread alone matches a start to its end."""
        ends = [self.pair, *([] if self.pair_end is None else [self.pair_end])]
        return all(one is not None and [item.text for item in one.items] == ["tid"] for one in ends)

    @property
    def keyed(self) -> bool:
        """Whether values are stored by key, not by the row number only.

        Minimum and maximum cannot be computed as the difference of two readings. Therefore, with
        intervals, the interval is part of the key.
        """
        return bool(self.keys) or (self.intervals and self.stats)

    @property
    def distribution(self) -> LogLinear | None:
        """The buckets for percentiles; None without percentiles."""
        return None if self.resolution is None else LogLinear(self.resolution)

    @property
    def counts_alone(self) -> bool:
        """Whether values are numbers of hits and nothing else."""
        return not self.stats and self.buckets is None and self.resolution is None

    @property
    def weighted(self) -> bool:
        """Whether a result weighs what its sum is, not how many hits it has."""
        return self.pair is not None or (self.stats and self.buckets is None)

    @property
    def stacks(self) -> bool:
        """Whether a key is a stack."""
        return bool(self.stack_columns)

    @property
    def stack_columns(self) -> tuple[StackColumn, ...]:
        """The columns of the stacks among the keys."""
        stacks = (stack_of(item.expression) for item in self.keys.items)
        return tuple(stack_column(*stack) for stack in stacks if stack is not None)

    @property
    def names(self) -> bool:
        """Whether a key needs symbols."""
        return self.stacks or any(
            (isinstance(tree, Call) and tree.function in ("usym", "ksym"))
            or (isinstance(tree, Name) and tree.name == "caller")
            for tree in (item.expression for item in self.keys.items)
        )

    @property
    def cgroups(self) -> bool:
        """Whether a key is a name of a cgroup."""
        names = {kind.value for kind in CgroupName}
        trees = [item.expression for item in self.keys.items]
        return any(isinstance(tree, Name) and tree.name in names for tree in trees)

    def check(self, request: ProbeText) -> Item | None:
        """Return the item of a probe that is its value; None if the aggregation needs no value.

        Raises:
            LanguageError: too many values, or too few.
        """
        values = [item for item in request.items if not item.is_predicate]
        if not self.needs_value:
            # ``return`` alone is not a value: it selects the return of a function instead of its
            # entry.
            values = [item for item in values if not is_return(item)]
            if values:
                what = "a predicate" if self.pair else "a predicate (for keys there is --by)"
                raise _misplaced(request, values[0], f"expected {what}, found {values[0].text}")
            return None
        values = [item for item in values if not item.implied] or values
        if not values:
            raise LanguageError(
                request.text,
                len(request.text),
                "expected the value to aggregate in parentheses, as in provider:name(arg0)",
            )
        if len(values) > 1:
            raise _misplaced(request, values[1], "expected one value to aggregate, found two")
        return values[0]


def is_stack(item: Item) -> bool:
    """Return whether an item is ``ustack`` or ``kstack``, or has their first frames."""
    return stack_of(item.expression) is not None


def is_return(item: Item) -> bool:
    """Return whether an item is ``return`` alone: the function's return is then the hit."""
    names = ("return", RESULT_OF_BPFTRACE)
    return isinstance(item.expression, Name) and item.expression.name in names


def are_start_and_end(requests: Sequence[ProbeText]) -> bool:
    """Return whether two probes are a start and an end: neither has a value to aggregate.

    ``return`` alone selects the return of a function; two returns are values of two functions.
    """
    values = [[item for item in one.items if not item.is_predicate] for one in requests]
    returns = all(is_return(item) for items in values for item in items)
    return len(values) == 2 and returns and not all(values)


def is_pattern(request: ProbeText) -> bool:
    """Return whether a probe's name is a pattern."""
    return any(character in f"{request.provider}{request.name}" for character in "*?[")


def _misplaced(request: ProbeText, item: Item, reason: str) -> LanguageError:
    return LanguageError(request.text, item.expression.start, reason)


def parse_keys(text: str | None, option: str) -> Items:
    """Parse the items of ``--by`` or ``--key``.

    Raises:
        LanguageError: there are no items, or one is a comparison, which would be a predicate.
    """
    if text is None:
        return Items()
    items = {item.text: item for item in parse_items(text)}
    if not items:
        raise LanguageError(text, 0, f"{option}: expected an expression")
    for item in items.values():
        if is_stack(item) and option.lstrip("-") != "by":
            raise LanguageError(
                text, item.expression.start, f"{option}: a stack cannot pair a start with its end"
            )
        if item.is_predicate:
            raise LanguageError(
                text,
                item.expression.start,
                f"{option}: a comparison is a predicate: write it in the probe's parentheses; "
                f"for a key of 0 and 1 write ({item.text}) + 0",
            )
    return Items(text, tuple(items.values()))


def parse_linear(text: str) -> Linear:
    """Parse ``LO:HI:STEP``, integers as in the language.

    Raises:
        TracingError: not three integers, or more than a thousand buckets.
    """
    parts = text.split(":")
    try:
        low, high, step = (int(part, 0) for part in parts)
    except ValueError:
        raise TracingError(
            f"--linear {text}: expected LO:HI:STEP, three integers, as in 0:100:10"
        ) from None
    if not -_S64 <= low < high < _S64 or step < 1:
        raise TracingError(f"--linear {text}: expected LO < HI and a STEP from 1 on")
    linear = Linear(low, high, step)
    if linear.inner > MAX_BUCKETS:
        raise TracingError(
            f"--linear {text}: {linear.inner} buckets; at most {MAX_BUCKETS}: take a larger STEP"
        )
    return linear
