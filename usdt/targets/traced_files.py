"""The files in which probes are searched, and what is known of each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError, TargetError
from usdt.base.frozen import frozen
from usdt.probes.probe import read_probes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.probes.probe import Probe
    from usdt.procfs.mapped_files import FileId

__all__ = ("KnownFile", "KnownFiles", "TracedFile")


@frozen
class TracedFile:
    """A file of the targets.

    Attributes:
        path: its name, for messages.
        open_path: a path that opens this very file.
        identity: device and inode as /proc/PID/maps shows them.
        pid: the only process to attach in; 0 for all.
        root_pid: the process in whose mount namespace the file was found; 0 for this process.
        renewed: True if an earlier file with this identity was deleted or overwritten.
    """

    path: str
    open_path: str
    identity: FileId
    pid: int = 0
    root_pid: int = 0
    renewed: bool = False


class KnownFile:
    """What is known of a file: its USDT probes once they are read, and which finders searched it.

    A search is for a process to attach in, or for all (0).
    """

    __slots__ = ("attached", "changed", "file", "probes", "searched")

    def __init__(self, file: TracedFile) -> None:
        self.file = file
        self.probes: Sequence[Probe] | None = None
        self.searched: set[tuple[object, int]] = set()
        self.attached = False
        self.changed = _changed(file)


class KnownFiles:
    """What is known of the files of the targets, by identity."""

    def __init__(self) -> None:
        self._files: dict[FileId, KnownFile] = {}

    def __iter__(self) -> Iterator[KnownFile]:
        return iter(self._files.values())

    def __getitem__(self, file: TracedFile) -> KnownFile:
        known = self._files.get(file.identity)
        if known is None:
            known = self._files[file.identity] = KnownFile(file)
        return known

    def renew(self, file: TracedFile) -> None:
        """Forget an earlier file with this identity, unless its probes are attached.

        An attached file keeps its inode, and its file system the number of its device. Those of
        others are used again, for example when a container ends and another one starts.
        """
        known = self._files.get(file.identity)
        if known is None or known.attached:
            return
        if file.renewed or known.changed != _changed(file):
            del self._files[file.identity]

    def probes(self, file: TracedFile, *, named: bool = False) -> Sequence[Probe]:
        """Return the USDT probes of a file; each file is read once.

        Args:
            file: the file.
            named: True if a probe names the file, so that errors are raised. Any other file may
                be no program at all: a font, a locale, a deleted library.

        Raises:
            ElfError: a named file is not an ELF file.
            TargetError: a named file cannot be read.
        """
        known = self[file]
        if known.probes is None:
            try:
                known.probes = read_probes(file.path, open_path=file.open_path).probes
            except (ElfError, TargetError):
                if named:
                    raise
                known.probes = ()
        return known.probes


def _changed(file: TracedFile) -> int:
    # When the file's inode was last changed, in nanoseconds; 0 if it is gone.
    try:
        return os.stat(file.open_path).st_ctime_ns  # noqa: PTH116 - done for every mapped file
    except OSError:
        return 0
