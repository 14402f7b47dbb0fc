"""Which files a listing is about: named ones, those of processes, those of every process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError, TargetError
from usdt.probes.probe import FileProbes, read_probes
from usdt.procfs.mapped_files import MappedFile, mapped_files
from usdt.procfs.process import processes, thread_group
from usdt.targets.target_files import resolve_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("find_probes", "split_words")


def find_probes(
    targets: Sequence[str], *, pids: Sequence[int] = (), everything: bool = False
) -> Iterator[FileProbes]:
    """Read the probes of files, each file once.

    Args:
        targets: words for files; with ``pids`` files of those processes.
        pids: processes; without ``targets``, every file they have mapped that has probes.
        everything: every process.

    Raises:
        TargetError: no such file or process, or it may not be read.
        ElfError: a named file is not ELF.
    """
    if targets:
        for word in targets:
            for pid in pids or (None,):
                target = resolve_target(word, pid=pid)
                yield read_probes(target.path, open_path=target.open_path)
        return
    seen: set[tuple[tuple[int, int], int]] = set()
    for pid in processes() if everything else pids:
        try:
            files = mapped_files(thread_group(pid).pid)
        except TargetError:
            if everything:  # ended meanwhile, or somebody else's
                continue
            raise
        yield from _unseen(files, seen)


def _unseen(
    files: Sequence[MappedFile], seen: set[tuple[tuple[int, int], int]]
) -> Iterator[FileProbes]:
    for file in files:
        identity = (file.device, file.inode)
        if identity in seen or file.open_path is None:
            continue
        seen.add(identity)
        with contextlib.suppress(ElfError, TargetError):  # a font, a locale: no program
            found = read_probes(file.path, open_path=file.open_path)
            if found.probes or found.warnings:
                yield found


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words of a command line as (targets, patterns).

    ``provider:name`` is a pattern, ``PATH:provider:name`` one with its file, anything without a
    colon a target; a file that exists is a target whatever its name.
    """
    import os  # noqa: PLC0415

    targets, patterns = [], []
    for word in words:
        if ":" in word and not os.path.exists(word):  # noqa: PTH110 - pathlib costs an import
            patterns.append(word)
        else:
            targets.append(word)
    return targets, patterns
