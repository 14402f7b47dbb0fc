"""Who was asked, who answered, who failed and why, who was late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.text import plural
from usdt.fleet.machine import State
from usdt.fleet.nodes import folded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.fleet.machine import Machine

__all__ = ("attendance", "attendance_lines", "message_lines")

_MOST_GROUPS = 20  # reasons, or messages, that are shown


def attendance(machines: Sequence[Machine]) -> dict[str, Any]:
    """Return the counts, and the reasons with their machines as node sets, for JSON."""
    found: dict[str, Any] = {"asked": len(machines)}
    for state in (State.ANSWERED, State.FAILED, State.LATE):
        found[state.value] = sum(machine.state is state for machine in machines)
    waiting = sum(not machine.ended for machine in machines)
    if waiting:
        found["waiting"] = waiting
    groups = _groups(machines)
    found["reasons"] = [
        {"state": state.value, "reason": reason, "nodes": folded(names), "count": len(names)}
        for (state, reason), names in groups.items()
    ]
    damaged = [machine for machine in machines if machine.damaged]
    if damaged:
        names = folded(machine.name for machine in damaged)
        found["damaged"] = {"lines": sum(m.damaged for m in damaged), "nodes": names}
    return found


def attendance_lines(machines: Sequence[Machine]) -> list[str]:
    """Return the same for people: one line of counts, and one for each reason."""
    found = attendance(machines)
    parts = [
        f"{found['asked']} asked",
        f"{found['answered']} answered",
        f"{found['failed']} failed",
    ]
    parts += [f"{found['late']} late"] if found["late"] else []
    parts += [f"{found['waiting']} running"] if "waiting" in found else []
    lines = [", ".join(parts)]
    reasons = sorted(found["reasons"], key=lambda one: -one["count"])
    lines += [
        f"{one['state']}: {one['nodes']} ({one['count']}): {one['reason']}"
        for one in reasons[:_MOST_GROUPS]
    ]
    if len(reasons) > _MOST_GROUPS:
        rest = sum(one["count"] for one in reasons[_MOST_GROUPS:])
        others = plural(len(reasons) - _MOST_GROUPS, "other reason")
        lines.append(f"{rest} more for {others}")
    if "damaged" in found:
        damaged = found["damaged"]
        lines.append(f"skipped damaged lines: {damaged['lines']}, from {damaged['nodes']}")
    return lines


def message_lines(machines: Sequence[Machine]) -> list[str]:
    """Return what machines that answered said on standard error, each line once."""
    groups: dict[str, list[str]] = {}
    for machine in machines:
        if machine.state is State.ANSWERED:
            for text in dict.fromkeys(machine.messages):
                if not (text.startswith("tracing ") or text.endswith(", 0 lost")):
                    groups.setdefault(text, []).append(machine.name)
    lines = [f"{folded(names)}: {text}" for text, names in [*groups.items()][:_MOST_GROUPS]]
    if len(groups) > _MOST_GROUPS:
        lines.append(plural(len(groups) - _MOST_GROUPS, "more message"))
    return lines


def _groups(machines: Sequence[Machine]) -> dict[tuple[State, str], list[str]]:
    groups: dict[tuple[State, str], list[str]] = {}
    for machine in machines:
        if machine.reason:
            groups.setdefault((machine.state, machine.reason), []).append(machine.name)
    return groups
