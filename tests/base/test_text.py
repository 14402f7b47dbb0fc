"""usdt.base.text: names for terminals, names that were probably meant."""

from __future__ import annotations

import pytest

from usdt.base.text import closest, most_alike, plural, printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("naïve ✓ \\", "naïve ✓ \\", id="printable characters stay"),
        pytest.param("\x1b[31m\n", "\\x1b[31m\\n", id="control characters"),
        pytest.param("a\u202eb", "a\\u202eb", id="the direction of writing"),
        pytest.param("\udcff", "\\udcff", id="a byte that is not UTF-8"),
    ],
)
def test_text_for_one_line_of_a_terminal(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_one_is_singular() -> None:
    assert [plural(number, "site") for number in (0, 1, 2)] == ["0 sites", "1 site", "2 sites"]


def test_the_closest_name() -> None:
    assert closest("tcp_sendmgs", ["udp_sendmsg", "tcp_sendmsg"]) == "tcp_sendmsg"
    assert closest("tcp_sendmgs", ["vfs_read"]) == ""
    assert closest("tcp", ["top"], 0.7) == ""


def test_the_closest_of_many_names_wherever_it_is() -> None:
    names = [f"{word}_{number}" for word in ("tcp_send", "udp") for number in range(3000)]
    for at in (0, 3000, 6000):
        assert closest("tcp_sendmgs", [*names[:at], "tcp_sendmsg", *names[at:]]) == "tcp_sendmsg"
    assert closest("tcp_sendmgs", [*names, "__tcp_sendmsg"], 0.7) == "__tcp_sendmsg"
    assert closest("zz", names) == ""
    assert closest("", names) == ""


def test_names_that_share_the_most_pairs_of_letters() -> None:
    names = ["unlike", "heap_size", "heap", "help"]
    assert most_alike("heap_siez", names) == ["heap_size", "heap", "help"]
    assert most_alike("heapp", names, 1) == ["heap"]


@pytest.mark.parametrize(("typed", "meant"), [("agr0", "arg0"), ("mian", "main"), ("xeit", "exit")])
def test_a_short_name_with_two_letters_swapped(typed: str, meant: str) -> None:
    names = [f"{word}{number}" for word in ("ENAME", "tsc", "qu") for number in range(1000)]
    assert closest(typed, [*names, meant]) == meant
