"""Unwind tables of files in compact form, from the cache or made anew.

A table is cached by build ID and a digest of the sections that it is made of: a file
that somebody has given the build ID of another one does not get, or make, the other one's table.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

from usdt.arch.unwind_rows import ROW, CompactTable
from usdt.arch.unwinding import CPUS
from usdt.base.errors import ElfError
from usdt.base.machine import KERNEL_MACHINE
from usdt.dwarf.units import cache
from usdt.dwarf.units.errors import MalformedDwarf
from usdt.unwind.compact import compact_table
from usdt.unwind.frame_table import FrameTable

if TYPE_CHECKING:
    from usdt.elf.file import ElfFile

__all__ = ("table_of",)

_KIND = "unwind"
_VERSION = 2  # of what is made of a section; it changes with the rows
_BASE = struct.Struct("<Q")
_SECTIONS = (".eh_frame", ".eh_frame_hdr", ".debug_frame")


def table_of(elf: ElfFile) -> CompactTable | None:
    """Return the rows of a file; None if it has none, or not for programs of this kernel's CPU."""
    if KERNEL_MACHINE not in CPUS or elf.bits != 64:
        return None
    try:
        key = None if elf.build_id is None else _key(elf, elf.build_id)
        found = None if key is None else _load(key)
        if found is None:
            found = _make(elf)
            if key is not None and found is not None:
                made = found
                cache.store(key, _KIND, lambda: iter((_BASE.pack(made.base), made.rows)))
    except (ElfError, MalformedDwarf):
        return None
    return found


def _make(elf: ElfFile) -> CompactTable | None:
    table = FrameTable(elf)
    return compact_table(table, CPUS[KERNEL_MACHINE]) if table else None


def _load(key: str) -> CompactTable | None:
    data = cache.load(key, _KIND)
    if data is None or len(data) < _BASE.size or (len(data) - _BASE.size) % ROW.size:
        return None
    (base,) = _BASE.unpack_from(data)
    return CompactTable(base, bytes(data[_BASE.size :]), cached=True)


def _key(elf: ElfFile, build_id: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in _SECTIONS:
        section = elf.section(name)
        if section is not None and section.size:
            data = elf.contents(section) if name == _SECTIONS[1] else elf.data(section)[:]
            digest.update(f"{name} {section.address} {len(data)} ".encode())
            digest.update(data)
    return f"{_VERSION} {KERNEL_MACHINE} {build_id} {digest.hexdigest()}"
