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
    from usdt.procfs.mapped_files import MappedFile

__all__ = ("MAX_VDSO", "FileCache")

MAX_VDSO = 1 << 18  # bytes
_MAX_FILES = 1 << 12
_MAX_RECORDED = 1 << 9  # files of recordings that are kept open

_FileVersion = tuple[int, int, int, int]  # device, inode, size, time of change


class FileCache:
    """The symbols of files, opened at first use.

    Args:
        debug_root: the system's directory of debug files.
    """

    def __init__(self, debug_root: str) -> None:
        self._debug_root = debug_root
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
                self._files[key] = FileSymbols(path, name, roots=roots, debug_root=self._debug_root)
            except ElfError:  # not a program: a font, a locale
                self._files[key] = None
        return self._files.get(key)

    def recorded(self, path: str, build_id: str | None) -> FileSymbols | None:
        """Return the symbols of the file with a build ID: that at the path, or its debug file.

        None if neither has this build ID.
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
        paths = [path]
        if build_id and build_id.isalnum():
            paths.append(build_id_path(build_id, self._debug_root))
        for candidate in paths:
            try:
                file = FileSymbols(candidate, path, debug_root=self._debug_root)
            except (ElfError, TargetError):
                continue
            if build_id is not None and file.build_id == build_id:
                return file
            file.close()
        return None

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
