"""Names of cgroups in recordings."""

from __future__ import annotations

from typing import Any

import pytest

from usdt.cgroups.known import RestoredCgroups
from usdt.cgroups.labels import CgroupName
from usdt.engine.output.cgroup_names import json_text, plain_text, quoted_text

_NAMES = ["web", "prod/shop", "", '/a"\x1b[31m']


def test_names_are_shown_safely() -> None:
    names = RestoredCgroups()
    names.restore({"77": _NAMES})
    shows = (plain_text, quoted_text, json_text)
    assert [tuple(show(names, kind, 77) for show in shows) for kind in CgroupName] == [
        ("web", '"web"', '"web"'),
        ("prod/shop", '"prod/shop"', '"prod/shop"'),
        ("-", "-", "null"),
        ('/a"\\x1b[31m', '"/a\\"\\x1b[31m"', '"/a\\"\\u001b[31m"'),
    ]


def test_an_unknown_cgroup_is_marked() -> None:
    names = RestoredCgroups()
    assert plain_text(names, CgroupName.UNIT, 5) == "?(cgroup 5 is not known)"
    assert quoted_text(names, CgroupName.UNIT, 5) == "?(cgroup 5 is not known)"
    assert json_text(names, CgroupName.UNIT, 5) == '{"error": "cgroup 5 is not known"}'


@pytest.mark.parametrize(
    "data",
    [
        pytest.param([], id="no object"),
        pytest.param({"x": _NAMES}, id="an ID that is no number"),
        pytest.param({"5": ["a"]}, id="too few names"),
        pytest.param({"5": ["a", "b", "c", 5]}, id="a name that is no text"),
        pytest.param({"5": ["a", "b", "c", "x" * 9000]}, id="a name that is too long"),
    ],
)
def test_damaged_names_are_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        RestoredCgroups().restore(data)
