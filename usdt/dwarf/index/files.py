"""The files that contain the debug information of one ELF file, and the units of all of them.

These are: the file itself or its separate debug file; dwz's shared file; ``.dwo`` files or a
``.dwp`` package with split units. Every unit, including those in ``.debug_types`` of DWARF 4, has
a number, which the index uses.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, NamedTuple, Self

from usdt.base.errors import ElfError
from usdt.dwarf.units.answers import Answers
from usdt.dwarf.units.constants import Form, UnitType
from usdt.dwarf.units.dies import Die
from usdt.dwarf.units.errors import DAMAGE, DwarfError
from usdt.dwarf.units.sections import DebugSections
from usdt.dwarf.units.split_dwarf import SplitUnits, alternative_paths, find_alternative
from usdt.dwarf.units.type_units import SplitSection, TypesFile, signature_of
from usdt.dwarf.units.units import DebugFile, Unit
from usdt.elf import debug_files
from usdt.elf.debug_files import DEBUG_ROOT
from usdt.elf.format import ET_REL

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from usdt.dwarf.units.forms import FormValue
    from usdt.elf.file import ElfFile

__all__ = ("DebugFiles", "DiePosition")

# A packed position: unit number << 32 | section << 30 | offset.
_UNIT_SHIFT, _SECTION_SHIFT = 32, 30
_PART = "part of the debug information"
_SECTIONS = {section.value: section for section in SplitSection}


class DiePosition(NamedTuple):
    """The position of an entry in the debug information of a program.

    Attributes:
        unit: number of the unit in :class:`DebugFiles`.
        offset: offset in the unit, or in ``section``.
        section: for an entry of a type unit, its section in the file of the split unit; else None.
    """

    unit: int
    offset: int
    section: SplitSection | None = None

    @property
    def packed(self) -> int:
        """The position as the cached index stores it."""
        return self.unit << _UNIT_SHIFT | (self.section or 0) << _SECTION_SHIFT | self.offset

    @classmethod
    def unpack(cls, packed: int) -> Self:
        """Unpack a position."""
        offset = packed & (1 << _SECTION_SHIFT) - 1
        section = _SECTIONS.get(packed >> _SECTION_SHIFT & 3)
        return cls(packed >> _UNIT_SHIFT, offset, section)


class DebugFiles:
    """The files with the debug information of a program.

    Attributes:
        main: the file with ``.debug_info``.
        name: its name in messages.
        bias: difference between addresses in ``main`` and those in the program.
        answers: what earlier runs were told.
    """

    def __init__(self, elf: ElfFile, program: ElfFile, roots: Sequence[str]) -> None:
        self.elf = elf
        self.name = elf.path
        self.bias = elf.first_address - program.first_address
        self._roots = tuple(roots)
        self._own = elf is not program
        self.main = DebugFile(DebugSections(elf))
        self._split = SplitUnits(program.path, self._opened)
        self.main.alternative = find_alternative(elf, self._opened, DEBUG_ROOT)
        self.answers = Answers(lambda: self.main.sections.identity)

    @classmethod
    def find(
        cls, elf: ElfFile, *, roots: Sequence[str] = ("",), debug_root: str = DEBUG_ROOT
    ) -> DebugFiles | None:
        """Return the debug information of a file; None if there is none.

        Raises:
            ElfError: the file is damaged.
        """
        if elf.type == ET_REL:  # addresses are not relocated yet
            return None
        if ".debug_info" in DebugSections(elf):
            return cls(elf, elf, roots)
        for found in debug_files.find(elf, roots=roots, debug_root=debug_root):
            with contextlib.suppress(ElfError):
                if ".debug_info" in DebugSections(found):
                    return cls(found, elf, roots)
            found.close()
        return None

    def close(self) -> None:
        """Close every file that was opened here, and leave answers to later runs."""
        self.answers.close()
        for part in self.__dict__.get("parts", ()):
            part.close()
        for name in ("parts", "numbers", "_signatures"):
            self.__dict__.pop(name, None)
        self._split.close()
        alternative = self.main.alternative
        if alternative is not None:
            alternative.close()
            alternative.sections.elf.close()
            self.main.alternative = None
        self.main.close()
        if self._own:
            self.elf.close()

    def _opened(self, paths: list[str]) -> Iterator[ElfFile]:
        return debug_files.open_existing(root + path for root in self._roots for path in paths)

    @functools.cached_property
    def parts(self) -> list[DebugFile]:
        """The main file, dwz's shared file, and the units in ``.debug_types``."""
        found = [self.main]
        if self.main.alternative is not None:
            found.append(self.main.alternative)
        if ".debug_types" in self.main.sections:
            found.append(TypesFile(self.main))
        return found

    @functools.cached_property
    def numbers(self) -> list[tuple[DebugFile, int]]:
        """The file of each unit and its index in that file, by the unit's number."""
        return [(part, index) for part in self.parts for index in range(len(part.headers))]

    def unit(self, number: int) -> Unit:
        """Return a unit by its number; for a skeleton, its split unit.

        Raises:
            DwarfError: there is no such unit, or it is damaged.
        """
        header = self.main.header(number) if number >= 0 else None
        if header is not None:  # without reading the headers after it
            return self.full_unit(self.main.unit(header))
        if not 0 <= number < len(self.numbers):
            raise DwarfError(f"{self.name}: no unit {number} of {len(self.numbers)}")
        part, index = self.numbers[number]
        return part.unit(part.headers[index])

    def full_unit(self, unit: Unit) -> Unit:
        """Return the split unit of a skeleton; any other unit itself."""
        return self._split.full_unit(unit)

    def split_types(self, unit: Unit, number: int) -> Iterator[tuple[DiePosition, Unit]]:
        """Yield the type units in the file of the split unit with a number, and their positions."""
        for section, offset, one in self._split.types(unit).units():
            yield DiePosition(number, offset, section), one

    def locate(self, die_position: DiePosition) -> tuple[Unit, int]:
        """Return the unit of an entry, and the position in it.

        Raises:
            DwarfError: there is no such unit.
        """
        unit = self.unit(die_position.unit)
        if die_position.section is not None:
            return self._split.types(unit).containing(die_position.section, die_position.offset)
        return unit, die_position.offset

    # ------------------------------------------------------------ answers of earlier runs

    def keep(self, key: str, positions: Iterable[DiePosition]) -> None:
        """Keep for later runs where entries are, unless another file has one of them."""
        texts = []
        for one in positions:
            header = self.main.header(one.unit)
            if header is None or one.section is not None:
                return
            if self.full_unit(self.main.unit(header)).file is not self.main:
                return
            texts.append(f"{one.packed:x}@{header.at:x}")
        self.answers.put(key, *texts)

    def kept(self, key: str, tags: Container[int]) -> list[tuple[DiePosition, Die]] | None:
        """Return the entries that an earlier run has kept; None if it has kept no answer.

        Args:
            key: as for :meth:`keep`.
            tags: an answer that leads to an entry with another tag is none.
        """
        row = self.answers.get(key)
        if row is None:
            return None
        try:
            found = [self._entry_of(text) for text in row]
        except (*DAMAGE, ValueError):
            return None
        return found if all(die.tag in tags for _, die in found) else None

    def _entry_of(self, text: str) -> tuple[DiePosition, Die]:
        packed, _, start = text.partition("@")
        position = DiePosition.unpack(int(packed, 16))
        self.main.note_header(position.unit, int(start, 16))
        return position, Die(*self.locate(position), self.follow)

    @property
    def missing(self) -> str | None:
        """A file of split debug information that was not found; None if all were found."""
        return self._split.missing

    @property
    def split_paths(self) -> list[str]:
        """The paths of the files of split debug information opened so far."""
        return self._split.paths

    @functools.cached_property
    def _missing_shared(self) -> tuple[str, str] | None:
        # The paths at which dwz's shared file was searched, if it was not found.
        found = self.main.alternative is not None
        return None if found else alternative_paths(self.elf, DEBUG_ROOT)

    @property
    def missing_file(self) -> str:
        """A file of debug information that was not found; "" if none is known to be missing."""
        return self.missing or "" if self._missing_shared is None else self._missing_shared[0]

    @property
    def missing_reason(self) -> str:
        """A clause with the missing file and its searched paths, for messages."""
        if self._missing_shared is not None:
            first, second = self._missing_shared
            return f"{_PART} was moved by dwz to {first} or {second}, and neither is that file"
        found = (path for path in self._split.searched if self._exists(path))
        path = next(found, None)
        if path is not None:
            return f"{_PART} is in {self.missing}, but {path} is damaged or of another build"
        return f"{_PART} is in {self.missing}, which was not found, nor a package (.dwp)"

    def _exists(self, path: str) -> bool:
        return any(os.path.lexists(root + path) for root in self._roots)

    def follow(self, unit: Unit, raw: FormValue) -> tuple[Unit, int] | None:
        """Return unit and position of the entry that a reference points to.

        None if its file was not found.

        Raises:
            DwarfError: the reference is invalid.
        """
        if raw.form == Form.REF_SIG8:
            found = self._signatures.get(raw.value)
            if found is None and unit.file not in self.parts:  # a split unit's own types
                found = self._split.types(unit).signed(raw.value)
            return found
        if raw.form == Form.REF_ADDR and unit.header.kind in (
            *(UnitType.SPLIT_COMPILE, UnitType.SPLIT_TYPE),
        ):
            return unit, raw.value - unit.header.at
        return unit.follow(raw)

    @functools.cached_property
    def _signatures(self) -> dict[int, tuple[Unit, int]]:
        return {key: value for part in self.parts for key, value in _signatures_in(part).items()}


def _signatures_in(file: DebugFile) -> dict[int, tuple[Unit, int]]:
    found: dict[int, tuple[Unit, int]] = {}
    for header in file.headers:
        if header.kind in (UnitType.TYPE, UnitType.SPLIT_TYPE):
            unit = file.unit(header)
            number, position = signature_of(unit)
            found[number] = unit, position
    return found
