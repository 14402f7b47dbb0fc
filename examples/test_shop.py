"""A program with a probe, and a test that the probe fires with the right values.

    sudo python3 -m pytest examples/test_shop.py

Requires pytest, and root or CAP_BPF and CAP_PERFMON; without these the test is skipped.
"""

# ruff: noqa: S101 - a test asserts

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import usdt
from usdt.testing import traced

if TYPE_CHECKING:
    from collections.abc import Iterator


class Shop:
    """The program under test. Its probes report what it sold, and to whom."""

    def __init__(self) -> None:
        self.provider = usdt.Provider("shop")
        self.order = self.provider.probe("order", int, str)
        self.refused = self.provider.probe("refused", str)

    def buy(self, number: int, what: str) -> bool:
        """Sell something if there is enough of it."""
        if number > 100:
            self.refused.fire(what)
            return False
        self.order.fire(number, what)
        return True


@pytest.fixture
def shop() -> Iterator[Shop]:
    """Return a shop whose probes are loaded."""
    if os.geteuid() != 0:
        pytest.skip("needs root: tracing takes privileges")
    made = Shop()
    with made.provider:
        yield made


def test_an_order_is_told(shop: Shop) -> None:
    """The probe fires once for each order, with its values."""
    with traced("shop:order", "shop:refused") as hits:
        assert shop.buy(42, "carts")
        assert shop.buy(1, "Käse")
    assert hits == [(42, "carts"), (1, "Käse")]


def test_a_refusal_is_told_as_one(shop: Shop) -> None:
    """Firing the other probe instead is seen."""
    with traced("shop:*") as hits:
        assert not shop.buy(101, "carts")
    assert [(event.probe, *event.args.values()) for event in hits.events] == [
        ("shop:refused", hits[0][0])
    ]
