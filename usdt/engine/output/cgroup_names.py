"""Names of cgroups in the formats of values: text, JSON, Python."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING

from usdt.arch.locations import Unreadable
from usdt.base.text import printable

if TYPE_CHECKING:
    from usdt.cgroups.known import CgroupNames
    from usdt.cgroups.labels import CgroupName

__all__ = ("json_text", "plain_text", "quoted_text", "value")


def value(cgroups: CgroupNames, kind: CgroupName, number: int) -> str | Unreadable | None:
    """Return a name of a cgroup; None if it has none."""
    found = cgroups.name(kind, number)
    if found is None:
        return Unreadable(f"cgroup {number} is not known")
    return found or None


def plain_text(cgroups: CgroupNames, kind: CgroupName, number: int) -> str:
    """Return a name of a cgroup as text; a dash if it has none."""
    found = value(cgroups, kind, number)
    if isinstance(found, Unreadable):
        return f"?({found.reason})"
    return "-" if found is None else printable(found)


def quoted_text(cgroups: CgroupNames, kind: CgroupName, number: int) -> str:
    """Return the same with a name in quotes."""
    found = cgroups.name(kind, number)
    if not found:
        return plain_text(cgroups, kind, number)
    quoted = found.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(quoted)}"'


def json_text(cgroups: CgroupNames, kind: CgroupName, number: int) -> str:
    """Return a name of a cgroup as JSON; null if it has none."""
    found = value(cgroups, kind, number)
    if isinstance(found, Unreadable):
        return f'{{"error": {quote(found.reason)}}}'
    return "null" if found is None else quote(found)
