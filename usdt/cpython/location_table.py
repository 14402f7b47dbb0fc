"""Location tables: which source line each instruction of a code object belongs to.

Since Python 3.11 (PEP 657) ``co_linetable`` is a sequence of entries. The first byte has bit 7
set, a kind in bits 3 to 6, and one less than the number of code units that the entry covers in
bits 0 to 2. Numbers follow, by kind; their bytes have bit 7 clear.
"""

from __future__ import annotations

__all__ = ("line_of", "line_ranges")

_UNIT = 2  # bytes of an instruction
_MAX_BYTES = 6  # of a number of lines
_NO_COLUMNS, _LONG, _NONE = 13, 14, 15
_ONE_LINE = range(10, 13)  # kinds of entries whose line is 0, 1 or 2 further


def line_of(table: bytes, first_line: int, offset: int) -> int | None:
    """Return the line of the instruction at a byte offset; None if it has none.

    The result is None as well if the table is damaged or ends before the instruction.
    """
    for start, end, line in line_ranges(table, first_line):
        if start <= offset < end:
            return line
    return None


def line_ranges(table: bytes, first_line: int) -> list[tuple[int, int, int | None]]:
    """Return (start, end, line) of each entry, in bytes of the bytecode; line None: no line."""
    found: list[tuple[int, int, int | None]] = []
    position, start, line = 0, 0, first_line
    while position < len(table):
        head = table[position]
        kind, units = head >> 3 & 15, (head & 7) + 1
        position += 1
        if not head & 0x80:
            break  # damaged
        if kind in (_NO_COLUMNS, _LONG):
            number = _number(table, position)
            if number is None:
                break
            line += -(number >> 1) if number & 1 else number >> 1
        elif kind in _ONE_LINE:
            line += kind - 10
        while position < len(table) and not table[position] & 0x80:
            position += 1  # the rest of the entry: columns
        end = start + units * _UNIT
        found.append((start, end, None if kind == _NONE else line))
        start = end
    return found


def _number(table: bytes, position: int) -> int | None:
    # A number of six bits per byte, the lowest first; bit 6 says that another byte follows. None
    # if it is cut off, or larger than any line.
    number = 0
    for shift, byte in enumerate(table[position : position + _MAX_BYTES]):
        number |= (byte & 63) << 6 * shift
        if not byte & 64:
            return number
    return None
