"""Messages about children that could not be followed."""

from __future__ import annotations

import pytest

from usdt.engine.runtime.follow import FollowLosses
from usdt.targets.follow_forks import loss_notes


@pytest.mark.parametrize(
    ("losses", "wanted"),
    [
        pytest.param(FollowLosses(0, 0, 0), [], id="nothing was missed"),
        pytest.param(
            FollowLosses(1, 1, 1),
            [
                "the set of 9 tasks was full: 1 child was not traced, nor its own children",
                "left out 1 hit in child PID namespaces: run in the initial PID namespace",
                "the kernel missed 1 fork or exit: children may not be traced",
            ],
            id="one of each",
        ),
        pytest.param(
            FollowLosses(2, 2, 2),
            [
                "the set of 9 tasks was full: 2 children were not traced, nor their own children",
                "left out 2 hits in child PID namespaces: run in the initial PID namespace",
                "the kernel missed 2 forks or exits: children may not be traced",
            ],
            id="two of each",
        ),
    ],
)
def test_numbers_agree_with_their_nouns(losses: FollowLosses, wanted: list[str]) -> None:
    assert list(loss_notes(losses, 9)) == wanted
