"""Find libraries as the dynamic loader does: by name, and as dependencies of a program.

Sources: ld.so(8); musl ``ldso/dynlink.c`` for its directories.

Paths are strings relative to ``root``: "/" for this process, ``/proc/PID/root`` for a process in
another mount namespace. :func:`in_root` converts such a path to one that this process can open.
"""

# Importing pathlib takes 6 ms, and thousands of names are looked at:
# ruff: noqa: PTH100, PTH110, PTH115, PTH116, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import os
from collections import deque
from functools import cache
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError, TargetError
from usdt.base.frozen import frozen
from usdt.base.machine import KERNEL_MACHINE
from usdt.elf.dynamic import Dynamic, parse_dynamic
from usdt.elf.file import open_regular
from usdt.elf.file_bytes import FileBytes, OpenFile
from usdt.elf.format import decode_header
from usdt.targets.search.ldcache import CachedPaths, parse_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = (
    "dependencies",
    "find_library",
    "in_root",
    "is_placeholder",
    "library_names",
    "name_rank",
    "read_dynamic",
)

CACHE = "/etc/ld.so.cache"
MUSL_PATHS = "/etc/ld-musl-{machine}.path"

_MAX_CACHE = 64 << 20  # a large desktop has 200 KiB
_MAX_FILES = 2048  # libraries of one program
_MAX_MUSL_PATHS = 1 << 16
_MAX_SYMLINKS = 40  # MAXSYMLINKS, include/linux/namei.h

# Libraries that are a part of libc since glibc 2.34. What is left of them are files for programs
# that name them, with one function, such as __libpthread_version_placeholder.
_IN_LIBC = ("libanl", "libdl", "libpthread", "librt", "libutil")
_MAX_PLACEHOLDER = 1 << 16  # bytes; they have 14 KiB

# Levels of the x86-64 psABI, newest first → flags that /proc/cpuinfo must show for the loader to
# search glibc-hwcaps/LEVEL.
_LEVELS = {
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
    "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
    "x86-64-v2": "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3",
}


def in_root(root: str, path: str) -> str:
    """Return the path that this process opens to reach ``path`` below another root directory.

    ``/proc/PID/root`` followed by the path is wrong if the path contains an absolute symbolic link,
    which this process would follow in its own root. The result need not exist.

    Raises:
        TargetError: too many symbolic links.
    """
    if root == "/":
        return path
    todo = _parts(path)
    done: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            del done[-1:]
            continue
        try:
            link = os.readlink("/".join((root, *done, part)))
        except (OSError, ValueError):
            done.append(part)  # not a link, or missing
            continue
        links += 1
        if links > _MAX_SYMLINKS:
            raise TargetError(f"{path}: more than {_MAX_SYMLINKS} symbolic links (below {root})")
        if link.startswith("/"):
            done.clear()
        todo += _parts(link)
    return "/".join((root, *done))


def _parts(path: str) -> list[str]:
    # The components of a path, last one first.
    return [part for part in reversed(path.split("/")) if part not in {"", "."}]


def _elf_kind(path: str) -> tuple[int, int] | None:
    # (bits, e_machine), or None if it is not a readable ELF file.
    try:
        descriptor = open_regular(path, path)
        try:
            header = decode_header(os.pread(descriptor, 64, 0), path)
        finally:
            os.close(descriptor)
    except (OSError, ElfError, TargetError):
        return None
    return header.bits, header.machine


@cache
def _own_machine() -> int:
    kind = _elf_kind("/proc/self/exe")
    return kind[1] if kind else 0


def name_rank(word: str, name: str) -> int | None:
    """Return how well a file's name matches a library name as users write it; None for no match.

    0: the names are equal (``libc.so.6``). 1: the file's name adds ``.so`` or ``.so.VERSION``
    (to ``libc``), or a version (to ``libc.so``). 2: a version precedes the suffix
    (``libc-2.31.so``, ``libpython3.11.so.1.0``), or it is musl's ``libc.musl-x86_64.so.1``; a plain
    number must follow a dash, so that ``libx`` does not match ``libx264.so``.
    """
    if name == word:
        return 0
    if not name.startswith(word) or not word:
        return None
    rest = name[len(word) :]
    if rest == ".so" or rest.startswith(".so."):
        return 1
    if ".so" in word:
        return 1 if rest[0] == "." and rest[1:2].isdecimal() else None
    version, found, _ = rest.partition(".so")
    number = version[1:] if version[:1] in {"-", "."} else version
    versioned = number[:1].isdecimal() and number.replace(".", "").isalnum()
    if found and ((versioned and version.strip("0123456789")) or version.startswith(".musl-")):
        return 2
    return None


def find_library(
    name: str,
    *,
    machine_bits: int = 64,
    root: str = "/",
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the files that match a library name, in the loader's order.

    Names are such as ``libc``, ``libc.so.6``, ``libstdc++``; only files of the best rank
    (:func:`name_rank`) are returned. The search covers LD_LIBRARY_PATH, /etc/ld.so.cache, and the
    default directories of glibc and musl. Each file is returned once, under the first name found.
    Libraries for another CPU come last; those of another ELF class are left out. What moved into
    libc with glibc 2.34, such as ``libpthread``, is found there.

    Args:
        name: library name, without a slash.
        machine_bits: 32 or 64.
        root: "/" or ``/proc/PID/root``; the results are relative to it.
        environment: the environment with LD_LIBRARY_PATH; None for that of this process.
    """
    variables = os.environ if environment is None else environment
    found: list[tuple[int, bool, str]] = []
    identities: set[tuple[int, int]] = set()
    for rank, path in _ranked(name, root, variables.get("LD_LIBRARY_PATH", "")):
        try:
            real = in_root(root, path)
            identity = os.stat(real)
        except (OSError, TargetError, ValueError):
            continue
        kind = _elf_kind(real)
        if kind is None or kind[0] != machine_bits:
            continue
        if (identity.st_dev, identity.st_ino) not in identities:
            identities.add((identity.st_dev, identity.st_ino))
            found.append((rank, kind[1] != _own_machine(), path))
    best = min((rank for rank, _, _ in found), default=0)
    paths = [path for rank, _, path in sorted(found, key=_order) if rank == best]
    return list(dict.fromkeys(_libc_instead(path, root) for path in paths))


def _libc_instead(path: str, root: str) -> str:
    libc = f"{os.path.dirname(path)}/libc.so.6"
    if is_placeholder(in_root(root, path)) and os.path.exists(in_root(root, libc)):
        return libc
    return path


def is_placeholder(path: str) -> bool:
    """Return whether a file only stands for a library that is a part of libc since glibc 2.34.

    Args:
        path: the file as this process opens it.
    """
    if not os.path.basename(path).startswith(_IN_LIBC):
        return False
    try:
        with open(path, "rb") as file:
            return b"_version_placeholder\0" in file.read(_MAX_PLACEHOLDER)
    except (OSError, ValueError):
        return False


def _order(found: tuple[int, bool, str]) -> tuple[int, bool]:
    return found[:2]  # a stable sort keeps the loader's order


def _ranked(name: str, root: str, library_path: str) -> Iterator[tuple[int, str]]:
    # Candidates in the loader's search order, each with the rank of its name.
    yield from _ranked_in(name, root, _split(library_path))
    entries = ((name_rank(name, one.name), one.path) for one in parse_cache(_cache(root)))
    yield from _for_this_cpu([(rank, path) for rank, path in entries if rank is not None])
    yield from _ranked_in(name, root, _default_directories(root))


def _for_this_cpu(found: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    # As in the loader, variants for newer CPUs (glibc-hwcaps) come first if this CPU can run them.
    levels = (*_cpu_levels(), "")
    rows = [(_hwcaps_level(path), rank, path) for rank, path in found]
    return [(r, path) for wanted in levels for level, r, path in rows if level == wanted]


def _hwcaps_level(path: str) -> str:
    return (
        path.rpartition("/glibc-hwcaps/")[2].partition("/")[0] if "/glibc-hwcaps/" in path else ""
    )


def _ranked_in(name: str, root: str, directories: Iterable[str]) -> Iterator[tuple[int, str]]:
    for directory in directories:
        fitting = [entry for entry in _names_in(root, directory) if entry.startswith(name)]
        for entry in sorted(fitting, key=_natural, reverse=True):
            rank = name_rank(name, entry)
            if rank is not None:
                yield rank, f"{directory}/{entry}"


def _names_in(root: str, directory: str) -> list[str]:
    try:
        return os.listdir(in_root(root, directory))
    except (OSError, TargetError, ValueError):
        return []


def _natural(name: str) -> list[tuple[bool, int, str]]:
    # libfoo.so.10 sorts after libfoo.so.9: digits compare as numbers.
    words = name.replace("-", ".").split(".")
    return [(w.isdecimal(), int(w[-18:]) if w.isdecimal() else 0, w) for w in words]


def _split(text: str) -> list[str]:
    """Return the directories of LD_LIBRARY_PATH, split at ``:`` and ``;``; "" means ``.``."""
    if not text:
        return []
    return [directory or "." for directory in text.replace(";", ":").split(":")]


def _cache(root: str) -> bytes:
    # The loader's cache; b"" on systems that have none: musl, distroless.
    try:
        with open(in_root(root, CACHE), "rb") as file:
            return file.read(_MAX_CACHE)
    except (OSError, TargetError):
        return b""


@cache
def _cpu_levels() -> tuple[str, ...]:
    """Return the glibc-hwcaps subdirectories that the loader searches on this CPU, in order."""
    try:
        # As bytes: to decode it as ASCII takes another module.
        with open("/proc/cpuinfo", "rb") as file:
            line = next((line for line in file if line.startswith(b"flags")), b"")
    except OSError:
        return ()
    flags = {word.decode("latin-1") for word in line.split()}
    levels: list[str] = []
    for level, needed in reversed(_LEVELS.items()):  # each level includes those below it
        if not flags.issuperset(needed.split()):
            break
        levels.insert(0, level)
    return tuple(levels)


# Multiarch names of the programs that a kernel runs, if they differ from the CPU's name.
_TRIPLETS = {
    "aarch64": ("aarch64-linux-gnu", "aarch64-linux-musl", "arm-linux-gnueabihf"),
    "arm": ("arm-linux-gnueabihf", "arm-linux-gnueabi"),
    "mips64": ("mips64-linux-gnuabi64",),
    "mips64el": ("mips64el-linux-gnuabi64",),
    "ppc": ("powerpc-linux-gnu",),
    "ppc64": ("powerpc64-linux-gnu",),
    "ppc64le": ("powerpc64le-linux-gnu",),
    "x86_64": (
        *("x86_64-linux-gnu", "x86_64-linux-musl"),
        *("i386-linux-gnu", "x86_64-linux-gnux32"),
    ),
}


def _default_directories(root: str = "/") -> tuple[str, ...]:
    """Return the default directories, including those of this CPU's multiarch names."""
    triplets = _TRIPLETS.get(
        KERNEL_MACHINE, (f"{KERNEL_MACHINE}-linux-gnu", f"{KERNEL_MACHINE}-linux-musl")
    )
    names = [f"{top}/{triplet}" for triplet in triplets for top in ("/lib", "/usr/lib")]
    names += ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/lib32", "/usr/lib32", "/usr/local/lib"]
    return (*_musl_directories(root, os.uname().machine), *names)


def _musl_directories(root: str, machine: str) -> list[str]:
    try:
        name = in_root(root, MUSL_PATHS.format(machine=machine))
        with open(name, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(_MAX_MUSL_PATHS).replace(":", "\n").split()
    except (OSError, TargetError):
        return []


def library_names(root: str = "/") -> set[str]:
    """Return the names in the loader's cache, as suggestions for a misspelt name."""
    return {entry.name for entry in parse_cache(_cache(root))}


@frozen
class _Loaded:
    path: str
    dynamic: Dynamic
    loader: _Loaded | None  # the first file that needs it; its DT_RPATH applies as well


class _Search:
    # The loader's search for one program: _dl_map_object() in dl-load.c.

    def __init__(self, main: Dynamic, environment: Mapping[str, str]) -> None:
        self.kind = main.bits, main.machine
        self.environment = environment
        self.library_path = _split(environment.get("LD_LIBRARY_PATH", ""))
        self.cached = CachedPaths(_cache("/"))

    def find(self, name: str, needing: _Loaded) -> str | None:
        if "/" in name:
            name = _expanded(name, needing.path)[0]
            return name if _elf_kind(name) == self.kind else None
        return next((p for p in self._candidates(name, needing) if _elf_kind(p) == self.kind), None)

    def _candidates(self, name: str, needing: _Loaded) -> Iterator[str]:
        subdirectories = [f"/glibc-hwcaps/{level}" for level in _cpu_levels()] + [""]
        for directory in self._before_cache(needing):
            for subdirectory in subdirectories:
                yield f"{directory}{subdirectory}/{name}"
        for _, path in _for_this_cpu((0, path) for path in self.cached.of(name)):
            yield path
        for directory in _default_directories():
            yield f"{directory}/{name}"

    def _before_cache(self, needing: _Loaded) -> Iterator[str]:
        ancestor: _Loaded | None = None if needing.dynamic.runpath else needing
        while ancestor is not None:
            for directory in ancestor.dynamic.rpath:
                yield from _expanded(directory, ancestor.path)
            ancestor = ancestor.loader
        yield from self.library_path
        for directory in needing.dynamic.runpath:
            yield from _expanded(directory, needing.path)


def _expanded(directory: str, path: str) -> list[str]:
    # Dynamic string tokens, ld.so(8). The value of $LIB is fixed when the loader is built.
    if "$" not in directory:
        return [directory or "."]
    machine = os.uname().machine
    values = {"ORIGIN": os.path.dirname(os.path.abspath(path)), "PLATFORM": machine}
    for token, value in values.items():
        directory = directory.replace(f"${{{token}}}", value).replace(f"${token}", value)
    triplet = _TRIPLETS.get(KERNEL_MACHINE, (f"{KERNEL_MACHINE}-linux-gnu",))[0]
    libraries = (f"lib/{triplet}", "lib64", "lib")
    if "$LIB" not in directory and "${LIB}" not in directory:
        return [directory]
    return [directory.replace("${LIB}", lib).replace("$LIB", lib) for lib in libraries]


def read_dynamic(path: str) -> Dynamic:
    """Return the dynamic section of a file.

    Raises:
        ElfError: not ELF, or damaged.
        TargetError: the file cannot be read.
    """
    descriptor = open_regular(path, path)
    file = OpenFile(descriptor, path)
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            raise TargetError(f"{path}: empty file")
        return parse_dynamic(FileBytes(file, 0, size), path)
    finally:
        file.close()


def dependencies(path: str, *, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the files that the loader maps at a program's start, without the program itself.

    These are the program's interpreter (ld.so), the libraries of LD_PRELOAD, then those of
    DT_NEEDED, breadth first. The loader's search order is: DT_RPATH, LD_LIBRARY_PATH, DT_RUNPATH,
    /etc/ld.so.cache, default directories. Each file is returned once. Libraries that are not found
    and those of dlopen(3) are left out.

    Args:
        path: an ELF program or library (scripts: see :func:`resolve_program`).
        environment: environment of the program; None for that of this process.

    Raises:
        ElfError: ``path`` is not ELF, or damaged.
        TargetError: ``path`` cannot be read.
    """
    dynamic = read_dynamic(path)
    main = _Loaded(os.path.realpath(path), dynamic, None)
    search = _Search(dynamic, os.environ if environment is None else environment)
    found: dict[tuple[int, int], str] = {_identity(path): ""}
    if dynamic.interpreter and _elf_kind(dynamic.interpreter):
        found.setdefault(_identity(dynamic.interpreter), dynamic.interpreter)
    todo = deque((name, main) for name in (*_preloaded(search), *dynamic.needed))
    names: set[str] = set()
    while todo and len(found) < _MAX_FILES:
        name, needing = todo.popleft()
        library = search.find(name, needing) if name not in names else None
        names.add(name)
        if library is None or _identity(library) in found:
            continue
        found[_identity(library)] = library
        loaded = _loaded(library, needing)
        names.add(loaded.dynamic.soname)
        todo += [(needed, loaded) for needed in loaded.dynamic.needed]
    return [library for library in found.values() if library]


def _loaded(path: str, needing: _Loaded) -> _Loaded:
    try:
        return _Loaded(path, read_dynamic(path), needing)
    except (ElfError, TargetError):
        return _Loaded(path, Dynamic(0, 0), needing)  # the loader will report it


def _preloaded(search: _Search) -> list[str]:
    words = search.environment.get("LD_PRELOAD", "")
    try:
        with open("/etc/ld.so.preload", encoding="utf-8", errors="surrogateescape") as file:
            words += " " + file.read(_MAX_MUSL_PATHS)
    except OSError:
        pass
    return words.replace(":", " ").split()


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return found.st_dev, found.st_ino
