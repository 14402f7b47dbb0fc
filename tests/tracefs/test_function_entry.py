"""Where behind a function's entry a kprobe is met once, by the function's code."""

from __future__ import annotations

import struct

import pytest

from usdt.tracefs.function_entry import offset_after_entry

_NOP = bytes.fromhex("0f1f440000")
_CALL = bytes.fromhex("e801020304")
_ENDBR = bytes.fromhex("f30f1efa")
_RET = b"\xc3"


def _padded(size: int, jump: str, by: int, form: str) -> bytes:
    # A jump behind so many bytes, by so much from its end.
    return _NOP + b"\x90" * size + bytes.fromhex(jump) + struct.pack(form, by) + _RET


@pytest.mark.parametrize(
    ("code", "offset"),
    [
        (_NOP + _RET, 5),
        (_CALL + _RET, 5),
        (_ENDBR + _NOP + _RET, 9),
        (_ENDBR + _CALL + _RET, 9),
        (bytes.fromhex("660f1f00") + _NOP + _RET, 9),
        (bytes.fromhex("0f1f40d6") + _NOP + _RET, 9),
        (b"\x55" + _NOP + _RET, 0),
        (_ENDBR + _RET, 0),
        (_NOP, 0),
        (_NOP[:3], 0),
        (b"", 0),
    ],
    ids=[
        *("a nop", "a call", "a landing pad", "a landing pad and a call", "a sealed one"),
        *("another that is sealed", "something before the nop", "no nop", "nothing behind it"),
        *("half a nop", "no code"),
    ],
)
def test_the_place_is_behind_what_ftrace_needs(code: bytes, offset: int) -> None:
    assert offset_after_entry(code) == offset


@pytest.mark.parametrize(
    ("size", "jump", "form"),
    [
        *((0, "eb", "<b"), (10, "75", "<b"), (126, "e2", "<b")),
        *((0, "e9", "<i"), (300, "e9", "<i"), (0, "0f84", "<i"), (60000, "0f8f", "<i")),
    ],
)
def test_a_loop_back_to_the_place_rules_it_out(size: int, jump: str, form: str) -> None:
    back = -(size + len(bytes.fromhex(jump)) + struct.calcsize(form))
    assert offset_after_entry(_padded(size, jump, back, form)) == 0
    assert offset_after_entry(_padded(size, jump, back + 1, form)) == 5
    if back > -128 or form == "<i":
        assert offset_after_entry(_padded(size, jump, back - 1, form)) == 5
