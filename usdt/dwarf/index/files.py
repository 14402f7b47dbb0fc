"""The files that the debug information of one ELF file is in, and the units of all of them.

In the file itself, or in a separate one, found as symbols are (build ID, .gnu_debuglink); what
dwz moved to a shared file; split units in ``.dwo`` files or a ``.dwp`` package; types that DWARF 4
keeps in ``.debug_types``. Every unit has a number here, which the index uses.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError
from usdt.dwarf.units.constants import Form
from usdt.dwarf.units.constants import Unit as UnitKind
from usdt.dwarf.units.errors import DwarfError
from usdt.dwarf.units.sections import DebugSections
from usdt.dwarf.units.split_dwarf import Split, absent_alternative, alternative_of
from usdt.dwarf.units.type_units import TypesFile, signature_of
from usdt.dwarf.units.units import DebugFile, Unit
from usdt.elf import debug_files
from usdt.elf.debug_files import DEBUG_ROOT
from usdt.elf.format import ET_REL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.dwarf.units.forms import Raw
    from usdt.elf.file import ElfFile

__all__ = ("DebugFiles",)

_SPLIT_TYPE = 1 << 31  # a position in a type unit, where the unit is one that refers to it


class DebugFiles:
    """Where debug information is.

    Attributes:
        main: the file with ``.debug_info``.
        name: what messages call it.
        bias: what to add to the program's addresses for those of ``main``.
    """

    def __init__(self, elf: ElfFile, program: ElfFile, roots: Sequence[str]) -> None:
        self.elf = elf
        self.name = elf.path
        self.bias = elf.first_address - program.first_address
        self._roots = tuple(roots)
        self._own = elf is not program
        self.main = DebugFile(DebugSections(elf))
        self._split = Split(program.path, self._opened)
        self.main.alternative = alternative_of(elf, self._opened, DEBUG_ROOT)

    @classmethod
    def find(
        cls, elf: ElfFile, *, roots: Sequence[str] = ("",), debug_root: str = DEBUG_ROOT
    ) -> DebugFiles | None:
        """The debug information of a file; None where there is none.

        Raises:
            ElfError: the file is damaged.
        """
        if elf.type == ET_REL:  # addresses in it are relocated yet
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
        """Let go of every file that was opened here."""
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
        """The file, the one with shared parts, and what is in ``.debug_types``."""
        found = [self.main]
        if self.main.alternative is not None:
            found.append(self.main.alternative)
        if ".debug_types" in self.main.sections:
            found.append(TypesFile(self.main))
        return found

    @functools.cached_property
    def numbers(self) -> list[tuple[DebugFile, int]]:
        """Whose each unit is, and its index there, by number."""
        return [(part, index) for part in self.parts for index in range(len(part.headers))]

    def unit(self, number: int) -> Unit:
        """A unit by its number; of a split one the half with everything in it.

        Raises:
            DwarfError: no such unit, or it is damaged.
        """
        if not 0 <= number < len(self.numbers):
            raise DwarfError(f"{self.name}: no unit {number} of {len(self.numbers)}")
        part, index = self.numbers[number]
        unit = part.unit(part.headers[index])
        return self.whole(unit) if part is self.main else unit

    def forget_units(self) -> None:
        """Read units anew: the sections they are in have moved."""
        for name in ("parts", "numbers", "_signatures"):
            self.__dict__.pop(name, None)
        self.main.forget()

    def whole(self, unit: Unit) -> Unit:
        """A unit, or the split one that it stands for."""
        return self._split.of(unit)

    def split_types(self, unit: Unit) -> Iterator[tuple[int, Unit]]:
        """The type units beside a split unit, each with a position that stands for its begin."""
        for position, one in self._split.types(unit).units():
            yield _SPLIT_TYPE | position, one

    def split_type(self, unit: Unit, place: int) -> tuple[Unit, int] | None:
        """What is meant by a position beyond all in a unit: the type unit, and a position there.

        Raises:
            DwarfError: there is none.
        """
        if not place & _SPLIT_TYPE:
            return None
        return self._split.types(unit).around(place & ~_SPLIT_TYPE)

    @property
    def missing(self) -> str | None:
        """A file of split debug information that was not found."""
        return self._split.missing

    @property
    def split_paths(self) -> list[str]:
        """The files of split debug information that were read so far."""
        return self._split.paths

    @functools.cached_property
    def _shared(self) -> tuple[str, str] | None:
        # Where dwz's file was looked for, if it is not here.
        found = self.main.alternative is not None
        return None if found else absent_alternative(self.elf, DEBUG_ROOT)

    @property
    def absent(self) -> str:
        """The file of debug information that is not here; "" if none is known to be missing."""
        return self.missing or "" if self._shared is None else self._shared[0]

    @property
    def absence(self) -> str:
        """The same as a sentence that says where it was looked for."""
        if self._shared is not None:
            first, second = self._shared
            return f"part of it was moved by dwz to {first} or {second}, and neither is that file"
        return f"part of it is in {self.missing}, which is not here, nor a package (.dwp)"

    def follow(self, unit: Unit, raw: Raw) -> tuple[Unit, int] | None:
        """The entry that a reference leads to; None where its file is not here.

        Raises:
            DwarfError: it leads nowhere.
        """
        if raw.form == Form.REF_SIG8:
            found = self._signatures.get(raw.value)
            if found is None and unit.file not in self.parts:  # a split unit's own types
                found = self._split.types(unit).signed(raw.value)
            return found
        if raw.form == Form.REF_ADDR and unit.header.kind in (
            *(UnitKind.SPLIT_COMPILE, UnitKind.SPLIT_TYPE),
        ):
            return unit, raw.value - unit.header.at
        return unit.referred(raw)

    @functools.cached_property
    def _signatures(self) -> dict[int, tuple[Unit, int]]:
        return {key: value for part in self.parts for key, value in _signatures_in(part).items()}


def _signatures_in(file: DebugFile) -> dict[int, tuple[Unit, int]]:
    found: dict[int, tuple[Unit, int]] = {}
    for header in file.headers:
        if header.kind in (UnitKind.TYPE, UnitKind.SPLIT_TYPE):
            unit = file.unit(header)
            number, place = signature_of(unit)
            found[number] = unit, place
    return found
