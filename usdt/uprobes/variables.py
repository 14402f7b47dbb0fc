"""Global and static variables of programs by name → arguments of probes.

The address does not depend on where the file is loaded: the instruction pointer at a probe minus
the probe's link-time address is the load bias, in every process. So ``variable - probe + ip`` is
the address of a variable of the same file. Types are those of debug information; without it, only
addresses are known, by symbol tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import (
    Address,
    Constant,
    Location,
    Memory,
    Unreadable,
    ValueClass,
    ValueType,
)
from usdt.arch.pt_regs import instruction_pointer
from usdt.base.closeable import Closeable
from usdt.base.errors import BtfError, TracingError
from usdt.base.machine import word_size
from usdt.btf.types import Unknown
from usdt.elf.file import ElfFile
from usdt.elf.format import ET_EXEC, STT_OBJECT, STT_TLS
from usdt.elf.symbol_tables import SymbolTables
from usdt.elf.variables import THREAD_LOCAL, Place, VariablePlaces
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.ir import BtfType, ByAddress, NoValue
from usdt.engine.compiler.resolve.btf_types import enum_names, value_type
from usdt.uprobes.debug_package_hint import missing_debug
from usdt.uprobes.name_patterns import bare_name, closest_path, is_mangled, shown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usdt.dwarf.types.variables import VariableDebug
    from usdt.elf.symbol_table import ElfSymbol
    from usdt.uprobes.debug_info import Debug

__all__ = ("FileVariables", "address_location")

_ANONYMOUS = "(anonymous namespace)"  # as demanglers write it
_BYTES = ValueType(ValueClass.BYTES, 0)


class FileVariables(Closeable):
    """The variables of a file; a context manager.

    Args:
        path: the file's name, for messages.
        open_path: the path to open.
        debug: its debug information, if there is any.
        roots: root directories in which debug files are searched.

    Raises:
        ElfError: the file is not an ELF file, or damaged.
        TargetError: the file cannot be opened.
    """

    def __init__(
        self, path: str, open_path: str, debug: Debug | None, *, roots: Sequence[str] = ("",)
    ) -> None:
        self._debug = debug
        self._elf = ElfFile(open_path, name=path)
        self._symbols = SymbolTables(self._elf, roots=roots)
        self._places = VariablePlaces(self._elf, self._symbols)
        self._known: dict[str, list[ElfSymbol]] = {}

    def close(self) -> None:
        """Close all files; idempotent."""
        self._symbols.close()

    def address_of(self, offset: int) -> int:
        """Return the link-time address of the code at a file offset."""
        return self._elf.address_of(offset) or 0

    def arguments(self, names: Iterable[str], code: int) -> tuple[Argument, ...]:
        """Return those of some names that are variables, as arguments of a probe.

        Args:
            names: the names, perhaps with paths of C++ or Rust.
            code: link-time address of the probe.

        Raises:
            TracingError: the debug information is damaged.
        """
        found = (self._argument(name, code) for name in names)
        return tuple(one for one in found if one is not None)

    @property
    def missing_debug(self) -> str:
        """A message that the file has no debug information, and how to get it."""
        return missing_debug(self._elf.path, self._elf.build_id)

    def near(self, name: str) -> str:
        """Return the variable whose name is most like another, or ""."""
        if self._debug is not None:
            known = list(self._debug.variable_names(name))
        else:
            objects = (one for one in self._symbols.matching(lambda _: True) if _is_data(one))
            known = [_path(one.name) for one in objects]
        return closest_path(name, known)

    def path_hint(self, name: str) -> str:
        """Return a clause that an unknown name may need its path; "" if none would help."""
        return "" if self._debug is None else self._debug.path_hint(name)

    def _argument(self, name: str, code: int) -> Argument | None:
        found = None if self._debug is None else self._debug.variable(name, code)
        try:
            if found is None:
                return self._by_symbol(name, code)
            return self._typed(name, found, code)
        except TracingError as err:
            return _refused(name, str(err))

    # ------------------------------------------------------------ by debug information

    def _typed(self, name: str, found: VariableDebug, code: int) -> Argument:
        if found.problem:
            return _refused(name, found.problem)
        if found.value is not None:
            return self._constant(name, found, found.value)
        if found.address is not None:
            place = self._places.defined(found.address)
        else:
            place = self._place_of(found.symbol, self._symbols.variables(found.symbol))
        fetch = self._fetch(place, code)
        if self._debug is None or isinstance(self._debug.btf.resolve(found.type_id), Unknown):
            return _address_only(name, fetch, "its type is not in the debug information")
        try:
            size = self._debug.btf.size_of(found.type_id)
        except BtfError:  # only declared
            size = 0
        kind = ValueType(ValueClass.BYTES, size)
        return Argument(name, kind, fetch, hidden=True, type_ref=ByAddress(found.type_id))

    def _constant(self, name: str, found: VariableDebug, value: int) -> Argument:
        btf = None if self._debug is None else self._debug.btf
        kind = None if btf is None else value_type(btf, found.type_id)
        if btf is None or kind is None:
            return _refused(name, "the compiler has made it a constant of an unsupported type")
        names = enum_names(btf.resolve(found.type_id))
        kept = BtfType(found.type_id)
        return Argument(name, kind, Constant(value), hidden=True, names=names, type_ref=kept)

    # ------------------------------------------------------------ by symbol tables

    def _by_symbol(self, name: str, code: int) -> Argument | None:
        if name not in self._known:
            self._known[name] = self._search(name.removeprefix("::"))
        found = self._known[name]
        if not found:
            return None
        place = self._place_of(found[0].name, found)
        why = "the file has no debug information"
        if self._debug is not None:
            why = self._debug.missing_reason or "the debug information does not have it"
        return _address_only(name, self._fetch(place, code), why, max(one.size for one in found))

    def _search(self, name: str) -> list[ElfSymbol]:
        found = self._symbols.variables(name)
        if found or "::" not in name:
            return found
        last = name.rpartition("::")[2]
        symbols = self._symbols.matching(
            lambda one: last in one and is_mangled(one) and _path(one) == name
        )
        return [one for one in symbols if one.type == STT_OBJECT]

    def _place_of(self, symbol: str, found: Sequence[ElfSymbol]) -> Place:
        if any(one.type == STT_TLS for one in found):
            raise TracingError(THREAD_LOCAL)
        addresses = dict.fromkeys(one.address for one in found if not one.imported)
        if not addresses:
            return self._places.imported(symbol)
        if len(addresses) > 1:
            raise TracingError(
                f"{len(addresses)} variables have this name; only debug information tells which one"
            )
        return self._places.defined(next(iter(addresses)))

    def _fetch(self, place: Place, code: int) -> Location:
        # Where a program finds the variable's address.
        return address_location(self._elf, place.address, code, indirect=place.indirect)


def address_location(elf: ElfFile, address: int, code: int, *, indirect: bool = False) -> Location:
    """Return where a program finds a link-time address of a file, as its process has it.

    Args:
        elf: the file.
        address: the address.
        code: link-time address of the probe.
        indirect: True if the wanted address is stored at ``address``.
    """
    word = word_size(elf.machine_name)
    if elf.type == ET_EXEC:
        return Memory(None, None, 1, address, word, word) if indirect else Constant(address)
    pointer = instruction_pointer(elf.machine_name)
    if pointer is None:
        return Unreadable(f"programs of {elf.machine_name} are not supported")
    if indirect:
        return Memory(pointer, None, 1, address - code, word, word)
    return Address(pointer, address - code, word, word)


def _refused(name: str, reason: str) -> Argument:
    whole = f"{name}: {reason}"
    return Argument(name, _BYTES, Unreadable(whole), hidden=True, type_ref=NoValue(whole))


def _address_only(name: str, fetch: Location, why: str, size: int = 0) -> Argument:
    reason = f"the type of {name} is not known: {why}; cast its address, as in *(int *)&{name}"
    kind = ValueType(ValueClass.BYTES, size)
    return Argument(name, kind, fetch, hidden=True, type_ref=NoValue(reason))


def _path(symbol: str) -> str:
    # The path as it is written in an item.
    return bare_name(shown_name(symbol)).replace(f"{_ANONYMOUS}::", "")


def _is_data(symbol: ElfSymbol) -> bool:
    return symbol.type == STT_OBJECT and not symbol.imported
