"""Self-contained HTML pages: one file, no network, and nothing in it that a text can inject.

A page consists of parts. The HTML of a part is this program's own; texts of traced processes go
through :func:`text`, or into ``data``, which scripts read by ``pageData(name)``. The page permits
only the scripts whose hashes it names, and no request.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.base.text import printable
from usdt.base.version import VERSION
from usdt.pictures.vendored import asset, library

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ("Part", "embedded_json", "page", "text", "text_lines")

_NO_DATA: Mapping[str, Any] = {}


@frozen
class Part:
    """A part of a page.

    Attributes:
        html: its elements; no text of others is in them that did not pass :func:`text`.
        libraries: packages of ``vendor/`` that its scripts use, in the order of their use.
        scripts: its scripts, which run in order behind all elements; equal ones run once.
        styles: its style sheets; equal ones are there once.
        data: name → a value for ``pageData(name)``; any texts may be in it.
    """

    html: str
    libraries: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    data: Mapping[str, Any] = _NO_DATA


def text(value: str) -> str:
    """Return a text as HTML, for elements and for attributes in quotes."""
    return html.escape(printable(value))


def embedded_json(value: Any) -> str:
    r"""Return a value as JSON that may stand in a ``<script>``, whatever texts are in it.

    All characters but ASCII's are escaped, and those that end a script or begin a comment:
    ``</script`` is ``\u003c/script``.
    """
    made = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return made.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def page(title: str, parts: Sequence[Part]) -> str:
    """Return the text of a page.

    Args:
        title: its title, which may be any text.
        parts: what it shows, in this order.
    """
    used = [library(name) for name in _once(name for part in parts for name in part.libraries)]
    own = _once(script for part in parts for script in part.scripts)
    scripts = [asset("page.js"), *(one.text for one in used), *own]
    styles = [asset("page.css"), *_once(style for part in parts for style in part.styles)]
    data: dict[str, Any] = {}
    for part in parts:
        data |= part.data
    licenses = "".join(
        f"<h3>{text(f'{one.package} {one.version}')}</h3><pre>{text_lines(one.license_text)}</pre>"
        for one in used
    )
    about = f"<details><summary>Licences</summary>{licenses}</details>" if used else ""
    return "".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{text(title)}</title>\n",
            *(f"<style>\n{style}</style>\n" for style in styles),
            "</head>\n<body>\n<header>\n",
            f'<h1>{text(title)}</h1>\n<button id="theme" type="button">Dark</button>\n</header>\n',
            "<main>\n",
            *(f"{part.html}\n" for part in parts),
            f"</main>\n<footer>\n<p>Made by usdt {VERSION}.</p>\n{about}\n</footer>\n",
            *(_data_element(name, value) for name, value in data.items()),
            *(f"<script>{script}</script>\n" for script in scripts),
            "</body>\n</html>\n",
        )
    )


def text_lines(value: str) -> str:
    """Return lines of text as HTML, for ``<pre>``."""
    return "\n".join(map(text, value.split("\n")))


def _once(items: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(items)]


def _data_element(name: str, value: Any) -> str:
    # A block of data: browsers do not run it, whatever is in it.
    return f'<script type="application/json" id="data-{name}">{embedded_json(value)}</script>\n'


def _policy(scripts: Sequence[str]) -> str:
    # Nothing is fetched. Only these scripts run: not those of attributes, nor injected ones.
    hashes = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
