"""TARGET arguments: a path, a library name as the loader knows it, or a program on PATH.

A TARGET with a slash (or a leading ``~``) is a path. Any other TARGET is searched in this order:

1.  with a process: its mapped files, by the last component of their names (``libc`` finds libc.so.6
    and libc-2.31.so, see :func:`usdt.targets.search.libraries.name_rank`); the first in its address
    space if several match equally well. Then its own command name, then libraries and programs in
    its mount namespace. The rest of this list does not apply;
2.  an ELF file of that name in the current directory, as for readelf(1);
3.  a library: the first one that the loader would find;
4.  a program on PATH (a script is not followed to its interpreter, see
    :func:`usdt.targets.search.executables.resolve_program`);
5.  any other file of that name in the current directory;
6.  a file that any process has mapped (no loader finds ``libjvm.so``), if there is only one; two
    different files, such as two Java versions, are an error;
7.  ``libjvm.so``: that of the ``java`` on PATH.

A TARGET with ``*``, ``?`` or ``[`` is a pattern, unless a file of that name exists. With a process
it selects among the files that the process has mapped: by their whole path if it has a slash, else
by the last component. Without a process it must have a slash, and selects ELF files. Stars do not
match slashes.

With a process, paths and symbolic links are resolved in its mount namespace; a relative path is
relative to the current directory of this process. A path that does not exist there is an error even
if it exists here, unless the process has mapped that very file under another name.
"""

# Importing pathlib takes 6 ms:
# ruff: noqa: PTH100, PTH111, PTH119

from __future__ import annotations

import os

from usdt.base.errors import TargetError
from usdt.elf.file import ElfFile
from usdt.targets.search.target import Target, check_readable

__all__ = ("Target", "is_file_pattern", "matches_file", "resolve_target", "resolve_targets")


def resolve_target(word: str, *, pid: int | None = None) -> Target:
    """Find the file that a TARGET argument names, in the order of the module's docstring.

    Args:
        word: the argument as the user wrote it.
        pid: the process whose files are searched, or None.

    Raises:
        TargetNotFound: there is no such file, or the process has ended.
        TargetError: there is more than one, it is a directory or not readable, or the process
            cannot be inspected.
    """
    if not word or "\0" in word:
        raise TargetError(f"{word!r}: not a file's name")
    is_path = "/" in word or word.startswith("~")
    if is_path and pid is None:
        return _by_path(word)
    from usdt.targets.search.searched_files import search, search_path  # noqa: PLC0415 - not for paths

    return search(word, pid) if not is_path or pid is None else search_path(word, pid)


def is_file_pattern(word: str) -> bool:
    """Return whether a TARGET argument is a pattern, not the name of a file that exists."""
    return any(character in word for character in "*?[") and not os.path.lexists(word)


def matches_file(pattern: str, path: str) -> bool:
    """Return whether a file's path matches a pattern: the whole path if the pattern has a slash."""
    from fnmatch import fnmatchcase  # noqa: PLC0415 - only for patterns

    if "/" not in pattern:
        return fnmatchcase(os.path.basename(path), pattern)
    wanted = os.path.abspath(os.path.expanduser(pattern)).split("/")
    parts = os.path.abspath(path).split("/")  # that of a command is as it was written
    return len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted))


def resolve_targets(word: str, *, pid: int | None = None) -> list[Target]:
    """Return the files that a TARGET argument names, in the order of their paths.

    Args:
        word: the argument as the user wrote it; it may be a pattern.
        pid: the process whose files are searched, or None.

    Raises:
        TargetError: as from :func:`resolve_target`; or no file matches the pattern.
    """
    if not is_file_pattern(word):
        return [resolve_target(word, pid=pid)]
    if pid is not None:
        from usdt.targets.search.searched_files import files_of_process  # noqa: PLC0415 - see above

        found, where = files_of_process(word, pid, matches_file)
    elif "/" not in word:
        raise TargetError(
            f"{word}: a pattern without a slash selects among the files of processes: add -p PID, "
            f"-c COMMAND or -a, or write ./{word} for files of the current directory"
        )
    else:
        from glob import glob  # noqa: PLC0415 - only for patterns

        paths = map(os.path.abspath, glob(os.path.expanduser(word), include_hidden=True))  # noqa: PTH207
        found = [Target(path, path, word) for path in paths if ElfFile.is_elf(path)]
        where = ""
    if not found:
        raise TargetError(f"{word}: no program or library{where} matches this pattern")
    return sorted(found, key=os.fspath)


def _by_path(word: str) -> Target:
    path = os.path.abspath(os.path.expanduser(word))
    check_readable(path, word)
    return Target(path, path, word)
