"""The index of one file: functions by address, types and variables by name; cached.

The cached index has numbers (sorted addresses, and the positions of their entries) and a text of
lines ``KIND NAME TAB POSITION``, which is searched as bytes. A position is a packed
:class:`DiePosition`. The cache is not trusted: the code that follows a position checks the entry
there.
"""

from __future__ import annotations

import bisect
import os
import struct
import sys
from array import array
from typing import TYPE_CHECKING

from usdt.base.terminal import progress
from usdt.base.text import encoded
from usdt.dwarf.index.files import DiePosition
from usdt.dwarf.units import cache
from usdt.dwarf.units.constants import TypeKind, VariableKind
from usdt.dwarf.units.errors import DAMAGE, DwarfError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.dwarf.index.files import DebugFiles
    from usdt.dwarf.index.indexer import UnitIndexer
    from usdt.dwarf.units.units import DebugFile

__all__ = ("DebugIndex",)

_HEAD = struct.Struct("<QQQ")  # units, functions, bytes of the text
_DAMAGE = "!"  # start of the line with the reason why units are missing
_SPLIT = "="  # start of the line of a file of split debug information: its stamp and path
_MAX_INDEXED = 2 << 30  # bytes of a section
_MAX_HITS = 64
_KINDS = {kind.value: kind for kind in TypeKind}


class DebugIndex:
    """Functions by address, and types and global variables by name.

    Args:
        data: as :func:`build` returns it.
        units: the number of units.

    Attributes:
        damage: why some units are missing, or "".

    Raises:
        ValueError: the data are not the index of a file with that many units.
    """

    def __init__(self, data: memoryview, units: int) -> None:
        if len(data) < _HEAD.size:
            raise ValueError("too short")
        found, functions, text = _HEAD.unpack_from(data)
        if found != units or _HEAD.size + 16 * functions + text != len(data):
            raise ValueError("of another file")
        start = _HEAD.size
        self._addresses = _numbers(data[start : start + 8 * functions])
        start += 8 * functions
        self._positions = _numbers(data[start : start + 8 * functions])
        self._text = bytes(data[start + 8 * functions :])
        self.damage = next(self._header_lines(_DAMAGE), "")

    def _header_lines(self, sign: str) -> Iterator[str]:
        # The lines that begin with a sign precede all others.
        for line in self._text.removeprefix(b"\n").splitlines():
            text = line.decode("utf-8", "surrogateescape")
            if not text.startswith((_DAMAGE, _SPLIT)):
                return
            if text.startswith(sign):
                yield text.removeprefix(sign)

    @property
    def is_current(self) -> bool:
        """True if the files of split debug information have not changed since it was built."""
        return all(line == _stamp(line.rpartition("\t")[2]) for line in self._header_lines(_SPLIT))

    @classmethod
    def of(cls, files: DebugFiles) -> DebugIndex:
        """Return the index of a file, cached or newly built.

        Raises:
            DwarfError: the debug information is damaged.
        """
        made = cls.cached(files)
        if made is not None:
            return made
        data = build(files)
        # The index is incomplete while a file of split debug information is missing.
        if files.missing is None:
            cache.store(_key(files), "index", lambda: iter((data,)))
        return cls(memoryview(data), len(files.numbers))

    @classmethod
    def cached(cls, files: DebugFiles) -> DebugIndex | None:
        """Return the cached index of a file; None if there is none, or it is outdated."""
        data = cache.load(_key(files), "index")
        try:
            made = None if data is None else cls(data, len(files.numbers))
        except ValueError:
            return None
        return made if made is not None and made.is_current else None

    def function(self, address: int) -> list[DiePosition]:
        """Return the positions of the functions that begin at an address."""
        low = bisect.bisect_left(self._addresses, address)
        high = bisect.bisect_right(self._addresses, address)
        return [
            DiePosition.unpack(position)
            for position in self._positions[low : min(high, low + _MAX_HITS)]
        ]

    def functions(self) -> Iterator[tuple[int, DiePosition]]:
        """Yield address and position of every function, sorted by address."""
        for address, position in zip(self._addresses, self._positions, strict=True):
            yield address, DiePosition.unpack(position)

    def type(self, kind: TypeKind, name: str) -> DiePosition | None:
        """Return the position of the type of a kind and a qualified name; None if there is none."""
        line = encoded(f"\n{kind.value}{name}\t")
        at = self._text.find(line)
        if at < 0 or "\n" in name or "\t" in name:
            return None
        at += len(line)
        return DiePosition.unpack(int(self._text[at : self._text.find(b"\n", at)], 16))

    def types(self, start: str = "") -> Iterator[tuple[TypeKind, str, DiePosition]]:
        """Yield kind, name and position of every type with a component that starts so."""
        for line in self._text.split(b"\n"):
            kind = _KINDS.get(line[:1].decode("ascii", "replace"))
            if kind is not None:
                head, _, position = line.decode("utf-8", "surrogateescape").rpartition("\t")
                if head.startswith(start, 1) or f"::{start}" in head:
                    yield kind, head[1:], DiePosition.unpack(int(position, 16))

    def variables(self, kind: VariableKind, name: str) -> list[DiePosition]:
        """Return the positions of the variables of a kind with a qualified name."""
        line = encoded(f"\n{kind.value}{name}\t")
        found: list[DiePosition] = []
        at = self._text.find(line)
        while at >= 0 and len(found) < _MAX_HITS and "\n" not in name and "\t" not in name:
            start = at + len(line)
            end = self._text.find(b"\n", start)
            found.append(DiePosition.unpack(int(self._text[start:end], 16)))
            at = self._text.find(line, start)
        return found

    def instances(self) -> list[DiePosition]:
        """Return the positions of the variables whose names other entries have."""
        line = f"\n{VariableKind.INSTANCE.value}\t".encode()
        pieces = self._text.split(line)[1:]
        return [DiePosition.unpack(int(piece.partition(b"\n")[0], 16)) for piece in pieces]

    def variable_names(self) -> Iterator[str]:
        """Yield the qualified name of every variable with an address."""
        mark = VariableKind.LOCATED.value.encode()
        for line in self._text.split(b"\n"):
            if line.startswith(mark):
                yield line[1:].partition(b"\t")[0].decode("utf-8", "surrogateescape")


def _key(files: DebugFiles) -> str:
    identities = " ".join(part.sections.elf.path for part in files.parts[1:])
    return f"{files.main.sections.identity} {identities}"


def _stamp(path: str) -> str:
    try:
        status = os.stat(path)  # noqa: PTH116 - text
    except (OSError, ValueError):
        return ""
    return f"{status.st_mtime_ns} {status.st_size} {status.st_ino}\t{path}"


def _numbers(data: memoryview) -> array[int]:
    found = array("Q", bytes(data))
    if sys.byteorder == "big":
        found.byteswap()
    return found


def build(files: DebugFiles) -> bytes:
    """Read every unit and return the index.

    Raises:
        DwarfError: the units are implausibly large, or cannot be decompressed.
    """
    functions: list[tuple[int, int]] = []
    lines: list[str] = []
    damage: list[str] = []
    first = 0
    files.main.sections.read_ahead(".debug_info", ".debug_str", ".debug_abbrev")
    for part in files.parts:
        if len(part.sections[".debug_info"]) > _MAX_INDEXED:
            raise DwarfError(f"{files.name}: .debug_info has more than {_MAX_INDEXED} bytes")
        indexer = _index_part(files, part, first, damage)
        functions += indexer.functions
        lines += [f"{name}\t{position:x}" for name, position in indexer.names]
        first += len(part.headers)
        part.sections.drop_units()
    progress.erase()
    functions.sort()
    lines[:0] = [f"{_SPLIT}{_stamp(path)}" for path in files.split_paths if "\n" not in path]
    if damage:
        lines.insert(0, f"{_DAMAGE}{' '.join(damage[0].split())}")
    text = "\n".join(["", *lines, ""]).encode("utf-8", "surrogateescape")
    numbers = array("Q", [one[0] for one in functions] + [one[1] for one in functions])
    if sys.byteorder == "big":
        numbers.byteswap()
    return _HEAD.pack(len(files.numbers), len(functions), len(text)) + numbers.tobytes() + text


def _index_part(
    files: DebugFiles,
    part: DebugFile,
    first: int,
    damage: list[str],
) -> UnitIndexer:
    # Damaged units are left out and reported.
    from usdt.dwarf.index.abbrev_skim import AbbrevSection  # noqa: PLC0415 - only to build
    from usdt.dwarf.index.indexer import UnitIndexer  # noqa: PLC0415

    indexer = UnitIndexer(AbbrevSection(part.abbreviation_bytes, files.name))
    split_sections: dict[int, AbbrevSection] = {}
    what, size = f"reading debug information of {files.name}", len(part.sections[".debug_info"])
    for index, header in enumerate(part.each_header()):
        number = first + index
        progress.report(what, header.at, size)
        try:
            unit = part.unit(header)
            splits = part is files.main and indexer.is_split(unit)
            full = files.full_unit(unit) if splits else unit
            if full is not unit:  # in another file
                key = id(full.file.sections.elf)  # which stays open
                seen = key in split_sections
                if not seen:
                    data, name = full.file.abbreviation_bytes, full.file.sections.name
                    split_sections[key] = AbbrevSection(data, name)
                indexer.use_abbreviations(split_sections[key])
                for position, one in () if seen else files.split_types(full, number):
                    indexer.add_unit(one, position)
            indexer.add_unit(full, DiePosition(number, 0))
        except DAMAGE as err:
            reason = str(err) if isinstance(err, DwarfError) else f"{type(err).__name__}: {err}"
            damage.append(f"damaged debug information: the unit at {header.at:#x}: {reason}")
        indexer.use_abbreviations(None)
        if index % 64 == 63:
            part.sections.drop_units()
    part.sections.wait(".debug_info")  # so its end is no damage either
    if part.damage:
        damage.append(f"damaged debug information: {part.damage}")
    return indexer
