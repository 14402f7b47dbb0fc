"""The files of a listing: named files, files of some processes, files of all processes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError, TargetError
from usdt.base.frozen import replace
from usdt.base.terminal import progress
from usdt.probes.probe import FileProbes, read_probes
from usdt.targets.search.target_files import resolve_targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.procfs.mapped_files import FileId

__all__ = ("find_probes", "split_words")


def find_probes(
    targets: Sequence[str], *, pids: Sequence[int] = (), everything: bool = False
) -> Iterator[FileProbes]:
    """Read the probes of files, each file once.

    Args:
        targets: TARGET arguments; with ``pids``, resolved in those processes.
        pids: process IDs; without ``targets``, all files with probes that they have mapped.
        everything: True for all processes.

    Raises:
        TargetError: a file or process does not exist or cannot be read.
        ElfError: a named file is not an ELF file.
    """
    if targets:
        for word in targets:
            for pid in pids or (None,):
                for target in resolve_targets(word, pid=pid):
                    yield read_probes(target.path, open_path=target.open_path)
        return
    from usdt.procfs.mapped_files import files_of_processes  # noqa: PLC0415 - not for named files
    from usdt.procfs.process import processes, thread_group  # noqa: PLC0415 - as above

    # Threads stand for their processes.
    wanted = [*processes()] if everything else [thread_group(pid).pid for pid in pids]
    containers = _containers_of_files(wanted)
    files = [*files_of_processes(wanted, skip_errors=everything)]
    for path, open_path, identity in progress.through(files, "reading files", len(files)):
        with contextlib.suppress(ElfError, TargetError):  # not a program: a font, a locale
            found = read_probes(path, open_path=open_path)
            if found.probes or found.warnings:
                yield replace(found, containers=tuple(sorted(containers.get(identity, ()))))


def _containers_of_files(pids: Sequence[int]) -> dict[FileId, set[str]]:
    # The containers of the processes that have mapped each file.
    from usdt.cgroups.hierarchy import cgroup_path  # noqa: PLC0415 - named files have none
    from usdt.cgroups.labels import labels_of  # noqa: PLC0415
    from usdt.cgroups.names import ContainerNames  # noqa: PLC0415
    from usdt.procfs.mapped_files import mapped_files  # noqa: PLC0415

    found: dict[FileId, set[str]] = {}
    names = ContainerNames()
    for pid in pids:
        with contextlib.suppress(TargetError):  # ended, or of another user
            container = names.written(labels_of(cgroup_path(pid)))
            for file in mapped_files(pid) if container else ():
                found.setdefault(file.identity, set()).add(container)
    return found


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split arguments of a command line into (targets, patterns).

    An argument with a colon (``provider:name``, ``PATH:provider:name``) is a pattern, unless a file
    of that name exists. All others are targets.
    """
    import os  # noqa: PLC0415

    targets, patterns = [], []
    for word in words:
        if ":" in word and not os.path.exists(word):  # noqa: PTH110 - pathlib costs an import
            patterns.append(word)
        else:
            targets.append(word)
    return targets, patterns
