"""The interface of top, driven by Textual's pilot; readings are made by hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from usdt.engine.top.commands import TopOptions
from usdt.engine.top.live import LiveProbes
from usdt.engine.top.table import Reading, Sort, Table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from usdt.engine.top.screen.app import TopApp


_OPTIONS = TopOptions("usdt", ("p:*",), (7,), interval=3600.0)


class ByHand(LiveProbes):
    """Two readings, a second apart, of what is given; nothing is attached."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.table, self.notes, self.kind = Table(), [], "usdt"
        self._counted, self._times = counts, {}
        self.table.add(Reading(0.0, dict.fromkeys(counts, 0), {}))

    def reading(self) -> Reading:
        return Reading(1.0, self._counted, {})

    def pairs(self) -> dict[str, str]:
        return {}

    @property
    def nanoseconds(self) -> dict[str, int]:
        return {}

    @property
    def ended(self) -> bool:
        return False


def _driven(
    live: LiveProbes,
    steps: Callable[[TopApp, Any], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
) -> TopApp:
    pytest.importorskip("textual", reason="needs Textual: pip install 'usdt-toolkit[tui]'")
    from usdt.engine.top.screen.app import TopApp

    app = TopApp(live, _OPTIONS)

    async def drive() -> None:
        async with app.run_test(size=size) as pilot:
            while app.query_one("ProbeList").chosen is None:
                await pilot.pause(0.01)
            await steps(app, pilot)

    asyncio.run(drive())
    return app


def _shown(app: TopApp) -> str:
    width, _ = app.size
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text[:width] for strip in strips)


_COUNTS = {"p:a": 5, "p:b": 100, "p:c": 20, "q:silent": 0}


def test_it_shows_every_probe_the_busiest_first_and_chooses_with_arrows() -> None:
    async def steps(app: TopApp, pilot: Any) -> None:
        lines = _shown(app).splitlines()
        assert "3 probes hit, 1 silent" in lines[0]
        assert [line.split()[0] for line in lines[2:6]] == ["p:b", "p:c", "p:a", "q:silent"]
        chosen = app.query_one("ProbeList")
        await pilot.press("down", "down")
        assert chosen.chosen == "p:a"
        await pilot.press("s", "s", "s")  # by name: the probe stays chosen
        assert app._live.table.sort is Sort.NAME
        assert chosen.chosen == "p:a"
        await pilot.press("end")
        assert chosen.chosen == "q:silent"
        await pilot.press("home")
        assert chosen.chosen == "p:a"

    _driven(ByHand(_COUNTS), steps)


def test_a_filter_shows_names_and_escape_shows_all() -> None:
    async def steps(app: TopApp, pilot: Any) -> None:
        await pilot.press("slash", "q", "colon", "enter")
        await pilot.pause()
        assert "q:silent" in _shown(app)
        assert "p:a" not in _shown(app)
        await pilot.press("s")  # a key again, not text
        assert app._live.table.sort is Sort.TOTAL
        await pilot.press("escape")
        await pilot.pause()
        assert "p:a" in _shown(app)

    _driven(ByHand(_COUNTS), steps)


def test_a_command_line_is_shown_and_kept() -> None:
    async def steps(app: TopApp, pilot: Any) -> None:
        await pilot.press("s", "e")
        await pilot.pause()
        assert "usdt top -p 7 'p:*' --interval 3600 --sort total" in _shown(app)
        await pilot.press("x")
        await pilot.pause()
        assert "any key goes back" not in _shown(app)

    app = _driven(ByHand(_COUNTS), steps)
    assert app.commands == ["usdt top -p 7 'p:*' --interval 3600 --sort total"]


@pytest.mark.parametrize("size", [(20, 5), (80, 24), (200, 60)], ids=str)
def test_every_size_has_the_table(size: tuple[int, int]) -> None:
    async def steps(app: TopApp, pilot: Any) -> None:
        assert "p:b" in _shown(app)
        await pilot.resize_terminal(60, 12)
        await pilot.pause()
        assert "p:b" in _shown(app)

    _driven(ByHand(_COUNTS), steps, size)


def test_a_hostile_name_is_shown_as_it_is() -> None:
    name = "p:[red]\x1b[2J[/]\u202e世界\x00"

    async def steps(app: TopApp, pilot: Any) -> None:
        shown = _shown(app)
        assert r"p:[red]\x1b[2J[/]\u202e世界\x00" in shown
        await pilot.press("e")

    app = _driven(ByHand({name: 3, "p:x": 1}), steps, (120, 24))
    assert app.failure is None
