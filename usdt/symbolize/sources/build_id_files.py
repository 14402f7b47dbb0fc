"""Files found by their build ID, and never by their name: in directories, then by debuginfod.

A directory is one of

    a tree of debug files     DIR/.build-id/ab/cdef….debug, DIR/usr/lib/debug/.build-id/…
    programs and libraries    files of any name, also in directories below: stripped or not, and
                              debug files
"""

# Paths are text here, as in usdt/procfs/mapped_files.py:
# ruff: noqa: PTH118

from __future__ import annotations

import functools
import itertools
import os
import re
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError, TargetError
from usdt.elf.debug_files import DEBUG_ROOT, build_id_path, open_existing
from usdt.elf.file import ElfFile
from usdt.elf.format import SHT_NOBITS
from usdt.symbolize.sources.debuginfod import Debuginfod

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.run.options import SymbolOptions
    from usdt.symbolize.sources.debuginfod import Kind

__all__ = ("BuildIdFiles", "has_code")

_BUILD_ID = re.compile("[0-9a-f]{4,128}")
_MAX_FILES = 1 << 16  # files of all directories that are looked at


class BuildIdFiles:
    """A finder of files by build ID.

    Args:
        directories: where to look, in this order.
        debuginfod: its cache, and servers that are asked last; without it, the cache alone.

    Attributes:
        notices: messages for the user; the caller removes them.
    """

    def __init__(
        self, directories: Sequence[str] = (), debuginfod: Debuginfod | None = None
    ) -> None:
        self._debuginfod = debuginfod or Debuginfod()
        self.notices = self._debuginfod.notices
        self._directories = tuple(directories)

    @classmethod
    def of(cls, options: SymbolOptions) -> BuildIdFiles:
        """Return a finder for the options of a command."""
        return cls(options.directories, Debuginfod(options.servers))

    def debug_files(self, build_id: str) -> Iterator[ElfFile]:
        """Yield debug files and programs with a build ID; the caller closes them."""
        yield from self._in_directories(build_id)
        yield from self._downloaded(build_id, "debuginfo")

    def any(self, build_id: str) -> Iterator[ElfFile]:
        """Yield all files with a build ID; the caller closes them."""
        yield from self.debug_files(build_id)
        yield from self._downloaded(build_id, "executable")

    def programs(self, build_id: str) -> Iterator[ElfFile]:
        """Yield those of the files that have instructions; the caller closes them."""
        for elf in self._in_directories(build_id):
            if has_code(elf):
                yield elf
            else:
                elf.close()
        yield from self._downloaded(build_id, "executable")

    def _in_directories(self, build_id: str) -> Iterator[ElfFile]:
        for elf in open_existing(self._paths(build_id)):
            if elf.build_id == build_id:
                yield elf
            else:
                elf.close()

    def _downloaded(self, build_id: str, kind: Kind) -> Iterator[ElfFile]:
        if _BUILD_ID.fullmatch(build_id):
            found = self._debuginfod.find(build_id, kind)
            if found is not None:
                yield found

    def _paths(self, build_id: str) -> Iterator[str]:
        for directory in self._directories:
            for root in (directory, directory + DEBUG_ROOT):
                debug = build_id_path(build_id, root)
                yield debug
                yield debug.removesuffix(".debug")
        yield from self._files.get(build_id, ())

    @functools.cached_property
    def _files(self) -> dict[str, list[str]]:
        # The files of the directories by build ID, read when the first is needed.
        found: dict[str, list[str]] = {}
        paths = itertools.chain.from_iterable(map(_files_below, self._directories))
        for path in itertools.islice(paths, _MAX_FILES):
            try:
                with ElfFile(path) as elf:
                    build_id = elf.build_id
            except (ElfError, TargetError):  # no ELF file
                continue
            if build_id:
                found.setdefault(build_id, []).append(path)
        if next(paths, None) is not None:
            self.notices.append(
                f"--symbols: only the first {_MAX_FILES} files are looked at; "
                "name the directories of the files that are needed"
            )
        return found


def _files_below(directory: str) -> Iterator[str]:
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name != ".build-id")
        yield from (os.path.join(folder, name) for name in sorted(names))


def has_code(elf: ElfFile) -> bool:
    """Return whether a file has instructions: a debug file has only the addresses of its sections.

    Raises:
        ElfError: the file is damaged.
    """
    text = elf.section(".text")
    return text is None or text.type != SHT_NOBITS
