"""``DebugInfo``: functions, types and variables of a program, from its debug information."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.base.errors import BtfError
from usdt.btf.lookup import find_type
from usdt.dwarf.function_search import FunctionSearch
from usdt.dwarf.index.files import DebugFiles
from usdt.dwarf.index.index import DebugIndex
from usdt.dwarf.index.type_search import NotSearchable, TypeSearch
from usdt.dwarf.types import functions as fn
from usdt.dwarf.types.convert import Converter
from usdt.dwarf.types.dwarf_btf import DwarfTypes
from usdt.dwarf.types.functions import FunctionDebug, ParameterDebug
from usdt.dwarf.types.source_syntax import SourceSyntax
from usdt.dwarf.units.constants import TAGS_OF_KINDS, TYPE_KINDS, At, Tag, TypeKind
from usdt.dwarf.units.dies import Die
from usdt.dwarf.units.errors import DwarfError, checked
from usdt.dwarf.units.scopes import Scopes
from usdt.dwarf.variable_search import KnownVariables, VariableSearch
from usdt.dwarf.variables import VariableFinder
from usdt.elf.debug_files import DEBUG_ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.dwarf.index.files import DiePosition
    from usdt.dwarf.places.inlined import InlinedFinder
    from usdt.dwarf.places.locals import LocalDebug
    from usdt.dwarf.places.scopes import CodePlace, CodeScopes
    from usdt.dwarf.types.variables import VariableDebug
    from usdt.dwarf.types.variants import VariantPart
    from usdt.dwarf.units.units import Unit
    from usdt.elf.file import ElfFile

__all__ = ("DebugInfo", "DwarfError", "FunctionDebug", "ParameterDebug")

_MAX_SCOPES = 64  # units whose scopes are kept
_MAX_PREFIXES = 1 << 8  # of names that are left to later runs
_PREFIX = "p"  # before keys of answers


class DebugInfo(Closeable):
    """Functions, types and variables of one program; a context manager.

    Attributes:
        name: the file that contains the debug information.
        btf: the types, numbered in the order of their use.
        references: IDs of pointers that are references → "&" or "&&".
        bases: IDs of classes → index of a member that is a base class → that class's name.
        variants: IDs of tagged unions (Rust's enums) → their variants and discriminant; present
            once the type itself has been used.
    """

    def __init__(self, files: DebugFiles) -> None:
        self.name = files.name
        self._files = files
        self._scopes: dict[tuple[int, int], Scopes] = {}
        self._prefixes = 0  # that were found
        self._convert = Converter(files.name, self._qualified, self.definition)
        elf = files.elf
        self.btf = DwarfTypes(
            files.name,
            elf.byteorder,
            elf.bits // 8,
            convert=self._convert,
            declared=self._convert.declared,
            search=self._search,
            names=self._names,
            similar=self._similar,
        )
        self._convert.types = self.btf
        self.btf.missing_file = lambda: files.missing_file
        self.references = self._convert.references
        self.bases = self._convert.bases
        self.variants: dict[int, VariantPart] = self._convert.variants
        self._source = SourceSyntax(self.btf, self.references)

    @classmethod
    def of(
        cls, elf: ElfFile, *, roots: Sequence[str] = ("",), debug_root: str = DEBUG_ROOT
    ) -> DebugInfo | None:
        """Return the debug information of a file, or of its debug file; None if there is none.

        Args:
            elf: the program or library; must stay open as long as the result is used.
            roots: directories to search debug files in, in place of "/".
            debug_root: the system's directory of debug files.

        Raises:
            DwarfError: the debug information is damaged.
            ElfError: the file is damaged.
        """
        with checked(elf.path, "units"):
            files = DebugFiles.find(elf, roots=roots, debug_root=debug_root)
        return None if files is None else cls(files)

    def close(self) -> None:
        """Close every opened file; types that were already created remain usable."""
        self.btf.close()
        self._scopes.clear()
        for name in ("_variables", "_variable_search", "_type_search", "_code_scopes", "_inlined"):
            self.__dict__.pop(name, None)
        self._files.close()

    @property
    def missing_reason(self) -> str:
        """A clause about debug information that was not found; "" if none is missing."""
        return self._files.missing_reason if self._files.missing_file else ""

    # ------------------------------------------------------------ functions

    def function(self, address: int, name: str = "") -> FunctionDebug | None:
        """Return the function that begins at an address; None if none is known.

        Args:
            address: link-time address in the program's own file.
            name: the function's symbol, which selects among functions that share the code.

        Raises:
            DwarfError: its debug information is damaged.
        """
        with checked(self.name, f"the function at {address:#x}"):
            own = address + self._files.bias
            found = [(self._function_die(one), one) for one in self._function_search.at(own)]
            if not found:
                self._raise_damage()
                return None
            match = next((one for one in found if name and name in _names_of(one[0])), found[0])
            return self._read_function(address, name, *match)

    def _function_die(self, die_position: DiePosition) -> Die:
        die = self._die(die_position)
        if die.tag != Tag.SUBPROGRAM:
            raise DwarfError(f"{self.name}: {die.where} is not a function")
        return die

    def _read_function(
        self, address: int, symbol: str, die: Die, position: DiePosition
    ) -> FunctionDebug:
        parameters, variadic = fn.read_parameters(die, self.btf)
        typed = fn.first(die, At.TYPE)
        target = None if typed is None else typed.target(At.TYPE)
        returns = self.btf.id_of(target) if target or not typed else self.btf.unknown
        name, language = self._qualified(die) or symbol, fn.language_of(die)
        line = fn.first(die, At.DECL_LINE)
        return FunctionDebug(
            name,
            self._source.function(language, name, parameters, returns, variadic=variadic),
            self._function_search.source(position, lambda: self._file(die)),
            (line.number(At.DECL_LINE) or 0) if line is not None else 0,
            parameters,
            returns,
            variadic,
            language,
            fn.clone_problem(symbol),
            address,
            position.unit,
        )

    def _file(self, die: Die) -> str:
        from usdt.dwarf.lines.line_program import file_name  # noqa: PLC0415 - only for functions

        one = fn.first(die, At.DECL_FILE)
        number = None if one is None else one.number(At.DECL_FILE)
        return "" if one is None or number is None else file_name(one.unit, number)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Yield name and link-time address of every function, sorted by address.

        Raises:
            DwarfError: an entry is damaged.
        """
        for address, die_position in self._index.functions():
            with checked(self.name, f"the function at {address:#x}"):
                yield self._qualified(self._die(die_position)), address - self._files.bias

    # ------------------------------------------------------------ variables

    def variable(self, name: str, code: int) -> VariableDebug | None:
        """Return the variable that a name means at an address of the code; None if there is none.

        Args:
            name: the name, perhaps with a path of C++ or Rust.
            code: link-time address in the program's own file.

        Raises:
            DwarfError: the debug information is damaged.
        """
        with checked(self.name, f"the variable {name!r}"):
            found = self._variables.find(name, code + self._files.bias)
        if found is None and self._known_index is not None:  # else a search met no damage
            self._raise_damage()
        return found

    @property
    def needs_paths(self) -> bool:
        """True if :meth:`variable` finds constants of other source files only by their paths."""
        return self._variables.needs_paths

    def variable_names(self, like: str) -> Iterator[str]:
        """Yield qualified names of variables that have an address.

        Args:
            like: a name. Without an index, only the names that are most like it are yielded.
        """
        return self._variables.names_like(like)

    @functools.cached_property
    def _variables(self) -> VariableFinder:
        return VariableFinder(
            self._files,
            KnownVariables(lambda: self._known_index, lambda: self._index, self._variable_search),
            self.btf,
            around=self._function_search.around,
            die=self._die,
            qualified=self._qualified,
        )

    @functools.cached_property
    def _variable_search(self) -> VariableSearch:
        return VariableSearch(self._files, self._type_search)

    # ------------------------------------------------------------ places inside functions

    def line_places(self, source: str, line: int) -> list[CodePlace]:
        """Return the places at which a source line begins, sorted by address.

        Raises:
            ProbeNotFound: there is none; the message says why.
            DwarfError: the debug information is damaged.
        """
        from usdt.dwarf.places.source_places import SourcePlaces  # noqa: PLC0415 - only for lines

        with checked(self.name, f"the line {source}:{line}"):
            return SourcePlaces(self._files, self._code_scopes).find(source, line)

    def inlined_places(self, matches: Callable[[str], bool]) -> list[CodePlace]:
        """Return the inlined copies of functions, sorted by address. All entries are read.

        Args:
            matches: returns whether a function of a linkage name is wanted.

        Raises:
            DwarfError: the debug information is damaged.
        """
        with checked(self.name, "inlined functions"):
            return self._inlined.find(matches)

    def inlined_counts(self, matches: Callable[[str], bool]) -> dict[str, int]:
        """Return the number of inlined copies of each function, as :meth:`inlined_places`."""
        with checked(self.name, "inlined functions"):
            return self._inlined.counts(matches)

    @functools.cached_property
    def _inlined(self) -> InlinedFinder:
        from usdt.dwarf.places.inlined import InlinedFinder  # noqa: PLC0415 - only for copies

        return InlinedFinder(self._files, self._code_scopes, self._qualified)

    @property
    def bias(self) -> int:
        """The difference between addresses in the debug information and those in the program."""
        return self._files.bias

    def place(self, address: int) -> CodePlace | None:
        """Return the place at a link-time address of the program; None if no function has it.

        Raises:
            DwarfError: the debug information is damaged.
        """
        with checked(self.name, f"the code at {address:#x}"):
            return self._code_scopes.place(address)

    def locals(self, place: CodePlace) -> list[LocalDebug]:
        """Return the parameters and local variables of a place.

        Raises:
            DwarfError: the debug information is damaged.
        """
        from usdt.dwarf.places.locals import LocalFinder  # noqa: PLC0415 - only for places

        with checked(self.name, f"the variables at {place.address:#x}"):
            return LocalFinder(self.btf, self._die, self._files.bias).find(place)

    @functools.cached_property
    def _code_scopes(self) -> CodeScopes:
        from usdt.dwarf.places.scopes import CodeScopes  # noqa: PLC0415 - only for places

        return CodeScopes(self._function_search.nested, self._die, self._files.bias)

    # ------------------------------------------------------------ types

    def type_id(self, text: str) -> int:
        """Return the ID of a type by its name: "struct request", "ns::Klass", "request_t *".

        Raises:
            BtfError: there is none; the message names the most similar one.
            DwarfError: the debug information is damaged.
        """
        text = " ".join(text.split())
        name = text.rstrip("* ")
        stars = text.count("*", len(name))
        for tag in ("class ", "const "):
            name = name.removeprefix(tag)
        with checked(self.name, f"the type {name!r}"):
            try:
                type_id = find_type(self.btf, name)
            except BtfError as err:
                if self._known_index is not None:  # else a search told, which met no damage
                    self._raise_damage()
                if self.missing_reason:
                    raise BtfError(f"{err}: {self.missing_reason}") from err
                raise
        for _ in range(stars):
            type_id = self.btf.pointer_to(type_id)
        return type_id

    def type_text(self, type_id: int, language: str = "c") -> str:
        """Return a type in the syntax of a language."""
        return self._source.type(language, type_id)

    def _raise_damage(self) -> None:
        # A missing entry may be in a unit that could not be read.
        if self._index.damage:
            raise DwarfError(f"{self.name}: {self._index.damage}")

    @functools.cached_property
    def _index(self) -> DebugIndex:
        with checked(self.name, "the index"):
            return DebugIndex.of(self._files)

    @functools.cached_property
    def _function_search(self) -> FunctionSearch:
        return FunctionSearch(self._files, lambda: self._known_index, lambda: self._index)

    def _type_at(self, kind: TypeKind, name: str) -> DiePosition | None:
        index = self._known_index
        if index is None:
            try:
                return self._type_search.find(kind, name)
            except NotSearchable:
                index = self._index
        found: DiePosition | None = index.type(kind, name)
        return found

    @property
    def _known_index(self) -> DebugIndex | None:
        return self.__dict__.get("_index") or self._cached_index

    @functools.cached_property
    def _cached_index(self) -> DebugIndex | None:
        return DebugIndex.cached(self._files)

    @functools.cached_property
    def _type_search(self) -> TypeSearch:
        return TypeSearch(self._files)

    def _search(self, kind: TypeKind, name: str) -> Die | None:
        die_position = self._type_at(kind, name)
        if die_position is None:
            # What is before "::" in the name of a type in a namespace is no class.
            search = self.__dict__.get("_type_search")
            known = search is not None and search.knows(name)
            return None if known else self._search_class(kind, name)
        die = self._die(die_position)
        return die if die.tag in TAGS_OF_KINDS[kind] else None

    def _search_class(self, kind: TypeKind, name: str) -> Die | None:
        # The index omits types inside classes: search the entries of the class.
        outer, separator, last = name.rpartition("::")
        if not separator:
            return None
        for owner in (TypeKind.STRUCT, TypeKind.UNION):
            die_position = self._type_at(owner, outer)
            if die_position is not None:  # no other type has the name
                inner = self._die(die_position).children(*TAGS_OF_KINDS[kind])
                return next((one for one in inner if one.text() == last), None)
        return None

    def _names(self, start: str) -> Iterator[tuple[TypeKind, str, Die]]:
        for kind, name, die_position in self._index.types(start):
            yield kind, name, self._die(die_position)

    def _similar(self, kinds: list[TypeKind], name: str) -> dict[str, Die] | None:
        # None if the index is there, soon made or necessary.
        if self._known_index is not None or not self._type_search.is_large:
            return None
        from usdt.dwarf.index.similar_types import similar_type  # noqa: PLC0415 - for a message

        strings = self._files.main.sections[".debug_str"]
        try:
            found = similar_type(self._type_search, strings, kinds, name)
        except NotSearchable:
            return None
        return {} if found is None else {found[1]: self._die(found[2])}

    def definition(self, die: Die) -> Die | None:
        """Return the entry that defines a type which ``die`` only declares; None if none does."""
        signed = die.target(At.SIGNATURE)
        if signed is not None:
            return signed
        found = self._search(TYPE_KINDS.get(die.tag, TypeKind.STRUCT), self._qualified(die))
        return None if found is None or found.key == die.key else found

    # ------------------------------------------------------------ entries

    def _die(self, die_position: DiePosition) -> Die:
        unit, position = self._files.locate(die_position)
        if not unit.header.first <= position < len(unit.data):
            raise DwarfError(f"{self.name}: no entry at {position:#x} of unit {die_position.unit}")
        return Die(unit, position, self._files.follow)

    def _qualified(self, die: Die) -> str:
        last, name = die, ""
        for one in die.origins():
            last, name = one, name or one.text()
        return f"{self._prefix(last)}{name}" if name else ""

    def _prefix(self, die: Die) -> str:
        # To read it takes longer than to follow an answer to the entry: later runs are told it.
        unit, answers = die.unit, self._files.answers
        scopes = self._scopes_of(unit)
        if scopes.is_flat:
            return ""
        key = f"{_PREFIX}{unit.header.at + die.at:x}"
        is_kept = unit.file is self._files.main and not self._files.missing_file
        row = answers.get(key) if is_kept else None
        if row is not None and len(row) == 1:
            return row[0]
        found = scopes.prefix(die.at)
        if is_kept and self._prefixes < _MAX_PREFIXES:
            self._prefixes += 1
            answers.put(key, found)
        return found

    def _scopes_of(self, unit: Unit) -> Scopes:
        key = (id(unit.file), unit.header.at)
        found = self._scopes.get(key)
        if found is None:
            if len(self._scopes) >= _MAX_SCOPES:
                self._scopes.clear()
            found = self._scopes[key] = Scopes(unit, functools.partial(self._signed_name, unit))
            if not found.is_flat:
                self._files.answers.note_cost(0, unit.header.end - unit.header.at)
        return found

    def _signed_name(self, unit: Unit, at: int) -> str:
        signed = Die(unit, at, self._files.follow).target(At.SIGNATURE)
        return "" if signed is None else signed.text()


def _names_of(die: Die) -> set[str]:
    names = {fn.text(die, name) for name in (At.NAME, At.LINKAGE_NAME, At.MIPS_LINKAGE_NAME)}
    return names - {""}
