"""Compressed sections, decompressed only as far as they are read.

zlib and zstd have no random access: a position is reached through all bytes before it. What was
decompressed is in a file of the cache instead of memory, even if it is only the beginning of the
section, and later runs read it there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.dwarf.units import cache
from usdt.dwarf.units.errors import DwarfError
from usdt.elf.file_bytes import OpenFile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ("InflatingFile",)

_MAX_IN_MEMORY = 1 << 30  # bytes
_MOVED = 1 << 20  # bytes that are copied at once
_AHEAD = 4 << 20  # bytes that the thread decompresses before others get their turn


class InflatingFile(OpenFile):
    """The bytes of a compressed section, with the methods of an open file.

    Args:
        name: the name of section and file in messages.
        key: the section's key in the cache.
        size: its decompressed size in bytes.
        pieces: starts to decompress: yields pieces of the section, in order.
    """

    def __init__(
        self, name: str, key: str, size: int, pieces: Callable[[], Generator[bytes, None, None]]
    ) -> None:
        super().__init__(-1, name)
        self._key = key
        self._size = size
        self._start = pieces
        self._pieces: Generator[bytes, None, None] | None = None
        self._lock = threading.Lock()
        self._moving = threading.Lock()  # held while the draft is read or replaced
        self._kept = cache.open_section(key, size)  # what an earlier run has decompressed
        self._drafts = cache.drafts()
        self._draft: cache.Draft | None = None
        self._memory: bytearray | None = None  # in place of the draft, where that is impossible
        self._ready = 0  # bytes
        self._error = ""
        self._thread: threading.Thread | None = None
        self._stopped = False

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes, which are decompressed first if need be.

        Raises:
            DwarfError: the decompressed data do not match the section's header.
            ElfError: the file of the cache cannot be read.
        """
        end = offset + size
        kept = self._kept
        if kept is not None and end <= kept.size:
            return kept.file.read(kept.start + offset, size)
        if end > self._ready:
            self._inflate(end)
        with self._moving:
            if self._memory is not None:
                return bytes(self._memory[offset:end])
            if self._draft is None:
                raise DwarfError(f"{self.name}: is closed")
            return self._draft.file.read(self._draft.start + offset, size)

    def read_ahead(self) -> None:
        """Decompress the rest in a thread; who reads waits for what it needs. Idempotent."""
        whole = self._kept is not None and self._kept.size == self._size
        if self._thread is None and not whole:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait for :meth:`read_ahead`.

        Raises:
            DwarfError: the decompressed data do not match the section's header.
        """
        if self._thread is not None:
            self._thread.join()
        if self._error:
            raise DwarfError(self._error)

    def close(self) -> None:
        """Leave to later runs what was decompressed, and close the files; idempotent."""
        self._stopped = True
        thread = getattr(self, "_thread", None)
        if thread is not None:
            thread.join()
        draft, self._draft = getattr(self, "_draft", None), None
        kept, self._kept = getattr(self, "_kept", None), None
        if draft is not None:
            if not self._error and self._ready > (kept.size if kept else 0):
                draft.keep(self._key, min(self._ready, self._size))
            draft.file.close()
        if kept is not None:
            kept.file.close()
        self._memory = None

    __del__ = close

    def _run(self) -> None:
        for end in range(_AHEAD, self._size + _AHEAD, _AHEAD):
            if self._stopped:
                return
            try:
                self._inflate(min(end, self._size))
            except TracingError:
                return  # the next to read raises it again

    def _inflate(self, end: int) -> None:
        with self._lock:
            while self._ready < end or (self._ready >= self._size and not self._error):
                if self._error:
                    raise DwarfError(self._error)
                if self._pieces is None:
                    self._pieces = self._start()
                    self._use_next_draft()
                self._error = f"{self.name}: decompressing it was interrupted"  # by ^C, if it stays
                try:
                    piece = next(self._pieces, b"")
                except TracingError as err:
                    self._error = str(err)
                    raise
                if piece or self._ready < self._size:
                    self._write(piece)
                    self._ready += len(piece)
                self._error = ""
                if not piece and self._ready >= self._size:
                    return  # nothing follows, as it should be

    def _write(self, piece: bytes) -> None:
        if self._draft is not None:
            try:
                self._draft.write(piece)
            except OSError:  # the disk is full
                self._use_next_draft()
                self._write(piece)
                return
        if self._memory is not None:
            if self._ready + len(piece) > _MAX_IN_MEMORY:
                self._error = f"{self.name}: {self._size} bytes decompressed need a cache directory"
                raise DwarfError(self._error)
            self._memory += piece

    def _use_next_draft(self) -> None:
        # Moves what is ready to the next draft that has room for it, else to memory.
        full = self._draft
        draft, memory = self._copied(full), None
        if draft is None:
            memory = bytearray(_part(full, 0, self._ready))
        with self._moving:
            self._draft, self._memory = draft, memory
            if full is not None:
                full.file.close()

    def _copied(self, full: cache.Draft | None) -> cache.Draft | None:
        for draft in self._drafts:
            try:
                for at in range(0, self._ready, _MOVED):
                    draft.write(_part(full, at, min(_MOVED, self._ready - at)))
            except OSError:
                draft.file.close()
                continue
            return draft
        return None


def _part(draft: cache.Draft | None, at: int, size: int) -> bytes:
    return b"" if draft is None else draft.file.read(draft.start + at, size)
