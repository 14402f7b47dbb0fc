"""Abbreviation tables, of which a piece at a time is read."""

from __future__ import annotations

import pytest

from usdt.dwarf.units import forms
from usdt.dwarf.units.constants import At, Form, Tag
from usdt.dwarf.units.errors import MalformedDwarf
from usdt.dwarf.units.forms import AbbreviationTable, UnitEncoding

_ENCODING = UnitEncoding("little", 8, 4, 5)
_COUNT = 1000


def _code(number: int) -> bytes:
    return bytes((number,)) if number < 128 else bytes((number & 127 | 128, number >> 7))


def _section() -> bytes:
    # Another table of three bytes, then one whose abbreviations have as many names as their code's
    # last digit tells.
    rows = b"".join(
        _code(number)
        + bytes((Tag.MEMBER, number % 2))
        + bytes((At.NAME, Form.STRP)) * (number % 10)
        + b"\0\0"
        for number in range(1, _COUNT + 1)
    )
    return b"\1\2\3" + rows + b"\0" + b"\xff" * 100


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_pieces_make_a_whole(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "_PIECE", 64)
    monkeypatch.setattr(forms, "_LONGEST", 48)
    table = AbbreviationTable(kind(_section()), 3, _ENCODING)
    for code in (700, 3, _COUNT, 128, 1):
        found = table[code]
        assert (found.tag, found.children, len(found.attributes)) == (
            Tag.MEMBER,
            bool(code % 2),
            code % 10,
        )
    with pytest.raises(MalformedDwarf, match="no abbreviation 1001"):
        _ = table[_COUNT + 1]


def test_only_what_is_asked_for_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "_PIECE", 64)
    monkeypatch.setattr(forms, "_LONGEST", 48)
    table = AbbreviationTable(memoryview(_section()), 3, _ENCODING)
    assert table[2].tag == Tag.MEMBER
    assert len(table._data) < 200
