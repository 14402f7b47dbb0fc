"""The debug sections of one ELF file, plain or compressed.

Plain sections are read when they are used; small ones at once. Compressed sections (SHF_COMPRESSED,
or ``.zdebug_…`` of older binutils) are decompressed as far as they are read; large ones into the
cache, where later runs find them, and so do not stay in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections import deque
from importlib import import_module
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.dwarf.units.errors import DwarfError
from usdt.dwarf.units.inflating import InflatingFile
from usdt.elf.file_bytes import FileBytes
from usdt.elf.format import SHF_COMPRESSED, SHT_NOBITS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import ModuleType

    from usdt.elf.file import ElfFile
    from usdt.elf.format import Section

    SectionBytes = memoryview | FileBytes

__all__ = ("DebugSections",)

_ZLIB, _ZSTD = 1, 2  # ELFCOMPRESS_*, elf.h
_MAX_SECTION = 8 << 30  # bytes
_MAX_IN_MEMORY = 1 << 30
_MAX_RATIO = 1100  # zlib packs at most 1032 bytes into one
_MAX_PARTS = 1 << 16
_MIN_CACHED = 1 << 20  # bytes; decompressed sections of this size and more are cached
_PIECE = 1 << 20
_PACKED = 1 << 16  # compressed bytes per step; of more, zlib copies what it has not used yet
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
        self._inflating: dict[str, InflatingFile] = {}

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
        """Decompress whole sections in parallel; errors are raised when they are used."""
        self.read_ahead(*names)
        for name in names:
            with contextlib.suppress(DwarfError):
                self.wait(name)

    def read_ahead(self, *names: str) -> None:
        """Decompress whole sections in threads, because all of them will be read."""
        for name in names:
            with contextlib.suppress(TracingError):  # raised when the section is used
                _ = self[name]
            if name in self._inflating:
                self._inflating[name].read_ahead()

    def wait(self, name: str) -> None:
        """Wait until a section is decompressed that :meth:`read_ahead` has begun.

        Raises:
            DwarfError: the decompressed data do not match the section's header.
        """
        if name in self._inflating:
            self._inflating[name].wait()

    def close(self) -> None:
        """Drop all sections; the caller closes the file."""
        self.drop_units()
        self._views.clear()
        for file in self._inflating.values():
            file.close()
        self._inflating.clear()

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
    ) -> SectionBytes:
        self._check_size(section, packed, kind, size)

        def pieces() -> Generator[bytes, None, None]:
            return self._pieces(section, packed, kind, size)

        if size < _MIN_CACHED:
            return memoryview(b"".join(pieces()))
        name = f"{self.name}: section {section.name}"
        file = InflatingFile(name, f"{self.identity} {section.name}", size, pieces)
        self._inflating[section.name] = file
        return FileBytes(file, 0, size)

    def _pieces(
        self, section: Section, packed: FileBytes, kind: int, size: int
    ) -> Generator[bytes, None, None]:
        module = _zlib_module(size)
        inflate = module.decompressobj() if kind == _ZLIB else self._zstd(section)
        total = at = 0
        pending = b""
        try:
            while total <= size and not inflate.eof:
                if not pending:
                    pending = packed[at : at + _PACKED]
                    at += len(pending)
                piece = inflate.decompress(pending, _PIECE)
                exhausted = at >= len(packed)
                pending = getattr(inflate, "unconsumed_tail", b"")
                if not piece and not pending and exhausted:
                    break
                total += len(piece)
                yield piece
        except (module.error, OSError, ValueError) as err:
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


def _zlib_module(size: int) -> ModuleType:
    # The module of the extra has the functions of zlib, and takes half of the time.
    if size >= _MIN_CACHED:
        with contextlib.suppress(ImportError):
            return import_module("isal.isal_zlib")
    return zlib


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
