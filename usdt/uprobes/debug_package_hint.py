"""A hint for missing debug information: the package that contains it.

On Debian, the package is found in the file lists in /var/lib/dpkg/info, without running a command.
"""

from __future__ import annotations

import os
from pathlib import Path

from usdt.base.text import encoded

__all__ = ("missing_debug", "package_of")

_LISTS = "/var/lib/dpkg/info"
_MAX_LIST_SIZE = 16 << 20  # bytes of one list
# Packages whose debug symbols are not in an automatic -dbgsym package.
_NAMED = {"libc6": "libc6-dbg", "libc6-i386": "libc6-dbg", "python3.11-minimal": "python3.11-dbg"}


def missing_debug(path: str, build_id: str | None) -> str:
    """Return a one-line message: the file has no debug information, and how to get it."""
    package = package_of(path)
    what = f"{path} has no debug information, which names parameters and types"
    if package is None:
        fix = "build it with -g"
        if build_id:
            fix += f", or install its debug symbols (build ID {build_id})"
    else:
        wanted = _NAMED.get(package, f"{package}-dbgsym")
        fix = f"install {wanted}" + (f" (build ID {build_id})" if build_id else "")
    return f"{what}: {fix}; arg0… and return work without it"


def package_of(path: str, lists: str = _LISTS) -> str | None:
    """Return the Debian package that a file belongs to, or None."""
    wanted = [os.path.realpath(path)]
    # /lib is a link to /usr/lib; packages may still list the file under the shorter name.
    if wanted[0].startswith("/usr/lib"):
        wanted.append(wanted[0].removeprefix("/usr"))
    lines = [encoded(f"\n{one}\n") for one in wanted]
    try:
        names = sorted(one.name for one in Path(lists).iterdir() if one.suffix == ".list")
    except OSError:
        return None
    for name in names:
        try:
            with Path(lists, name).open("rb") as file:
                data = b"\n" + file.read(_MAX_LIST_SIZE)
        except OSError:
            continue
        if any(line in data for line in lines):
            return name.removesuffix(".list").partition(":")[0]
    return None
