"""The functions and blocks that contain an address of the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.dwarf.index.files import DiePosition
from usdt.dwarf.lines.line_program import FileTable, table_of
from usdt.dwarf.places.prologues import Prologues
from usdt.dwarf.units.constants import At, Tag

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.dwarf.index.nested_functions import NestedFunctions
    from usdt.dwarf.units.dies import Die

__all__ = ("CodePlace", "CodeScopes")

_MAX_DEPTH = 256  # blocks in one another
_MAX_KEPT = 1 << 17  # blocks in memory
_BLOCKS = (Tag.LEXICAL_BLOCK, Tag.TRY_BLOCK, Tag.CATCH_BLOCK)
_FUNCTIONS = (Tag.INLINED_SUBROUTINE, Tag.SUBPROGRAM)


@frozen
class CodePlace:
    """An address inside a function, with the scopes of its names.

    Attributes:
        address: link-time address in the program's own file.
        function: the function, by its linkage name if it has one.
        inlined: whether that function is inlined here.
        outer: the function that contains the code, likewise.
        start: address of the function that contains the code, which has the symbol.
        scopes: positions of the blocks around the place, the innermost first; the last is the
            entry of ``function``.
        frame: position of the function that contains the code.
        prologue: whether that function may not have stored its parameters yet.
    """

    address: int
    function: str
    inlined: bool
    outer: str
    start: int
    scopes: tuple[DiePosition, ...]
    frame: DiePosition
    prologue: bool


class CodeScopes:
    """The functions and blocks of a program by address.

    Args:
        nested: its functions.
        die: returns the entry at a position.
        bias: difference between addresses in the debug information and those in the program.

    Attributes:
        prologues: the prologues of the functions.
    """

    def __init__(
        self, nested: NestedFunctions, die: Callable[[DiePosition], Die], bias: int
    ) -> None:
        self.prologues = Prologues()
        self._nested = nested
        self._die = die
        self._bias = bias
        self._blocks: dict[DiePosition, list[tuple[int, int, Die]]] = {}
        self._kept = 0

    def chain(self, address: int) -> tuple[DiePosition, list[Die]] | None:
        """Return the function at an address, and the entries that contain it, innermost first.

        Args:
            address: link-time address in the program's own file.

        Raises:
            DwarfError: the entries are damaged.
            LookupError: likewise.
        """
        own = address + self._bias
        position = self._nested.around(own)
        if position is None:
            return None
        chain = [self._die(position)]
        for _ in range(_MAX_DEPTH):
            inner = self._inside(position, chain[0], own)
            if inner is None:
                break
            chain.insert(0, inner)
        return position, chain

    def _inside(self, function: DiePosition, outer: Die, address: int) -> Die | None:
        # The child that contains an address.
        key = DiePosition(function.unit, outer.at, function.section)
        if key not in self._blocks:
            if self._kept >= _MAX_KEPT:
                self._blocks.clear()
                self._kept = 0
            tags = (*_BLOCKS, Tag.INLINED_SUBROUTINE)
            found = self._blocks[key] = [
                (low, high, child)
                for child in outer.children(*tags)
                for low, high in child.ranges()
            ]
            self._kept += len(found) + 1
        return next((die for low, high, die in self._blocks[key] if low <= address < high), None)

    def place(self, address: int, call: tuple[str, int] | None = None) -> CodePlace | None:
        """Return the place at an address; None if no function is known there.

        Args:
            address: link-time address in the program's own file.
            call: source file and line that the place belongs to. If a function that was called
                there is inlined and begins at the address, the place is in its caller.

        Raises: as :meth:`chain`.
        """
        found = self.chain(address)
        if found is None:
            return None
        position, chain = found
        if call is not None:
            chain = chain[self._called_at(chain, address + self._bias, call) :]
        return self.place_of(position, chain, address)

    def place_of(self, position: DiePosition, chain: list[Die], address: int) -> CodePlace:
        """Return a place by its function and the entries that contain it, innermost first."""
        number = next(n for n, die in enumerate(chain) if die.tag in _FUNCTIONS)
        function = chain[number]
        starts = [low for low, _ in chain[-1].ranges()]
        return CodePlace(
            address,
            function.unit.name(function.at),
            function.tag == Tag.INLINED_SUBROUTINE,
            function.unit.name(chain[-1].at),
            (starts[0] if starts else address + self._bias) - self._bias,
            tuple(
                DiePosition(position.unit, die.at, position.section) for die in chain[: number + 1]
            ),
            position,
            self.prologues.contains(chain[-1], address + self._bias),
        )

    def _called_at(self, chain: list[Die], address: int, call: tuple[str, int]) -> int:
        # The number of entries that belong to functions called at a line and begin at an address.
        number = 0
        for at, die in enumerate(chain):
            begins = die.tag == Tag.INLINED_SUBROUTINE and die.number(At.CALL_LINE) == call[1]
            if begins and address in (low for low, _ in die.ranges()):
                table = table_of(die.unit, FileTable)
                file = die.number(At.CALL_FILE) or 0
                if table is not None and table.path(file) == call[0]:
                    number = at + 1
        return number
