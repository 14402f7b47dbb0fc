"""Python's modules compiled ahead for a guest, in which that takes 20 times as long.

Bytecode depends on the version of Python and not on the CPU: any Python of the guest's version
that this machine has will do.
"""

from __future__ import annotations

import functools
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pythons import OTHERS
from vm.archive import file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vm.archive import Entry

__all__ = ("compile_sources",)


def compile_sources(tree: Mapping[str, Entry], version: str) -> dict[str, Entry]:
    """The .pyc files of a tree's modules for a version of Python, "3.11"; none without that Python.

    They are "unchecked": the guest does not look at the source. What does not compile is left out:
    some packages bring templates, and code of Python 2.
    """
    python = _interpreter(version)
    if not python:
        return {}
    with tempfile.TemporaryDirectory(prefix="usdt-vm-") as folder:
        for name, entry in tree.items():
            path = Path(folder, name)
            if name.endswith(".py") and stat.S_ISREG(entry.mode) and ".." not in path.parts:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(entry.data)
        words = ("-m", "compileall", "-qq", "--invalidation-mode", "unchecked-hash")
        subprocess.run([python, "-I", *words, "-s", folder, "-p", "/", folder], check=False)
        compiled = Path(folder).rglob("*.pyc")
        return {str(path.relative_to(folder)): file(path.read_bytes()) for path in compiled}


@functools.cache
def _interpreter(version: str) -> str | None:
    if version == "{}.{}".format(*sys.version_info):
        return sys.executable
    return next((path for path in OTHERS if path.endswith(f"/python{version}")), None)
