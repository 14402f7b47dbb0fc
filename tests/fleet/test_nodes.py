"""Node sets, and names that must never be taken for anything else."""

from __future__ import annotations

import pytest

from usdt.base.errors import TargetError
from usdt.fleet.nodes import expanded, folded


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("web1", ["web1"]),
        ("web[1-3]", ["web1", "web2", "web3"]),
        ("web[01-03],db1", ["db1", "web01", "web02", "web03"]),
        ("web[1-5]!web[2-4]", ["web1", "web5"]),
        ("10.0.0.[1-2]", ["10.0.0.1", "10.0.0.2"]),
        ("root@web[1-2]", None),
        ("shop/pod-1", ["shop/pod-1"]),
    ],
)
def test_sets_are_expanded(text: str, names: list[str] | None) -> None:
    if names is not None:
        assert sorted(expanded(text)) == names


def test_names_are_folded() -> None:
    assert folded([f"web{n}" for n in range(1, 401)]) == "web[1-400]"


@pytest.mark.parametrize(
    "text",
    [
        "-oProxyCommand=touch",
        "web1,-oProxyCommand=touch",
        "$(touch x)",
        "`touch x`",
        "a;touch",
        "a|b",
        "a'b",
        'a"b',
        "a\nb",
        "a\x1bb",
        "@$(touch x)",
        "@a/e touch",
        "{a,b}",
        "",
        ",",
        "web[1-",
        "web[1-999999999999]",
        "web[1-9999999]",
        "a[1-1000]b[1-1000]",
        "é",
    ],
)
def test_what_could_be_more_than_a_name_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        expanded(text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("--nodes")
    assert len(str(caught.value)) < 500
