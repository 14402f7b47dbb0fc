"""What a probe in detail shows: arguments learnt from hits, aggregates as lines, its page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from usdt.base.errors import TracingError
from usdt.engine.aggregate.values import Value
from usdt.engine.api.aggregates import Histogram
from usdt.engine.top.blocks import histogram_lines, stack_lines, value_lines
from usdt.engine.top.detail import Shown, View
from usdt.engine.top.pairs import stacks_of
from usdt.engine.top.sampling import Argument, Sampler
from usdt.engine.top.table import Reading, Table

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Hit:
    def __init__(self, args: dict[str, Any]) -> None:
        self.args = args


class _Hits:
    # A session whose hits are made by hand: for each attachment the answers to poll().
    def __init__(self, answers: list[list[list[dict[str, Any]]]]) -> None:
        self.answers, self.texts, self.closed = answers, [], 0

    def attach(self, text: str) -> Any:
        self.texts.append(text)
        polls = self.answers.pop(0)
        hits = type("Events", (), {})()
        hits.poll = lambda _seconds: [_Hit(args) for args in (polls.pop(0) if polls else [])]
        return hits

    def close(self) -> None:
        self.closed += 1


def _learnt(answers: list[list[list[dict[str, Any]]]]) -> tuple[Sequence[Argument], list[str]]:
    hits = _Hits(answers)
    sampler = Sampler(lambda: hits, lambda items: f"p:n({items})" if items else "p:n")
    while (found := sampler.look()) is None:
        pass
    sampler.close()
    return found, hits.texts


_ADDRESS = 0x7F0000001000


def test_arguments_are_known_after_a_hit() -> None:
    found, texts = _learnt([[[], [{"fd": 3, "name": "x"}]]])
    assert found == (Argument("fd", "fd", is_number=True), Argument("name", "name"))
    assert texts == ["p:n"]


@pytest.mark.parametrize(
    ("texts", "key"),
    [
        pytest.param(["GET /", "POST /"], "str(arg1)", id="text"),
        pytest.param(["", ""], "hex(arg1)", id="nothing there"),
        pytest.param(["\x01\x7f", "a"], "str(arg1)", id="half of it is text"),
        pytest.param([None, "\x02", "a"], "hex(arg1)", id="mostly no text"),
    ],
)
def test_an_address_of_text_is_a_string(texts: list[Any], key: str) -> None:
    hits = [{"str(arg1)": text} for text in texts]
    found, asked = _learnt([[[{"arg0": 7, "arg1": _ADDRESS}]], [hits]])
    assert found == (Argument("arg0", "arg0", is_number=True), Argument("arg1", key))
    assert asked == ["p:n", "p:n(str(arg1))"]


def test_the_most_frequent_values_come_first_and_are_safe() -> None:
    counts = {"a\x1b[2J": 3, 7: 6, True: 1} | {f"v{n}": 1 for n in range(9)}
    lines = value_lines(counts)
    assert lines[0].split() == ["6", "31.6%", "7"]
    assert r'"a\x1b[2J"' in lines[1]
    assert lines[-1].strip() == "and 2 more values"


def test_stacks_have_their_frames_below_them() -> None:
    assert stack_lines({("inner", "outer"): 3, (): 1}) == [
        "         3  75.0%",
        "          inner",
        "          outer",
        "         1  25.0%",
        "          (no frames)",
    ]


def test_histograms_fit_80_columns() -> None:
    found = {"p:n": Histogram({(524288, 1048576): 9, (1048576, 2097152): 1}, Value(10))}
    lines = histogram_lines(found, times=True)
    assert lines[0].startswith("[524us, 1.04ms)")
    assert max(map(len, lines)) < 80
    assert lines[-1] == "10 hits"
    assert histogram_lines(found)[0].startswith("[512K, 1M)")


def test_a_probe_has_the_stacks_of_its_side() -> None:
    assert stacks_of("tracepoint:sched:sched_switch") == stacks_of("vfs_read") == ("kstack",)
    assert stacks_of("syscall:read") == stacks_of("uprobe:libc:malloc") == ("ustack",)
    assert stacks_of("python:line") == ("pystack", "ustack")


# ---------------------------------------------------------------- the page


class _Views:
    # Views that are opened, read and closed; the stacks are refused.
    probe = "p:[b]\x1b"
    views = (View.VALUES, View.STACKS)

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self, view: View) -> None:
        self.calls.append(f"open {view.value}")
        if view is View.STACKS:
            raise TracingError("no stacks\x1b[2J here")

    def read(self) -> Shown:
        return Shown(("[red]value[/]",), {self.probe: 2400}, 5)

    def close(self) -> None:
        self.calls.append("close")


def test_a_page_attaches_a_view_while_it_is_shown() -> None:
    pytest.importorskip("textual", reason="needs Textual: pip install 'usdt-toolkit[tui]'")
    from textual.app import App

    from usdt.engine.top.screen.detail_page import DetailPage

    views, table, app = _Views(), Table(), App()
    table.add(Reading(0.0, {views.probe: 0}, {}))
    table.add(Reading(1.0, {views.probe: 50}, {}))

    async def seen(pilot: Any, text: str) -> str:
        while True:
            strips = app.screen._compositor.render_strips()
            shown = "\n".join(strip.text for strip in strips)
            if text in shown:
                return shown
            await pilot.pause(0.01)

    async def drive() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            app.push_screen(DetailPage(views, table, 0.05))
            shown = await seen(pilot, "[red]value[/]")
            assert r"p:[b]\x1b  50 hits/s" in shown
            assert "(50 hits/s x 2400 ns), 5 lost" in shown
            await pilot.press("right")
            await seen(pilot, r"no stacks\x1b[2J here")
            await pilot.press("right")
            await seen(pilot, "[red]value[/]")
            await pilot.press("q")
            while views.calls[-1] != "close":
                await pilot.pause(0.01)

    asyncio.run(drive())
    assert views.calls == ["open values", "open stacks", "open values", "close"]
