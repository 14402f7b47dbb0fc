"""The instruction after a function's entry, on x86-64, where a kprobe still sees the arguments.

Functions begin with a call to ftrace, or a nop in its place, perhaps after a landing pad. The
instruction after it runs once in a call, unless the function begins with a loop that jumps back to
it. So the code is searched for such jumps; bytes that only look like one reject an instruction
that would have been suitable.
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
_SHORT_RANGE = 130  # bytes from an instruction to the end of the last short jump to it
_JMP, _JCC = 0xE9, re.compile(rb"\x0f[\x80-\x8f]")


def offset_after_entry(code: bytes) -> int:
    """Return the offset of that instruction in the function; 0: none is suitable.

    Args:
        code: of the function, up to ``MAX_CODE`` bytes; code after the function does no harm.
    """
    entry = _ENTRY.match(code)
    if entry is None or len(code) <= entry.end() or _is_jump_target(code[entry.end() :]):
        return 0
    return entry.end()


def _is_jump_target(code: bytes) -> bool:
    # Whether a jump leads to the beginning of the code.
    for match in _NEAR.finditer(code, 0, _SHORT_RANGE):
        if match.start() + 2 + match[1][0] == 1 << 8:
            return True
    at = code.find(b"\xff\xff", 3)  # the upper half of a negative 32-bit offset
    while at >= 0:
        end = at + 2
        back = int.from_bytes(code[at - 2 : end], "little") + end == 1 << 32
        if back and (code[at - 3] == _JMP or _JCC.fullmatch(code, max(at - 4, 0), at - 2)):
            return True
        at = code.find(b"\xff\xff", at + 1)
    return False
