"""Self-contained pages: hostile texts stay texts, and nothing is requested."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from hostile import HOSTILE

from usdt.pictures.page import Part, embedded_json, page, text

if TYPE_CHECKING:
    from pathlib import Path

    from browser import Browser

_SHOW = "document.getElementById('shown').textContent = JSON.stringify(pageData('texts'));"


def test_embedded_json_is_the_same_value_without_marks_of_html() -> None:
    for value in HOSTILE:
        made = embedded_json({value: [value]})
        assert json.loads(made) == {value: [value]}
        assert re.fullmatch(r"[\x20-\x7e]*", made)
        assert not set("<>&") & set(made)


def test_text_has_no_marks_of_html_and_nothing_invisible() -> None:
    for value in HOSTILE:
        made = text(value)
        assert not set("<>\"'") & set(made)
        assert made.isprintable()


def test_equal_scripts_and_styles_are_in_a_page_once() -> None:
    part = Part("<p></p>", ("d3",), ("let once;",), ("p { color: red; }",))
    made = page("twice", [part, part])
    assert made.count("let once;") == 1
    assert made.count("p { color: red; }") == 1
    assert made.count("d3js.org v7") == 1


def test_a_page_names_its_libraries_with_their_licenses() -> None:
    made = page("x", [Part("", ("d3-flame-graph",))])
    assert "d3-flame-graph 5.0.0" in made
    assert "Apache License" in made


def test_hostile_texts_stay_texts_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    texts = [value for value in HOSTILE if value.isprintable()]
    shown = "".join(f"<p class='text' title=\"{text(value)}\">{text(value)}</p>" for value in texts)
    part = Part(f"<p id='shown'></p>{shown}", scripts=(_SHOW,), data={"texts": HOSTILE})
    path = tmp_path / "page.html"
    path.write_text(page("".join(HOSTILE[:6]), [part]))
    with browser.open(path) as tab:
        assert tab.errors == []
        assert tab.requests == [tab.url]
        assert tab.run("document.title").startswith("<script>")
        found = tab.run("[...document.querySelectorAll('.text')].map(p => p.textContent)")
        assert found == texts
        titles = tab.run("[...document.querySelectorAll('.text')].map(p => p.title)")
        assert titles == texts
        assert tab.run("document.querySelectorAll('img, svg').length") == 0
        assert json.loads(tab.run("document.getElementById('shown').textContent")) == [*HOSTILE]


def test_a_page_runs_no_other_script_and_fetches_nothing(browser: Browser, tmp_path: Path) -> None:
    bad = (
        "<script>document.title = 'injected'</script>"
        "<p id='p' onclick=\"document.title = 'injected'\">click</p>"
        "<img src='http://127.0.0.1:9/x.png'>"
    )
    path = tmp_path / "page.html"
    path.write_text(page("safe", [Part(bad)]))
    with browser.open(path) as tab:
        tab.click("#p")
        assert tab.run("document.title") == "safe"
        assert len([one for one in tab.errors if "Content Security Policy" in one]) >= 2


def test_the_theme_follows_the_system_and_a_button(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page("x", []))
    background = "getComputedStyle(document.body).backgroundColor"
    with browser.open(path, dark=True) as tab:
        dark = tab.run(background)
        tab.click("#theme")
        light = tab.run(background)
    assert (dark, light) == ("rgb(22, 25, 29)", "rgb(255, 255, 255)")
