"""What lies at a site that has not been hit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.nops import NOP_NOP10

if TYPE_CHECKING:
    from usdt.elf.file import ElfFile
    from usdt.probes.probe import Site

__all__ = ("has_nop10",)


def has_nop10(elf: ElfFile, site: Site) -> bool:
    """Return whether a live site is a nop with a nop of 10 bytes behind it (:mod:`usdt.arch.nops`).

    Every argument is in both places where it is in the first.
    """
    if elf.machine_name != "x86_64" or site.offset is None:
        return False
    return elf.bytes_at(site.offset, len(NOP_NOP10)) == NOP_NOP10
