"""Kernels and userlands: made of Debian packages, and kept outside the tree.

``${XDG_CACHE_HOME:-~/.cache}/usdt-toolkit/vm/`` has one folder for each kernel and userland. Its
name says of which packages, in which versions and by which recipe (the modules that make it) it
was made: when one of them changes it is made anew, and the old one is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import lzma
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vm.apt import Apt, Unavailable
from vm.archive import file, write_archive
from vm.matrix import USERLANDS
from vm.userland import compile_sources, read_packages, skeleton

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vm.archive import Entry
    from vm.matrix import Cell

__all__ = ("Image", "cache", "image", "logs")

_HERE = Path(__file__).parent
_RECIPE = ("archive.py", "image.py", "userland.py")
_MODULES = "modules.cpio"
_KERNEL = r"boot/vmlinu[xz]-|usr/lib/modules/[^/]+/vmlinu[xz]$"


@dataclass(frozen=True, slots=True)
class Image:
    """What a cell starts: a kernel, with the version Debian gives it, and a userland."""

    kernel: Path
    version: str
    archives: tuple[Path, ...]  # of the userland, and of the kernel's modules


def cache() -> Path:
    """Where all of it is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "usdt-toolkit" / "vm"


def logs() -> Path:
    """Where the last run of each cell is written down."""
    folder = cache() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def image(cell: Cell) -> Image:
    """Kernel and userland of a cell, fetched and made if need be; Unavailable if they cannot."""
    with _locked():
        kernel = _kernel(cell)
        archives = [_userland(cell.cpu), kernel.with_name(_MODULES)]
        if cell.more:
            archives.append(_more(cell))
    version = kernel.parent.name.split("_")[1]
    return Image(kernel, version, tuple(archives))


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def _recipe(*more: str) -> str:
    return _digest(b"".join((_HERE / name).read_bytes() for name in (*_RECIPE, *more)))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _apt(suite: str, architecture: str) -> Apt:
    apt = Apt(cache() / "apt" / f"{suite}-{architecture}", suite, architecture)
    apt.update()
    return apt


def _kernel(cell: Cell) -> Path:
    apt = _apt(cell.suite, cell.cpu)
    shelf = cache() / "kernel" / f"{cell.suite}-{cell.cpu}-{cell.package}"
    made = _Made(apt, shelf, "linux-", lambda: _kernel_files(apt, cell.package), _make_kernel)
    return made.folder() / "vmlinuz"


def _kernel_files(apt: Apt, package: str) -> tuple[str, ...]:
    # The meta package depends on the newest kernel, whose name has its version; that one is empty
    # since Linux 7, and depends on linux-binary-… and linux-modules-….
    image = _versioned(apt.depends(package))
    if len(image) != 1:
        raise Unavailable(f"{package} of {apt.suite} depends on {image or 'no kernel'}")
    return apt.files(*(_versioned(apt.depends(*image)) or image))


def _versioned(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if re.match(r"linux-(image|binary|modules)-\d", name))


def _make_kernel(apt: Apt, files: tuple[str, ...], folder: Path) -> None:
    tree = read_packages(apt.download(files, folder / "debs"))
    found = [path for path in tree if re.match(_KERNEL, path)]
    if len(found) != 1:
        raise Unavailable(f"{files[0]} has {len(found)} kernels in it")
    (folder / "vmlinuz").write_bytes(tree[found[0]].data)
    with (folder / _MODULES).open("wb") as archive:
        write_archive(archive, dict(_modules(tree)))


def _modules(tree: dict[str, Entry]) -> Iterator[tuple[str, Entry]]:
    # What the tests want that no kernel of the table has built in.
    for path, entry in tree.items():
        if match := re.search(r"/((?:loop|overlay)\.ko)(\.xz)?$", path):
            yield f"mods/{match[1]}", file(lzma.decompress(entry.data) if match[2] else entry.data)


def _userland(cpu: str) -> Path:
    wanted = USERLANDS[cpu]
    apt = _apt(wanted.suite, cpu)
    # Its name on the shelf is that of its Python.
    shelf = cache() / "userland" / f"{wanted.suite}-{cpu}"
    made = _Made(apt, shelf, "python3.", lambda: apt.closure(*wanted.packages), _make_userland)
    return made.folder() / "userland.cpio"


def _more(cell: Cell) -> Path:
    apt = _apt(cell.suite, cell.cpu)
    shelf = cache() / "more" / cell.name
    first = cell.more[0]

    def files() -> tuple[str, ...]:
        known = apt.closure(*USERLANDS[cell.cpu].packages)
        return tuple(name for name in apt.closure(*cell.more) if name not in known)

    return _Made(apt, shelf, f"{first}_", files, _make_userland).folder() / "userland.cpio"


def _make_userland(apt: Apt, files: tuple[str, ...], folder: Path) -> None:
    tree = {**read_packages(apt.download(files, folder / "debs")), **skeleton()}
    version = USERLANDS[apt.architecture].python.split(".")
    tree.update(compile_sources(tree, (int(version[0]), int(version[1]))))
    with (folder / "userland.cpio").open("wb") as archive:
        write_archive(archive, tree)


@dataclass(frozen=True, slots=True)
class _Made:
    """Something made of packages, the only folder on its shelf.

    ``current`` beside it says for which lists, table and recipe it was last found to be the right
    one, so that apt need not be asked at every run.
    """

    apt: Apt
    shelf: Path
    named_after: str  # what the package begins with that names the folder
    files: Callable[[], tuple[str, ...]]
    make: Callable[[Apt, tuple[str, ...], Path], None]

    def folder(self) -> Path:
        current = self.shelf / "current"
        asked = f"{self.apt.stamp.stat().st_mtime_ns} {_recipe('matrix.py')}"
        with contextlib.suppress(OSError, ValueError):
            known, name = current.read_text().rsplit(" ", 1)
            if known == asked and (self.shelf / name).is_dir():
                return self.shelf / name
        name = self._renewed()
        current.write_text(f"{asked} {name}")
        return self.shelf / name

    def _renewed(self) -> str:
        files = self.files()
        title = next(name for name in files if name.startswith(self.named_after))
        key = _digest(" ".join((_recipe(), *files)).encode())
        name = f"{title.removesuffix('.deb')}_{key}"
        if not (self.shelf / name).is_dir():
            self._fill(self.shelf / name, files)
        for old in self.shelf.iterdir():
            if old.name != name and old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
        return name

    def _fill(self, to: Path, files: tuple[str, ...]) -> None:
        # It appears when it is complete; packages are kept only as long as they are read.
        partial = to.with_name(f".{to.name}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        self.make(self.apt, files, partial)
        shutil.rmtree(partial / "debs")
        partial.rename(to)
