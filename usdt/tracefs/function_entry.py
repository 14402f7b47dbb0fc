"""The instruction after a function's entry, on x86-64, where a kprobe still sees the arguments.

Functions begin with a call to ftrace, or a nop in its place, perhaps after a landing pad. The
instruction after it runs once in a call, unless the function begins with a loop that jumps back to
it. So the code is searched for such jumps; bytes that only look like one reject an instruction
that would have been suitable.

The code is that of the running kernel, read from /proc/kcore.
"""

from __future__ import annotations

import os
import re
import struct
from itertools import pairwise
from typing import TYPE_CHECKING

from usdt.base.closeable import FD, Closeable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("entry_offsets", "offset_after_entry")

_MAX_CODE = 0xFF00  # bytes of a function in which jumps back to its beginning are searched for
_ENTRY = re.compile(
    rb"(?:\xf3\x0f\x1e\xfa|\x66\x0f\x1f\x00|\x0f\x1f\x40\xd6)?"  # endbr64, and what seals it
    rb"(?:\x0f\x1f\x44\x00\x00|\xe8....)",  # nop, or call
    re.DOTALL,
)
_NEAR = re.compile(rb"(?=[\x70-\x7f\xe0-\xe3\xeb]([\x80-\xfe]))", re.DOTALL)  # jcc, loop, jmp: 8
_SHORT_RANGE = 130  # bytes from an instruction to the end of the last short jump to it
_JMP, _JCC = 0xE9, re.compile(rb"\x0f[\x80-\x8f]")

_KCORE = "/proc/kcore"
_HEADER = struct.Struct("<4sBB10x16xQ14xHH6x")  # Elf64_Ehdr: magic, class, order; phoff, …
_SEGMENT = struct.Struct("<I4xQQ8xQQ8x")  # Elf64_Phdr: type, offset, vaddr, filesz, memsz
_WIDE, _LITTLE = 2, 1
_LOAD = 1  # PT_LOAD
_MAX_SEGMENTS = 1024


def entry_offsets(addresses: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the address of each function and the offset of that instruction; 0: none is known."""
    ordered = sorted(set(addresses))
    ends = dict(pairwise(ordered))
    try:
        code = _KcoreReader()
    except OSError:  # CONFIG_PROC_KCORE, lockdown, no privilege
        yield from ((address, 0) for address in addresses)
        return
    with code:
        for address in addresses:
            size = min(ends.get(address, address + _MAX_CODE) - address, _MAX_CODE)
            yield address, offset_after_entry(code.read(address, size))


def offset_after_entry(code: bytes) -> int:
    """Return the offset of that instruction in the function; 0: none is suitable.

    Args:
        code: of the function, with what follows it; code after the function does no harm.
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


class _KcoreReader(Closeable):
    # Reads the kernel's code by address, if the kernel is a 64-bit little-endian one.

    def __init__(self) -> None:
        self._fd = FD(os.open(_KCORE, os.O_RDONLY | os.O_CLOEXEC))
        self._segments = self._read_segments()

    def _read_segments(self) -> list[tuple[int, int, int]]:
        header = self._pread(_HEADER.size, 0)
        if len(header) < _HEADER.size:
            return []
        magic, kind, order, start, size, number = _HEADER.unpack(header)
        if (magic, kind, order, size) != (b"\x7fELF", _WIDE, _LITTLE, _SEGMENT.size):
            return []
        data = self._pread(size * min(number, _MAX_SEGMENTS), start)
        found = (_SEGMENT.unpack_from(data, at) for at in range(0, len(data) - size + 1, size))
        return [
            (address, offset, length) for kind, offset, address, length, _ in found if kind == _LOAD
        ]

    def read(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer at the end of a segment, b"" outside all segments."""
        for start, offset, length in self._segments:
            if start <= address < start + length:
                return self._pread(min(size, start + length - address), offset + address - start)
        return b""

    def _pread(self, size: int, offset: int) -> bytes:
        parts = []
        while size > 0:
            try:
                part = os.pread(self._fd.fileno(), size, offset)
            except OSError:  # not mapped
                break
            if not part:
                break
            parts.append(part)
            size -= len(part)
            offset += len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        self._fd.close()
