"""Where the variables of a file are while it runs.

The address is relative to the file, unless another file may have the variable: see
:mod:`usdt.elf.got_slots`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.base.text import encoded
from usdt.elf.format import ET_EXEC
from usdt.elf.got_slots import has_slots, read_slots

if TYPE_CHECKING:
    from usdt.elf.file import ElfFile
    from usdt.elf.symbol_tables import SymbolTables

__all__ = ("THREAD_LOCAL", "Place", "VariablePlaces")

#: Why a variable has no address.
THREAD_LOCAL = "it is thread-local: its address differs from thread to thread"


@frozen
class Place:
    """Where a variable is.

    Attributes:
        address: its link-time address.
        indirect: whether a word at that address has the address of the variable.
    """

    address: int
    indirect: bool = False


class VariablePlaces:
    """Finds the places of variables of one file.

    Args:
        elf: the file; the caller closes it.
        symbols: its symbols.
    """

    def __init__(self, elf: ElfFile, symbols: SymbolTables) -> None:
        self._elf = elf
        self._symbols = symbols

    def defined(self, address: int) -> Place:
        """Return the place of a variable that the file defines at a link-time address.

        Raises:
            TracingError: the program may have a copy, whose address the file does not know.
        """
        if self._elf.type == ET_EXEC or self._elf.dynamic.is_program:
            return Place(address)
        names = [one.name for one in self._symbols.exported_at(address)]
        if not names or self._elf.dynamic.symbolic:
            return Place(address)
        for one in names:
            if encoded(one) in self._slots:
                return Place(self._slots[encoded(one)], indirect=True)
        if not has_slots(self._elf.machine_name):
            raise TracingError(
                f"{self._elf.path} exports it, and programs of {self._elf.machine_name} that may "
                "have a copy are not supported"
            )
        raise TracingError(
            f"{self._elf.path} exports it without using it, so a program may have a copy: name it "
            "at a probe of that program"
        )

    def imported(self, name: str) -> Place:
        """Return the place of a variable that another file defines.

        Raises:
            TracingError: the file does not refer to it by its address.
        """
        slot = self._slots.get(encoded(name))
        if slot is None:
            raise TracingError(
                f"it is defined in another file, whose address for it {self._elf.path} does not "
                "have: name it at a probe of that file"
            )
        return Place(slot, indirect=True)

    @functools.cached_property
    def _slots(self) -> dict[bytes, int]:
        return dict(read_slots(self._elf))
