"""Which unit has which function and type: made once for each file, and kept.

Kept are numbers (addresses in order, and where their entries are) and one text of lines
``KIND NAME TAB PLACE``, which is searched as it is. What it says is checked at the place it names.
"""

from __future__ import annotations

import bisect
import os
import struct
import sys
from array import array
from typing import TYPE_CHECKING

from usdt.dwarf.index.abbrev_skim import Shapes
from usdt.dwarf.index.indexer import Scanner
from usdt.dwarf.units import cache
from usdt.dwarf.units.errors import DAMAGE, DwarfError
from usdt.dwarf.units.sections import Unkept, let_go

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.dwarf.index.files import DebugFiles
    from usdt.dwarf.units.sections import Arriving
    from usdt.dwarf.units.units import DebugFile

__all__ = ("Index",)

_HEAD = struct.Struct("<QQQ")  # units, functions, bytes of the text
_DAMAGE = "!"  # begins the line that says what could not be read
_SPLIT = "="  # begins a line that says which file was read with it, and of what time and length
_UNIT_SHIFT = 32  # a place: the number of the unit above, the position in it below
_MOST_SCANNED = 2 << 30  # bytes
_MOST_HITS = 64


class Index:
    """Functions by address and types by name.

    Args:
        data: as :meth:`build` writes it.
        units: how many there are.

    Attributes:
        damage: why some units are not in it, or "".

    Raises:
        ValueError: it is not that.
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
        self._places = _numbers(data[start : start + 8 * functions])
        self._text = bytes(data[start + 8 * functions :])
        self.damage = next(self._told(_DAMAGE), "")

    def _told(self, sign: str) -> Iterator[str]:
        # The lines of a kind: they are the first.
        for line in self._text.removeprefix(b"\n").splitlines():
            told = line.decode("utf-8", "surrogateescape")
            if not told.startswith((_DAMAGE, _SPLIT)):
                return
            if told.startswith(sign):
                yield told.removeprefix(sign)

    @property
    def is_current(self) -> bool:
        """Whether the files of split debug information are those that it was made of."""
        return all(told == _stamp(told.rpartition("\t")[2]) for told in self._told(_SPLIT))

    @classmethod
    def of(cls, files: DebugFiles) -> Index:
        """The one that is kept, or a new one.

        Raises:
            DwarfError: the debug information is damaged.
        """
        identities = " ".join(part.sections.elf.path for part in files.parts[1:])
        key = f"{files.main.sections.identity} {identities}"
        kept = cache.load(key, "index")
        if kept is not None:
            files.main.sections.prepare(".debug_info", ".debug_str", ".debug_abbrev")
            try:
                made = cls(kept, len(files.numbers))
            except ValueError:
                made = None
            if made is not None and made.is_current:  # else of another time: made anew
                return made
        data = build(files)
        # Incomplete while the split half of a unit is not here.
        if files.missing is None:
            cache.store(key, "index", lambda: iter((data,)))
        return cls(memoryview(data), len(files.numbers))

    def function(self, address: int) -> list[tuple[int, int]]:
        """Unit and position of the functions that begin at an address."""
        low = bisect.bisect_left(self._addresses, address)
        high = bisect.bisect_right(self._addresses, address)
        return [_split(place) for place in self._places[low : min(high, low + _MOST_HITS)]]

    def functions(self) -> Iterator[tuple[int, int, int]]:
        """Address, unit and position of every function, by address."""
        for address, place in zip(self._addresses, self._places, strict=True):
            yield address, *_split(place)

    def type(self, kind: str, name: str) -> tuple[int, int] | None:
        """Unit and position of the type of a kind and a qualified name."""
        line = f"\n{kind}{name}\t".encode("utf-8", "surrogateescape")
        at = self._text.find(line)
        if at < 0 or "\n" in name or "\t" in name:
            return None
        at += len(line)
        return _split(int(self._text[at : self._text.find(b"\n", at)], 16))

    def types(self, start: str = "") -> Iterator[tuple[str, str, tuple[int, int]]]:
        """Kind, name, and unit and position of every type whose last name begins so."""
        for line in self._text.split(b"\n"):
            if line and not line.startswith((_DAMAGE.encode(), _SPLIT.encode())):
                head, _, place = line.decode("utf-8", "surrogateescape").rpartition("\t")
                if head.startswith(start, 1) or f"::{start}" in head:
                    yield head[0], head[1:], _split(int(place, 16))


def _split(place: int) -> tuple[int, int]:
    return place >> _UNIT_SHIFT, place & (1 << _UNIT_SHIFT) - 1


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
    """Look through every unit.

    Raises:
        DwarfError: all together are absurdly long, or do not decompress.
    """
    sections = files.main.sections
    arriving = sections.arriving(".debug_info")
    try:
        return _built(files, arriving)
    except Unkept:
        if arriving is not None:
            arriving.stop()
        sections.forget(".debug_info")
        files.forget_units()
        return _built(files, None)
    finally:
        if arriving is not None:
            arriving.stop()


def _built(files: DebugFiles, arriving: Arriving | None) -> bytes:
    functions: list[tuple[int, int]] = []
    lines: list[str] = []
    damage: list[str] = []
    first = 0
    names = (".debug_str", ".debug_abbrev")
    files.main.sections.prepare(*names, *(() if arriving else (".debug_info",)))
    for part in files.parts:
        if len(part.sections[".debug_info"]) > _MOST_SCANNED:
            raise DwarfError(f"{files.name}: .debug_info has more than {_MOST_SCANNED} bytes")
        scanner = _scanned(files, part, first, damage, arriving if part is files.main else None)
        functions += [(at, unit << _UNIT_SHIFT | place) for at, place, unit in scanner.functions]
        lines += [f"{name}\t{unit << _UNIT_SHIFT | place:x}" for name, place, unit in scanner.types]
        first += len(part.headers)
        _let_go(part)
    functions.sort()
    lines[:0] = [f"{_SPLIT}{_stamp(path)}" for path in files.split_paths if "\n" not in path]
    if damage:
        lines.insert(0, f"{_DAMAGE}{' '.join(damage[0].split())}")
    text = "\n".join(["", *lines, ""]).encode("utf-8", "surrogateescape")
    numbers = array("Q", [one[0] for one in functions] + [one[1] for one in functions])
    if sys.byteorder == "big":
        numbers.byteswap()
    return _HEAD.pack(len(files.numbers), len(functions), len(text)) + numbers.tobytes() + text


def _scanned(
    files: DebugFiles, part: DebugFile, first: int, damage: list[str], arriving: Arriving | None
) -> Scanner:
    # Units that are damaged are left out, and said to be.
    scanner = Scanner(Shapes(part.sections[".debug_abbrev"], files.name))
    shapes: dict[int, Shapes] = {}
    headers = part.headers if arriving is None else part.arriving_headers(arriving.wait)
    for index, header in enumerate(headers):
        try:
            unit = part.unit(header)
            splits = part is files.main and scanner.is_split(unit)
            whole = files.whole(unit) if splits else unit
            if whole is not unit:  # in a file of its own
                sections = whole.file.sections
                key = id(sections.elf)  # which stays open
                seen = key in shapes
                if not seen:
                    shapes[key] = Shapes(sections[".debug_abbrev"], sections.name)
                scanner.use(shapes[key])
                for begin, one in () if seen else files.split_types(whole):
                    scanner.scan(one, first + index, begin)
            scanner.scan(whole, first + index)
        except DAMAGE as err:
            told = str(err) if isinstance(err, DwarfError) else f"{type(err).__name__}: {err}"
            damage.append(f"damaged debug information: the unit at {header.at:#x}: {told}")
        scanner.use(None)
        if index % 64 == 63:
            _let_go(part)
    if arriving is not None:
        arriving.finish()  # nothing may come after it
    if part.damage:
        damage.append(f"damaged debug information: {part.damage}")
    return scanner


def _let_go(part: DebugFile) -> None:
    for name in (".debug_info", ".debug_str", ".debug_abbrev"):
        let_go(part.sections[name])
