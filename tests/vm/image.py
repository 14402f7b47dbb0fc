"""How kernels and userlands are made of Debian packages, and kept outside the tree.

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

from vm.apt import Apt, Unavailable, Unreachable
from vm.archive import file, write_archive
from vm.bytecode import compile_sources
from vm.userland import read_packages, skeleton

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vm.archive import Entry

__all__ = (
    "MODULES",
    "USERLAND",
    "Made",
    "cache",
    "kernel_files",
    "locked",
    "logs",
    "make_kernel",
    "make_userland",
    "python_of",
)

_HERE = Path(__file__).parent
_RECIPE = ("archive.py", "bytecode.py", "image.py", "userland.py")
MODULES = "modules.cpio"
USERLAND = "userland.cpio"
_KERNEL = r"boot/vmlinu[xz]-|usr/lib/modules/[^/]+/vmlinu[xz]$"


def cache() -> Path:
    """Where all of it is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "usdt-toolkit" / "vm"


def logs() -> Path:
    """Where the last run of each cell is written down."""
    folder = cache() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One process and thread at a time uses the cache."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def _recipe(*more: str) -> str:
    return _digest(b"".join((_HERE / name).read_bytes() for name in (*_RECIPE, *more)))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _title(files: tuple[str, ...], start: str) -> str:
    return next(name for name in files if name.startswith(start))


def python_of(name: str) -> str:
    """The version of Python, "3.11", that a package or a userland is named after."""
    match = re.match(r"python(3\.\d+)", name)
    if not match:
        raise Unavailable(f"{name} is no Python")
    return match[1]


def kernel_files(apt: Apt, package: str) -> tuple[str, ...]:
    """The packages of the kernel that a meta package stands for."""
    # The meta package depends on the newest kernel, whose name has its version; that one is empty
    # since Linux 7, and depends on linux-binary-… and linux-modules-….
    image = _versioned(apt.depends(package))
    if len(image) != 1:
        raise Unavailable(f"{package} of {apt.suite} depends on {image or 'no kernel'}")
    return apt.files(*(_versioned(apt.depends(*image)) or image))


def _versioned(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if re.match(r"linux-(image|binary|modules)-\d", name))


def make_kernel(apt: Apt, files: tuple[str, ...], folder: Path) -> None:
    """Fill a folder with a kernel, and the modules that the tests use."""
    tree = read_packages(apt.download(files, folder / "debs"))
    found = [path for path in tree if re.match(_KERNEL, path)]
    if len(found) != 1:
        raise Unavailable(f"{files[0]} has {len(found)} kernels in it")
    (folder / "vmlinuz").write_bytes(tree[found[0]].data)
    with (folder / MODULES).open("wb") as archive:
        write_archive(archive, dict(_modules(tree)))


def _modules(tree: dict[str, Entry]) -> Iterator[tuple[str, Entry]]:
    # What the tests want that no kernel of the table has built in.
    for path, entry in tree.items():
        if match := re.search(r"/((?:loop|overlay)\.ko)(\.xz)?$", path):
            yield f"mods/{match[1]}", file(lzma.decompress(entry.data) if match[2] else entry.data)


def make_userland(apt: Apt, files: tuple[str, ...], folder: Path, python: str = "") -> None:
    """Fill a folder with a userland, or with what is added to one of this ``python``."""
    tree = read_packages(apt.download(files, folder / "debs"))
    tree.update(skeleton(tree))
    tree.update(compile_sources(tree, python or python_of(_title(files, "python3."))))
    with (folder / USERLAND).open("wb") as archive:
        write_archive(archive, tree)


@dataclass(frozen=True, slots=True)
class Made:
    """Something that is made of packages: the only folder on its shelf.

    ``current`` beside it says for which lists, table and recipe it was last found to be the right
    one, so that apt need not be asked at every run.
    """

    apt: Apt
    shelf: Path
    named_after: str  # what the package begins with that names the folder
    files: Callable[[], tuple[str, ...]]
    make: Callable[[Apt, tuple[str, ...], Path], None]

    def folder(self, update: Callable[[], None]) -> Path:
        """It, made anew if need be; the earlier one serves while the mirrors have no newer."""
        recipe, known = _recipe("matrix.py", "supply.py"), self._known()
        earlier = self.shelf / known[2] if known[1:2] == [recipe] else None
        try:
            update()
            stamp = str(self.apt.stamp.stat().st_mtime_ns)
            if earlier is None or known[0] != stamp:
                name = self._renewed()
                (self.shelf / "current").write_text(f"{stamp} {recipe} {name}")
                return self.shelf / name
        except Unreachable:
            if earlier is None:
                raise
        return earlier

    def _known(self) -> list[str]:
        # The time of the lists, the recipe and the folder's name; nothing if it is gone.
        with contextlib.suppress(OSError):
            known = (self.shelf / "current").read_text().split(" ")
            if len(known) == 3 and (self.shelf / known[2]).is_dir():
                return known
        return []

    def _renewed(self) -> str:
        files = self.files()
        title = _title(files, self.named_after)
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
