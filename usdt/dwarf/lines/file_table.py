"""Names of source files: the numbers that DW_AT_decl_file holds are the line table's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.dwarf.lines.line_program import LineTable
from usdt.dwarf.units.constants import At

if TYPE_CHECKING:
    from usdt.dwarf.units.forms import Encoding, Raw
    from usdt.dwarf.units.units import Unit

__all__ = ("file_name",)


class _Names(LineTable):
    # The names alone: the program is not run.
    def _run(self, *_: object) -> None:
        return


def file_name(unit: Unit, number: int) -> str:
    """The path of a file of a unit; "" where that is not known.

    Raises:
        DwarfError: the table is damaged.
    """
    owner = unit.skeleton or unit
    at = owner.integer(owner.root, At.STMT_LIST)
    if at is None:
        return ""

    def text(raw: Raw, _: Encoding) -> str:
        return owner.file.text(raw)

    folder = owner.text(owner.root, At.COMP_DIR) or unit.text(unit.root, At.COMP_DIR)
    table = _Names(owner.file.sections[".debug_line"], at, owner.encoding, folder, text)
    return table.file(number)
