"""``DebugInfo``: what the debug information of a program says of its functions and types."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Self

from usdt.base.errors import BtfError
from usdt.btf.lookup import find_type
from usdt.dwarf.index.files import DebugFiles
from usdt.dwarf.index.index import Index
from usdt.dwarf.index.nested import Nested
from usdt.dwarf.types import functions as fn
from usdt.dwarf.types.convert import Converter
from usdt.dwarf.types.dwarf_btf import DwarfTypes
from usdt.dwarf.types.functions import FunctionDebug, ParameterDebug
from usdt.dwarf.types.source_syntax import Prose
from usdt.dwarf.units.constants import At, Tag
from usdt.dwarf.units.dies import Die
from usdt.dwarf.units.errors import DwarfError, believed
from usdt.dwarf.units.scopes import Scopes
from usdt.elf.debug_files import DEBUG_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.dwarf.types.variants import VariantPart
    from usdt.dwarf.units.units import Unit
    from usdt.elf.file import ElfFile

__all__ = ("DebugInfo", "DwarfError", "FunctionDebug", "ParameterDebug")

_MOST_SCOPES = 64  # units whose scopes are kept
_TYPE_TAGS = {
    "s": (Tag.STRUCTURE, Tag.CLASS, Tag.INTERFACE),
    "u": (Tag.UNION,),
    "e": (Tag.ENUMERATION,),
    "t": (Tag.TYPEDEF, Tag.TEMPLATE_ALIAS),
    "b": (Tag.BASE,),
}
_LETTERS = {tag: letter for letter, tags in _TYPE_TAGS.items() for tag in tags}


class DebugInfo:
    """Functions and types of one program; a context manager.

    Attributes:
        name: the file that the debug information is in.
        btf: the types, numbered as they are asked for.
        references: IDs of pointers that are references: "&" or "&&".
        bases: IDs of classes: index of a member that is a base class → that class's name.
        variants: IDs of types with several forms (Rust's enums) → how to tell them apart; known
            once the type itself was asked for.
    """

    def __init__(self, files: DebugFiles) -> None:
        self.name = files.name
        self._files = files
        self._scopes: dict[tuple[int, int], Scopes] = {}
        self._convert = Converter(files.name, self._qualified, self._definition)
        elf = files.elf
        self.btf = DwarfTypes(
            files.name,
            elf.byteorder,
            elf.bits // 8,
            convert=self._convert,
            search=self._search,
            names=self._names,
        )
        self._convert.types = self.btf
        self.btf.absent = lambda: files.absent
        self.references = self._convert.references
        self.bases = self._convert.bases
        self.variants: dict[int, VariantPart] = self._convert.variants
        self.variable_arrays = self._convert.variable
        self._prose = Prose(self.btf, self.references)

    @classmethod
    def of(
        cls, elf: ElfFile, *, roots: Sequence[str] = ("",), debug_root: str = DEBUG_ROOT
    ) -> DebugInfo | None:
        """The debug information of a file, in it or in a separate one; None where there is none.

        Args:
            elf: the program or library; stays open as long as this is used.
            roots: directories that stand for "/" when debug files are looked for.
            debug_root: where systems keep debug files.

        Raises:
            DwarfError: it cannot be believed.
            ElfError: the file is damaged.
        """
        with believed(elf.path, "units"):
            files = DebugFiles.find(elf, roots=roots, debug_root=debug_root)
        return None if files is None else cls(files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every file that was opened for it; types that were made stay."""
        self.btf.close()
        self._scopes.clear()
        self._files.close()

    @property
    def absence(self) -> str:
        """Which part of the debug information is not here, in words; "" if none is known of."""
        return self._files.absence if self._files.absent else ""

    # ------------------------------------------------------------ functions

    def function(self, address: int, name: str = "") -> FunctionDebug | None:
        """The function that begins at an address; None where none is known to.

        Args:
            address: link-time, in the program's own file.
            name: its symbol, which chooses among several that share the code.

        Raises:
            DwarfError: what is said of it cannot be believed.
        """
        with believed(self.name, f"the function at {address:#x}"):
            place = address + self._files.bias
            places = self._index.function(place) or self._nested_functions.at(place)
            found = [(number, self._function_die(*place)) for number, place in _numbered(places)]
            if not found:
                self._tell_damage()
                return None
            chosen = next((one for one in found if name and name in _names_of(one[1])), found[0])
            return self._read_function(address, name, *chosen)

    def _function_die(self, number: int, place: int) -> Die:
        die = self._die(number, place)
        if die.tag != Tag.SUBPROGRAM:
            raise DwarfError(f"{self.name}: {die.where} is no function")
        return die

    def _read_function(self, address: int, symbol: str, number: int, die: Die) -> FunctionDebug:
        parameters, variadic = fn.read_parameters(die, self.btf)
        typed = fn.first(die, At.TYPE)
        target = None if typed is None else typed.target(At.TYPE)
        returns = self.btf.id_of(target) if target or not typed else self.btf.unknown
        name, language = self._qualified(die) or symbol, fn.language_of(die)
        line = fn.first(die, At.DECL_LINE)
        root = die.unit.root
        return FunctionDebug(
            name,
            fn.text(die, At.LINKAGE_NAME, At.MIPS_LINKAGE_NAME),
            self._prose.function(language, name, parameters, returns, variadic=variadic),
            self._file(die),
            (line.number(At.DECL_LINE) or 0) if line is not None else 0,
            parameters,
            returns,
            variadic,
            language,
            die.unit.text(root, At.PRODUCER),
            fn.clone_problem(symbol),
            address,
            number,
        )

    def _file(self, die: Die) -> str:
        from usdt.dwarf.lines.file_table import file_name  # noqa: PLC0415 - only for functions

        one = fn.first(die, At.DECL_FILE)
        number = None if one is None else one.number(At.DECL_FILE)
        return "" if one is None or number is None else file_name(one.unit, number)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Name and link-time address of every function, by address.

        Raises:
            DwarfError: one cannot be believed.
        """
        for address, number, place in self._index.functions():
            with believed(self.name, f"the function at {address:#x}"):
                yield self._qualified(self._die(number, place)), address - self._files.bias

    # ------------------------------------------------------------ types

    def type_id(self, text: str) -> int:
        """The ID of a type by its name: "struct request", "ns::Klass", "request_t *".

        Raises:
            BtfError: there is none; the message names the nearest.
            DwarfError: it cannot be believed.
        """
        text = " ".join(text.split())
        name = text.rstrip("* ")
        stars = text.count("*", len(name))
        for tag in ("class ", "const "):
            name = name.removeprefix(tag)
        with believed(self.name, f"the type {name!r}"):
            try:
                number = find_type(self.btf, name)
            except BtfError as err:
                self._tell_damage()
                if self.absence:
                    raise BtfError(f"{err}: {self.absence}") from err
                raise
        for _ in range(stars):
            number = self.btf.pointer_to(number)
        return number

    def type_text(self, number: int, language: str = "c") -> str:
        """A type as a language writes it."""
        return self._prose.type(language, number)

    def _tell_damage(self) -> None:
        # What is not found may be in a unit that could not be read.
        if self._index.damage:
            raise DwarfError(f"{self.name}: {self._index.damage}")

    @functools.cached_property
    def _index(self) -> Index:
        with believed(self.name, "the index"):
            return Index.of(self._files)

    @functools.cached_property
    def _nested_functions(self) -> Nested:
        return Nested(self._files)

    def _search(self, letter: str, name: str) -> Die | None:
        place = self._index.type(letter, name)
        if place is None:
            return self._nested(letter, name)
        die = self._die(*place)
        return die if die.tag in _TYPE_TAGS[letter] else None

    def _nested(self, letter: str, name: str) -> Die | None:
        # Types in classes are not in the index: found in the class.
        outer, separator, last = name.rpartition("::")
        if not separator:
            return None
        for kind in ("s", "u"):
            place = self._index.type(kind, outer)
            if place is not None:
                for one in self._die(*place).children(*_TYPE_TAGS[letter]):
                    if one.text() == last:
                        return one
        return None

    def _names(self, start: str) -> Iterator[tuple[str, str, Die]]:
        for letter, name, place in self._index.types(start):
            yield letter, name, self._die(*place)

    def definition(self, die: Die) -> Die | None:
        """The entry that defines a type which another only declares; None where there is none."""
        return self._definition(die)

    def _definition(self, die: Die) -> Die | None:
        signed = die.target(At.SIGNATURE)
        if signed is not None:
            return signed
        found = self._search(_LETTERS.get(die.tag, "s"), self._qualified(die))
        return None if found is None or found.place == die.place else found

    # ------------------------------------------------------------ entries

    def _die(self, number: int, place: int) -> Die:
        unit = self._files.unit(number)
        unit, place = self._files.split_type(unit, place) or (unit, place)
        if not unit.header.first <= place < len(unit.data):
            raise DwarfError(f"{self.name}: no entry at {place:#x} of unit {number}")
        return Die(unit, place, self._files.follow)

    def _qualified(self, die: Die) -> str:
        last, name = die, ""
        for one in die.origins():
            last, name = one, name or one.text()
        return f"{self._scopes_of(last.unit).prefix(last.at)}{name}" if name else ""

    def _scopes_of(self, unit: Unit) -> Scopes:
        key = (id(unit.file), unit.header.at)
        found = self._scopes.get(key)
        if found is None:
            if len(self._scopes) >= _MOST_SCOPES:
                self._scopes.clear()
            found = self._scopes[key] = Scopes(unit, functools.partial(self._signed_name, unit))
        return found

    def _signed_name(self, unit: Unit, at: int) -> str:
        signed = Die(unit, at, self._files.follow).target(At.SIGNATURE)
        return "" if signed is None else signed.text()


def _numbered(places: list[tuple[int, int]]) -> Iterator[tuple[int, tuple[int, int]]]:
    return ((number, (number, place)) for number, place in places)


def _names_of(die: Die) -> set[str]:
    names = {fn.text(die, name) for name in (At.NAME, At.LINKAGE_NAME, At.MIPS_LINKAGE_NAME)}
    return names - {""}
