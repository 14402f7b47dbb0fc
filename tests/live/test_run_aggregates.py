"""What count(), hist() and the like compute in programs, without keys and with them."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

import usdt
from usdt.base.errors import LanguageError

if TYPE_CHECKING:
    from program_runs import Run

_SET = (
    "@a = avg(5); @c = count(); @h = hist(3); @l = lhist(3, 0, 10, 1); @m = min(3);"
    " @s = sum(0); @t = stats(3);"
)
_EVERY = "achlmst"


def _lines(out: str) -> list[str]:
    return [line for line in out.splitlines() if line]


def test_what_was_never_added_to_is_not_printed(run: Run) -> None:
    out = run(f"BEGIN {{ exit(); }} interval:s:100 {{ {_SET} }}")
    assert out == "@c: 0\n"  # but a count


def test_print_of_what_was_never_added_to(run: Run) -> None:
    prints = "".join(f"print(@{name}); " for name in _EVERY)
    out = run(f"BEGIN {{ {prints} exit(); }} interval:s:100 {{ {_SET} }}")
    printed = ["@a: 0", "@c: 0", "@m: 0", "@s: 0", "@t: count 0, average 0, total 0"]
    assert _lines(out) == [*printed, "@c: 0"]


@pytest.mark.parametrize("how", ["clear", "delete"])
def test_what_was_emptied_is_not_printed(run: Run, how: str) -> None:
    names = [name for name in _EVERY if how == "clear" or name not in "hl"]
    calls = "".join(f"{how}(@{name}); " for name in names)
    out = run(f"BEGIN {{ {_SET} {calls} clear(@h); clear(@l); exit(); }}")
    assert out == "@c: 0\n"  # but a count


def test_zero_leaves_zeros_to_which_more_is_added(run: Run) -> None:
    calls = "".join(f"zero(@{name}); " for name in _EVERY)
    out = run(f"BEGIN {{ {_SET} {calls} exit(); }}")
    assert _lines(out) == [
        *("@a: 0", "@c: 0", "@h:", "@l:", "@m: 0", "@s: 0"),
        "@t: count 0, average 0, total 0",
    ]


def test_zero_begins_anew(run: Run) -> None:
    again = "if ((int64)@m == 0) { @m = max(-7); exit(); }"  # once the tracer has zeroed it
    out = run(f"BEGIN {{ @m = max(-5); zero(@m); }} interval:ms:10 {{ {again} }}")
    assert out == "@m: -7\n"


def test_a_sum_that_is_deleted_begins_anew(run: Run) -> None:
    out = run("BEGIN { @s = sum(5); delete(@s); @s = sum(2); print(len(@s)); exit(); }")
    assert _lines(out) == ["1", "@s: 2"]


def test_extreme_numbers(run: Run) -> None:
    least, most = -(1 << 63), (1 << 63) - 1
    text = f"""
        BEGIN {{
            @least = max({least}); @most = min({most}); @u = max((uint64)-1);
            @h = hist(-1); @h = hist(0); @h = hist({most});
            @w = hist({most}, 5);
            @l = lhist({least}, -5, 5, 3); @l = lhist(4, -5, 5, 3); @l = lhist({most}, -5, 5, 3);
            exit();
        }}
    """
    bar = f"1 |{'@' * 52}|"
    found = _lines(run(text))
    assert [line for line in found if " 0 |" not in line] == [
        "@h:",
        f"(..., 0)               {bar}",
        f"[0]                    {bar}",
        f"[4E, 8E)               {bar}",
        "@l:",
        f"(..., -5)              {bar}",
        f"[4, 7)                 {bar}",
        f"[5, ...)               {bar}",
        f"@least: {least}",
        f"@most: {most}",
        f"@u: {(1 << 64) - 1}",
        "@w:",
        f"[8064P, 8E)            {bar}",
    ]


def test_results_are_numbers(run: Run) -> None:
    text = """
        BEGIN {
            @a = avg(-5); @a = avg(-8); @c = count(); @m = max(-3); @n = min(-3); @n = min(4);
            @s = sum(-2); @k[1] = max(7); @k[1] = max(6);
            print((@a, @c, @m, @n, @s, @k[1], @k[2]));
            clear(@a); clear(@m); clear(@n); clear(@s); clear(@k);
            exit();
        }
    """
    assert run(text) == "(-6, 1, -3, -3, -2, 7, 0)\n@c: 1\n"


_LONG = 10**18  # nanoseconds: since 2001, until 2033


def test_series(run: Run) -> None:
    text = f"""
        BEGIN {{
            $i = 0;
            unroll(3) {{
                $i++;
                @last = tseries(-$i, {_LONG}, 5); @sum = tseries($i, {_LONG}, 5, "sum");
                @k[$i % 2] = tseries($i * 10, {_LONG}, 5, "max");
                @low[1, "x"] = tseries((uint64)$i, {_LONG}, 1, "min");
                @avg = tseries(-$i * 3, {_LONG}, 5, "avg");
            }}
            @gone = tseries(1, {_LONG}, 5); clear(@gone);
            exit();
        }}
    """
    found = [json.loads(line) for line in run(text, form="json").splitlines()]
    assert {one["type"] for one in found} == {"tseries"}
    data = {name: value for one in found for name, value in one["data"].items()}
    start = data["@last"][0]["interval_start"]
    assert re.fullmatch(r"2001-09-\d\d \d\d:\d\d:40\.0{9}", start)
    expected = {"@avg": -6, "@last": -3, "@sum": 6}
    for name, value in expected.items():
        assert data[name] == [{"interval_start": start, "value": value}]
    assert [*data["@k"]] == ["0", "1"]
    assert [rows[0]["value"] for rows in data["@k"].values()] == [20, 30]
    assert data["@low"] == {"1,x": [{"interval_start": start, "value": 1}]}
    assert "@gone" not in data


def test_series_keep_the_last_intervals() -> None:
    text = """
        interval:ms:10 {
            @n++; @ = tseries(@n, 1ms, 25); @k[1] = tseries(@n, 1ms, 100000);
            if (@n == 8) { exit(); }
        }
    """
    with usdt.run(text) as program:
        for _ in program:
            pass
        every, last = program.maps["@k"][1], program.maps["@"]
    for rows in (every, last):
        starts, values = zip(*rows, strict=True)
        assert values[-1] == 8
        assert [*starts] == sorted(set(starts))
        assert [*values] == sorted(set(values))
        assert not any(start % 1_000_000 for start in starts)
        assert abs(time.time_ns() - starts[-1]) < 60 * 10**9
    assert last[-1][0] - last[0][0] < 25_000_000
    assert every[-1][0] - every[0][0] >= 25_000_000


def test_zero_of_a_series(run: Run) -> None:
    series = f"tseries(1, {_LONG}, 5)"
    out = run(f"BEGIN {{ @ = {series}; @k[1] = {series}; zero(@); zero(@k); exit(); }}")
    assert _lines(out) == ["@:", "<no data>", "@k[1]:", "<no data>"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("@h = hist(1); delete(@h);", "@h holds hist(), an entry for each bucket"),
        ("@h[1] = hist(1); delete(@h, 1);", "@h holds hist(), an entry for each bucket"),
        ("@h[1] = hist(1); delete(@h[1]);", "@h holds hist(), an entry for each bucket"),
        ("@l[1] = lhist(1, 0, 9, 3); has_key(@l, 1);", "@l holds lhist(), an entry for each"),
        ("@l[1] = lhist(1, 0, 9, 3); print(len(@l));", "@l holds lhist(), an entry for each"),
        ("@h[1] = hist(1); for ($e : @h) { }", "@h holds hist(), an entry for each bucket"),
        ("@c = count(); for ($e : @c) { }", "@c has no keys over which for could go"),
        ("@t = tseries(1, 0, 5);", "tseries() interval_ns must be >= 1 (0 provided)"),
        ("@t = tseries(1, 1s, 0);", "tseries() num_intervals must be >= 1 (0 provided)"),
        ("@t = tseries(1, 1s, 1000000);", "must be < 1000000 (1000000 provided)"),
        ('@t = tseries(1, 1s, 5, "count");', 'avg, max, min, sum ("count" provided)'),
        ('@t = tseries("x", 1s, 5);', "tseries(): expected a number"),
        ("@t = tseries(1, pid, 5);", "tseries(): expected a constant number"),
        ("@t = tseries(1, 1s, 5); print(@t + 1);", "@t holds tseries(): it can be printed"),
        ("@t[1] = tseries(1, 1s, 5); @t[2] = tseries(1, 2s, 5);", "the values of @t"),
        ("@l = lhist(1, 0, 4000, 1);", "must be <= 1000 (would need 4000)"),
    ],
)
def test_refused(run: Run, body: str, why: str) -> None:
    with pytest.raises(LanguageError) as caught:
        run(f"BEGIN {{ {body} exit(); }}")
    assert why in str(caught.value)
