"""The toolkit as one file that Python runs: usdt, kprobe, click and pyelftools, all pure Python.

The same sources give the same bytes: entries are sorted, and have fixed times and modes.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from importlib.util import find_spec
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("App", "build_app")

_PACKAGES = ("click", "elftools", "kprobe", "usdt")
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a ZIP archive can have
_MODE = 0o100644 << 16

_MAIN = """\
import sys

if sys.argv[1:2] == ["kprobe"]:
    del sys.argv[1]
    from kprobe.cli import main
else:
    if sys.argv[1:2] == ["usdt"]:
        del sys.argv[1]
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
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for name, path in sorted(_files()):
            with open(path, "rb") as file:  # noqa: PTH123 - text
                _add(archive, name, file.read())
    content = buffer.getvalue()
    return App(content, hashlib.sha256(content).hexdigest())


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.create_system = 3  # Unix, wherever it is built
    entry.external_attr = _MODE
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content, compresslevel=9)


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
