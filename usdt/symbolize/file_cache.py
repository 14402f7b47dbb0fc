"""The mapped files: each is opened once, even if several processes map it."""

# Paths are text here, as in usdt/procfs/mapped_files.py:
# ruff: noqa: PTH116

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError, TargetError
from usdt.elf.debug_files import build_id_path
from usdt.procfs.mapped_files import same_file
from usdt.procfs.memory import read_memory
from usdt.symbolize.file_symbols import FileSymbols
from usdt.symbolize.maps_history import MapsHistory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.procfs.mapped_files import MappedFile
    from usdt.symbolize.sources.build_id_files import BuildIdFiles

__all__ = ("MAX_VDSO", "FileCache")

MAX_VDSO = 1 << 18  # bytes
_MAX_FILES = 1 << 12
_MAX_REPORTED = 10  # recorded files that are missing and named in messages
_MAX_RECORDED = 1 << 9  # files of recordings that are kept open

_FileVersion = tuple[int, int, int, int]  # device, inode, size, time of change


class FileCache:
    """The symbols of files, opened at first use.

    Args:
        debug_root: the system's directory of debug files.
        sources: finds further files by build ID.

    Attributes:
        notices: messages for the user; the caller removes them.
    """

    def __init__(self, debug_root: str, sources: BuildIdFiles) -> None:
        self.notices = sources.notices
        self._debug_root = debug_root
        self._sources = sources
        self._missing = 0  # recorded files that were not found
        self._files: dict[_FileVersion, FileSymbols | None] = {}
        self._recorded: dict[tuple[str, str | None], FileSymbols | None] = {}
        self._vdso: dict[bytes, FileSymbols | None] = {}

    def close(self) -> None:
        """Unmap every file; idempotent."""
        for table in (self._files, self._recorded, self._vdso):
            for file in table.values():
                if file is not None:
                    file.close()
            table.clear()

    def mapped(self, file: MappedFile, pid: int) -> FileSymbols | None:
        """Return the symbols of a file that a process has mapped; None if it cannot be read."""
        # The first path is below /proc/PID, so it disappears with the process.
        for path in (file.open_path, file.path):
            if path is not None and same_file(path, file):
                try:
                    return self._open(path, file.path, pid)
                except (OSError, TargetError):
                    continue
        return None

    def _open(self, path: str, name: str, pid: int) -> FileSymbols | None:
        found = os.stat(path)
        key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if key not in self._files and len(self._files) < _MAX_FILES:
            roots = ("",) if _same_root(pid) else (f"/proc/{pid}/root", "")
            try:
                self._files[key] = self._symbols(path, name, roots)
            except ElfError:  # not a program: a font, a locale
                self._files[key] = None
        return self._files.get(key)

    def _symbols(self, path: str, name: str, roots: Sequence[str] = ("",)) -> FileSymbols:
        return FileSymbols(
            path, name, roots=roots, debug_root=self._debug_root, sources=self._sources
        )

    def recorded(self, path: str, build_id: str | None) -> FileSymbols | None:
        """Return the symbols of the file with a build ID: that at the path, or another anywhere.

        None if none has this build ID; then there is a notice.
        """
        key = (path, build_id)
        if key not in self._recorded:
            # Processes keep references to their files; a file without references is freed.
            while len(self._recorded) >= _MAX_RECORDED:
                del self._recorded[next(iter(self._recorded))]
            self._recorded[key] = self._find_recorded(path, build_id)
        found = self._recorded[key] = self._recorded.pop(key)  # move to the end: recently used
        return found

    def _find_recorded(self, path: str, build_id: str | None) -> FileSymbols | None:
        if build_id is None:
            self._miss(path, "it was recorded without a build ID, which would identify it")
            return None
        there = None
        for candidate in (path, build_id_path(build_id, self._debug_root)):
            try:
                file = self._symbols(candidate, path)
            except (ElfError, TargetError):
                continue
            if file.build_id == build_id:
                return file
            there = there or file.build_id or "none"
            file.close()
        for elf in self._sources.any(build_id):
            return FileSymbols.of(elf, debug_root=self._debug_root, sources=self._sources)
        here = "no such file is here" if there is None else f"that of the file here is {there}"
        self._miss(
            path, f"its build ID is {build_id}, and {here}; try --symbols DIR or --debuginfod"
        )
        return None

    def _miss(self, path: str, why: str) -> None:
        self._missing += 1
        if self._missing < _MAX_REPORTED:
            self.notices.append(f"{path}: the recorded functions have no names: {why}")
        elif self._missing == _MAX_REPORTED:
            self.notices.append("more recorded files are not here; their functions have no names")

    def vdso(self, image: bytes) -> FileSymbols | None:
        """Return the symbols of a vDSO; processes with the same image share them."""
        if image not in self._vdso:
            try:
                self._vdso[image] = FileSymbols.from_bytes(image, "[vdso]")
            except ElfError:
                self._vdso[image] = None
        return self._vdso[image]

    def own_vdso(self, build_id: str | None) -> FileSymbols | None:
        """Return the vDSO of this process; None if ``build_id`` is given and differs."""
        own = MapsHistory(os.getpid())
        own.refresh()
        for mapping in own.mappings:
            if mapping.path == "[vdso]":
                size = min(mapping.end - mapping.start, MAX_VDSO)
                found = self.vdso(read_memory(own.pid, mapping.start, size))
                same = found is not None and build_id in (None, found.build_id)
                return found if same else None
        return None


def _same_root(pid: int) -> bool:
    try:
        own, other = os.stat("/"), os.stat(f"/proc/{pid}/root/")
    except OSError:
        return True
    return (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino)
