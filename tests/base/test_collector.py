"""A rest from the collector of garbage."""

from __future__ import annotations

import gc

import pytest

from usdt.base.collector import without_collector


def test_the_collector_rests_and_works_again() -> None:
    with without_collector():
        assert not gc.isenabled()
        with without_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_works_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="damaged"), without_collector():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(gc.enable)
    gc.disable()
    with without_collector():
        pass
    assert not gc.isenabled()
