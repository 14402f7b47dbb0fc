"""Where behind a function's entry, on x86-64, a kprobe sees what was there when it was entered.

Functions begin with a call of ftrace, or a nop in its place, perhaps behind a landing pad. The
instruction behind it is met once in a call, unless the function begins with a loop that leads back
to it. Jumps tell; other bytes may look like one: then a place is given up that would have done.
"""

from __future__ import annotations

import re

__all__ = ("MAX_CODE", "offset_after_entry")

#: Bytes of a function in which jumps back to its beginning are looked for.
MAX_CODE = 0xFF00
_ENTRY = re.compile(
    rb"(?:\xf3\x0f\x1e\xfa|\x66\x0f\x1f\x00|\x0f\x1f\x40\xd6)?"  # endbr64, and what seals it
    rb"(?:\x0f\x1f\x44\x00\x00|\xe8....)",  # nop, or call
    re.DOTALL,
)
_NEAR = re.compile(rb"(?=[\x70-\x7f\xe0-\xe3\xeb]([\x80-\xfe]))", re.DOTALL)  # jcc, loop, jmp: 8
_REACH = 130  # bytes from a place to the end of the last near jump that reaches it
_JMP, _JCC = 0xE9, re.compile(rb"\x0f[\x80-\x8f]")


def offset_after_entry(code: bytes) -> int:
    """Bytes from a function's entry to that instruction; 0: there is no such place.

    Args:
        code: of the function, as much as there is up to ``MAX_CODE``; what follows does no harm.
    """
    entry = _ENTRY.match(code)
    if entry is None or len(code) <= entry.end() or _is_met_again(code[entry.end() :]):
        return 0
    return entry.end()


def _is_met_again(code: bytes) -> bool:
    # Whether some jump leads to where the code begins.
    for match in _NEAR.finditer(code, 0, _REACH):
        if match.start() + 2 + match[1][0] == 1 << 8:
            return True
    at = code.find(b"\xff\xff", 3)  # the upper half of how far back, in 32 bits
    while at >= 0:
        end = at + 2
        back = int.from_bytes(code[at - 2 : end], "little") + end == 1 << 32
        if back and (code[at - 3] == _JMP or _JCC.fullmatch(code, max(at - 4, 0), at - 2)):
            return True
        at = code.find(b"\xff\xff", at + 1)
    return False
