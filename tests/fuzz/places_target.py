"""Fuzzing of places: mutants of programs with source lines, inlined functions and variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from place_programs import INLINED, C

if TYPE_CHECKING:
    from harness import Capture

__all__ = ("PLACE_SEEDS", "run_places")

_EVERY = (8, 11, 23, 27, 31, 38)  # lines of both seeds, with and without code

#: Compilers with options, and sources.
PLACE_SEEDS = [
    ("gcc -g -O2", INLINED),
    ("gcc -g -O2 -gdwarf-4", C),
    ("gcc -g -O2", C),
    ("clang -g -O2", C),
]


def run_places(capture: Capture, data: bytes) -> None:
    """Describe lines and inlined copies of a mutant, and check probes with items there."""
    from usdt.cli import main

    capture.input.write_bytes(data)
    path, size = capture.input, len(data)
    for line in _EVERY:
        capture.command(main, ["usdt", "info", f"uprobe:{path}:x.c:{line}"], size)
    items = "inner, text, r->at.x, m, n, total"
    for place in (
        "x.c:22(inner, n, total)",
        f"x.c:8({items})",
        "*+inlined",
        "area+inlined(r->path)",
    ):
        capture.command(main, ["usdt", "check", f"uprobe:{path}:{place}"], size)
