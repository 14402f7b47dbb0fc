"""The running kernel's own code, read from /proc/kcore."""

from __future__ import annotations

import os
import struct

from usdt.base.closeable import FD, Closeable
from usdt.base.errors import NotSupported

__all__ = ("KcoreReader",)

_KCORE = "/proc/kcore"
_HEADER = struct.Struct("<4sBB10x16xQ14xHH6x")  # Elf64_Ehdr: magic, class, order; phoff, …
_SEGMENT = struct.Struct("<I4xQQ8xQQ8x")  # Elf64_Phdr: type, offset, vaddr, filesz, memsz
_WIDE, _LITTLE = 2, 1
_LOAD = 1  # PT_LOAD
_MAX_SEGMENTS = 1024


class KcoreReader(Closeable):
    """Reads the kernel's code by address; a context manager.

    Raises:
        NotSupported: /proc/kcore cannot be read (CONFIG_PROC_KCORE, lockdown, no privilege), or
            the kernel is not a 64-bit little-endian one.
    """

    def __init__(self) -> None:
        try:
            self._fd = FD(os.open(_KCORE, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as err:
            raise NotSupported(f"{_KCORE} ({err.strerror})", None) from err
        try:
            self._segments = self._read_segments()
        except BaseException:
            self._fd.close()
            raise

    def _read_segments(self) -> list[tuple[int, int, int]]:
        header = self._pread(_HEADER.size, 0)
        if len(header) < _HEADER.size:
            raise NotSupported(f"{_KCORE}, which is empty", None)
        magic, kind, order, start, size, number = _HEADER.unpack(header)
        if (magic, kind, order) != (b"\x7fELF", _WIDE, _LITTLE) or size != _SEGMENT.size:
            raise NotSupported(f"{_KCORE} of a 32-bit or big-endian kernel", None)
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
