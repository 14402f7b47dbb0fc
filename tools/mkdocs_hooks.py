"""Hooks of MkDocs: what the documentation site has beside the text of docs/.

- Files of the repository that pages link to. In a checkout ``../examples/heatmap.py`` is a file
  beside docs/; the site has copies in ``files/``.
- Anchors of headings as GitHub makes them.
- The help of every command, in the page that says ``<!-- help of usdt -->``.
"""

from __future__ import annotations

import html
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\]\(\.\./([^)#]+)")
_HELP = re.compile(r"^<!-- help of (\w+) -->$", re.MULTILINE)
_TICKED = re.compile(r"`([^`]*\\\|[^`]*)`")
_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):(?=<code>)")
_WIDTH = 100  # of the help of commands


def on_config(config: Any) -> None:
    """Make anchors as GitHub does: ``#the-command-of--c``."""
    slugify = import_module("pymdownx.slugs").slugify  # there for `make docs` only, as MkDocs is
    config["mdx_configs"]["toc"]["slugify"] = slugify(case="lower")


def on_files(files: Any, config: Any) -> Any:
    """Add the files that pages link to; MkDocs calls this with all files of docs/."""
    made = import_module("mkdocs.structure.files").File.generated
    linked = {path for page in (_ROOT / "docs").glob("*.md") for path in linked_files(page)}
    for path in sorted(linked):
        files.append(made(config, f"files/{path}", abs_src_path=str(_ROOT / path)))
    return files


def linked_files(page: Path) -> list[str]:
    """Return the paths outside of docs/ that a page links to."""
    return _LINK.findall(page.read_text())


def on_page_markdown(markdown: str, page: Any = None, **_: Any) -> str:
    """Return the text of a page with links to the copies, with help, and with bars in tables.

    A copy, such as that of CHANGELOG.md, links to pages as from the folder beside docs/.
    """
    if page is not None and page.file.src_uri.startswith("files/"):
        return markdown.replace("](docs/", "](../")
    markdown = _LINK.sub(r"](files/\1", markdown)
    markdown = _HELP.sub(lambda match: "\n\n".join(help_of(match[1])), markdown)
    return re.sub(r"^\|.*", lambda row: _TICKED.sub(_code, row[0]), markdown, flags=re.MULTILINE)


def on_page_content(html: str, **_: Any) -> str:
    """Return the page without the roles of docstrings: ``:class:`` before a name."""
    return _ROLE.sub("", html)


def help_of(program: str) -> Iterator[str]:
    """Yield a section for each command of a program: what it prints for ``--help``."""
    group = getattr(import_module(f"{program}.cli.group"), program)
    yield from _sections(group, click.Context(group, info_name=program, max_content_width=_WIDTH))


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    level = "#" * (1 + len(context.command_path.split()))
    yield f"{level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                made = click.Context(found, context, info_name=name, terminal_width=_WIDTH)
                yield from _sections(found, made)


def _code(span: re.Match[str]) -> str:
    # Python-Markdown shows the backslash that a bar needs inside a table's code.
    text = html.escape(span[1].replace(r"\|", "|"))
    return f"<code>{text.replace('|', '&#124;')}</code>"
