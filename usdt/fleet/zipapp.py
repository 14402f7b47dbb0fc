"""The toolkit as one file that Python runs: usdt, kprobe, click and pyelftools, all pure Python.

The same sources give the same bytes: entries are sorted, and have fixed times and modes.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import zipfile
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen
from usdt.base.version import COMMIT_FILE, commit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("App", "build_app")

_PACKAGES = ("click", "elftools", "kprobe", "usdt")
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
    from kprobe.cli import main
else:
    from usdt.cli import main

if __name__ == "__main__":
    main()
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


def build_app() -> App:
    """Build the archive from the installed packages.

    Raises:
        TargetError: a package is not installed as files.
    """
    contents = dict(_licences())
    for name, path in _files():
        with open(path, "rb") as file:  # noqa: PTH123 - text
            contents[name] = file.read()
    built_from = commit()
    if built_from:
        contents[f"usdt/{COMMIT_FILE}"] = f"{built_from}\n".encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for name, content in sorted(contents.items()):
            _add(archive, name, content)
    content = buffer.getvalue()
    return App(content, hashlib.sha256(content).hexdigest())


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
