"""Strings and bytes of CPython's memory."""

from __future__ import annotations

import struct

import pytest

from usdt.cpython.code_objects import text_of
from usdt.cpython.layouts import layout_of

_LAYOUT = layout_of(0x030C00F0, b"")
_KIND, _COMPACT, _ASCII = 1, 8, 16


@pytest.mark.parametrize("interned", [0, 1, 2, 3])
@pytest.mark.parametrize("bits", [2, 8, 16])
def test_the_state_of_a_string_tells_its_kind_wherever_it_stands(bits: int, interned: int) -> None:
    state = (_KIND | _COMPACT | _ASCII) << bits | interned
    head = struct.pack("<16xqqI4x", 3, -1, state)
    assert text_of(head + b"abc", _LAYOUT) == "abc"


@pytest.mark.parametrize("state", [0, 3, 0xFF, 0xFFFF, 0xFFFFFFFF, 5 << 2 | 0x60, 1 << 2 | 0x40])
def test_a_state_that_no_string_has_is_no_text(state: int) -> None:
    assert text_of(struct.pack("<16xqqI4x", 3, -1, state) + b"abc" * 9, _LAYOUT) is None
