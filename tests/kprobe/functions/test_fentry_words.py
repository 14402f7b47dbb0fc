"""The context of fentry has the words of each argument in order (btf_ctx_access())."""

from __future__ import annotations

import pytest

from kprobe.functions.arguments import CallContextAbi
from usdt.arch.locations import ContextArea, TypedContextWord
from usdt.btf.format import Encoding, Kind
from usdt.btf.reader import Btf
from usdt.btf.writer import BtfWriter

_MADE = BtfWriter()
_INT = _MADE.integer("int", 4, Encoding.SIGNED)
_LONG = _MADE.integer("long", 8, Encoding.SIGNED)
_CHAR = _MADE.integer("char", 1, Encoding.SIGNED)
_PAIR = _MADE.composite(Kind.STRUCT, "pair", 16, [("a", _LONG, 0, 0), ("b", _LONG, 64, 0)])
_SMALL = _MADE.composite(
    Kind.STRUCT, "small", 3, [("a", _CHAR, 0, 0), ("b", _CHAR, 8, 0), ("c", _CHAR, 16, 0)]
)
_BTF = Btf(_MADE.data())


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_words_of_fentry_follow_one_another(machine: str) -> None:
    context = CallContextAbi(traced=True, machine=machine)
    places, _ = context.locations(_BTF, [_INT, _PAIR, _SMALL, _LONG], 0)
    assert places == [
        TypedContextWord(0, 4),
        ContextArea(8, 16),
        ContextArea(24, 3),
        TypedContextWord(32, 8),
    ]
