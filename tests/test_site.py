"""The documentation site: every page has its place, and every link of a page leads somewhere.

``make docs`` builds the site, strictly. These tests hold most of it without MkDocs.
"""

from __future__ import annotations

import functools
import re
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import yaml
from house import ROOT

import kprobe
import usdt
from usdt import bpf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

sys.path.insert(0, str(ROOT / "tools"))
import mkdocs_hooks

_DOCS = ROOT / "docs"
_PAGES = sorted(_DOCS.glob("*.md"))
_SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def _leaves(nav: object) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for one in nav:
                yield from _leaves(one)
        case dict():
            yield from _leaves([*nav.values()])


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@functools.cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(_leaves(_SITE["nav"])) == [page.name for page in _PAGES]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, _, anchor in re.findall(r"\]\(([^)#\s]*)(#([^)\s]*))?\)", _prose(page)):
        if "://" in target or not re.search(r"^$|\.\w+$", target):
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def test_files_beside_the_docs_are_part_of_the_site() -> None:
    linked = mkdocs_hooks.linked_files(_DOCS / "api.md")
    assert "examples/heatmap.py" in linked
    text = mkdocs_hooks.on_page_markdown("[a](../examples/heatmap.py) [b](spans.md)")
    assert text == "[a](files/examples/heatmap.py) [b](spans.md)"
    copy = SimpleNamespace(file=SimpleNamespace(src_uri="files/CHANGELOG.md"))
    assert mkdocs_hooks.on_page_markdown("[a](docs/api.md#x)", page=copy) == "[a](../api.md#x)"


def test_the_help_of_every_command_is_part_of_the_site() -> None:
    text = mkdocs_hooks.on_page_markdown((_DOCS / "commands.md").read_text())
    for heading in ("## usdt", "### usdt trace", "## kprobe", "#### kprobe event check"):
        assert f"\n{heading}\n\n```text\nUsage: {heading.split(' ', 1)[1]} " in text
    assert "usdt count -a '*:*' -d 10 --top 20\n" in text


def test_a_bar_in_code_in_a_table_has_no_backslash() -> None:
    assert mkdocs_hooks.on_page_markdown(r"| `a \| b<` | x |") == (
        "| <code>a &#124; b&lt;</code> | x |"
    )
    assert mkdocs_hooks.on_page_markdown(r"`a \| b`") == r"`a \| b`"


def test_roles_of_docstrings_are_left_out() -> None:
    text = ":class:<code>Events</code>: see :func:<code>f</code>"
    assert mkdocs_hooks.on_page_content(text) == "<code>Events</code>: see <code>f</code>"


def test_every_public_name_is_part_of_the_site() -> None:
    listed = re.findall(r"^::: (\S+)$", (_DOCS / "python-names.md").read_text(), re.MULTILINE)
    own = [name for name in kprobe.__all__ if getattr(kprobe, name) is not getattr(usdt, name, 0)]
    assert listed == [
        *(f"usdt.{name}" for name in usdt.__all__),
        *(f"kprobe.{name}" for name in own),
        *(f"usdt.bpf.{name}" for name in bpf.__all__),
    ]


def test_the_site_needs_no_other_machine() -> None:
    assert _SITE["theme"]["font"] is False
    assert not {"extra_css", "extra_javascript"} & set(_SITE)


def test_pages_that_are_copied_into_the_site_link_to_pages() -> None:
    linked = {path for page in _DOCS.glob("*.md") for path in mkdocs_hooks.linked_files(page)}
    copies = [path for path in linked if path.endswith(".md")]
    assert "CHANGELOG.md" in copies
    for path in copies:
        targets = re.findall(r"\]\(([^)#:]+)[)#]", (ROOT / path).read_text())
        assert targets, path
        assert not [one for one in targets if not one.startswith("docs/")], path
        assert not [one for one in targets if not (ROOT / one).exists()], path
