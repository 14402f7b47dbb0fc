"""usdt.base.text: names for terminals, names that were probably meant."""

from __future__ import annotations

import pytest

from usdt.base.text import closest, plural, printable


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


def test_the_closest_name_of_the_first_5000() -> None:
    assert closest("tcp_sendmgs", ["udp_sendmsg", "tcp_sendmsg"]) == "tcp_sendmsg"
    assert closest("tcp_sendmgs", ["vfs_read"]) == ""
    assert closest("tcp", ["top"], 0.7) == ""
    assert closest("tcp_sendmgs", [*("x" * 5000), "tcp_sendmsg"]) == ""
