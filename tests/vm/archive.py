"""The archive format of an initial RAM filesystem: cpio "newc", without a cpio program.

``Documentation/driver-api/early-userspace/buffer-format.rst`` of the kernel is the specification.
A tree is a dictionary from path (no leading slash) to ``Entry``; everything belongs to root. The
kernel reads archives one after another from one file and lets later entries replace earlier ones.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ("Entry", "directory", "file", "read_tree", "symlink", "write_archive")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory, symbolic link or device node.

    ``mode`` has its type as well as its permissions; ``data`` is the content, or where a link
    leads; ``mtime`` is in seconds; ``device`` is (major, minor) of a node.
    """

    mode: int
    data: bytes = b""
    mtime: int = 0
    device: tuple[int, int] = (0, 0)


def directory(permissions: int = 0o755) -> Entry:
    """An empty directory."""
    return Entry(stat.S_IFDIR | permissions)


def file(data: bytes | str, permissions: int = 0o644, mtime: int = 0) -> Entry:
    """A regular file."""
    content = data.encode() if isinstance(data, str) else data
    return Entry(stat.S_IFREG | permissions, content, mtime)


def symlink(to: str) -> Entry:
    """A symbolic link."""
    return Entry(stat.S_IFLNK | 0o777, to.encode())


def read_tree(root: Path, at: str) -> Iterator[tuple[str, Entry]]:
    """Everything below a folder of this machine, to be placed at a path of the archive."""
    for path in sorted(root.rglob("*")):
        entry = _entry(path)
        if entry:
            yield f"{at}/{path.relative_to(root)}", entry


def _entry(path: Path) -> Entry | None:
    status = path.lstat()
    # Whole seconds: Python keeps the time of a source in its .pyc in the same way.
    mtime = int(status.st_mtime)
    if stat.S_ISREG(status.st_mode):
        return Entry(status.st_mode, path.read_bytes(), mtime)
    if stat.S_ISLNK(status.st_mode):
        return Entry(status.st_mode, bytes(path.readlink()), mtime)
    return Entry(status.st_mode, b"", mtime) if stat.S_ISDIR(status.st_mode) else None


def write_archive(to: BinaryIO, tree: Mapping[str, Entry]) -> None:
    """Write a tree; directories that it only implies are made."""
    for number, (path, entry) in enumerate(sorted(_with_parents(tree).items()), 1):
        _write(to, path, entry, number)
    _write(to, "TRAILER!!!", Entry(0), 0)


def _with_parents(tree: Mapping[str, Entry]) -> dict[str, Entry]:
    # Sorting puts a directory before what is in it: its path is a prefix.
    parents = {str(parent) for path in tree for parent in PurePosixPath(path).parents}
    implied = {parent: directory() for parent in parents - {".", *tree}}
    return {**implied, **tree}


def _write(to: BinaryIO, path: str, entry: Entry, number: int) -> None:
    name = path.encode(errors="surrogateescape") + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (
        *(number, entry.mode, 0, 0, links, entry.mtime, len(entry.data)),
        *(0, 0, *entry.device, len(name), 0),
    )
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    to.write(header + name + _padding(len(header) + len(name)))
    to.write(entry.data + _padding(len(entry.data)))


def _padding(length: int) -> bytes:
    return bytes(-length % 4)
