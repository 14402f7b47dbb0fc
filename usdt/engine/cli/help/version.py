"""What ``--version`` prints: version, commit, and which extras are installed."""

from __future__ import annotations

import re
from importlib import metadata

from usdt.base.version import VERSION, commit

__all__ = ("version_text",)

_DISTRIBUTION = "usdt-toolkit"
_REQUIREMENT = re.compile(r"""([\w.-]+).*;\s*extra\s*==\s*["']([\w-]+)["']""")
_NOT_FOR_USERS = {"dev", "docs"}


def version_text(command: str) -> str:
    """Return the lines that describe this installation."""
    built_from = commit()
    lines = [f"{command} {VERSION}" + (f" (commit {built_from})" if built_from else "")]
    missing = missing_extras()
    if missing is not None:
        there = [extra for extra, absent in missing.items() if not absent]
        lines += [f"extras: {', '.join(there) or 'none'}"]
        absent = ",".join(extra for extra, packages in missing.items() if packages)
        lines += [f"not installed: pip install '{_DISTRIBUTION}[{absent}]'"] if absent else []
    return "".join(f"{line}\n" for line in lines)


def missing_extras() -> dict[str, list[str]] | None:
    """Return extra → the packages of it that are not installed; None if no extras are known.

    A source tree without an installation knows none.
    """
    try:
        requirements = metadata.requires(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    extras: dict[str, list[str]] = {}
    for requirement in requirements or ():
        found = _REQUIREMENT.match(requirement)
        if found and found[2] not in _NOT_FOR_USERS:
            package, extra = found.groups()
            missing = extras.setdefault(extra, [])
            missing += [] if _is_installed(package) else [package]
    return dict(sorted(extras.items()))


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
