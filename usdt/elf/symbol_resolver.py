"""Addresses of the symbols that operands of USDT probes name, from a file or its debug file.

A stripped file keeps only the symbols that other files link to. The others may be in a separate
debug file, which is used only if it has the same build ID.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from usdt.base.errors import ElfError
from usdt.base.text import encoded

if TYPE_CHECKING:
    from usdt.elf.file import ElfFile

__all__ = ("SymbolResolver",)

GOT = "_GLOBAL_OFFSET_TABLE_"
GOT_SECTIONS = (".got.plt", ".got")  # the symbol is at the start of the first that exists
GOT_SLOT = "@GOT"


class SymbolResolver:
    """Finds link-time addresses of the symbols of one file; a context manager.

    Args:
        elf: the file whose probes name the symbols; the caller closes it.
        debug_root: where the system keeps debug files; None: where it usually does.
    """

    def __init__(self, elf: ElfFile, *, debug_root: str | None = None) -> None:
        self._elf = elf
        self._debug_root = debug_root
        self._debug: ElfFile | None = None
        self._searched = False  # for a debug file
        self._slots: dict[bytes, int] | None = None
        self._known: dict[str, int | str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the debug file, if one was opened; idempotent."""
        debug, self._debug = self._debug, None
        if debug is not None:
            debug.close()

    def address(self, name: str) -> int | str:
        """Return the link-time address of a symbol, or the reason why it is not known.

        ``NAME@GOT`` names the slot of the global offset table that the loader fills with the
        symbol's address.
        """
        if name not in self._known:
            try:
                self._known[name] = self._find(name)
            except ElfError as err:
                self._known[name] = str(err)
        return self._known[name]

    def _find(self, name: str) -> int | str:
        if name.endswith(GOT_SLOT):
            return self._slot(name.removesuffix(GOT_SLOT))
        from usdt.elf.symbol_table import symbol_addresses  # noqa: PLC0415 - few operands have one

        found = symbol_addresses(self._elf, name)
        if not found and name == GOT:
            sections = filter(None, map(self._elf.section, GOT_SECTIONS))
            found = tuple(section.address for section in sections)[:1]
        debug = None if found else self._debug_file()
        if debug is not None:
            found = symbol_addresses(debug, name)
        if len(found) > 1:
            return f"ambiguous: {len(found)} symbols named {name}"
        return found[0] if found else self._missing(name)

    def _missing(self, name: str) -> str:
        if name.startswith(".L"):
            return f"{name} is a local label of the assembler, which symbol tables do not contain"
        where = f"symbol {name} is not in the symbol tables of {self._elf.path}"
        if self._debug is None and self._elf.section(".symtab") is None:
            return f"{where} (stripped); install its debug symbols"
        return where

    # The debug file

    def _debug_file(self) -> ElfFile | None:
        if not self._searched:
            from usdt.elf.debug_files import DEBUG_ROOT, find_by_build_id  # noqa: PLC0415 - rare

            self._searched = True
            # With the same build ID, and so with the same addresses.
            root = DEBUG_ROOT if self._debug_root is None else self._debug_root
            self._debug = next(find_by_build_id(self._elf, debug_root=root), None)
        return self._debug

    # The global offset table

    def _slot(self, name: str) -> int | str:
        if self._slots is None:
            from usdt.elf.got_slots import read_slots  # noqa: PLC0415 - rarely named

            self._slots = dict(read_slots(self._elf))
        slot = self._slots.get(encoded(name))
        if slot is None:
            return f"symbol {name} has no slot in the global offset table of {self._elf.path}"
        return slot
