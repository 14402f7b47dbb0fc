"""usdt.probes.matching: which probes a pattern means."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from usdt.engine.language import parse_probe
from usdt.probes.matching import fits

NAMES = ("hit", "hits", "Hit", "hi", "h.t", "h+t", "[hit]", "a__b", "a-b", "a_b")
PATTERNS = ("hit", "h.t", "h+t", "h*", "h?t", "[h]it", "*", "[!h]*", "Hit", "a__b")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_names_are_compared_as_fnmatch_does(pattern: str) -> None:
    request = parse_probe(f"loop:{pattern}")
    for name in NAMES:
        assert fits(request, "loop", name) == fnmatchcase(name, pattern)
        assert not fits(request, "loops", name)


def test_a_dash_is_two_underscores() -> None:
    request = parse_probe("loop:a-b")
    assert [name for name in NAMES if fits(request, "loop", name)] == ["a__b", "a-b"]
