"""The archive of a source distribution: the same files give the same bytes.

Nothing in it tells who built it, where and when: entries are sorted, belong to root, and have the
time that ``SOURCE_DATE_EPOCH`` says (seconds since 1970; the present without it).
"""

from __future__ import annotations

import gzip
import os
import tarfile
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("write_archive",)


def write_archive(path: Path, folder: Path) -> None:
    """Write a .tar.gz of a folder, whose last name is the first one in the archive."""
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, when) as packed,
        # Pages of docs/ that are linked to twice are files twice: pip takes no links.
        tarfile.open(fileobj=packed, mode="w", dereference=True) as archive,
    ):
        for one in (folder, *sorted(folder.rglob("*"))):
            archive.add(
                one,
                one.relative_to(folder.parent),
                recursive=False,
                filter=lambda entry: _of_nobody(entry, when),
            )


def _of_nobody(entry: tarfile.TarInfo, when: int) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = when
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry
