"""The Java virtual machine of a process: which library it is, and its options.

HotSpot describes its own data for debuggers: ``gHotSpotVMStructs`` and ``gHotSpotVMTypes``
(vmStructs.hpp of OpenJDK), which every build exports. By them its table of options is read from
the process's memory, without asking it. Java 8 has the same table under another name.
"""

# Names of mapped files; importing pathlib takes 6 ms:
# ruff: noqa: PTH119

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import ElfError, TargetError
from usdt.base.frozen import frozen
from usdt.elf.file import ElfFile
from usdt.elf.format import SHT_DYNSYM
from usdt.elf.symbol_table import SymbolTable
from usdt.procfs.mapped_files import mapped_files
from usdt.procfs.maps import read_maps
from usdt.procfs.memory import ProcessMemory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ("LIBRARY", "HotSpot", "find_hotspot")

LIBRARY = "libjvm.so"
_TABLE_OF_OPTIONS = (b"JVMFlag", b"Flag")  # since Java 9; before
_MAX_ENTRIES = 1 << 14  # of each table; Java 17 has 3,500
_MAX_OPTIONS = 1 << 13  # Java 17 has 1,300


@frozen
class HotSpot:
    """A Java virtual machine.

    Attributes:
        pid: its process.
        path: its ``libjvm.so``, as the process knows it.
        open_path: a path that opens this file.
        bias: the address in the process of the library's address 0.
    """

    pid: int
    path: str
    open_path: str
    bias: int

    def options(self, names: Iterable[str]) -> dict[str, bool]:
        """Return the values of options that are on or off (``-XX:+NAME``); unknown ones lack.

        Raises:
            TargetError: the process has ended, or its memory is not that of a virtual machine.
        """
        wanted = {name.encode() for name in names}
        with ElfFile(self.open_path) as elf, ProcessMemory(self.pid) as memory:
            tables = _Tables(elf, memory, self.bias)
            return {
                name.decode(): bool(memory.number(address, 1))
                for name, address in tables.options()
                if name in wanted
            }


def find_hotspot(pid: int) -> HotSpot | None:
    """Return the Java virtual machine of a process; None if it is none.

    Raises:
        TargetError: no such process, or not permitted.
    """
    libraries = {
        file.identity: (file.path, file.open_path)
        for file in mapped_files(pid)
        if os.path.basename(file.path) == LIBRARY and file.open_path is not None
    }
    for mapping in read_maps(pid) if libraries else ():
        path, open_path = libraries.get((mapping.device, mapping.inode), ("", ""))
        if not path or not mapping.executable:
            continue
        try:
            with ElfFile(open_path) as elf:
                link = elf.address_of(mapping.offset)
                if link is not None and any(
                    one.addresses("gHotSpotVMStructs") for one in _exports(elf)
                ):
                    return HotSpot(pid, path, open_path, mapping.start - link)
        except ElfError:
            continue
    return None


def _exports(elf: ElfFile) -> list[SymbolTable]:
    return [SymbolTable(elf, section) for section in elf.sections if section.type == SHT_DYNSYM]


@frozen
class _Field:
    static: bool
    offset: int  # in its structure; of a static field, its address


class _Tables:
    # The tables that describe a virtual machine, and its table of options.
    def __init__(self, elf: ElfFile, memory: ProcessMemory, bias: int) -> None:
        self._elf, self._memory, self._bias = elf, memory, bias
        self._word = elf.bits // 8
        self._symbols = _exports(elf)

    def options(self) -> Iterator[tuple[bytes, int]]:
        # The name of each option, and the address of its value.
        fields, owner = self._fields()
        missing = {b"flags", b"numFlags", b"_name", b"_addr"} - fields.keys()
        size = self._size(owner) if owner else 0
        if missing or not 0 < size < 1 << 12:
            raise TargetError(f"{self._elf.path}: its table of options is not known")
        first = self._pointer(fields[b"flags"].offset)
        count = min(self._pointer(fields[b"numFlags"].offset), _MAX_OPTIONS)
        for number in range(count):
            entry = first + number * size
            name = self._pointer(entry + fields[b"_name"].offset)
            value = self._pointer(entry + fields[b"_addr"].offset)
            if name and value:
                yield self._memory.text(name), value

    def _fields(self) -> tuple[dict[bytes, _Field], bytes]:
        # The fields of the structure of an option, and its name.
        found: dict[bytes, _Field] = {}
        owner = b""
        kind, name, static, offset, address = (
            self._layout(f"StructEntry{part}Offset")
            for part in ("TypeName", "FieldName", "IsStatic", "Offset", "Address")
        )
        for entry in self._entries("Struct", kind):
            of = self._memory.text(self._pointer(entry + kind))
            if of not in _TABLE_OF_OPTIONS:
                continue
            owner = of
            is_static = self._memory.number(entry + static, 4) != 0
            place = self._pointer(entry + address) if is_static else self._u64(entry + offset)
            found[self._memory.text(self._pointer(entry + name))] = _Field(is_static, place)
        return found, owner

    def _size(self, of: bytes) -> int:
        name, size = (self._layout(f"TypeEntry{part}Offset") for part in ("TypeName", "Size"))
        for entry in self._entries("Type", name):
            if self._memory.text(self._pointer(entry + name)) == of:
                return self._u64(entry + size)
        return 0

    def _entries(self, table: str, name: int) -> Iterator[int]:
        # The addresses of a table's entries; one without a name ends it.
        at, stride = (
            self._pointer(self._symbol(f"{table}s")),
            self._layout(f"{table}EntryArrayStride"),
        )
        for number in range(_MAX_ENTRIES):
            entry = at + number * stride
            if not self._pointer(entry + name):
                return
            yield entry

    def _layout(self, name: str) -> int:
        found = self._u64(self._symbol(name))
        if found >= 1 << 12:
            raise TargetError(f"{self._elf.path}: gHotSpotVM{name} is {found}, no offset")
        return found

    def _symbol(self, name: str) -> int:
        found = [at for one in self._symbols for at in one.addresses(f"gHotSpotVM{name}")]
        if not found:
            raise TargetError(f"{self._elf.path}: has no symbol gHotSpotVM{name}")
        return found[0] + self._bias

    def _pointer(self, address: int) -> int:
        return self._memory.number(address, self._word)

    def _u64(self, address: int) -> int:
        return self._memory.number(address, 8)
