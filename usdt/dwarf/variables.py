"""Find the variable that a name means at an address of the code, by the rules of C, C++ and Rust.

A name is looked up in the function, then in the scopes around it: its class, its namespaces, and
last the global one. In each, the variable of the function's own source file comes first; then the
one that all files share; then a static one of another file, if there is only one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen, replace
from usdt.dwarf.index.files import DiePosition
from usdt.dwarf.types import functions as fn
from usdt.dwarf.types.variables import REMOVED, VariableDebug, location_of, symbol_of
from usdt.dwarf.units.constants import At, Tag, VariableKind
from usdt.dwarf.units.dies import Die
from usdt.dwarf.units.errors import DAMAGE
from usdt.dwarf.units.scopes import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.dwarf.index.files import DebugFiles
    from usdt.dwarf.types.dwarf_btf import DwarfTypes
    from usdt.dwarf.units.units import Unit
    from usdt.dwarf.variable_search import KnownVariables

__all__ = ("VariableFinder",)

_MAX_BLOCKS = 1 << 10  # blocks of a function that are searched for its static variables
_MAX_UNITS = 64  # units whose variables are kept
_MAX_NAMES = 1 << 12  # of which it is kept whether there is a variable
_MAX_SHOWN = 4  # files that a message names
_OPEN, _CLOSE = "(<[{", ")>]}"
_CRATE = "crate::"
_OF_UNIT = "u"  # before keys of answers


@frozen
class _Scope:
    # Where a name is used: the function there, the units of its source, prefixes of names.
    function: Die | None
    units: tuple[Unit, ...]
    prefixes: tuple[str, ...]


class VariableFinder:
    """Finds the variables of one program.

    Args:
        files: the files with its debug information.
        known: the variables of these files.
        types: the types.
        around: returns the position of the function around an address.
        die: returns the entry at a position.
        qualified: returns the qualified name of an entry.
    """

    def __init__(
        self,
        files: DebugFiles,
        known: KnownVariables,
        types: DwarfTypes,
        *,
        around: Callable[[int], DiePosition | None],
        die: Callable[[DiePosition], Die],
        qualified: Callable[[Die], str],
    ) -> None:
        self._files = files
        self._variables = known
        self._around = around
        self._types = types
        self._die = die
        self._qualified = qualified
        self._of_units: dict[tuple[int, int], dict[str, list[int]]] = {}
        self._scopes: dict[int, _Scope] = {}
        self._known: dict[str, bool] = {}
        # With link-time optimization; None until they are needed, and without an index.
        self._known_instances: dict[tuple[int, int], Die] | None = None
        self._instances_by_name: dict[str, list[Die]] | None = None

    def find(self, name: str, code: int) -> VariableDebug | None:
        """Return the variable that a name means at an address; None if there is none.

        Args:
            name: the name, perhaps with a path; ``::name`` is global.
            code: address of the code, in the file of the debug information.

        Raises:
            DwarfError: an entry is damaged.
            LookupError: likewise.
        """
        scope = self._scope(code)
        if name.startswith("::"):
            return self._in_scopes([name.removeprefix("::")], scope, has_path=True)
        if name.startswith(_CRATE):
            full = f"{scope.prefixes[-2]}{name.removeprefix(_CRATE)}"
            return self._in_scopes([full], scope, has_path=True)
        if scope.function is not None and "::" not in name:
            found = self._local(name, scope.function)
            if found is not None:
                return found
        outer, colons, last = name.rpartition("::")
        names = [
            f"{prefix}{outer}{colons}{hidden}{last}"
            for prefix in scope.prefixes
            for hidden in ("", f"{ANONYMOUS}::")
        ]
        return self._in_scopes(names, scope, has_path=bool(outer))

    @property
    def needs_paths(self) -> bool:
        """True if :meth:`find` leaves out constants of other files whose name has no path."""
        return self._variables.is_large and not self._variables.are_indexed

    def names_like(self, name: str) -> Iterator[str]:
        """Yield names of variables with an address: all, or those that are most like another."""
        yield from self._variables.names_like(name)
        if self._variables.are_indexed:
            yield from self._named_instances(name)

    # ------------------------------------------------------------ the code that uses the name

    def _scope(self, code: int) -> _Scope:
        found = self._scopes.get(code)
        if found is None:
            if len(self._scopes) >= _MAX_UNITS:
                self._scopes.clear()
            found = self._scopes[code] = self._read_scope(code)
        return found

    def _read_scope(self, code: int) -> _Scope:
        found = self._around(code)
        if found is None:
            return _Scope(None, (), ("",))
        function = self._die(found)
        units = {_key(one.unit): one.unit for one in function.origins()}
        return _Scope(function, tuple(units.values()), _prefixes(self._qualified(function)))

    def _local(self, name: str, function: Die) -> VariableDebug | None:
        # A static variable of the function. An instance has an address, its origin may have none.
        best = None
        blocks = [*function.origins()]
        for number in range(_MAX_BLOCKS):
            if number == len(blocks) or (best is not None and not best.problem):
                break
            for child in blocks[number].children(Tag.VARIABLE, Tag.LEXICAL_BLOCK):
                if child.tag == Tag.LEXICAL_BLOCK:
                    blocks.append(child)
                elif fn.text(child, At.NAME) == name and _is_static(child):
                    best = self._read(child, name) or best
        return best

    # ------------------------------------------------------------ the variables of one name

    def _in_scopes(
        self, names: list[str], scope: _Scope, *, has_path: bool = False
    ) -> VariableDebug | None:
        for name in names:
            found = self._in_scope(name, scope.units)
            if found is not None:
                return found
        # What only another file has, and without an address, is hardly what is meant. In large
        # files it takes seconds to find, so that it needs a path or a symbol there.
        everywhere = has_path or scope.function is None or not self._variables.is_large
        for name in names:
            found = self._elsewhere(name, everywhere=everywhere)
            if found is not None:
                return found
        return None

    def _in_scope(self, name: str, units: tuple[Unit, ...]) -> VariableDebug | None:
        if self._variables.are_indexed and not self._exists(name):  # as most names in most scopes
            return None
        own = [die for unit in units for die in self._in_unit(unit, name)]
        mine = [found for die in own if (found := self._read(die, name)) is not None]
        known = next((one for one in mine if not one.declared), None)
        if known is not None:
            return known
        located = [self._die(one) for one in self._variables.located(name)]
        located += self._named_instances(name).get(name, ())
        found = self._placed(name, located)
        return found if found is not None or not mine else mine[0]

    def _placed(self, name: str, located: list[Die]) -> VariableDebug | None:
        # The one that all files share, else that of one file.
        shared = [die for die in located if fn.first(die, At.EXTERNAL) is not None]
        for die in shared:
            found = self._read(die, name)
            if found is not None:
                return found
        return self._of_another_file(name, [die for die in located if die not in shared])

    def _elsewhere(self, name: str, *, everywhere: bool) -> VariableDebug | None:
        if self._variables.are_indexed and not self._exists(name):
            return None
        find = self._variables.others if everywhere else self._variables.others_of_symbols
        others = [self._die(one) for one in find(name)]
        placed = [die for die in others if location_of(die) is not None]
        found = self._placed(name, placed)
        rest = [die for die in others if die not in placed]
        return found if found is not None or not rest else self._read(rest[0], name)

    def _exists(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _MAX_NAMES:
                self._known.clear()
            known = self._known[name] = bool(self._variables.others(name))
        return known

    def _of_another_file(self, name: str, located: list[Die]) -> VariableDebug | None:
        found = [(one, die) for die in located if (one := self._read(die, name)) is not None]
        if len({one.address for one, _ in found}) > 1:
            files = [die.unit.text(die.unit.root, At.NAME) for _, die in found]
            shown = ", ".join(files[:_MAX_SHOWN]) + (", …" if len(files) > _MAX_SHOWN else "")
            problem = (
                f"{len(files)} files have a static variable of this name ({shown}): name it at a "
                "function of its file"
            )
            return VariableDebug(name, name, 0, problem=problem)
        return found[0][0] if found else None

    def _in_unit(self, unit: Unit, name: str) -> list[Die]:
        key = f"{_OF_UNIT}{unit.header.at:x} {name}"
        is_main = unit.file is self._files.main
        row = self._files.answers.get(key) if is_main else None
        if row is not None:
            with contextlib.suppress(*DAMAGE):
                kept = [Die(unit, int(at, 16), self._files.follow) for at in row]
                if all(die.tag in (Tag.VARIABLE, Tag.MEMBER) for die in kept):
                    return kept
        names = self._of_units.get(_key(unit))
        if names is None:
            if len(self._of_units) >= _MAX_UNITS:
                self._of_units.clear()
            names = self._of_units[_key(unit)] = self._read_unit(unit)
        kinds = (VariableKind.LOCATED, VariableKind.UNLOCATED)
        offsets = [at for kind in kinds for at in names.get(f"{kind.value}{name}", ())]
        if is_main:
            self._files.answers.put(key, *(f"{at:x}" for at in offsets))
        return [Die(unit, at, self._files.follow) for at in offsets]

    def _read_unit(self, unit: Unit) -> dict[str, list[int]]:
        # What an earlier run has found needs none of them.
        from usdt.dwarf.index.abbrev_skim import AbbrevSection  # noqa: PLC0415
        from usdt.dwarf.index.indexer import UnitIndexer  # noqa: PLC0415

        file, header = unit.file, unit.header
        self._files.answers.note_cost(header.end, header.end - header.at)
        indexer = UnitIndexer(AbbrevSection(file.abbreviation_bytes, file.sections.name))
        indexer.add_unit(unit, DiePosition(0, 0))
        found: dict[str, list[int]] = {}
        for name, packed in indexer.names:
            found.setdefault(name, []).append(DiePosition.unpack(packed).offset)
        return found

    # ------------------------------------------------------------ one entry

    def _read(self, die: Die, name: str) -> VariableDebug | None:
        # None for a variable that the linker has dropped.
        place = location_of(die)
        if place is None and At.CONST_VALUE not in die:
            instance = self._instances(name).get(die.key)
            place = None if instance is None else location_of(instance)
        typed = fn.first(die, At.TYPE)
        target = None if typed is None else typed.target(At.TYPE)
        number = self._types.unknown if target is None else self._types.id_of(target)
        made = VariableDebug(name, symbol_of(die, name.rpartition("::")[2]), number)
        if place is None:
            value = die.number(At.CONST_VALUE)
            removed = value is None and fn.first(die, At.DECLARATION) is None
            return replace(made, value=value, problem=REMOVED if removed else "")
        if place.problem:
            return replace(made, problem=place.problem)
        return replace(made, address=place.address - self._files.bias) if place.address else None

    # With link-time optimization, one entry has a variable's name, and another its location.

    def _instances(self, name: str) -> dict[tuple[int, int], Die]:
        # Key of the entry with the name → entry with the location. A search for a name that has no
        # such entry finds none.
        positions = self._variables.instances(name)
        if self._known_instances is None and self._variables.are_indexed:
            self._known_instances = {}
            for position in positions:
                die = self._die(position)
                for one in die.origins():
                    self._known_instances.setdefault(one.key, die)
        return self._known_instances or {}

    def _named_instances(self, name: str) -> dict[str, list[Die]]:
        # Qualified name → entries with locations.
        instances = self._instances(name)
        if self._instances_by_name is None and self._variables.are_indexed:
            found: dict[str, dict[tuple[int, int], Die]] = {}
            for die in instances.values():
                found.setdefault(self._qualified(die), {})[die.key] = die
            self._instances_by_name = {name: [*dies.values()] for name, dies in found.items()}
        return self._instances_by_name or {}


def _key(unit: Unit) -> tuple[int, int]:
    return id(unit.file), unit.header.at


def _is_static(die: Die) -> bool:
    # False for a variable on the stack or in registers, and for one without a location.
    return location_of(die) is not None or At.CONST_VALUE in die


def _prefixes(function: str) -> tuple[str, ...]:
    # The scopes around a function, the innermost first: a::b::f → "a::b::", "a::", "".
    ends = [0]
    depth = 0
    for at, character in enumerate(function):
        depth += (character in _OPEN) - (character in _CLOSE)
        if not depth and function.startswith("::", at):
            ends.append(at + 2)
    return tuple(function[:end] for end in reversed(ends))
