"""Modules of the toolkit and of click, found and read in a third fewer steps than Python takes.

Python asks each place of a package's path for four kinds of files, lists its folder, and asks for a
module's source twice. Our modules are source files in the one place of their package. Whatever
else it is, and every error, is left to Python.
"""

from __future__ import annotations

import marshal
import os
import sys
from importlib._bootstrap_external import MAGIC_NUMBER
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ("find_own_modules",)

_PACKAGES = ("usdt.", "kprobe.", "click.")
_HEAD = 16  # bytes before the code in a file of bytecode (PEP 552)


def find_own_modules() -> None:
    """Find modules of the toolkit and of click in few steps from now on; for commands."""
    usual = sys.pycache_prefix is None and not sys.flags.optimize
    if usual and sys.implementation.cache_tag and _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Loader(SourceFileLoader):
    # ``cached`` is the file of bytecode, which is current if it begins with ``head``.
    cached = ""
    head = b""

    def get_code(self, fullname: str) -> CodeType | None:
        data = _read(self.cached)
        if data.startswith(self.head):
            code = marshal.loads(memoryview(data)[_HEAD:])  # noqa: S302 - as Python does
            if isinstance(code, CodeType) and code.co_filename == self.path:
                return code
        return super().get_code(fullname)


class _Finder:
    @classmethod
    def find_spec(
        cls,
        name: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG003 - Python's signature
        /,
    ) -> ModuleSpec | None:
        if not path or not name.startswith(_PACKAGES):
            return None
        folder, stem = path[0], name.rpartition(".")[2]
        file = f"{folder}/{stem}.py"
        is_package = False
        try:
            status = os.stat(file)  # noqa: PTH116 - pathlib takes 5 ms
        except OSError:
            folder, stem, is_package = f"{folder}/{stem}", "__init__", True
            file = f"{folder}/__init__.py"
            try:
                status = os.stat(file)  # noqa: PTH116
            except OSError:
                return None
        loader = _Loader(name, file)
        loader.cached = f"{folder}/__pycache__/{stem}.{sys.implementation.cache_tag}.pyc"
        numbers = int(status.st_mtime), status.st_size
        loader.head = b"".join((MAGIC_NUMBER, bytes(4), *map(_u32, numbers)))
        spec = ModuleSpec(name, loader, origin=file, is_package=is_package)
        spec.has_location = True
        spec.cached = loader.cached
        if is_package:
            spec.submodule_search_locations = [folder]
        return spec


def _u32(number: int) -> bytes:
    return (number & 0xFFFFFFFF).to_bytes(4, "little")


def _read(path: str) -> bytes:
    # The contents of a file; b"" if it cannot be read.
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(number, os.fstat(number).st_size)
    except OSError:
        return b""
    finally:
        os.close(number)
