"""The list of functions that refuse kprobes."""

from __future__ import annotations

from kprobe.functions.blacklist import Blacklist


def test_the_blacklist_has_ranges_within_ranges() -> None:
    text = "0x0000000000001000-0x0000000000002000\touter\n"
    text += "0x0000000000001010-0x0000000000001020\tinner\nnonsense\n"
    text += "0x0000000000003000-0x0000000000003001\tlast\n"
    found = Blacklist(text)
    assert len(found) == 3
    assert found.names("inner")
    assert not found.names("inne")
    inside = [address for address in (0xFFF, 0x1000, 0x1030, 0x1FFF, 0x3000) if found.has(address)]
    assert inside == [0x1000, 0x1030, 0x1FFF, 0x3000]
    assert not found.has(0x2000)
    assert not found.has(0x3001)


def test_a_blacklist_without_addresses_knows_names() -> None:
    found = Blacklist("0x0000000000000000-0x0000000000000000\thidden\n")
    assert found.names("hidden")
    assert not found.has(0)
