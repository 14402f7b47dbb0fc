"""The repository's own Python files, parsed once, for the tests that hold the house rules."""

from __future__ import annotations

import ast
import functools
import gc
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ("PACKAGES", "ROOT", "Module", "library", "modules", "text_files")

ROOT = Path(__file__).resolve().parents[2]

#: The two packages that a wheel installs.
PACKAGES = ("kprobe", "usdt")

_OTHERS = ("bench", "examples", "tests", "tools")
_MADE = {"__pycache__", "out", "build", "dist"}


@dataclass(frozen=True)
class Module:
    """One Python file: its path from the root of the checkout, its text, its tree and all nodes."""

    path: str
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @property
    def package(self) -> str:
        """The top folder that it is in."""
        return self.path.split("/", 1)[0]

    @property
    def is_command(self) -> bool:
        """Whether it talks to a terminal: the commands, and what both share of their manners."""
        return self.path.startswith(("usdt/cli/", "kprobe/cli/", "usdt/engine/cli/"))

    @property
    def name(self) -> str:
        """As it is imported, ``usdt.arch.operands.x86``."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@functools.cache
def modules() -> tuple[Module, ...]:
    """Every Python file of the repository."""
    return (*library(), *_parsed(_OTHERS))


@functools.cache
def library() -> tuple[Module, ...]:
    """The files of both packages."""
    return _parsed(PACKAGES)


def _parsed(folders: tuple[str, ...]) -> tuple[Module, ...]:
    # Garbage collections take twice as long as parsing: none while it grows, nor of it later.
    gc.disable()
    try:
        found = []
        for path in text_files():
            if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders:
                text = path.read_text()
                name = str(path.relative_to(ROOT))
                tree = ast.parse(text, name)
                found.append(Module(name, text, tree, tuple(ast.walk(tree))))
    finally:
        gc.enable()
    gc.freeze()
    return tuple(found)


@functools.cache
def text_files() -> tuple[Path, ...]:
    """Every file that somebody wrote: no hidden folder but .ci, nothing that was made."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _MADE
            and not name.endswith(".egg-info")
            and (not name.startswith(".") or name == ".ci")
        )
        # In a linked worktree .git is a file.
        found += [Path(folder, name) for name in sorted(names) if name != ".git"]
    return tuple(path for path in found if _is_text(path))


def _is_text(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    data = path.read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data
