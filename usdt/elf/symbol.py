"""A symbol of an ELF file."""

from __future__ import annotations

from usdt.base.frozen import frozen

__all__ = ("ElfSymbol",)


@frozen
class ElfSymbol:
    """A symbol of code or data.

    Attributes:
        name: as in the table, without a version.
        address: link-time address in the file itself; 0 if the symbol is imported.
        size: in bytes; 0 if unknown.
        type: STT_….
        binding: STB_….
        imported: whether another file defines it.
        thumb: whether it is Thumb code of 32-bit ARM.
        local_entry: on 64-bit PowerPC, bytes from the address to the local entry point, which
            callers in the same file use and callers in other files pass.
        exported: whether another definition of the name may precede it.
    """

    name: str
    address: int
    size: int
    type: int
    binding: int
    imported: bool = False
    thumb: bool = False
    local_entry: int = 0
    exported: bool = False
