"""Rows, pairs and estimates of top."""

from __future__ import annotations

import pytest

from usdt.base.terminal.columns import columns
from usdt.engine.language import parse_probe
from usdt.engine.top.costs import cost_text
from usdt.engine.top.pairs import ends_of, is_call, probe_text
from usdt.engine.top.table import Reading, Sort, Table
from usdt.engine.top.text import heading, number, row_text, sparkline


def _table() -> Table:
    table = Table()
    table.add(Reading(10.0, {"p:a": 5, "p:b": 100}, {}))
    table.add(Reading(12.0, {"p:a": 25, "p:b": 102, "q:new": 8}, {}, 3))
    return table


def test_a_rate_is_the_hits_of_an_interval_by_its_length() -> None:
    table = _table()
    assert table.rates() == {"p:a": 10.0, "p:b": 1.0, "q:new": 4.0}
    assert [(row.probe, row.total) for row in table.rows()] == [
        ("p:a", 25),
        ("q:new", 8),
        ("p:b", 102),
    ]
    assert table.lost == 3


def test_rows_are_sorted_and_filtered() -> None:
    table = _table()
    table.sort = Sort.TOTAL
    assert [row.probe for row in table.rows()] == ["p:b", "p:a", "q:new"]
    table.sort, table.filter = Sort.NAME, "P:"
    assert [row.probe for row in table.rows()] == ["p:a", "p:b"]


@pytest.mark.parametrize("width", [40, 79, 200])
def test_lines_fit_the_width(width: int) -> None:
    table = Table()
    name = "provider:" + "long_" * 60
    table.add(Reading(0.0, {name: 0}, {}))
    table.add(Reading(1.0, {name: 123_456_789}, {}))
    (row,) = table.rows()
    assert len(row_text(row, width)) <= width
    assert len(heading(width, Sort.RATE)) <= width


def test_a_long_name_is_cut_and_control_characters_are_shown() -> None:
    table = Table()
    names = ["p:" + "世" * 60, "p:a\x1b[2Jb"]
    table.add(Reading(0.0, dict.fromkeys(names, 0), {}))
    table.add(Reading(1.0, dict.fromkeys(names, 1), {}))
    lines = [row_text(row, 80) for row in table.rows()]
    assert all(columns(line) == 80 for line in lines)
    assert "…" in lines[1]
    assert r"p:a\x1b[2Jb " in lines[0]


def test_numbers_and_bars() -> None:
    assert [number(n) for n in (0, 0.5, 1234, 123_456, 5e9)] == ["0", "0.5", "1234", "123K", "5.0G"]
    assert sparkline([0.0, 1.0, 8.0], 4) == "  ▁█"


def test_names_pair_by_their_last_word() -> None:
    names = ["q:a__start", "q:a__done", "q:b__entry", "q:b__done", "q:begin", "q:end"]
    assert ends_of(names) == {"q:a__start": "q:a__done", "q:begin": "q:end"}
    assert is_call("syscall:read")
    assert is_call("vfs_read")
    assert not is_call("tracepoint:sched:sched_switch")


def test_the_text_of_a_probe_keeps_the_file_that_was_given() -> None:
    given = [parse_probe("/bin/x:p:*", default="usdt")]
    assert probe_text(given, "p:n") == "/bin/x:p:n"
    assert probe_text([parse_probe("p:*", default="usdt")], "p:n", "return") == "p:n(return)"


def test_a_cost_is_hits_by_nanoseconds() -> None:
    assert cost_text({"p:a": 1000.0}, {}) == "~0.12% of a CPU (1000 hits/s x 1200 ns)"
    assert cost_text({"syscall:read": 1000.0}, {"syscall:read": 650}).endswith("x 650 ns)")
    assert cost_text({"p:a": 10.0, "vfs_read": 10.0}, {}).endswith("(20 hits/s x 675 ns)")
    assert cost_text({}, {}) == "~0.00% of a CPU (0 hits/s x 0 ns)"
