"""Separate debug files: what a stripped file leaves out, kept elsewhere on the system.

by build ID        DEBUG_ROOT/.build-id/ab/cdef….debug, or DEBUG_ROOT/PATH.debug with that build ID
.gnu_debuglink     a file of the name it gives with the CRC-32 it gives: beside the file, in .debug/
                   beside it, or in the same directory below DEBUG_ROOT
"""

# Paths are text here, as in usdt/procfs/mapped_files.py:
# ruff: noqa: PTH120, PTH123

from __future__ import annotations

import contextlib
import os
import zlib
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError, TargetError
from usdt.elf.file import ElfFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    #: Yields further debug files with a build ID; the caller closes them.
    Finder = Callable[[str], Iterator[ElfFile]]

__all__ = ("DEBUG_ROOT", "build_id_path", "find", "find_by_build_id", "open_existing")

DEBUG_ROOT = "/usr/lib/debug"

_MIN_BUILD_ID = 4  # hexadecimal digits
_MAX_LINK = 4096  # bytes of a .gnu_debuglink
_MAX_DEBUG_FILE = 4 << 30  # bytes whose CRC is computed


def find(
    elf: ElfFile,
    *,
    roots: Sequence[str] = ("",),
    debug_root: str = DEBUG_ROOT,
    more: Finder | None = None,
) -> Iterator[ElfFile]:
    """Yield the separate debug files of a file, by build ID first; the caller closes them.

    Args:
        elf: the file; its ``path`` is where the search for debug files starts.
        roots: directories that stand for "/", such as "/proc/PID/root"; "" is ours.
        debug_root: where systems keep debug files.
        more: finds further files by build ID; it is asked last.
    """
    yield from find_by_build_id(elf, roots=roots, debug_root=debug_root)
    yield from _find_by_link(elf, roots, debug_root)
    if more is not None and elf.build_id:
        yield from more(elf.build_id)


def find_by_build_id(
    elf: ElfFile, *, roots: Sequence[str] = ("",), debug_root: str = DEBUG_ROOT
) -> Iterator[ElfFile]:
    """Yield the debug file with the build ID of a file, if there is one; the caller closes it."""
    build_id = elf.build_id
    if not build_id or len(build_id) < _MIN_BUILD_ID:
        return
    paths = (build_id_path(build_id, debug_root), f"{debug_root}{os.path.realpath(elf.path)}.debug")
    for found in open_existing(root + path for path in paths for root in roots):
        if found.build_id == build_id:
            yield found
            return
        found.close()


def build_id_path(build_id: str, debug_root: str = DEBUG_ROOT) -> str:
    """Return the path of the debug file with a build ID, given in hexadecimal."""
    return f"{debug_root}/.build-id/{build_id[:2]}/{build_id[2:]}.debug"


def open_existing(paths: Iterable[str]) -> Iterator[ElfFile]:
    """Yield those of the files that exist and are ELF; the caller closes them."""
    for path in dict.fromkeys(paths):
        with contextlib.suppress(ElfError, TargetError):  # absent or damaged
            yield ElfFile(path)


def _find_by_link(elf: ElfFile, roots: Sequence[str], debug_root: str) -> Iterator[ElfFile]:
    link = _debug_link(elf)
    if link is None:
        return
    name, crc = link
    folder = os.path.dirname(os.path.realpath(elf.path))
    folders = (folder, f"{folder}/.debug", f"{debug_root}{folder}")
    for found in open_existing(f"{root}{at}/{name}" for root in roots for at in folders):
        if _crc32(found.path) == crc:
            yield found
            return
        found.close()


def _debug_link(elf: ElfFile) -> tuple[str, int] | None:
    # A file name, NULs up to a multiple of four, the CRC-32 in the file's byte order.
    section = elf.section(".gnu_debuglink")
    if section is None or not 8 <= section.size <= _MAX_LINK:
        return None
    try:
        data = elf.contents(section)
    except ElfError:
        return None
    name, end, _ = data.partition(b"\0")
    crc_at = len(name) + 4 & ~3
    if not end or not name or b"/" in name or name in (b".", b"..") or crc_at + 4 > len(data):
        return None
    return os.fsdecode(name), int.from_bytes(data[crc_at : crc_at + 4], elf.byteorder)


def _crc32(path: str) -> int:
    value = 0
    with open(path, "rb", buffering=0) as file:
        for _ in range(_MAX_DEBUG_FILE >> 20):
            block = file.read(1 << 20)
            if not block:
                return value
            value = zlib.crc32(block, value)
    return -1  # no debug file is so large
