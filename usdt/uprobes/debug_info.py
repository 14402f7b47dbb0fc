"""The debug information of a file, opened when a probe needs it.

This is the only module of this folder that depends on the details of :mod:`usdt.dwarf`.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from usdt.arch.dwarf_registers import register_name
from usdt.base.errors import BtfError, TracingError
from usdt.btf.types import Array
from usdt.elf.file import ElfFile
from usdt.unwind.rules import Expression
from usdt.uprobes.cxx_pass_by_reference import passed_by_reference, virtual_bases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.btf.reader import Btf
    from usdt.dwarf.info import DebugInfo, FunctionDebug
    from usdt.dwarf.places.locals import LocalDebug
    from usdt.dwarf.places.scopes import CodePlace
    from usdt.dwarf.types.variables import VariableDebug
    from usdt.dwarf.types.variants import VariantPart
    from usdt.unwind.frame_table import FrameTable

__all__ = ("Debug", "debug_of", "required_debug")


class Debug:
    """The debug information of one file. Its files are closed when the object is freed.

    Args:
        elf: the file; closed with this object.
        info: its debug information.

    Attributes:
        elf: the file.
    """

    def __init__(self, elf: ElfFile, info: DebugInfo) -> None:
        self.path = elf.path
        self.elf = elf
        self.machine = elf.machine_name
        self._info = info
        self._frames: FrameTable | None = None
        # The readers form reference cycles, which the garbage collector may free late.
        self._closing = weakref.finalize(self, _close, elf, info)

    def close(self) -> None:
        """Close the files; idempotent."""
        self._closing()

    @property
    def btf(self) -> Btf:
        """The program's types."""
        return self._info.btf

    @property
    def missing_reason(self) -> str:
        """The part of the debug information that is missing, as text; "" if it is complete."""
        return self._info.missing_reason

    def function(self, address: int, symbol: str) -> FunctionDebug | None:
        """Return the function at a link-time address, or None.

        Raises:
            TracingError: its description is damaged.
        """
        return self._info.function(address, symbol)

    def line_places(self, source: str, line: int) -> list[CodePlace]:
        """Return the places at which a source line begins.

        Raises:
            ProbeNotFound: there is none; the message says why.
            TracingError: the debug information is damaged.
        """
        return self._info.line_places(source, line)

    def inlined_places(self, matches: Callable[[str], bool]) -> list[CodePlace]:
        """Return the inlined copies of functions. All entries are read, some 10 MB a second.

        Args:
            matches: returns whether a function of a linkage name is wanted.

        Raises:
            TracingError: the debug information is damaged.
        """
        return self._info.inlined_places(matches)

    def inlined_counts(self, matches: Callable[[str], bool]) -> dict[str, int]:
        """Return the number of inlined copies of each function; as :meth:`inlined_places`.

        Raises:
            TracingError: the debug information is damaged.
        """
        return self._info.inlined_counts(matches)

    def place(self, address: int) -> CodePlace | None:
        """Return the place at a link-time address; None if no function is known there.

        Raises:
            TracingError: the debug information is damaged.
        """
        return self._info.place(address)

    def locals(self, place: CodePlace) -> list[LocalDebug]:
        """Return the parameters and local variables of a place.

        Raises:
            TracingError: the debug information is damaged.
        """
        return self._info.locals(place)

    @property
    def bias(self) -> int:
        """The difference between addresses in the debug information and those in the program."""
        return self._info.bias

    def frame_address(self, address: int) -> tuple[str, int] | bytes | None:
        """Return a function's canonical frame address: register and offset, or an expression.

        Raises:
            TracingError: the unwind table is damaged.
        """
        if self._frames is None:
            from usdt.unwind.frame_table import FrameTable  # noqa: PLC0415 - only for variables

            self._frames = FrameTable(self.elf)
        row = self._frames.row(address)
        cfa = None if row is None else row.cfa
        if cfa is None:
            return None
        if isinstance(cfa, Expression):
            return cfa.code
        return register_name(self.machine, cfa.register), cfa.offset

    def type_id(self, name: str) -> int:
        """Return the ID of a type by its name, such as ``struct request``.

        Raises:
            BtfError: there is no type of this name.
        """
        try:
            return self._info.type_id(name)
        except TracingError as err:
            raise BtfError(str(err)) from err

    def variable(self, name: str, code: int) -> VariableDebug | None:
        """Return the variable that a name means at a link-time address, or None.

        Raises:
            TracingError: its description is damaged.
        """
        return self._info.variable(name, code)

    def path_hint(self, name: str) -> str:
        """Return a clause that an unknown name may need its path; "" if none would help."""
        if "::" in name or not self._info.needs_paths:
            return ""
        return f"; a constant of another source file needs its path, as in ::{name} or shop::{name}"

    def variable_names(self, like: str) -> Iterator[str]:
        """Yield names of variables that have an address, with their paths.

        Args:
            like: a name. Those that are most like it are among them.
        """
        return self._info.variable_names(like)

    def is_reference(self, number: int) -> bool:
        """Return True if a pointer is a C++ reference."""
        return number in self._info.references

    def variants(self, number: int) -> VariantPart | None:
        """Return the variants of a Rust enum; None for any other type."""
        return self._info.variants.get(self.btf.resolve(number).id)

    def virtual_bases(self, number: int) -> list[str]:
        """Return the names of the virtual base classes of a class and of its bases."""
        return virtual_bases(self._info.btf.die(number), self._info.definition)

    def array_type_of(self, number: int, count: int) -> int:
        """Return the ID of an array type with ``count`` elements of a type."""
        return self._info.btf.add(lambda type_id: Array(type_id, "", number, 0, count))

    def by_reference(self, number: int) -> bool:
        """Return True if C++ passes a class by the address of a copy."""
        return passed_by_reference(self._info.btf, number, self._info.definition)

    def text(self, number: int, language: str) -> str:
        """Return a type in the syntax of a language."""
        return self._info.type_text(number, language)


def _close(elf: ElfFile, info: DebugInfo) -> None:
    info.close()
    elf.close()


_open: weakref.WeakValueDictionary[tuple[str, tuple[str, ...]], Debug] = (
    weakref.WeakValueDictionary()
)


def debug_of(path: str, open_path: str, roots: Sequence[str] = ("",)) -> Debug | None:
    """Return the debug information of a file; None if it has none.

    Args:
        path: the file's name, for messages.
        open_path: the path to open.
        roots: root directories in which debug files are searched.

    Raises:
        ElfError: the file is damaged.
        TargetError: the file cannot be opened.
        TracingError: the debug information is damaged.
    """
    from usdt.dwarf.info import DebugInfo  # noqa: PLC0415 - only where types are needed

    key = open_path, tuple(roots)
    known = _open.get(key)
    if known is not None:
        return known
    elf = ElfFile(open_path, name=path)
    info = DebugInfo.of(elf, roots=roots)
    if info is None:
        elf.close()
        return None
    debug = _open[key] = Debug(elf, info)
    return debug


def required_debug(path: str, open_path: str, roots: Sequence[str] = ("",)) -> Debug:
    """Return the debug information of a file, as :func:`debug_of`.

    Raises:
        BtfError: there is none, or it cannot be read; the message says what to install.
    """
    try:
        found = debug_of(path, open_path, roots)
    except TracingError as err:
        raise BtfError(str(err)) from err
    if found is None:
        from usdt.uprobes.debug_package_hint import missing_debug  # noqa: PLC0415 - only for a message

        with ElfFile(open_path, name=path) as elf:
            raise BtfError(missing_debug(path, elf.build_id))
    return found
