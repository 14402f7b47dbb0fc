"""The debug sections of one ELF file, plain or compressed.

Plain sections are read when they are used; small ones at once. Compressed sections (SHF_COMPRESSED,
or ``.zdebug_…`` of older binutils) are decompressed in pieces. Large ones are stored in the cache,
where later runs find them, and so do not stay in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
import threading
import zlib
from collections import deque
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.dwarf.units import cache
from usdt.dwarf.units.errors import DwarfError
from usdt.elf.format import SHF_COMPRESSED, SHT_NOBITS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from usdt.elf.file import ElfFile
    from usdt.elf.file_bytes import FileBytes
    from usdt.elf.format import Section

    SectionBytes = memoryview | FileBytes

__all__ = ("DebugSections", "DecompressionStream", "NotCached", "drop_pages")

_ZLIB, _ZSTD = 1, 2  # ELFCOMPRESS_*, elf.h
_MAX_SECTION = 8 << 30  # bytes
_MAX_IN_MEMORY = 1 << 30
_MAX_RATIO = 1100  # zlib packs at most 1032 bytes into one
_MAX_PARTS = 1 << 16
_MIN_CACHED = 1 << 20  # bytes; decompressed sections of this size and more are cached
_PIECE = 1 << 20
_LARGE_PIECE = 8 << 20  # for a thread, which waits for the interpreter lock after each piece
_MIN_STREAMED = 16 << 20  # bytes; sections of this size and more are read during decompression
_MIN_LARGE = 1 << 20  # bytes; plain sections of this size and more are not read at once
_MAX_UNITS = 64 << 20  # bytes of units that are kept
_EMPTY = memoryview(b"")


class DebugSections:
    """Debug sections of a file by name, such as ``".debug_info"``; a missing one is empty.

    Args:
        elf: the file; must stay open as long as the sections are used.

    Attributes:
        elf: the file.
        name: its name in messages.
        mark: its byte order in the syntax of ``struct``, "<" or ">".
        split: True for a file of split debug information (``.dwo``, ``.dwp``), where ".dwo" at the
            end of section names is optional.
    """

    def __init__(self, elf: ElfFile) -> None:
        self.elf = elf
        self.name = elf.path
        self.mark = "<" if elf.byteorder == "little" else ">"
        self.split = elf.section(".debug_info.dwo") is not None
        self._views: dict[str, SectionBytes] = {}
        self._identity: str | None = None
        self._units: deque[Callable[[], int]] = deque()
        self._unit_bytes = 0

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def __getitem__(self, name: str) -> SectionBytes:
        """Return the bytes of a section, decompressed.

        Raises:
            DwarfError: the decompressed data do not match the section's header.
            ElfError: the section is outside the file.
        """
        view = self._views.get(name)
        if view is None:
            section = self._find(name)
            view = _EMPTY if section is None else self._read(section)
            if section is not None and self.split:
                view = self._all_of(section, view)
            self._views[name] = view
        return view

    def limit_unit_bytes(self, size: int, drop: Callable[[], int]) -> None:
        """Note that a unit has read its bytes; units that read theirs long ago must drop them.

        Args:
            size: number of the bytes.
            drop: drops them, and returns their number.
        """
        self._units.append(drop)
        self._unit_bytes += size
        while self._unit_bytes > _MAX_UNITS and len(self._units) > 1:
            self._unit_bytes -= self._units.popleft()()

    def drop_units(self) -> None:
        """Let every unit drop its bytes; they are read again on use."""
        while self._units:
            self._units.pop()()
        self._unit_bytes = 0

    def _all_of(self, first: Section, view: SectionBytes) -> SectionBytes:
        # gcc gives each type unit of a .dwo file its own section, all with the same name.
        others = [one for one in self.elf.sections if one.name == first.name and one != first]
        if not others:
            return view
        size = sum(one.size for one in others)
        if len(others) > _MAX_PARTS or size > _MAX_IN_MEMORY:
            raise self._damaged(first, f"{len(others)} others of the same name, {size} bytes")
        return memoryview(b"".join((view[:], *(self._read(one)[:] for one in others))))

    def prepare(self, *names: str) -> None:
        """Decompress some sections in parallel; errors are raised when the sections are used."""
        packed = [name for name in names if name not in self._views and self._is_packed(name)]
        if len(packed) < 2:
            return
        _ = self.identity  # compute it once: all threads use it
        threads = [threading.Thread(target=self._read_quietly, args=(name,)) for name in packed]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def stream(self, name: str) -> DecompressionStream | None:
        """Start to decompress a large section in a thread; None if this is not needed.

        From then on, the section's bytes are those of the stream: the caller must wait for a part
        before reading it.
        """
        section = None if name in self._views else self._find(name)
        if section is None or not section.flags & SHF_COMPRESSED:
            return None
        try:
            packed, kind, size = self._compressed(section)
            self._check_size(section, packed, kind, size)
            pieces = self._pieces(section, packed, kind, size, _LARGE_PIECE)
        except TracingError:
            return None  # the error is raised when the section is used
        key = f"{self.identity} {section.name}"
        if size < _MIN_STREAMED or cache.load(key, "section") is not None:
            return None
        made = DecompressionStream(key, pieces, size)
        view = made.start()
        if view is None:
            return None
        self._views[name] = view
        return made

    def forget(self, name: str) -> None:
        """Drop a section; its next use reads it again."""
        self._views.pop(name, None)

    def _is_packed(self, name: str) -> bool:
        section = self._find(name)
        return section is not None and bool(section.flags & SHF_COMPRESSED)

    def _read_quietly(self, name: str) -> None:
        with contextlib.suppress(TracingError):
            self[name]

    def close(self) -> None:
        """Drop all sections; the caller closes the file."""
        self.drop_units()
        self._views.clear()

    def _find(self, name: str) -> Section | None:
        tail = name.removeprefix(".")
        endings = (".dwo", "") if self.split else ("",)
        for wanted in [f".{tail}{ending}" for ending in endings] + [f".z{tail}"]:
            section = self.elf.section(wanted)
            if section is not None and section.type != SHT_NOBITS and section.size:
                return section
        return None

    @property
    def identity(self) -> str:
        """A string that identifies this file's debug information, for keys of the cache.

        It consists of the build ID and a digest of the debug sections' headers, starts and ends;
        without a build ID also of path, time of change and length.
        """
        if self._identity is None:
            digest = hashlib.sha256()
            for section in self.elf.sections:
                if section.name.startswith((".debug_", ".zdebug_")) and section.type != SHT_NOBITS:
                    data = self.elf.data(section)
                    digest.update(f"{section.name} {section.flags} {section.size}".encode())
                    digest.update(data[:4096])
                    digest.update(data[-4096:])
            self._identity = f"{self.elf.build_id or self._path_and_time()} {digest.hexdigest()}"
        return self._identity

    def _path_and_time(self) -> str:
        try:
            changed = os.stat(self.elf.path).st_mtime_ns  # noqa: PTH116 - text
        except (OSError, ValueError):
            changed = 0
        return f"{self.elf.path} {changed} {self.elf.size}"

    def _read(self, section: Section) -> SectionBytes:
        if section.flags & SHF_COMPRESSED:
            return self._decompressed(section, *self._compressed(section))
        raw = self.elf.data(section)
        if section.name.startswith(".z"):
            if len(raw) < 12 or raw[:4] != b"ZLIB":
                raise self._damaged(section, "does not begin with ZLIB and a size")
            size = int.from_bytes(raw[4:12], "big")
            return self._decompressed(section, raw.after(12), _ZLIB, size)
        return raw if len(raw) >= _MIN_LARGE else memoryview(raw[:])

    def _compressed(self, section: Section) -> tuple[FileBytes, int, int]:
        # The compressed bytes, the method, and the decompressed size.
        raw = self.elf.data(section)
        layout = struct.Struct(self.mark + ("I4xQQ" if self.elf.bits == 64 else "III"))
        if len(raw) < layout.size:
            raise self._damaged(section, f"{len(raw)} bytes, {layout.size} of header expected")
        kind, size, _ = layout.unpack(raw[: layout.size])
        return raw.after(layout.size), kind, size

    def _check_size(self, section: Section, packed: FileBytes, kind: int, size: int) -> None:
        if kind not in (_ZLIB, _ZSTD):
            raise self._damaged(section, f"compression method {kind}, not 1 (zlib) or 2 (zstd)")
        if size > _MAX_SECTION or (kind == _ZLIB and size > _MAX_RATIO * len(packed) + 64):
            raise self._damaged(section, f"{len(packed)} bytes cannot decompress to {size}")

    def _decompressed(
        self, section: Section, packed: FileBytes, kind: int, size: int
    ) -> memoryview:
        self._check_size(section, packed, kind, size)

        def parts() -> Iterator[bytes]:
            return self._pieces(section, packed, kind, size)

        if size >= _MIN_CACHED:
            key = f"{self.identity} {section.name}"
            kept = cache.load(key, "section")
            if kept is None or len(kept) != size:
                kept = cache.store(key, "section", parts)
            if kept is not None:
                return kept
        if size > _MAX_IN_MEMORY:
            raise self._damaged(section, f"{size} bytes decompressed need a cache directory")
        return memoryview(b"".join(parts()))

    def _pieces(
        self,
        section: Section,
        packed: FileBytes,
        kind: int,
        size: int,
        most: int = _PIECE,
    ) -> Generator[bytes, None, None]:
        inflate = zlib.decompressobj() if kind == _ZLIB else self._zstd(section)
        total = at = 0
        pending = b""
        try:
            while total <= size and not inflate.eof:
                if not pending:
                    pending = packed[at : at + _PIECE]
                    at += len(pending)
                piece = inflate.decompress(pending, most)
                exhausted = at >= len(packed)
                pending = getattr(inflate, "unconsumed_tail", b"")
                if not piece and not pending and exhausted:
                    break
                total += len(piece)
                yield piece
        except (zlib.error, OSError, ValueError) as err:
            raise self._damaged(section, f"cannot be decompressed: {err}") from err
        if total != size:
            raise self._damaged(section, f"decompresses to {total} bytes, its header says {size}")

    def _zstd(self, section: Section) -> _Inflate:
        try:
            from compression.zstd import (  # type: ignore[import-not-found]  # noqa: PLC0415
                ZstdDecompressor,
            )
        except ImportError as err:
            raise DwarfError(
                f"{self.name}: section {section.name} is compressed with zstd, which Python reads"
                " from 3.14 on; make a copy with: objcopy --decompress-debug-sections"
            ) from err
        return _Zstd(ZstdDecompressor())

    def _damaged(self, section: Section, reason: str) -> DwarfError:
        return DwarfError(f"{self.name}: section {section.name}: {reason}")


class DecompressionStream:
    """A section that a thread decompresses into the cache.

    Args:
        key: key of the section in the cache.
        pieces: yields the decompressed bytes.
        size: decompressed size of the section in bytes.
    """

    def __init__(self, key: str, pieces: Generator[bytes, None, None], size: int) -> None:
        self._key = key
        self._pieces = pieces
        self._size = size
        self._changed = threading.Condition()
        self._view: memoryview | None = None
        self._ready = 0
        self._ended = self._stopped = False
        self._error = ""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> memoryview | None:
        """Start the thread; return the memory that it fills, or None if there is no cache."""
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._view is not None or self._ended)
        return self._view

    def wait(self, end: int) -> None:
        """Wait until the bytes up to a position are decompressed.

        Raises:
            DwarfError: the decompressed data do not match the section's header.
            NotCached: the bytes could not be written.
        """
        if end <= self._ready:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._ready >= end or self._ended)
        if self._ready < end:
            raise (
                DwarfError(self._error) if self._error else NotCached("cannot write to the cache")
            )

    def finish(self) -> None:
        """Wait until the thread has ended; errors are those of :meth:`wait`."""
        self.wait(self._size)
        self._thread.join()
        if self._error:
            raise DwarfError(self._error)

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._thread.join()
        self._pieces.close()
        self._view = None

    def _run(self) -> None:
        try:
            cache.store(
                self._key, "section", self._counted, size=self._size, on_start=self._started
            )
        except TracingError as err:
            self._error = str(err)  # the traceback refers to the mapped bytes
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _started(self, view: memoryview) -> None:
        with self._changed:
            self._view = view
            self._changed.notify_all()

    def _counted(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if self._stopped:
                raise NotCached("no longer wanted")
            yield piece
            with self._changed:  # the piece is written when the next one is requested
                self._ready += len(piece)
                self._changed.notify_all()


class NotCached(TracingError):  # noqa: N818 - what it is
    """A decompressed section cannot be written to the cache."""


class _Inflate:
    # The methods of zlib.decompressobj() that are used here.
    eof: bool
    unconsumed_tail: bytes

    def decompress(self, data: bytes | memoryview, most: int) -> bytes:
        raise NotImplementedError


class _Zstd(_Inflate):
    def __init__(self, inner: _Inflate) -> None:
        self._inner = inner
        self.eof = False
        self.unconsumed_tail = b""

    def decompress(self, data: bytes | memoryview, most: int) -> bytes:
        # The decompressor keeps its input; calls without input return more output.
        made = self._inner.decompress(data, most)
        parts = [made]
        while len(made) == most and not self._inner.eof:
            made = self._inner.decompress(b"", most)
            parts.append(made)
        self.eof = self._inner.eof
        return b"".join(parts)


def drop_pages(data: SectionBytes) -> None:
    """Drop the pages of a file of the cache from memory; the kernel reads them again on access."""
    if isinstance(data, memoryview) and isinstance(data.obj, mmap.mmap):
        data.obj.madvise(mmap.MADV_DONTNEED)
