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
# ruff: noqa: PTH100, PTH111, PTH116, PTH119, PTH120, PTH208

from __future__ import annotations

import os
import stat
from fnmatch import fnmatchcase

from usdt.base.errors import TargetError, TargetNotFound
from usdt.base.frozen import frozen
from usdt.elf.file import ElfFile
from usdt.procfs.mapped_files import FileId, MappedFile, executable_of, mapped_files, same_file
from usdt.procfs.process import command_name, describe_process, processes
from usdt.targets.search.executables import DEFAULT_PROGRAM_PATH, find_program
from usdt.targets.search.libraries import (
    find_library,
    in_root,
    is_placeholder,
    library_names,
    name_rank,
)

__all__ = ("Target", "is_file_pattern", "matches_file", "resolve_target", "resolve_targets")

# (library, program on PATH that loads it, directories below the one above the program's own)
_SHIPPED = (
    ("libjvm.so", "java", ("lib/server", "jre/lib/amd64/server", "jre/lib/aarch64/server")),
)

_MAX_CANDIDATES = 20_000  # names compared with a misspelt one


@frozen
class Target:
    """The file that a TARGET argument names.

    Attributes:
        path: the file's name; with a process, in its mount namespace.
        open_path: the path to open and to pass to the kernel.
        given: the argument as the user wrote it.
    """

    path: str
    open_path: str
    given: str

    def __fspath__(self) -> str:
        return self.open_path


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
    if "/" in word or word.startswith("~"):
        return _by_path(word) if pid is None else _by_path_in(word, pid)
    target = _by_name_in(word, pid) if pid is not None else _by_name(word)
    if target is None:
        raise TargetNotFound(_nothing(word, pid))
    return target


def is_file_pattern(word: str) -> bool:
    """Return whether a TARGET argument is a pattern, not the name of a file that exists."""
    return any(character in word for character in "*?[") and not os.path.lexists(word)


def matches_file(pattern: str, path: str) -> bool:
    """Return whether a file's path matches a pattern: the whole path if the pattern has a slash."""
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
        mapped = [file for file in mapped_files(pid) if matches_file(word, file.path)]
        found = [Target(one.path, one.open_path, word) for one in mapped if one.open_path]
        where = f" that {describe_process(pid)} has mapped"
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
    _check(path, word)
    return Target(path, path, word)


def _by_path_in(word: str, pid: int) -> Target:
    path = os.path.abspath(os.path.expanduser(word))
    mapped = mapped_files(pid, executable_only=False)
    root = f"/proc/{pid}/root"
    reached = in_root(root, path)
    target = _mapped_as(path, reached, mapped, word)
    if target is None and not os.path.lexists(reached):
        target = _mapped_as(path, path, mapped, word)
    if target is not None:
        return target
    _check(reached, word, f" in the mount namespace of process {pid}")
    return Target(path, reached, word)


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


def _check(path: str, word: str, where: str = "") -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as err:
        raise TargetNotFound(f"{word}: no such file{where}") from err
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) else str(err)
        raise TargetError(f"{word}: {reason}{where}") from err
    if stat.S_ISDIR(mode):
        raise TargetError(f"{word}: is a directory; name a program or library in it")
    if not stat.S_ISREG(mode):
        raise TargetError(f"{word}: is not a regular file, so it has no probes")
    if not os.access(path, os.R_OK):
        raise TargetError(f"{word}: no permission to read it; run as root or as its owner")


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
    _check(path, word)
    return Target(os.path.abspath(path), os.path.abspath(path), word)


def _by_name_in(word: str, pid: int) -> Target | None:
    files = mapped_files(pid)
    best = _best(word, files) or _own_program(word, pid)
    if best is not None and not is_placeholder(best.open_path or ""):
        return _reachable(best, word)
    root = f"/proc/{pid}/root"
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
    names = library_names() if pid is None else library_names(f"/proc/{pid}/root")
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
            names.update(
                os.listdir(in_root("/" if pid is None else f"/proc/{pid}/root", directory))
            )
        except (OSError, TargetError):
            continue
    return names


def _nearest(word: str, names: set[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - for this error only

    shortened = {name.partition(".so")[0]: name for name in sorted(names, reverse=True)}
    candidates = [name for name in shortened if abs(len(name) - len(word)) <= 3]
    found = get_close_matches(word.partition(".so")[0], candidates[:_MAX_CANDIDATES], 1, 0.6)
    return shortened[found[0]] if found else ""
