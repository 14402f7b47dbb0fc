"""The toolkit as one file that Python runs: usdt, kprobe, click and pyelftools, all pure Python.

The same sources give the same bytes: entries are sorted, and have fixed times and modes.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import zipfile
import zlib
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen
from usdt.base.version import COMMIT_FILE, commit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("App", "AppSources", "build_app")

_PACKAGES = ("click", "elftools", "kprobe", "usdt")
_OPENINGS = tuple(f"{package}/__init__.py" for package in _PACKAGES)
_DISTRIBUTIONS = ("click", "pyelftools", "usdt-toolkit")
_LICENCE = re.compile(r"[\w.-]+\.dist-info/(?:.*/)?((?:LICEN[CS]E|COPYING)[\w.-]*)")
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a ZIP archive can have
_MODE = 0o100644 << 16

# Which command it is, its name says (a link to it may have any), or the first word.
_MAIN = """\
import os
import sys

command = os.path.basename(sys.argv[0]).partition(".")[0]
if command not in ("kprobe", "usdt"):
    command = "usdt"
if sys.argv[1:2] in (["kprobe"], ["usdt"]):
    command = sys.argv.pop(1)
if command == "kprobe":
    from kprobe.cli import script
else:
    from usdt.cli import script

if __name__ == "__main__":
    script()
"""


@frozen
class App:
    """The archive.

    Attributes:
        content: its bytes.
        digest: their SHA-256, in hexadecimal.
    """

    content: bytes
    digest: str

    @classmethod
    def of(cls, content: bytes) -> App:
        """Return it for its bytes."""
        return cls(content, hashlib.sha256(content).hexdigest())


@frozen
class AppSources:
    """What an archive is made of.

    Attributes:
        files: the name in the archive, and the path, of each file.
        texts: the contents of further entries, by name.
    """

    files: tuple[tuple[str, str], ...]
    texts: dict[str, bytes]

    @classmethod
    def find(cls) -> AppSources:
        """Find the installed packages.

        Raises:
            TargetError: a package is not installed as files.
        """
        texts = {**dict(_licences()), "__main__.py": _MAIN.encode()}
        built_from = commit()
        if built_from:
            texts[f"usdt/{COMMIT_FILE}"] = f"{built_from}\n".encode()
        return cls(tuple(_files()), texts)

    @property
    def places(self) -> str:
        """The folders of the packages: another installation has others."""
        return " ".join(path for name, path in self.files if name in _OPENINGS)

    def state(self) -> bytes:
        """Return 32 bytes that are others when a file or a text has changed; no file is read.

        Raises:
            OSError: a file is gone.
        """
        found = hashlib.sha256(f"{sys.version} {zlib.ZLIB_RUNTIME_VERSION}".encode())
        for name, path in self.files:
            about = os.stat(path)  # noqa: PTH116 - text
            # The time of the last change of the inode: a copied file may have its original's mtime.
            times = about.st_mtime_ns, about.st_ctime_ns
            found.update(f"\n{name}\t{about.st_size} {times} {about.st_ino}".encode())
        for name, text in sorted(self.texts.items()):
            found.update(f"\n{name}\t{len(text)}\t".encode() + text)
        return found.digest()

    def pack(self) -> App:
        """Build the archive."""
        contents = {}
        for name, path in self.files:
            with open(path, "rb") as file:  # noqa: PTH123 - text
                contents[name] = file.read()
        contents |= self.texts
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            _add(archive, "__main__.py", contents.pop("__main__.py"))
            for name, content in sorted(contents.items()):
                _add(archive, name, content)
        return App.of(buffer.getvalue())


def build_app() -> App:
    """Build the archive from the installed packages.

    Raises:
        TargetError: a package is not installed as files.
    """
    return AppSources.find().pack()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.create_system = 3  # Unix, wherever it is built
    entry.external_attr = _MODE
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content, compresslevel=6)


def _licences() -> Iterator[tuple[str, bytes]]:
    # Of those who wrote what is inside: they ask for it to go with every copy.
    for distribution in _DISTRIBUTIONS:
        try:
            files = metadata.files(distribution)
        except metadata.PackageNotFoundError:  # a source tree; Debian keeps them elsewhere
            continue
        for file in files or ():
            found = _LICENCE.fullmatch(str(file))
            if found and os.path.isfile(file.locate()):  # noqa: PTH113 - text
                yield f"licences/{distribution}/{found[1]}", file.read_binary()


def _files() -> Iterator[tuple[str, str]]:
    # Yields the name in the archive, and the path, of each file.
    for package in _PACKAGES:
        spec = find_spec(package)
        folder = os.path.dirname(spec.origin or "") if spec else ""  # noqa: PTH120 - text
        if not os.path.isdir(folder):  # noqa: PTH112 - text
            raise TargetError(
                f"{package}: no files to send to other machines: install usdt-toolkit with pip"
            )
        for where, folders, names in os.walk(folder, followlinks=True):  # examples is a link
            folders[:] = [name for name in folders if name != "__pycache__"]
            inside = where[len(folder) :].strip("/")
            for name in names:
                if not name.endswith((".pyc", ".so")):
                    path = f"{where}/{name}"
                    yield "/".join(part for part in (package, inside, name) if part), path
