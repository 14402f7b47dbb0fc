"""Events with stacks, as profiles for pictures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from usdt.pictures.frames import frames_of, is_stack_name, joined
from usdt.pictures.profile import Weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.output.profiles.formatter import StackHit
    from usdt.pictures.profile import Frame, Label, Profile

__all__ = ("DURATION", "StackCounts")

#: The weight of spans, and of times between two probes.
DURATION = Weight("duration", "nanoseconds")

_KEPT = 1 << 23  # characters of distinct stacks whose frames are kept


class StackCounts:
    """What adds events to a profile.

    Args:
        profile: takes their stacks.

    Attributes:
        events: how many events were added.
        without: how many events had no stack, and were not added.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.events = 0
        self.without = 0
        self._known: dict[tuple[str, str], tuple[Frame, ...]] = {}
        self._size = 0

    def add_hits(self, hits: Sequence[StackHit], *labels: Label) -> None:
        """Add hits of a :class:`usdt.engine.output.profiles.formatter.StackFormatter`."""
        for comm, probe, duration, stacks in hits:
            found = [(name, self._frames(name, text)) for name, text in stacks]
            self._add((("comm", comm), ("probe", probe), *labels), found, duration)

    def add_event(self, event: dict[str, Any], *labels: Label) -> None:
        """Add an event or a span of a JSON stream, with further labels."""
        stacks: list[tuple[str, tuple[Frame, ...]]] = []
        for values in (event.get("args"), event.get("end_args")):
            if isinstance(values, dict):
                stacks += (
                    (name, self._frames_in(name, value))
                    for name, value in values.items()
                    if is_stack_name(name)
                )
        duration = event.get("duration")
        self._add(
            (("comm", str(event.get("comm", ""))), ("probe", str(event.get("probe", ""))), *labels),
            stacks,
            duration if type(duration) is int and duration >= 0 else None,
        )

    def _add(
        self,
        labels: tuple[Label, ...],
        stacks: Sequence[tuple[str, tuple[Frame, ...]]],
        duration: int | None,
    ) -> None:
        if not stacks:
            self.without += 1
            return
        self.events += 1
        # The functions of Python are among those of the user stack.
        user = any(name.startswith("ustack") for name, _ in stacks)
        shown = [one for one in stacks if not (user and one[0].startswith("pystack"))]
        weight = None if duration is None else DURATION
        self.profile.add_weighted(labels, joined(shown), 1, weight, duration or 0)

    def _frames(self, name: str, text: str) -> tuple[Frame, ...]:
        found = self._known.get((name, text))
        return self._keep(name, text, json.loads(text)) if found is None else found

    def _frames_in(self, name: str, stack: Any) -> tuple[Frame, ...]:
        text = repr(stack)
        found = self._known.get((name, text))
        return self._keep(name, text, stack) if found is None else found

    def _keep(self, name: str, text: str, stack: Any) -> tuple[Frame, ...]:
        if self._size > _KEPT:
            self._known.clear()
            self._size = 0
        self._size += len(text)
        found = self._known[name, text] = frames_of(name, stack)
        return found
