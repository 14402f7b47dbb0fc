"""How results are shown: tables, histograms, JSON, heatmaps, pictures."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.base.errors import TracingError
from usdt.base.frozen import replace
from usdt.base.terminal.columns import columns as width_of
from usdt.base.terminal.look import COLOURED, PLAIN, Look
from usdt.engine.aggregate.columns import columns
from usdt.engine.aggregate.distribution import Distribution
from usdt.engine.aggregate.output.heatmap import Heatmap, legend, shade
from usdt.engine.aggregate.output.json import missed_line, pairs_line, result_line
from usdt.engine.aggregate.output.svg import Drawing, svg
from usdt.engine.aggregate.output.text import (
    duration,
    folded_lines,
    histogram,
    histograms,
    label,
    number,
    table,
)
from usdt.engine.aggregate.pairs import UnpairedCounts
from usdt.engine.aggregate.results import Part, Result, frames_part, order
from usdt.engine.aggregate.spec import Aggregation, Linear, Log2, LogLinear, parse_keys
from usdt.engine.aggregate.values import Value
from usdt.engine.language.tree import StackKind
from usdt.engine.output.frames import Frame, Stack
from usdt.engine.runtime.session import Lost


def buckets_of(*places: int, of: Log2 | Linear) -> tuple[int, ...]:
    """Counts with one hit in each of these buckets."""
    return tuple(places.count(index) for index in range(of.number))


# ---------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("buckets", "index", "shown"),
    [
        (Log2(), 0, "(..., 0)"),
        (Log2(), 1, "[0]"),
        (Log2(), 2, "[1]"),
        (Log2(), 3, "[2, 4)"),
        (Log2(), 11, "[512, 1K)"),
        (Log2(), 22, "[1M, 2M)"),
        (Log2(), 65, "[8E, 16E)"),
        (Linear(0, 30, 10), 0, "(..., 0)"),
        (Linear(0, 30, 10), 2, "[10, 20)"),
        (Linear(1024, 4096, 1024), 2, "[2K, 3K)"),
        (Linear(-5, 0, 5), 1, "[-5, 0)"),
        (Linear(0, 30, 10), 4, "[30, ...)"),
    ],
)
def test_labels_are_bpftraces(buckets: Log2 | Linear, index: int, shown: str) -> None:
    assert label(buckets, index) == shown


@given(st.integers(-(1 << 63), 1 << 64))
def test_a_prefix_loses_nothing(value: int) -> None:
    text = number(value)
    prefix = "KMGTPE".find(text[-1]) + 1
    assert int(text.rstrip("KMGTPE")) << 10 * prefix == value


def test_a_histogram_has_the_lines_that_bpftrace_prints() -> None:
    counts = buckets_of(2, 4, 4, of=Log2())
    assert histogram(counts, Log2()) == [
        "[1]                    1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n",
        "[2, 4)                 0 |                                                    |\n",
        "[4, 8)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n",
    ]
    assert histogram(buckets_of(of=Log2()), Log2()) == []


def test_a_histogram_says_whose_it_is() -> None:
    key = (Part("tid", "7", "7"), Part("ustack", "", "[]", ("main+0x1 [a]", "start+0x2 [a]")))
    value = Value(1, 1500, 1500, 1500, buckets_of(2, of=Log2()))
    times = Aggregation(stats=True, buckets=Log2(), pair=parse_keys("tid", "--key"))
    lines = histograms([Result("p:q", "p:q", key, value)], times, what="ns")
    assert lines[0] == "p:q  ns  tid=7\n"
    assert [line.strip() for line in lines[1:3]] == ["main+0x1 [a]", "start+0x2 [a]"]
    assert lines[-2:] == ["count 1, min 1.50 us, avg 1.50 us, max 1.50 us\n", "\n"]


def test_the_bars_of_a_histogram_fit_a_terminal() -> None:
    spread = Distribution(LogLinear(5), {7: 2})
    value = Value(4, buckets=buckets_of(4, 4, of=Log2()), distribution=spread)
    result, made = Result("p:q", "p:q", (), value), Aggregation(buckets=Log2(), resolution=5)
    for look, width in ((Look(width=60), 60), (Look(width=200), 79), (PLAIN, 79)):
        for fine in (False, True):
            lines = histograms([result], made, what="arg0", look=look, fine=fine)
            bars = [line for line in lines if line.endswith("@|\n")]
            assert [len(line) - 1 for line in bars] == [width]


def test_a_histogram_is_followed_by_percentiles() -> None:
    spread = Distribution(LogLinear(5), {-3: 1, 7: 2, 200: 1})
    value = Value(4, buckets=buckets_of(0, 4, 4, 12, of=Log2()), distribution=spread)
    lines = histograms(
        [Result("p:q", "p:q", (), value)], Aggregation(buckets=Log2(), resolution=5), what="arg0"
    )
    percentiles = "p50 7, p90 1295, p99 1295"
    assert lines[-2:] == [f"{percentiles}, p99.9 1295 (±1.6%)\n", "\n"]


def test_a_fine_histogram_leaves_empty_buckets_out() -> None:
    spread = Distribution(LogLinear(2), {-6: 4, -1: 1, 3: 2, 4: 1, 40: 1})
    value = Value(9, distribution=spread)
    result = Result("p:q", "p:q", (), value)
    aggregation = Aggregation(buckets=Log2(), resolution=2)
    lines = histograms([result], aggregation, what="arg0", fine=True)
    assert [line[:24].split("  ")[0] for line in lines[1:-2]] == [
        *("[-6]", "...\n", "[-1]", "...\n", "[3]", "[4]", "...\n", "[2K, 2560)"),
    ]
    assert lines[1].endswith("4 |" + 52 * "@" + "|\n")
    buckets = json.loads(result_line(result, aggregation, {}, fine=True))["buckets"]
    assert buckets[0] == {"low": -6, "high": -5, "count": 4}
    assert [bucket["low"] for bucket in buckets] == [-6, -1, 3, 4, 2048]


def test_fine_buckets_of_times_have_edges_in_their_unit() -> None:
    times = Aggregation(buckets=Log2(), resolution=1, pair=parse_keys("tid", "--key"), unit=1000)
    result = Result("p:q", "p:q", (), Value(1, distribution=Distribution(LogLinear(1), {20: 1})))
    (line,) = histograms([result], times, what="us", fine=True)[1:2]
    assert line.startswith("[1.024, 1.536) ")
    (bucket,) = json.loads(result_line(result, times, {}, fine=True))["buckets"]
    assert bucket == {"low": 1.024, "high": 1.536, "count": 1}


def test_a_table_has_columns() -> None:
    results = [
        Result("p:q", "p:q", (Part("tid", "7", "7"), Part("comm", "a", '"a"')), Value(5)),
        Result("p:long", "p:long", (Part("tid", "12345", "7"), Part("comm", "b", "")), Value(10)),
    ]
    assert table(results, columns(Aggregation())) == [
        "   COUNT  PROBE   tid    comm\n",
        "       5  p:q     7      a\n",
        "      10  p:long  12345  b\n",
    ]
    assert table([], columns(Aggregation())) == []


def test_a_table_fits_a_terminal() -> None:
    def result(probe: str, text: str, count: int) -> Result:
        return Result(
            probe, probe, (Part("str(arg0)", text, ""), Part("tid", "7", "7")), Value(count)
        )

    look = replace(COLOURED, width=40)
    results = [
        result("shop:order", "日本語日本語日本語", 5),
        result("shop:long__name", '"abc"', 10),
    ]
    head, *rows = table(results, columns(Aggregation()), look)
    assert head == "\x1b[1m   COUNT  PROBE        str(arg0)    tid\x1b[0m\n"
    assert rows == [
        "       5  \x1b[36mshop:order\x1b[0m   日本語日本…  7\n",
        '      10  \x1b[36mshop:long_…\x1b[0m  "abc"        7\n',
    ]
    assert all(width_of(line.rstrip()) <= 40 for line in rows)


def test_folded_stacks_weigh_counts_or_sums() -> None:
    def result(stack: str, count: int, total: int) -> Result:
        key = (Part("comm", "a", '"a"'), Part("ustack", "", "[]", (stack,), folded=stack))
        return Result("p:q", "p:q", key, Value(count, total))

    results = [result("f;g", 2, 300), result("f", 1, -5), result("f;g", 1, 30)]
    assert folded_lines(results) == ["a;f;g 3\n", "a;f 1\n"]
    assert folded_lines(results, weighted=True) == ["a;f;g 330\n", "a;f -5\n"]


def test_a_table_of_statistics() -> None:
    results = [
        Result("p:q", "p:q", (), Value(4, -10, -9, 5)),
        Result("p:\x1b[31m", "p:\x1b[31m", (), Value(2, 7, None, None)),
    ]
    head, first, second = (
        line.split() for line in table(results, columns(Aggregation(stats=True)))
    )
    assert head == ["COUNT", "MIN", "AVG", "MAX", "SUM", "PROBE"]
    assert first == ["4", "-9", "-2.5", "5", "-10", "p:q"]
    assert second == ["2", "?", "3.5", "?", "7", "p:\\x1b[31m"]


def test_a_table_of_times() -> None:
    times = Aggregation(stats=True, buckets=Log2(), resolution=5, pair=parse_keys("tid", "--key"))
    spread = Distribution(LogLinear(5), {16 + 192: 3, 32 + 192: 1})
    value = Value(4, 9_000, 1_024, 4_000, buckets_of(12, 12, 12, 13, of=Log2()), spread)
    result = Result("p:q", "p:q", (Part("tid", "7", "7"),), value)
    head, line, note = table([result], columns(times))
    percentiles = ["P50", "P90", "P99", "P99.9"]
    assert head.split() == ["COUNT", *percentiles, "AVG", "MAX", "TOTAL", "PROBE", "tid"]
    numbers = "1.55 us  4.00 us  4.00 us  4.00 us  2.25 us  4.00 us  9.00 us"
    assert " ".join(line.split()) == f"4 {' '.join(numbers.split())} p:q 7"
    assert note == "percentiles ±1.6%\n"


_UNSORTED = [
    Result("p:q", "p:q", (Part("a", a, a, number=float(a)), Part("s", s, f'"{s}"')), value)
    for a, s, value in [
        ("10", "x", Value(3, 30, 1, 20)),
        ("9", "y", Value(2, 90, 5, 70)),
        ("-1", "z", Value(5, 10, None, None)),
    ]
]


@pytest.mark.parametrize(
    ("name", "last"),
    [
        (None, "9 10 -1"),
        ("count", "9 10 -1"),
        ("avg", "-1 10 9"),
        ("MAX", "-1 10 9"),
        ("min", "-1 10 9"),
        ("sum", "-1 10 9"),
        ("total", "-1 10 9"),
        ("key", "-1 9 10"),
        ("a", "-1 9 10"),
        ("s", "10 9 -1"),
    ],
)
def test_results_are_sorted_by_a_column(name: str | None, last: str) -> None:
    aggregation = Aggregation(stats=True, keys=parse_keys("a, s", "--by"))
    found = sorted(_UNSORTED, key=order(aggregation, name))
    assert " ".join(result.key[0].text for result in found) == last


@pytest.mark.parametrize("name", ["p50", "P90", "p99", "p99.9"])
def test_results_are_sorted_by_a_percentile(name: str) -> None:
    aggregation = Aggregation(stats=True, resolution=5)
    results = [
        Result(text, text, (), Value(n, distribution=Distribution(LogLinear(5), counts)))
        for text, n, counts in [("a", 2, {7: 2}), ("b", 1, {5: 1}), ("c", 5, {}), ("d", 1, {9: 1})]
    ]
    found = sorted(results, key=order(aggregation, name))
    assert [result.probe for result in found] == ["c", "b", "a", "d"]


def test_a_column_that_is_not_there_is_refused() -> None:
    aggregation = Aggregation(keys=parse_keys("arg0 % 2", "--by"))
    with pytest.raises(TracingError) as caught:
        order(aggregation, "p50")
    assert str(caught.value) == "--sort p50: no such column; expected one of count, key, arg0%2"
    with pytest.raises(TracingError, match=r"expected one of count$"):
        order(Aggregation(), "key")


@pytest.mark.parametrize(
    ("nanoseconds", "shown"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1.00 us"),
        (123_456, "123 us"),
        (1_500_000, "1.50 ms"),
        (61_000_000_000, "61.00 s"),
        (1e13, "10000 s"),
    ],
)
def test_durations(nanoseconds: float, shown: str) -> None:
    assert duration(nanoseconds) == shown


# ---------------------------------------------------------------- JSON


def test_a_result_as_json() -> None:
    both = Aggregation(stats=True, buckets=Linear(0, 20, 10))
    key = (Part("str(arg0)", "x", '"x\\udcff"'), Part("ustack", "", '[{"symbol": "f"}]', ("f",)))
    result = Result("p:q(arg0>1)", "p:q", key, Value(3, 33, 1, 30, (0, 1, 0, 2)))
    line = result_line(result, both, {"time": 5, "unit": "ns"})
    assert line.endswith("}\n")
    assert json.loads(line) == {
        "time": 5,
        "unit": "ns",
        "probe": "p:q",
        "request": "p:q(arg0>1)",
        "key": {"str(arg0)": "x\udcff", "ustack": [{"symbol": "f"}]},
        "count": 3,
        "min": 1,
        "avg": 11.0,
        "max": 30,
        "sum": 33,
        "linear": {"low": 0, "high": 20, "step": 10},
        "buckets": [
            {"low": 0, "high": 10, "count": 1},
            {"low": 10, "high": 20, "count": 0},
            {"low": 20, "high": None, "count": 2},
        ],
    }


def test_percentiles_as_json() -> None:
    stats = Aggregation(stats=True, resolution=5)
    spread = Distribution(LogLinear(5), {1: 99, 2: 1}, unplaced=1)
    value = Value(101, 103, 1, 2, distribution=spread)
    line = result_line(Result("p:q", "p:q", (), value), stats, {})
    assert list(json.loads(line).items())[1:] == [
        *[("count", 101), ("min", 1), ("avg", 103 / 101), ("max", 2), ("sum", 103)],
        *[("p50", 1), ("p90", 1), ("p99", None), ("p99.9", 2), ("error", 1 / 64)],
        *[("unplaced", 1), ("distribution", [[1, 99], [2, 1]])],
    ]


def test_what_is_missing_as_json() -> None:
    assert json.loads(missed_line(Lost("p:q", 3, 4))) == {
        "lost": 3,
        "unreadable": 4,
        "probe": "p:q",
    }
    assert json.loads(pairs_line(UnpairedCounts(1, 2, 3))) == {
        "unfinished": 1,
        "unmatched": 2,
        "deep": 3,
    }


# ---------------------------------------------------------------- heatmaps


@given(st.integers(1, 1 << 64))
def test_a_shade_begins_where_its_legend_says(count: int) -> None:
    least, text = legend(shade(count))
    assert least <= count < legend(shade(count) + 1)[0]
    assert shade(least) == shade(count)
    assert text == f"{number(least)}+"


def test_rows_widen_as_buckets_are_hit() -> None:
    heatmap = Heatmap(Log2(), "ns")
    first = heatmap.row(0, buckets_of(5, 5, 5, 5, of=Log2()))
    assert [line[8:] for line in first] == [" |8 | ns; count\n", " |::| 4\n"]
    assert heatmap.row(1, buckets_of(5, of=Log2()))[0][8:] == " |..| 1\n"
    head, row = heatmap.row(2, buckets_of(3, of=Log2()))
    assert head[8:] == " |2   8 | ns; count\n"
    assert row[8:] == " |..    | 1\n"
    assert heatmap.row(3, buckets_of(of=Log2()))[0][8:] == " |      | 0\n"
    assert "columns [2, 4) to [8, 16) ns; hits: ..1+ ::4+ --16+" in heatmap.legend()[0]


def test_nothing_at_all() -> None:
    heatmap = Heatmap(Linear(0, 10, 1), "arg0", look=COLOURED)
    assert [line[8:] for line in heatmap.row(0, (0,) * 12)] == [" || 0\n"]
    assert heatmap.legend() == []


def test_colours_are_the_terminals() -> None:
    (_, row) = Heatmap(Linear(0, 2, 1), "", look=COLOURED).row(0, (0, 1, 100, 0))
    assert row[8:] == " |\x1b[48;5;17m  \x1b[0m\x1b[48;5;55m  \x1b[0m| 101\n"


_SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_holds_every_count() -> None:
    rows = tuple((float(n), buckets_of(*[3] * n, 6, of=Log2())) for n in range(1, 4))
    text = svg(Drawing('a < b & "c"\x1b → d', "arg0", Log2(), rows))
    root = ET.fromstring(text)
    titles = [title.text for title in root.iter(f"{_SVG}title")]
    assert titles[0] == 'a < b & "c"\ufffd → d'
    cells = [title.rpartition("  ")[2] for title in titles[1:] if title]
    assert cells == [
        *("[2, 4) arg0: 1", "[16, 32) arg0: 1"),
        *("[2, 4) arg0: 2", "[16, 32) arg0: 1"),
        *("[2, 4) arg0: 3", "[16, 32) arg0: 1"),
    ]
    height = float(root.get("height") or 0)
    assert all(0 <= float(r.get("y") or 0) <= height for r in root.iter(f"{_SVG}rect"))


@pytest.mark.parametrize(
    ("unit", "labels"),
    [
        (1, ["[4.10 us, 8.19 us)", "[8.19 us, 16.38 us)", "[16.38 us, 32.77 us)"]),
        (1000, ["[4.10 ms, 8.19 ms)", "[8.19 ms, 16.38 ms)", "[16.38 ms, 32.77 ms)"]),
        (10**9, ["[4096 s, 8192 s)", "[8192 s, 16384 s)", "[16384 s, 32768 s)"]),
        (None, ["[4K, 8K)", "[8K, 16K)", "[16K, 32K)"]),
    ],
)
def test_a_picture_labels_times_as_times(unit: int | None, labels: list[str]) -> None:
    rows = ((0.0, buckets_of(14, 16, of=Log2())),)
    root = ET.fromstring(svg(Drawing("a → b", "time", Log2(), rows, unit=unit)))
    texts = [text.text or "" for text in root.iter(f"{_SVG}text")]
    assert [text for text in texts if text.startswith("[")] == labels


@pytest.mark.parametrize("number_of", [1, 3, 40, 1900])
def test_a_plot_takes_the_whole_page(number_of: int) -> None:
    rows = tuple((float(n), buckets_of(14, of=Log2())) for n in range(number_of))
    drawing = Drawing("a", "b", Log2(), rows, clock=lambda seconds: f"second {seconds:.0f}")
    root = ET.fromstring(svg(drawing))
    page = float(root.get("width") or 0)
    cells = [r for r in root.iter(f"{_SVG}rect") if r.find(f"{_SVG}title") is not None]
    ends = [float(r.get("x") or 0) + float(r.get("width") or 0) for r in cells]
    assert len(cells) == number_of
    assert page - 30 < ends[-1] < page
    times = [t for t in root.iter(f"{_SVG}text") if (t.text or "").startswith("second ")]
    at = [float(t.get("x") or 0) for t in times]
    assert 1 <= len(times) <= min(number_of, 14)
    assert all(later - one > 60 for one, later in itertools.pairwise(at))
    assert at[0] > 70
    assert page - 180 < at[-1] < page


@pytest.mark.parametrize("rows", [(), ((0.0, (0, 0, 0)),)], ids=["no row", "an empty row"])
def test_a_picture_of_nothing(rows: tuple[tuple[float, tuple[int, ...]], ...]) -> None:
    root = ET.fromstring(svg(Drawing("p:q", "arg0", Linear(0, 1, 1), rows)))
    assert len([*root.iter(f"{_SVG}title")]) == 1


def test_stacks_with_as_many_hits_are_in_the_order_of_their_frames() -> None:
    def result(symbol: str, count: int, reason: str = "") -> Result:
        frames = Stack([Frame(7, symbol, 1, "m", file_id="ab", link_address=3)], reason)
        return Result("p:q", "p:q", (frames_part("ustack", frames, StackKind.USER),), Value(count))

    text = Result("p:q", "p:q", (Part("ustack", "z", '"z"'),), Value(2))
    expected = [result("z", 1), text, result("a", 2), result("a", 2, "cut"), result("b", 2)]
    mixed = [*expected[3:], *expected[:3]]
    assert sorted(mixed, key=order(Aggregation(), None)) == expected
    assert [json.loads(one.key[0].json)[0]["symbol"] for one in expected if one != text] == [
        *("z", "a", "a", "b")
    ]
    assert len(json.loads(expected[3].key[0].json)) == 2
