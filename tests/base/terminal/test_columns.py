"""Text in the columns of a terminal."""

from __future__ import annotations

import pytest

from usdt.base.terminal.columns import columns, cut, fitted, padded

_RED = "\x1b[31mabcdef\x1b[0m"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("abc", 3, id="ASCII"),
        pytest.param("日本", 4, id="East Asian characters are wide"),
        pytest.param("e\u0301", 1, id="a combining accent takes none"),
        pytest.param("né…", 3, id="other characters"),
        pytest.param(_RED, 6, id="colours take none"),
    ],
)
def test_columns_of_a_text(text: str, number: int) -> None:
    assert columns(text) == number


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        pytest.param("abc", 3, "abc", id="fits"),
        pytest.param("abcd", 3, "ab…", id="cut"),
        pytest.param("日本語", 5, "日本…", id="wide characters"),
        pytest.param("日本語", 4, "日…", id="half a wide character does not fit"),
        pytest.param("xe\u0301yz", 3, "xe\u0301…", id="an accent stays with its letter"),
        pytest.param("abc", 1, "…", id="one column"),
        pytest.param("abc", 0, "", id="no column"),
        pytest.param("", 0, "", id="nothing"),
        pytest.param(_RED, 4, "\x1b[31mabc…\x1b[0m", id="the colour ends all the same"),
        pytest.param(f"{_RED}xyz", 8, "\x1b[31mabcdef\x1b[0mx…", id="behind a colour"),
        pytest.param(f"{_RED}xyz", 6, "\x1b[31mabcde…\x1b[0m", id="what follows is left out"),
    ],
)
def test_a_text_is_cut(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert columns(shown) <= width


def test_a_text_is_padded_to_its_columns() -> None:
    assert padded("日本", 6) == "日本  "
    assert padded("abcdef", 4) == "abc…"
    assert padded("日本語", 4) == "日… "


@pytest.mark.parametrize(
    ("widths", "room", "found"),
    [
        pytest.param([10, 20], 30, [10, 20], id="all fit"),
        pytest.param([10, 20], 29, [10, 19], id="the widest is narrowed"),
        pytest.param([10, 20, 20], 40, [10, 15, 15], id="the widest together"),
        pytest.param([10, 20, 30], 27, [9, 9, 9], id="in the end all"),
        pytest.param([10, 4, 30], 5, [8, 4, 8], id="not below the least"),
        pytest.param([], -1, [], id="no column"),
    ],
)
def test_columns_are_fitted_into_the_room(widths: list[int], room: int, found: list[int]) -> None:
    assert fitted(widths, room) == found
