"""The programs of testbins/dwarf, built on demand, and what each of their calls shows.

``program("gccO2v5", "values")`` gives a path, or skips the test with what is missing; where set-up
installs the compilers (root on Debian, tools/packages.sh), it fails instead.
``calls(path)`` runs it and gives every call by function: the items to ask for, and their values.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import NOT_BUILT, TESTBINS, is_current, locked, make

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("UNREADABLE", "VARIANTS", "calls", "program", "same")

_COMPILERS = tuple(f"{c}{o}v{v}" for c in ("gcc", "clang") for o in ("O0", "O2") for v in (4, 5))
#: Every variant and program.
VARIANTS = (
    *(
        (one, name)
        for one in (*_COMPILERS, "split4", "split5", "compressed")
        for name in ("values", "objects")
    ),
    ("libcxx", "objects"),
    ("rustO0v4", "shapes"),
    ("rustO2v5", "shapes"),
)
UNREADABLE = {"error": None}
#: Whether tools/packages.sh installs what is missing, as tools/apt.sh has it.
_SETS_UP = os.geteuid() == 0 and shutil.which("apt-get") is not None
_PACKAGES = {"clang": "clang", "rust": "rustc", "libcxx": "libc++-dev, libc++abi-dev"}


@functools.cache
def _built(variant: str, name: str) -> str:
    with locked():
        if is_current(_path(variant, name), sources=TESTBINS / "dwarf"):
            return ""
        done = make(f"dwarf/{variant}/{name}")
    return done.stderr if done.returncode else ""


def program(variant: str, name: str) -> Path:
    """The path of a program; skips the test if it cannot be built here."""
    problem = _built(variant, name)
    if NOT_BUILT in problem:
        pytest.skip(f"testbins/dwarf {variant}/{name}: the host of this virtual machine has none")
    if problem:
        package = next(
            (p for start, p in _PACKAGES.items() if variant.startswith(start)), "gcc, g++"
        )
        what = f"testbins/dwarf {variant}/{name} needs {package}: {problem[-300:]}"
        if _SETS_UP:
            pytest.fail(f"{what}; tools/packages.sh dwarf installs it")
        pytest.skip(what)
    return _path(variant, name)


def _path(variant: str, name: str) -> Path:
    return TESTBINS / "out" / "dwarf" / variant / name


def calls(path: Path) -> dict[str, list[dict[str, Any]]]:
    """What a run of a program prints: function → the items of each call."""
    done = subprocess.run([path], capture_output=True, text=True, check=True, timeout=20)
    found: dict[str, list[dict[str, Any]]] = {}
    for line in done.stdout.splitlines():
        call = json.loads(line)
        found.setdefault(call["function"], []).append(call["items"])
    return found


def same(shown: Any, printed: Any) -> bool:
    """Whether what is shown of an item is what the program printed."""
    if printed == UNREADABLE:
        return isinstance(shown, dict) and set(shown) == {"error"}
    if isinstance(printed, str) and isinstance(shown, dict):
        return [*shown] == [printed]  # an enum of Rust with data that lie elsewhere
    return bool(shown == printed)
