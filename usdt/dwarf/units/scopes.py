"""The namespaces and classes that contain an entry: the qualification of its name.

Entries do not refer to their parents. The search therefore descends from the root of the unit to
the entry, and caches the entries on the way.
"""

from __future__ import annotations

import bisect
import contextlib
from array import array
from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import At, Tag
from usdt.dwarf.units.dies import child_offsets
from usdt.dwarf.units.errors import DAMAGE
from usdt.dwarf.units.units import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.dwarf.units.units import Unit

__all__ = ("ANONYMOUS", "PLAIN_LANGUAGES", "Scopes")

ANONYMOUS = "(anonymous namespace)"  # the text of gdb and the demanglers

_SCOPES = frozenset((Tag.NAMESPACE, Tag.STRUCTURE, Tag.CLASS, Tag.UNION, Tag.INTERFACE))
_MAX_DEPTH = 64  # scopes in a name
PLAIN_LANGUAGES = frozenset(
    (0x0001, 0x0002, 0x000C, 0x001D, 0x002C, 0x8001)
)  # C, assembly: no scopes


class Scopes:
    """The scopes of one unit.

    Args:
        unit: the unit.
        signed_name: returns, for the position of an entry that refers to a type unit, the name in
            that unit; "" for other entries.

    Attributes:
        is_flat: True in languages without scopes.
    """

    def __init__(self, unit: Unit, signed_name: Callable[[int], str] = lambda _: "") -> None:
        self._unit = unit
        self._signed_name = signed_name
        self._below: dict[int, array[int]] = {}  # entry → positions of its children
        self._names: dict[int, str] = {}
        language = unit.integer(unit.root, At.LANGUAGE, 0) or 0
        self.is_flat = language in PLAIN_LANGUAGES

    def prefix(self, at: int) -> str:
        """Return the qualification of the entry at a position: "" or "a::b::"."""
        if self.is_flat:
            return ""
        names, _ = self._descend(self._unit.root, at)
        return _joined(names)

    def prefix_within(self, at: int, outer: int) -> str | None:
        """Return the qualification of an entry below the entry at the position ``outer``.

        It saves reading all entries at the top level of the unit, as :meth:`prefix` does.

        Returns:
            It begins with the name of the outer entry; None if ``outer`` does not contain ``at``.
        """
        entry = Entry(self._unit, outer)
        names, found = self._descend(entry, at)
        return _joined([self._name(entry), *names]) if found else None

    def _descend(self, entry: Entry, at: int) -> tuple[list[str], bool]:
        # The names on the way from an entry to that at a position, and if it is there.
        names: list[str] = []
        for _ in range(_MAX_DEPTH):
            starts = self._children(entry)
            index = bisect.bisect_right(starts, at) - 1
            if index < 0 or starts[index] == at:
                return names, index >= 0
            entry = Entry(self._unit, starts[index])
            names.append(self._name(entry))
        return names, False

    def _children(self, entry: Entry) -> array[int]:
        found = self._below.get(entry.at)
        if found is None:
            found = self._below[entry.at] = array("Q")
            with contextlib.suppress(*DAMAGE):  # keep the entries before the damage
                found.extend(at for at, _ in child_offsets(self._unit, entry))
        return found

    def _name(self, entry: Entry) -> str:
        name = self._names.get(entry.at)
        if name is None:
            name, tag = self._unit.text(entry, At.NAME), entry.abbreviation.tag
            if tag == Tag.SUBPROGRAM:
                name = name and f"{name}()"
            elif tag in _SCOPES:
                if not name and At.SIGNATURE in entry.values:
                    name = self._signed_name(entry.at)
                name = name or (ANONYMOUS if tag == Tag.NAMESPACE else "{…}")
            else:
                name = ""
            self._names[entry.at] = name
        return name


def _joined(names: list[str]) -> str:
    return "".join(f"{name}::" for name in names if name)
