"""Find the function that a name without ``uprobe:`` may mean, for messages on missing probes."""

# Importing pathlib takes 6 ms:
# ruff: noqa: PTH119

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError, TargetError
from usdt.elf.file import ElfFile
from usdt.elf.format import STT_FUNC, STT_GNU_IFUNC
from usdt.elf.symbol_tables import SymbolTables
from usdt.targets.search.libraries import find_library, name_rank

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.engine.language.tree import ProbeText

__all__ = ("function_hint",)

_MAX_FILES = 1000  # files that are searched


def function_hint(text: ProbeText, files: Iterable[tuple[str, str]]) -> str:
    """Return ``; malloc is a function: uprobe:libc:malloc``, or "" if there is none.

    Args:
        text: a USDT probe that was not found. Its provider may be the name of a library.
        files: files to search, as pairs of name and path to open.
    """
    name, library = text.name, text.provider
    if re.search(r"[*?[]", name):
        return ""
    candidates = sorted(files, key=_is_program)[:_MAX_FILES]
    if library != "*":
        candidates = [one for one in candidates if _is_named(library, one[0])]
        candidates = candidates or [(path, path) for path in find_library(library)]
    for path, open_path in candidates:
        if _has_function(path, open_path, name):
            return f"; {name} is a function: uprobe:{_shown(path)}:{name}"
    return ""


def _is_program(file: tuple[str, str]) -> bool:
    # False for libraries, which come first: a program may contain a copy of a function.
    return not os.path.basename(file[0]).startswith("lib")


def _is_named(word: str, path: str) -> bool:
    return name_rank(word, os.path.basename(path)) is not None


def _shown(path: str) -> str:
    # The library as a user writes it, or the path of a program.
    base, found, _ = os.path.basename(path).partition(".so")
    return base if found and base.startswith("lib") else path


def _has_function(path: str, open_path: str, name: str) -> bool:
    try:
        with SymbolTables(ElfFile(open_path, name=path)) as symbols:
            return any(
                one.type in (STT_FUNC, STT_GNU_IFUNC) and not one.imported
                for one in symbols.named(name)
            )
    except (ElfError, TargetError):
        return False
