"""TARGET arguments that take a search: names without a path, and files of processes.

The order is that of :mod:`usdt.targets.search.target_files`.
"""

# Importing pathlib takes 6 ms:
# ruff: noqa: PTH100, PTH111, PTH119, PTH120, PTH208

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError, TargetNotFound
from usdt.elf.file import ElfFile
from usdt.procfs.mapped_files import executable_of, mapped_files, same_file
from usdt.procfs.process import command_name, describe_process, processes, thread_with_memory
from usdt.targets.search.executables import DEFAULT_PROGRAM_PATH, find_program
from usdt.targets.search.libraries import (
    find_library,
    in_root,
    is_placeholder,
    library_names,
    name_rank,
)
from usdt.targets.search.target import Target, check_readable

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.procfs.mapped_files import FileId, MappedFile

__all__ = ("files_of_process", "search", "search_path")

# (library, program on PATH that loads it, directories below the one above the program's own)
_SHIPPED = (
    ("libjvm.so", "java", ("lib/server", "jre/lib/amd64/server", "jre/lib/aarch64/server")),
)

_MAX_CANDIDATES = 20_000  # names compared with a misspelt one


def search(word: str, pid: int | None) -> Target:
    """Find the file of a name without a slash; see :func:`~.target_files.resolve_target`."""
    target = _by_name_in(word, pid) if pid is not None else _by_name(word)
    if target is None:
        raise TargetNotFound(_nothing(word, pid))
    return target


def files_of_process(
    word: str, pid: int, matches: Callable[[str, str], bool]
) -> tuple[list[Target], str]:
    """Return the files that a process has mapped and a pattern matches, and whose they are."""
    mapped = [file for file in mapped_files(pid) if matches(word, file.path)]
    found = [Target(one.path, one.open_path, word) for one in mapped if one.open_path]
    return found, f" that {describe_process(pid)} has mapped"


def search_path(word: str, pid: int) -> Target:
    """Find the file of a path in the mount namespace of a process."""
    path = os.path.abspath(os.path.expanduser(word))
    mapped = mapped_files(pid, executable_only=False)
    root = _root(pid)
    reached = in_root(root, path)
    target = _mapped_as(path, reached, mapped, word)
    if target is None and not os.path.lexists(reached):
        target = _mapped_as(path, path, mapped, word)
    if target is not None:
        return target
    check_readable(reached, word, f" in the mount namespace of process {pid}")
    return Target(path, reached, word)


def _root(pid: int) -> str:
    # A first thread that has ended has no root.
    return f"/proc/{thread_with_memory(pid) or pid}/root"


def _mapped_as(path: str, reached: str, mapped: list[MappedFile], word: str) -> Target | None:
    # A mapped file by its identity (symbolic links, /lib for /usr/lib), else by its name, which is
    # all that remains of a deleted file.
    same = [file for file in mapped if same_file(reached, file)]
    named = [file for file in mapped if file.path == path]
    for file in same or named:
        return _reachable(file, word)
    return None


def _reachable(file: MappedFile, word: str) -> Target:
    if file.open_path is None:
        raise TargetError(
            f"{word}: {file.path} was deleted or replaced, and only root can still open it "
            "(CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE)"
        )
    return Target(file.path, file.open_path, word)


def _by_name(word: str) -> Target | None:
    here = os.path.abspath(word)
    if ElfFile.is_elf(here):
        return Target(here, here, word)
    libraries = find_library(word) or find_library(word, machine_bits=32)
    path = libraries[0] if libraries else find_program(word)
    if path is None and os.path.lexists(here):
        path = here
    if path is None:
        return _mapped_anywhere(word)
    check_readable(path, word)
    return Target(os.path.abspath(path), os.path.abspath(path), word)


def _by_name_in(word: str, pid: int) -> Target | None:
    files = mapped_files(pid)
    best = _best(word, files) or _own_program(word, pid)
    if best is not None and not is_placeholder(best.open_path or ""):
        return _reachable(best, word)
    root = _root(pid)
    libraries = find_library(word, root=root, environment={}) or find_library(
        word, machine_bits=32, root=root, environment={}
    )
    path = libraries[0] if libraries else find_program(word, root=root, environment={})
    if path is None:
        return None
    reached = in_root(root, path)
    return _mapped_as(path, reached, files, word) or Target(path, reached, word)


def _own_program(word: str, pid: int) -> MappedFile | None:
    # The name may lack the program's version (``python3`` for python3.11), or be the command name.
    program = executable_of(pid)
    if program is None:
        return None
    head, found, rest = os.path.basename(program.path).partition(word)
    versioned = found and not head and not rest[:1].isalpha()
    return program if versioned or command_name(pid) == word[:15] else None


def _best(word: str, files: list[MappedFile]) -> MappedFile | None:
    ranked = [(name_rank(word, os.path.basename(file.path)), file) for file in files]
    fitting = [(rank, file) for rank, file in ranked if rank is not None]
    return min(fitting, key=_rank)[1] if fitting else None


def _rank(row: tuple[int, MappedFile]) -> int:
    return row[0]


def _mapped_anywhere(word: str) -> Target | None:
    # Scans every process, at about 0.3 ms each, only before giving up.
    found: dict[FileId, MappedFile] = {}
    for pid in processes():
        try:
            best = _best(word, mapped_files(pid))
        except TargetError:
            continue  # it has ended, or belongs to another user
        if best is not None and best.open_path is not None:
            found.setdefault(best.identity, best)
    if len(found) > 1:
        names = ", ".join(sorted({file.path for file in found.values()})[:4])
        raise TargetError(
            f"{word}: {len(found)} files of that name are mapped by running processes ({names}): "
            "give a path, or a process with -p"
        )
    for file in found.values():
        return _reachable(file, word)
    return _shipped(word)


def _shipped(word: str) -> Target | None:
    # A library that only its own program can find.
    for library, program, directories in _SHIPPED:
        launcher = find_program(program)
        if launcher is None or name_rank(word, library) is None:
            continue
        home = os.path.dirname(os.path.dirname(os.path.realpath(launcher)))
        for directory in directories:
            path = f"{home}/{directory}/{library}"
            if ElfFile.is_elf(path):
                return Target(path, path, word)
    return None


def _nothing(word: str, pid: int | None) -> str:
    where = "the current directory, the loader's cache and directories, PATH, running processes"
    names = library_names() if pid is None else library_names(_root(pid))
    if pid is not None:
        where = f"the files mapped by process {pid}, libraries and programs of its mount namespace"
        names.update(os.path.basename(file.path) for file in mapped_files(pid))
    near = _nearest(word, names | _programs(pid))
    hint = f"; nearest: {near}" if near else ""
    return f"{word}: no file, library or program of that name (searched {where}{hint})"


def _programs(pid: int | None) -> set[str]:
    names: set[str] = set()
    search = os.environ.get("PATH", DEFAULT_PROGRAM_PATH) if pid is None else DEFAULT_PROGRAM_PATH
    for directory in search.split(":"):
        try:
            names.update(os.listdir(in_root("/" if pid is None else _root(pid), directory)))
        except (OSError, TargetError):
            continue
    return names


def _nearest(word: str, names: set[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - for this error only

    shortened = {name.partition(".so")[0]: name for name in sorted(names, reverse=True)}
    candidates = [name for name in shortened if abs(len(name) - len(word)) <= 3]
    found = get_close_matches(word.partition(".so")[0], candidates[:_MAX_CANDIDATES], 1, 0.6)
    return shortened[found[0]] if found else ""
