"""Stacks of a page: from events and from results, with bounded boxes and texts."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING, Any

from usdt.engine.merge.merge import Merge
from usdt.engine.pages.stacks import Stacks
from usdt.engine.pages.texts import Texts

if TYPE_CHECKING:
    import pytest


def event(*names: str, **more: Any) -> dict[str, Any]:
    frames = [{"symbol": name, "offset": 1, "module": "m"} for name in names]
    return {"comm": "shop", "probe": "p:q", "args": {"ustack": frames}} | more


def boxes(stacks: Stacks) -> dict[str, tuple[int, ...]]:
    """The numbers of each function."""
    tree = stacks.tree(Texts())
    assert tree is not None
    return {
        tree.names[of]: tuple(column[box] for column in tree.values)
        for box, of in enumerate(tree.function)
    }


def test_events_and_results_are_one_graph() -> None:
    stacks = Stacks()
    for _ in range(3):
        stacks.add("web1", event("sell", "main"))
    stacks.add("web2", event("buy", "main"))
    stacks.add("web2", {"comm": "shop", "probe": "p:q", "args": {"arg0": 1}})
    merge = Merge()
    key = {"comm": "shop", "ustack": event("sell", "main")["args"]["ustack"]}
    merge.add(json.dumps({"probe": "p:q", "key": key, "count": 10}), merge.source("a"))
    stacks.add_results(merge.groups())
    assert boxes(stacks) == {"all": (14,), "shop": (14,), "main": (14,), "sell": (13,), "buy": (1,)}


def test_machines_are_kept_apart() -> None:
    stacks = Stacks(by_host=True)
    stacks.add("web1", event("sell"))
    stacks.add("web2", event("sell"))
    assert {"host=web1", "host=web2"} <= boxes(stacks).keys()


def test_spans_are_as_wide_as_their_time() -> None:
    stacks = Stacks()
    stacks.add("web1", event("sell", duration=40))
    stacks.add("web1", event("sell", duration=2))
    assert boxes(stacks)["sell"] == (42, 2)


def test_without_stacks_there_is_no_graph() -> None:
    stacks = Stacks()
    stacks.add("web1", {"args": {"arg0": 1}})
    stacks.add("web1", {"args": None})
    assert stacks.tree(Texts()) is None


def test_boxes_and_texts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usdt.engine.pages.stacks._STACKS", 100)
    monkeypatch.setattr("usdt.engine.pages.stacks._BOXES", 50)
    stacks = Stacks()
    tracemalloc.start()
    for number in range(1000):
        stacks.add("web1", event(f"{number}" + "x" * 5000, "main"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16_000_000  # the text of all is 5 MB, that of 100 stacks 0.5 MB
    tree = stacks.tree(Texts())
    assert tree is not None
    assert len(tree.parent) == 50
    assert max(map(len, tree.names)) <= 200
    assert stacks.notices() == ["too many distinct stacks: 900 hits in [other stacks]"]


def test_long_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usdt.pictures.profile._MOST_TEXT", 10_000)
    stacks = Stacks()
    for number in range(100):
        stacks.add("web1", event(f"{number}" + "x" * 1000))
    (notice,) = stacks.notices()
    assert notice.endswith("hits in [other stacks]")
