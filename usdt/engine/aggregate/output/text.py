"""Results as human-readable text: tables, histograms.

Histograms have the labels and bars of bpftrace, from the first bucket with hits to the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.terminal.columns import columns as width_of
from usdt.base.terminal.columns import fitted, padded
from usdt.base.terminal.look import PLAIN
from usdt.engine.aggregate.columns import percentile_columns, summary_columns
from usdt.engine.aggregate.spec import Log2
from usdt.engine.output.formatters.formatter import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.base.terminal.look import Look
    from usdt.engine.aggregate.columns import Column
    from usdt.engine.aggregate.distribution import Distribution
    from usdt.engine.aggregate.results import Result
    from usdt.engine.aggregate.spec import Aggregation, Buckets
    from usdt.engine.aggregate.values import Value

__all__ = (
    "bar",
    "duration",
    "edge_label",
    "folded_lines",
    "histogram",
    "histogram_lines",
    "histograms",
    "in_unit",
    "key_text",
    "label",
    "number",
    "spanned",
    "table",
    "table_lines",
)

_GAP = "  "  # between columns
_WIDEST = 200  # columns of a word: one that is longer does not widen all lines
_WIDTH = 52  # characters of the longest bar
_NARROW = 8  # characters that it has at least
_BESIDE = 27  # columns of a histogram's line beside the bar
_PREFIXES = ("", "K", "M", "G", "T", "P", "E")
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns"))


def table(results: Sequence[Result], columns: Sequence[Column], look: Look = PLAIN) -> list[str]:
    """Return a header line and one line per result, each followed by the frames of its stacks.

    Probes and keys are cut where a line would be wider than the look allows; numbers never are.
    """
    return [*table_lines(results, columns, look)]


def table_lines(
    results: Sequence[Result], columns: Sequence[Column], look: Look = PLAIN
) -> Iterator[str]:
    """Yield the lines of a table one by one; of each result only its texts are in memory."""
    if not results:
        return
    names = [column.name.upper() for column in columns]
    heads = ["PROBE", *(escape(part.name) for part in results[0].key)]
    widths, word_widths = [max(8, len(name)) for name in names], [0] * len(heads)
    rows: list[str] = []
    error = None
    for result in results:
        numbers = [_cell(column, result.value) for column in columns]
        words = [escape(result.probe), *(part.text for part in result.key)]
        widths = [*map(max, widths, map(len, numbers))]
        word_widths = [*map(max, word_widths, map(width_of, words))]
        rows.append("\n".join([*numbers, *words]))
        error = error or result.value.error
    # Stacks have no text: they follow the line. A column is shown if a key has a text in it.
    stacks = {at + 1 for at, part in enumerate(results[0].key) if part.frames}
    shown = [at for at, width in enumerate(word_widths) if width or at not in stacks]
    heads = [heads[at] for at in shown]
    word_widths = [
        max(word_widths[at], width_of(head)) for at, head in zip(shown, heads, strict=True)
    ]
    if look.width is not None:
        room = look.width - sum(widths) - len(_GAP) * (len(widths) + len(heads) - 1)
        word_widths = fitted(word_widths, room)
    whole = look.width is None
    yield f"{look.title}{_line(names, widths, heads, word_widths, whole=whole)}{look.end}\n"
    for result, row in zip(results, rows, strict=True):
        cells = row.split("\n")
        words = [cells[len(columns) + at] for at in shown]
        words[0] = f"{look.probe}{words[0]}{look.end}"
        yield _line(cells[: len(columns)], widths, words, word_widths, whole=whole) + "\n"
        for part in result.key:
            yield from (f"{'':10}{frame}\n" for frame in part.frames)
    if error is not None:
        yield f"{look.dim}percentiles {accuracy(error)}{look.end}\n"


def folded_lines(results: Sequence[Result], *, weighted: bool = False) -> list[str]:
    """Return ``comm;outer;…;inner COUNT`` for each distinct stack, for flame graphs.

    ``weighted`` writes the sum of the values instead of the count. With several probes, the probe
    is a frame after the command; other keys are frames, too.
    """
    counts: dict[str, int] = {}
    several = len({result.probe for result in results}) > 1
    for result in results:
        words = [part for part in result.key if not part.folded]
        comm = [part.text for part in words if part.name == "comm"]
        others = [f"{escape(part.name)}={part.text}" for part in words if part.name != "comm"]
        below = [*comm, *([escape(result.probe)] if several else []), *others]
        stacks = sorted((p for p in result.key if p.folded), key=lambda p: p.name, reverse=True)
        line = ";".join([*(text.replace(";", ":") for text in below), *(p.folded for p in stacks)])
        weight = result.value.sum if weighted else result.value.count
        counts[line] = counts.get(line, 0) + weight
    return [f"{line} {count}\n" for line, count in counts.items()]


def _line(
    numbers: Sequence[str],
    widths: Sequence[int],
    words: Sequence[str],
    columns: Sequence[int],
    *,
    whole: bool = False,
) -> str:
    # With ``whole``, no word is cut, and one that is too long does not widen all lines.
    if whole:
        columns = [min(width, _WIDEST) for width in columns]
        columns = [*map(max, columns, map(width_of, words))]
    left = _GAP.join(f"{text:>{width}}" for text, width in zip(numbers, widths, strict=True))
    right = _GAP.join(map(padded, words, columns))
    return f"{left}{_GAP}{right}".rstrip()


def _cell(column: Column, value: Value) -> str:
    number_of = column.number(value)
    if number_of is None:
        return "?"
    if column.time:
        return duration(number_of)
    # An integer may not fit a float.
    return str(number_of) if isinstance(number_of, int) else f"{number_of:.1f}".removesuffix(".0")


def histograms(
    results: Sequence[Result],
    aggregation: Aggregation,
    *,
    what: str,
    fine: bool = False,
    look: Look = PLAIN,
) -> list[str]:
    """Return a histogram for each result, below a line that names the probe and the key.

    Lines with count, minimum, average and maximum, and with percentiles, follow it.

    Args:
        results: the results.
        aggregation: what was aggregated.
        what: describes the numbers.
        fine: whether the buckets are those of the distribution.
        look: the colours, and the columns that lines with bars have at most.
    """
    lines: list[str] = []
    for result in results:
        lines += histogram_lines(result, aggregation, what=what, fine=fine, look=look)
    return lines


def histogram_lines(
    result: Result,
    aggregation: Aggregation,
    *,
    what: str,
    fine: bool = False,
    look: Look = PLAIN,
) -> list[str]:
    """Return the same for one result."""
    probe = f"{look.probe}{escape(result.probe)}{look.end}"
    lines = [f"{probe}  {look.dim}{what}{look.end}{key_text(result)}\n"]
    for part in result.key:
        lines += [f"{'':10}{frame}\n" for frame in part.frames]
    width = _WIDTH
    if look.width is not None:
        width = max(_NARROW, min(_WIDTH, look.width - _BESIDE))
    spread = result.value.distribution
    if fine and spread is not None:
        lines += _fine_histogram(spread, aggregation.unit, width)
    elif aggregation.buckets is not None:
        lines += histogram(result.value.buckets, aggregation.buckets, width)
    return [*lines, *_summary(result.value, aggregation), "\n"]


def _summary(value: Value, aggregation: Aggregation) -> list[str]:
    time = aggregation.pair is not None
    lines = []
    if aggregation.stats:
        lines.append(_cells(summary_columns(time=time), value) + "\n")
    if value.error is not None:
        percentiles = _cells(percentile_columns(time=time), value)
        lines.append(f"{percentiles} ({accuracy(value.error)})\n")
    return lines


def _cells(columns: Sequence[Column], value: Value) -> str:
    return ", ".join(f"{column.name} {_cell(column, value)}" for column in columns)


def accuracy(error: float) -> str:
    """Return the relative error of percentiles: ±1.6%."""
    return f"±{100 * error:.2g}%"


def key_text(result: Result) -> str:
    """Return the key for the line of the probe, two blanks before each part."""
    return "".join(f"  {escape(part.name)}={part.text}" for part in result.key if not part.frames)


def histogram(counts: Sequence[int], buckets: Buckets, width: int = _WIDTH) -> list[str]:
    """Return a line for each bucket from the first with hits to the last, as bpftrace does.

    Args:
        counts: hits of each bucket.
        buckets: the buckets.
        width: characters of the longest bar.
    """
    first, last = spanned(counts)
    most = max(counts, default=0)
    return [
        bar(label(buckets, index), counts[index], most, width) for index in range(first, last + 1)
    ]


def _fine_histogram(distribution: Distribution, unit: int, width: int) -> list[str]:
    # Buckets without hits are left out, as there are thousands; a line of dots stands for them.
    counts = distribution.counts
    most = max(counts.values(), default=0)
    lines = []
    previous = None
    for bucket in sorted(counts):
        if previous is not None and bucket != previous + 1:
            lines.append("...\n")
        low, high = distribution.buckets.edges(bucket)
        alone = high - low == 1 and unit == 1
        name = f"[{low}]" if alone else f"[{_edge(low, unit)}, {_edge(high, unit)})"
        lines.append(bar(name, counts[bucket], most, width))
        previous = bucket
    return lines


def _edge(edge: int, unit: int) -> str:
    return number(edge) if unit == 1 else str(in_unit(edge, unit))


def in_unit(nanoseconds: int, unit: int) -> float:
    """Return a number in another unit; an integer remains one if it can."""
    whole, rest = divmod(nanoseconds, unit)
    return nanoseconds / unit if rest else whole


def bar(name: str, count: int, most: int, width: int = _WIDTH) -> str:
    """Return the line of a bucket; the bar of ``most`` hits is the longest."""
    signs = "@" * (count * width // (most or 1))
    return f"{name:<16}{count:8} |{signs:<{width}}|\n"


def spanned(counts: Sequence[int]) -> tuple[int, int]:
    """Return the first and the last bucket with hits; (0, -1) if there is none."""
    used = [index for index, count in enumerate(counts) if count]
    return (used[0], used[-1]) if used else (0, -1)


def label(buckets: Buckets, index: int) -> str:
    """Return a bucket's label: ``[8, 16)``, ``[512, 1K)``, ``[1]``, ``(..., 0)``, ``[9, ...)``."""
    return edge_label(*buckets.edges(index), single=isinstance(buckets, Log2))


def edge_label(
    low: int | None, high: int | None, *, single: bool, edge: Callable[[int], str] | None = None
) -> str:
    """Return the label of a bucket from ``low`` to below ``high``; None means unbounded.

    Args:
        low: the lowest value.
        high: the lowest value above.
        single: whether a bucket of one value is labelled with it.
        edge: returns a value as text; by default :func:`number`.
    """
    shown = edge or number
    if low is None:
        return f"(..., {shown(high or 0)})"
    if high is None:
        return f"[{shown(low)}, ...)"
    if single and high - low == 1:
        return f"[{low}]"
    return f"[{shown(low)}, {shown(high)})"


def number(value: int) -> str:
    """Return a number; if a power of 1024 divides it, with that prefix: 3K, 1M; 1000."""
    index = 0
    while abs(value) >= 1024 and value % 1024 == 0 and index + 1 < len(_PREFIXES):
        value //= 1024
        index += 1
    return f"{value}{_PREFIXES[index]}"


def duration(nanoseconds: float) -> str:
    """Return a duration in a suitable unit, two decimals below 100: 1.25 ms."""
    for size, name in _UNITS:
        if nanoseconds >= size:
            value = nanoseconds / size
            return f"{value:.2f} {name}" if value < 100 and size > 1 else f"{value:.0f} {name}"
    return "0 ns"
