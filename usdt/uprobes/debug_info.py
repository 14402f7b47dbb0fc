"""The debug information of a file, opened when a probe needs it.

Everything here that knows how :mod:`usdt.dwarf` says things stands in this module.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError, TracingError
from usdt.btf.types import Array
from usdt.elf.file import ElfFile
from usdt.uprobes.cxx_pass_by_reference import passed_by_reference, virtual_bases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.btf.reader import Btf
    from usdt.dwarf.info import DebugInfo, FunctionDebug
    from usdt.dwarf.types.variants import VariantPart

__all__ = ("Debug", "LazyDebug", "debug_of")


class Debug:
    """The debug information of one file; what it has open is closed with the last user of it.

    Args:
        elf: the file; it is closed with this.
        info: what it has.
    """

    def __init__(self, elf: ElfFile, info: DebugInfo) -> None:
        self.path = elf.path
        self.machine = elf.machine_name
        self._info = info
        # What reads it refers to itself in circles, which nobody would break for a long time.
        self._closing = weakref.finalize(self, _close, elf, info)

    def close(self) -> None:
        """Let the files go; again is fine."""
        self._closing()

    @property
    def btf(self) -> Btf:
        """The types."""
        return self._info.btf

    @property
    def missing_reason(self) -> str:
        """Which part of the debug information is not here, in words; "" if none is known of."""
        return self._info.missing_reason

    def function(self, address: int, symbol: str) -> FunctionDebug | None:
        """The function at a link-time address.

        Raises:
            TracingError: its description is damaged.
        """
        return self._info.function(address, symbol)

    def type_id(self, name: str) -> int:
        """The ID of a type by its name, ``struct request``.

        Raises:
            BtfError: there is none.
        """
        try:
            return self._info.type_id(name)
        except BtfError:
            raise
        except TracingError as err:
            raise BtfError(str(err)) from err

    def is_reference(self, number: int) -> bool:
        """Whether a pointer is a reference of C++."""
        return number in self._info.references

    def variants(self, number: int) -> VariantPart | None:
        """The forms of a Rust enum; None of every other type."""
        return self._info.variants.get(self.btf.resolve(number).id)

    def virtual_bases(self, number: int) -> list[str]:
        """The names of a class's virtual base classes, those of its bases with them."""
        return virtual_bases(self._info.btf.die(number), self._info.definition)

    def array_type_of(self, number: int, count: int) -> int:
        """The ID of an array of so many values of a type."""
        return self._info.btf.add(lambda made: Array(made, "", number, 0, count))

    def by_reference(self, number: int) -> bool:
        """Whether C++ passes the address of a copy where a class is passed by value."""
        return passed_by_reference(self._info.btf, number, self._info._definition)  # noqa: SLF001

    def text(self, number: int, language: str) -> str:
        """A type as a language writes it."""
        return self._info.type_text(number, language)


def _close(elf: ElfFile, info: DebugInfo) -> None:
    info.close()
    elf.close()


_open: weakref.WeakValueDictionary[tuple[str, tuple[str, ...]], Debug] = (
    weakref.WeakValueDictionary()
)


def debug_of(path: str, open_path: str, roots: Sequence[str] = ("",)) -> Debug | None:
    """The debug information of a file; None if it has none.

    Args:
        path: the file's name, as people know it.
        open_path: what to open.
        roots: directories that stand for "/" when debug files are looked for.

    Raises:
        ElfError: the file is damaged.
        TargetError: it cannot be opened.
        TracingError: its debug information is damaged.
    """
    from usdt.dwarf.info import DebugInfo  # noqa: PLC0415 - only where types are asked for

    key = open_path, tuple(roots)
    known = _open.get(key)
    if known is not None:
        return known
    elf = ElfFile(open_path, name=path)
    info = DebugInfo.of(elf, roots=roots)
    if info is None:
        elf.close()
        return None
    made = _open[key] = Debug(elf, info)
    return made


class LazyDebug:
    """The same, opened when something is asked of it: most probes do without.

    Args as of :func:`debug_of`; ``machine``: the file's CPU.
    """

    def __init__(self, path: str, open_path: str, machine: str, roots: Sequence[str]) -> None:
        self.path = path
        self.machine = machine
        self._open_path = open_path
        self._roots = tuple(roots)

    @functools.cached_property
    def _debug(self) -> Debug:
        try:
            found = debug_of(self.path, self._open_path, self._roots)
        except TracingError as err:
            raise BtfError(str(err)) from err
        if found is None:
            from usdt.uprobes.debug_package_hint import missing_debug  # noqa: PLC0415 - only for a message

            with ElfFile(self._open_path, name=self.path) as elf:
                raise BtfError(missing_debug(self.path, elf.build_id))
        return found

    @property
    def btf(self) -> Btf:
        """The types.

        Raises:
            BtfError: there are none; the message says what brings them.
        """
        return self._debug.btf

    def type_id(self, name: str) -> int:
        """The ID of a type by its name.

        Raises:
            BtfError: there is none of this name, or none at all.
        """
        return self._debug.type_id(name)

    def is_reference(self, number: int) -> bool:
        """Whether a pointer is a reference of C++."""
        return self._debug.is_reference(number)

    def variants(self, number: int) -> VariantPart | None:
        """The forms of a Rust enum; None of every other type."""
        return self._debug.variants(number)

    def virtual_bases(self, number: int) -> list[str]:
        """The names of a class's virtual base classes."""
        return self._debug.virtual_bases(number)

    def array_type_of(self, number: int, count: int) -> int:
        """The ID of an array of so many values of a type."""
        return self._debug.array_type_of(number, count)
