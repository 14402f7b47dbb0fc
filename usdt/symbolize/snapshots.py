"""Processes of a recording: mappings and build IDs that were kept, and the files they mean here.

A snapshot is hostile like the recording it stands in: every field is checked.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

from usdt.base.errors import ElfError, TargetError
from usdt.procfs.process import Mapping
from usdt.symbolize.files import FileSymbols

if TYPE_CHECKING:
    from usdt.symbolize.symbolizer import Symbolizer, _Process

__all__ = ("find_file", "restored")

_MAX_MAPPINGS = 1 << 16
_MAX_LAYERS = 8  # as many as a Memory keeps
_MAX_ADDRESS = 1 << 64


def restored(target: _Process, owner: Symbolizer, snapshot: dict[str, Any]) -> None:
    """Fill a process with what its snapshot says.

    Each file of the snapshot is looked for under its path, then among the separate debug files;
    one with another build ID is not taken.

    Raises:
        ValueError: the snapshot has another shape.
    """
    rows = snapshot.get("mappings") if isinstance(snapshot, dict) else None
    if not isinstance(rows, list) or len(rows) > _MAX_MAPPINGS:
        raise ValueError("a snapshot of a process has a list of mappings")
    target.frozen = True
    inodes: dict[tuple[str, str | None], int] = {}
    mappings = []
    for row in rows:
        start, end, link, path, build_id = _checked(row)
        inode = 0
        if path and not path.startswith("["):
            inode = inodes.setdefault((path, build_id), len(inodes) + 1)
        mappings.append(Mapping(start, end, "r-xp", link, (0, 0), inode, path, deleted=False))
    for (path, build_id), inode in inodes.items():
        target.files[(0, 0), inode] = owner.found_file(path, build_id)
    vdso = next((row[4] for row in rows if row[3] == "[vdso]"), None)
    target.files[(0, 0), 0] = owner.own_vdso(vdso) if vdso else None
    for layer in _layers(mappings):
        target.memory.remember(layer)
    jit = snapshot.get("perf_map")
    if isinstance(jit, str):
        target.jit.load(jit.encode("utf-8", "surrogateescape"))
        target.rows = jit.count("\n")
    target.rows += len(mappings)


def _layers(mappings: list[Mapping]) -> list[list[Mapping]]:
    # Mappings of one time do not overlap; one that does is of a later time.
    layers: list[list[Mapping]] = [[]]
    taken: list[tuple[int, int]] = []
    for one in mappings:
        at = bisect.bisect_left(taken, (one.end, 0))
        if at and taken[at - 1][1] > one.start and len(layers) < _MAX_LAYERS:
            layers.append([])
            taken.clear()
            at = 0
        layers[-1].append(one)
        taken.insert(at, (one.start, one.end))
    return layers


def _checked(row: object) -> tuple[int, int, int, str, str | None]:
    if isinstance(row, list) and len(row) == 5:
        start, end, link, path, build_id = row
        numbers = all(type(one) is int and 0 <= one < _MAX_ADDRESS for one in row[:3])
        names = isinstance(path, str) and (build_id is None or isinstance(build_id, str))
        if numbers and names and start < end:
            return start, end, link, path, build_id
    raise ValueError(
        f"a mapping of a snapshot is [start, end, address, path, build ID], not {row!r}"
    )


def find_file(path: str, build_id: str | None, debug_root: str) -> FileSymbols | None:
    """A file with a build ID: under its path, or among the separate debug files; None: neither."""
    places = [path]
    if build_id and build_id.isalnum():
        places.append(f"{debug_root}/.build-id/{build_id[:2]}/{build_id[2:]}.debug")
    for place in places:
        try:
            file = FileSymbols(place, path, debug_root=debug_root)
        except (ElfError, TargetError):
            continue
        if build_id is not None and file.build_id == build_id:
            return file
        file.close()
    return None
