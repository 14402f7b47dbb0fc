"""Sites are told apart by the place of their instruction in its page."""

from __future__ import annotations

import pytest

from usdt.bpf.link import UprobeSite
from usdt.engine.compiler.site_numbers import SiteTable
from usdt.engine.runtime.attach.places import DispatchByPlace, apart


def sites(*offsets: int) -> list[UprobeSite]:
    """Sites at these offsets, whose cookies count from 1."""
    return [UprobeSite(offset, 0, number) for number, offset in enumerate(offsets, 1)]


def test_keys_are_places_and_variants() -> None:
    assert DispatchByPlace.of(sites(0x1234, 0xFFF, 0x70001000)).keys == (
        *((0x234, 1), (0xFFF, 2), (0, 3)),
    )


@pytest.mark.parametrize(
    ("offsets", "groups"),
    [
        pytest.param((1, 2, 3), [(1, 2, 3)], id="all different"),
        pytest.param((0x1001, 0x2001, 3), [(0x2001,), (0x1001, 3)], id="one place in two pages"),
        pytest.param((5, 5, 6, 5), [(5,), (5,), (5, 6)], id="one site, three times"),
    ],
)
def test_equal_places_are_in_different_groups(
    offsets: tuple[int, ...], groups: list[tuple[int, ...]]
) -> None:
    found = apart(sites(*offsets), lambda site: site)
    assert [tuple(site.offset for site in group) for group in found] == groups


def test_what_comes_first_is_attached_last() -> None:
    # The kernel runs the uprobes of one place in reverse order.
    found = apart(sites(5, 5, 5), lambda site: site)
    assert [site.cookie for group in found for site in group] == [3, 2, 1]


def test_rows_are_found_by_the_place() -> None:
    table = SiteTable((), 1, {0: b"one", 1: b"two"})
    moved = DispatchByPlace(((0x10, 2), (0x20, 1), (0x30, 2))).rows_of(table)
    assert moved.first == 0
    assert moved.rows == {0x10: b"two", 0x20: b"one", 0x30: b"two"}
