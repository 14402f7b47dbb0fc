"""usdt.testing: what fired inside a block, for people who ship probes."""

from __future__ import annotations

import threading

import pytest
from fixtures import build

import usdt
from usdt.testing import traced


@pytest.fixture
def shop(providers: None) -> usdt.Provider:
    provider = usdt.Provider("tested")
    provider.probe("order", int, str, float)
    provider.probe("nothing")
    return provider


def test_hits_are_what_was_fired(shop: usdt.Provider) -> None:
    order, nothing = shop.probes
    with shop:
        with traced("tested:order") as hits:
            order.fire(42, "cart", 1.5)
            nothing.fire()
            order.fire(-1, "Grüße", -0.25)
            assert not hits, "they are there when the block has ended"
        assert hits == [(42, "cart", 1.5), (-1, "Grüße", -0.25)]
        with traced("tested:*") as both:
            order.fire(1, "x", 0)
            nothing.fire()
        assert [event.probe for event in both.events] == ["tested:order", "tested:nothing"]


def test_items_choose(shop: usdt.Provider) -> None:
    order, _ = shop.probes
    with shop, traced("tested:order(arg0, arg0 > 5)") as hits:
        for number in range(10):
            order.fire(number, "x", 0)
    assert hits == [(6,), (7,), (8,), (9,)]


def test_threads_are_in_it(shop: usdt.Provider) -> None:
    order, _ = shop.probes
    with shop:
        with traced("tested:order(arg0)") as hits:
            threads = [threading.Thread(target=order.fire, args=(n, "x", 0)) for n in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sorted(hits) == [(number,) for number in range(20)]


def test_a_command_is_waited_for() -> None:
    with traced(
        "loop:hit(arg0)", command=[str(build("default", "loop")), "-q", "-n", "50"]
    ) as hits:
        pass
    assert hits == [(number,) for number in range(50)]


def test_a_probe_that_is_not_there(shop: usdt.Provider) -> None:
    with (
        shop,
        pytest.raises(usdt.ProbeNotFound, match="nearest is tested:order"),
        traced("tested:ordr"),
    ):
        pass


def test_an_error_in_the_block_is_the_blocks(shop: usdt.Provider) -> None:
    with shop, pytest.raises(KeyError), traced("tested:order"):
        raise KeyError("mine")
