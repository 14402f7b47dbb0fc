"""Results with stacks, as profiles for pictures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from usdt.engine.output.profiles.counts import DURATION
from usdt.pictures.frames import frames_of, is_stack_name, joined
from usdt.pictures.profile import Weight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.engine.aggregate.results import Result
    from usdt.engine.aggregate.spec import Aggregation
    from usdt.pictures.profile import Profile

__all__ = ("add_results",)


def add_results(
    profile: Profile, results: Iterable[Result], aggregation: Aggregation, what: str
) -> int:
    """Add results to a profile; return how many have no stack, and were not added.

    Args:
        profile: takes their stacks.
        results: the results.
        aggregation: what was aggregated; a sum is a weight.
        what: the values that were added up.
    """
    weight = _weight(aggregation, what)
    without = 0
    for result in results:
        # A stream of others may have a stack by any name.
        found = [part for part in result.key if part.folded and is_stack_name(part.name)]
        stacks = [(part.name, frames_of(part.name, json.loads(part.json))) for part in found]
        if not stacks:
            without += 1
            continue
        words = [(part.name, part.text) for part in result.key if not part.folded]
        words.sort(key=lambda one: one[0] != "comm")
        labels = [*words, ("probe", result.probe)]
        value = result.value
        total = value.sum if weight is not None else 0
        profile.add_weighted((*labels,), joined(stacks), value.count, weight, total)
    return without


def _weight(aggregation: Aggregation, what: str) -> Weight | None:
    if not aggregation.weighted or not aggregation.stats:
        return None
    if aggregation.pair is not None or what == "duration":
        return DURATION
    return Weight(what or "sum")
