"""What machines have printed: the same answers together, as ``clush -b`` shows them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from usdt.base.text import printable
from usdt.fleet.machine import State
from usdt.fleet.nodes import folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usdt.fleet.machine import Machine

__all__ = ("Answers",)

_MOST_TEXT = 256 << 20  # bytes of all different lines
_MOST_LINES = 1 << 24  # of all machines
_RULE = "-" * 15


class Answers:
    """The lines of all machines.

    Attributes:
        left_out: the number of lines that had no space.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._lines: dict[str, list[bytes]] = {}
        self._known: dict[bytes, bytes] = {}  # machines share lines that are the same
        self._size = 0
        self._count = 0

    def add(self, host: str, line: bytes) -> None:
        """Add the next line of a machine."""
        lines = self._lines.setdefault(host, [])
        known = self._known.get(line)
        if known is None and self._size + len(line) <= _MOST_TEXT:
            known = self._known[line] = line
            self._size += len(line)
        if known is None or self._count >= _MOST_LINES:
            self.left_out += 1
        else:
            self._count += 1
            lines.append(known)

    def groups(self) -> list[tuple[list[str], Sequence[bytes]]]:
        """Return the machines that have the same answer, and the answer; most machines first."""
        found: dict[tuple[bytes, ...], list[str]] = {}
        for host, lines in self._lines.items():
            found.setdefault((*lines,), []).append(host)
        groups = [(hosts, lines) for lines, hosts in found.items()]
        return sorted(groups, key=lambda one: -len(one[0]))

    def lines(self) -> list[str]:
        """Return the answers as text, each below the machines that gave it."""
        shown: list[str] = []
        for hosts, lines in self.groups():
            shown += [f"{_RULE}\n", f"{folded(hosts)} ({len(hosts)})\n", f"{_RULE}\n"]
            shown += (_printable(line) + "\n" for line in lines)
        return shown

    def json(self) -> list[str]:
        """Return one line for each answer: its objects, and the machines that gave it."""
        shown = []
        for hosts, lines in self.groups():
            objects = [found for found in map(_object, lines) if found is not None]
            self.left_out += len(hosts) * (len(lines) - len(objects))
            one = {"nodes": folded(hosts), "count": len(hosts), "answer": objects}
            shown.append(json.dumps(one) + "\n")
        return shown

    def expect(self, machines: Iterable[Machine]) -> None:
        """Give machines that have answered without a line an empty answer."""
        for machine in machines:
            if machine.state is State.ANSWERED:
                self._lines.setdefault(machine.name, [])


def _printable(line: bytes) -> str:
    text = line.decode(errors="surrogateescape")
    return "\t".join(map(printable, text.split("\t")))


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
