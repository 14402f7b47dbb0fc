"""``usdt examples``: show the example programs that are installed with the package."""

from __future__ import annotations

import ast
import sys
from importlib.resources import files
from typing import TYPE_CHECKING

import click

from usdt.base.errors import TargetError
from usdt.base.text import printable
from usdt.engine.cli.click_group import say
from usdt.probes.matching import closest_match

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ("examples",)


# \b keeps click from filling the paragraph below it.
_HELP = """List example programs that use the Python API, or print the source of one.

\b
usdt examples
usdt examples exec_snoop > exec_snoop.py
sudo python3 exec_snoop.py
"""


@click.command("examples", help=_HELP)
@click.argument("name", metavar="[NAME]", required=False)
def examples(name: str | None) -> None:
    """List example programs, or print one."""
    programs = _programs()
    if name is None:
        width = max(map(len, programs))
        for known, path in programs.items():
            sys.stdout.write(f"{known.ljust(width)}  {_first_line(path)}\n")
        say("print one with: usdt examples NAME")
        return
    found = programs.get(name.removesuffix(".py"))
    if found is None:
        nearest = closest_match(name, programs)
        hint = f"; nearest is {nearest}" if nearest else ""
        raise TargetError(f"no example {printable(name)}{hint} (list them with: usdt examples)")
    sys.stdout.write(found.read_text())


def _programs() -> dict[str, Traversable]:
    # Name → file of each example; in a ZIP archive if the package is in one.
    folder = files("usdt") / "examples"
    found = sorted(folder.iterdir(), key=lambda path: path.name) if folder.is_dir() else []
    programs = {path.name.removesuffix(".py"): path for path in found if path.name.endswith(".py")}
    if not programs:
        raise TargetError(f"{folder}: no examples here; install the package again")
    return programs


def _first_line(path: Traversable) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.partition("\n")[0]
