"""``uprobe_profile`` and ``kprobe_profile``: what the kernel counts for each probe event.

Events are listed by name, without their groups; an event with several attach points has a line for
each, in the order of their definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ("kprobe_misses", "uprobe_hits")


def kprobe_misses(root: Path) -> Iterator[tuple[str, int]]:
    """Yield (event, missed hits) for each attach point; nothing if the file cannot be read."""
    for words in _lines(root / "kprobe_profile"):  # event, hits, missed hits
        if len(words) == 3 and words[2].isdigit():
            yield words[0], int(words[2])


def uprobe_hits(root: Path, event: str) -> int:
    """Return the hits of an event, of all processes; 0 if the file cannot be read."""
    lines = _lines(root / "uprobe_profile")  # path, which may have spaces; event, hits
    return sum(
        int(words[-1])
        for words in lines
        if len(words) > 2 and words[-2] == event and words[-1].isdigit()
    )


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        with path.open(errors="replace") as file:
            for line in file:
                yield line.split()
    except OSError:
        return
