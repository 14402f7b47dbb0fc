"""/proc/PID/mem: the memory of a process. What is read may be anything."""

from __future__ import annotations

import os
import sys

from usdt.base.closeable import Closeable
from usdt.base.errors import TargetError
from usdt.procfs.access import explain_errors
from usdt.procfs.process import thread_with_memory

__all__ = ("ProcessMemory", "read_memory")

_BLOCK = 1 << 14  # bytes of a read
_MAX_BLOCKS = 1 << 11  # blocks that are read of a process: 32 MiB


def read_memory(pid: int, start: int, size: int) -> bytes:
    """Return bytes of a process's memory; b"" if they cannot be read."""
    try:
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, size, start)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(descriptor)


class ProcessMemory(Closeable):
    """The memory of a process, read in blocks that are kept; a context manager.

    A process is read in small pieces, thousands of them. It reads no more than 32 MiB.

    Args:
        pid: the process.

    Raises:
        TargetError: no such process, or not permitted.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._blocks: dict[int, bytes] = {}
        with explain_errors(pid):
            thread = thread_with_memory(pid) or pid
            self._descriptor = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the file; idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def read(self, address: int, size: int) -> bytes:
        """Return bytes at an address.

        Raises:
            TargetError: they cannot be read.
        """
        found = b""
        while len(found) < size:
            number, offset = divmod(address + len(found), _BLOCK)
            piece = self._block(number)[offset : offset + size - len(found)]
            if not piece:
                raise TargetError(
                    f"process {self._pid}: {size} bytes of memory at {address:#x} cannot be read"
                )
            found += piece
        return found

    def number(self, address: int, size: int) -> int:
        """Return an unsigned integer of this machine's byte order; raises as :meth:`read`."""
        return int.from_bytes(self.read(address, size), sys.byteorder)

    def text(self, address: int, limit: int = 256) -> bytes:
        """Return a NUL-terminated string of at most ``limit`` bytes; raises as :meth:`read`."""
        number, offset = divmod(address, _BLOCK)
        block = self._block(number)
        end = block.find(b"\0", offset, offset + limit)
        if end >= 0:
            return block[offset:end]
        return self.read(address, limit).partition(b"\0")[0]

    def _block(self, number: int) -> bytes:
        found = self._blocks.get(number)
        if found is None:
            if len(self._blocks) >= _MAX_BLOCKS:
                raise TargetError(f"process {self._pid}: more memory than expected was needed")
            found = self._blocks[number] = self._read_block(number * _BLOCK)
        return found

    def _read_block(self, start: int) -> bytes:
        try:
            return os.pread(self._descriptor, _BLOCK, start)
        except (OSError, OverflowError):
            return b""
