"""Flame graphs in a browser: search, zoom, colours, difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hostile import HOSTILE
from pictures.profiles import shop

from usdt.pictures.flame import flame_page
from usdt.pictures.profile import Frame, Profile
from usdt.pictures.tree import difference, tree_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from browser import Browser, Page

_NAMES = "[...document.querySelectorAll('g.frame')].map(g => g.getAttribute('name'))"
_HIGHLIGHTED = (
    "[...document.querySelectorAll('rect[fill=\"#e040e0\"]')].map("
    "r => r.parentNode.getAttribute('name'))"
)
_FOUND = "document.querySelector('.flame-found').textContent"


def _width(name: str) -> str:
    return f"Number(document.querySelector('g.frame[name=\"{name}\"] rect').getAttribute('width'))"


def _is_part(name: str, parts: int) -> str:
    return f"Math.abs({_width(name)} * {parts} - {_width('all')}) < 0.01"


@pytest.fixture
def tab(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A flame graph of :func:`shop`."""
    path = tmp_path / "flame.html"
    path.write_text(flame_page(tree_of(shop())))
    with browser.open(path) as page:
        # Boxes grow for a moment.
        page.until(f"{_width('all')} === document.querySelector('.flame-chart').clientWidth")
        yield page
        assert page.errors == []
        assert page.requests == [page.url]


def test_a_flame_graph_has_a_box_for_each_function(tab: Page) -> None:
    assert sorted(tab.run(_NAMES)) == sorted(
        [
            *("all", "shop", "main", "sell (shop.c:13)", "total (shop.c:9)"),
            *("Worker.run (app.py:8)", "vfs_read", "int Shop.go(int)"),
        ]
    )
    tab.until(_is_part("vfs_read", 2))
    label = tab.run("document.querySelector('g.frame[name=vfs_read] title').textContent")
    assert label == "vfs_read — duration: 5.000 us (50.00%), hits: 2 (33.33%)"
    assert tab.colours() > 20


def test_kinds_have_colours_and_a_legend(tab: Page) -> None:
    legend = tab.run("[...document.querySelectorAll('.flame-legend li')].map(l => l.textContent)")
    assert legend == ["native", "inlined", "Python", "JIT-compiled (Java, Node.js)", "kernel"]
    fills = tab.run("[...document.querySelectorAll('g rect')].map(r => r.getAttribute('fill'))")
    assert len({*fills}) == 8


def test_search_marks_functions_and_counts_them_once(tab: Page) -> None:
    tab.press("/")
    tab.type("READ")
    assert tab.run(_HIGHLIGHTED) == ["vfs_read"]
    assert tab.run(_FOUND) == "5.000 us, 50.00%"
    tab.run("document.querySelector('input').select()")
    tab.type("^s.*[ol]")
    assert sorted(tab.run(_HIGHLIGHTED)) == ["sell (shop.c:13)", "shop"]
    assert tab.run(_FOUND) == "10.00 us, 100.00%"
    tab.run("document.querySelector('input').select()")
    tab.type("go(")  # no regular expression
    assert tab.run(_HIGHLIGHTED) == ["int Shop.go(int)"]
    tab.press("Escape")
    assert tab.run(_HIGHLIGHTED) == []
    assert tab.run("document.querySelector('input').value") == ""


def test_a_click_zooms(tab: Page) -> None:
    half, whole = _is_part("vfs_read", 2), _is_part("vfs_read", 1)
    tab.until(half)
    tab.click("g.frame[name='vfs_read']")
    tab.until(whole)
    assert "int Shop.go(int)" not in tab.run(_NAMES)
    tab.click(".flame-reset")
    tab.until(half)
    tab.run("document.querySelector('g.frame[name=vfs_read]').focus()")
    tab.press("Enter")
    tab.until(whole)


def test_widths_are_of_any_weight(tab: Page) -> None:
    tab.run(
        "(() => { const s = document.querySelector('select'); s.value = 1;"
        "s.dispatchEvent(new Event('change')); })()"
    )
    tab.until(_is_part("vfs_read", 3))


def test_a_difference_is_red_and_blue(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "flame.html"
    path.write_text(flame_page(difference(shop(), shop(3))))
    with browser.open(path, dark=True) as page:
        fill = "document.querySelector('g.frame[name=\"{}\"] rect').getAttribute('fill')"
        more, less, same = (
            page.run(fill.format(name)) for name in ("vfs_read", "int Shop.go(int)", "main")
        )
        label = page.run("document.querySelector('g.frame[name=vfs_read] title').textContent")
        assert page.errors == []
    red, _, blue = (int(more[i : i + 2], 16) for i in (1, 3, 5))
    assert red > blue
    red, _, blue = (int(less[i : i + 2], 16) for i in (1, 3, 5))
    assert red < blue
    assert same == "#f5f5f5"
    assert label == (
        "vfs_read — duration after: 15.00 us (75.00%), duration before: 5.000 us (50.00%), "
        "+25.00% of all"
    )


def test_hostile_names_stay_names(browser: Browser, tmp_path: Path) -> None:
    profile = Profile(title=HOSTILE[1])
    for text in HOSTILE:
        profile.add((("comm", text), (text, text)), (Frame(text), Frame("inner", file=text)), (1,))
    path = tmp_path / "flame.html"
    path.write_text(flame_page(tree_of(profile)))
    with browser.open(path) as page:
        page.click("g.frame")
        page.press("/")
        page.type("script")
        assert page.errors == []
        assert page.requests == [page.url]
        assert page.run("document.title") == HOSTILE[1]
        assert HOSTILE[0] in page.run(_NAMES)
        assert page.run("document.querySelectorAll('img, main svg svg').length") == 0
