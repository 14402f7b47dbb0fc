"""Which probe events ``kprobe event remove`` selects."""

from __future__ import annotations

import pytest

from kprobe.cli.event.removal import chosen_events
from usdt.base.errors import TracingError
from usdt.tracefs.definitions import DefinedEvent
from usdt.tracefs.owner import own_name

_RUNNING = own_name()  # this process still runs
_LEFT = "usdt_1_0"  # process 1 did not start at the tick 0 of this name
_EVENTS = [
    DefinedEvent("kprobe_events", "kprobes/opened"),
    DefinedEvent("uprobe_events", "mine/hit"),
    DefinedEvent("uprobe_events", "mine/hit"),  # once for each of its attach points
    DefinedEvent("uprobe_events", "mine/other"),
    DefinedEvent("dynamic_events", "yours/hit"),
    DefinedEvent("uprobe_events", f"{_RUNNING}/e0"),
    DefinedEvent("uprobe_events", f"{_LEFT}/e0"),
]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        pytest.param(["opened"], ["kprobes/opened"], id="a name"),
        pytest.param(["mine/hit"], ["mine/hit"], id="a name with its group"),
        pytest.param(["mine:hit"], ["mine/hit"], id="a colon"),
        pytest.param(["mine/*"], ["mine/hit", "mine/other"], id="a group"),
        pytest.param(["mine:*"], ["mine/hit", "mine/other"], id="a group with a colon"),
        pytest.param(["hi?"], ["mine/hit", "yours/hit"], id="a pattern for names"),
        pytest.param(["*/hit"], ["mine/hit", "yours/hit"], id="a name in every group"),
        pytest.param(["mine/h*", "opened"], ["mine/hit", "kprobes/opened"], id="several"),
        pytest.param(["mine/*", "mine/hit"], ["mine/hit", "mine/other"], id="twice"),
        pytest.param(
            ["*"],
            ["kprobes/opened", "mine/hit", "mine/other", "yours/hit", f"{_LEFT}/e0"],
            id="all but those of running traces",
        ),
        pytest.param([f"{_RUNNING}/e0"], [f"{_RUNNING}/e0"], id="of a running trace, by name"),
    ],
)
def test_names_and_patterns_select(words: list[str], names: list[str]) -> None:
    assert [event.name for event in chosen_events(words, _EVENTS)] == names


@pytest.mark.parametrize(
    ("word", "says"),
    [
        pytest.param("hit", "hit is ambiguous: mine/hit, yours/hit; add the group", id="ambiguous"),
        pytest.param("none", "no probe event none; list them with: kprobe event list", id="none"),
        pytest.param("no/*", "no probe event no/*", id="no match"),
        pytest.param(f"{_RUNNING}/*", "no probe event", id="a running trace"),
    ],
)
def test_what_selects_nothing_is_an_error(word: str, says: str) -> None:
    with pytest.raises(TracingError, match=says.replace("*", r"\*")):
        chosen_events([word], _EVENTS)
