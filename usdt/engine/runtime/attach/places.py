"""Sites told apart by the place of their instruction in its page.

An event of tracefs has no cookies, and a cookie takes a helper call. The address of an instruction
differs from process to process. Its last 12 bits do not: they are those of its offset in the file,
because files are mapped by pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from usdt.arch.pt_regs import instruction_pointer
from usdt.base.errors import NotSupported
from usdt.base.frozen import frozen, replace
from usdt.base.machine import KERNEL_MACHINE, word_size
from usdt.bpf.asm.insn import R0, R6, Alu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.link import UprobeSite
    from usdt.engine.compiler.site_numbers import SiteTable

    T = TypeVar("T")

__all__ = ("DispatchByPlace", "apart")

_PLACE = 0xFFF  # of a byte in a page; pages have 4 KiB or a multiple


@frozen
class DispatchByPlace:
    """A dispatch by the place in the page.

    Attributes:
        keys: (place, number of the variant), each place once.
    """

    keys: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, sites: Iterable[UprobeSite]) -> DispatchByPlace:
        """Return that of some sites, whose cookies are the numbers of their variants."""
        return cls(tuple((site.offset & _PLACE, site.cookie) for site in sites))

    def emit(self, asm: Assembler) -> None:
        """Emit a load of the place into r0."""
        offset = instruction_pointer(KERNEL_MACHINE)
        if offset is None:
            raise NotSupported(f"uprobes of tracefs on {KERNEL_MACHINE}", None)
        asm.load(R0, R6, offset, word_size(KERNEL_MACHINE))
        asm.alu(Alu.AND, R0, _PLACE)

    def rows_of(self, table: SiteTable) -> SiteTable:
        """Return a table whose rows are found by the place."""
        rows = {place: table.rows[number - table.first] for place, number in self.keys}
        return replace(table, first=0, rows=rows)


def apart(items: Sequence[T], site_of: Callable[[T], UprobeSite]) -> list[list[T]]:
    """Return groups in each of which the sites have different places, for an event each.

    The kernel runs what is attached at one place of a file in reverse order. So the last group has
    the first items.
    """
    groups: list[list[T]] = []
    used: dict[int, int] = {}
    for item in items:
        place = site_of(item).offset & _PLACE
        index = used[place] = used.get(place, -1) + 1
        if index == len(groups):
            groups.append([])
        groups[index].append(item)
    return groups[::-1]
