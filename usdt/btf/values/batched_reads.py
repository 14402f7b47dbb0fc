"""Reads of generated code: all numbers of a structure with as few ``struct`` calls as possible.

Generated functions have the data in ``d`` and the offset of the value in ``at``.
"""

from __future__ import annotations

import heapq
import struct
from typing import TYPE_CHECKING, Any

from usdt.btf.values.scalars import struct_mark

if TYPE_CHECKING:
    from usdt.btf.reader import Btf

__all__ = ("BatchedReads", "bitfield_source")

_WORD = 8


class BatchedReads:
    """The numbers and bit fields that one generated function reads.

    Args:
        btf: gives the byte order.
        space: globals of the generated code; the functions that unpack are added to them.
    """

    def __init__(self, btf: Btf, space: dict[str, Any]) -> None:
        self._btf = btf
        self._space = space
        self._numbers: list[tuple[int, int, str, str]] = []  # offset, size, format, variable
        self._bitfields: list[tuple[int, int, str]] = []  # offset in bits, bits, variable

    def number(self, offset: int, code: str) -> str:
        """Return the variable of a number of a :mod:`struct` format at ``offset`` bytes."""
        variable = f"v{len(self._numbers)}"
        self._numbers.append((offset, struct.calcsize(f"={code}"), code, variable))
        return variable

    def bitfield(self, bit_offset: int, size: int) -> str:
        """Return the variable of an unsigned bit field of ``size`` bits at ``bit_offset``."""
        variable = f"b{len(self._bitfields)}"
        self._bitfields.append((bit_offset, size, variable))
        return variable

    def unpacker(self, code: str) -> str:
        """Return the name that generated code has for ``unpack_from`` of a format."""
        name = f"U_{code}"
        self._space[name] = struct.Struct(struct_mark(self._btf) + code).unpack_from
        return name

    def lines(self) -> list[str]:
        """Return the code that sets all variables; it does not check the length of the data."""
        lines = [self._unpacking(group) for group in _groups(self._numbers)]
        for window, fields in _windows(self._bitfields):
            whole = f"int.from_bytes(d[at + {window[0]}:at + {window[1]}], {self._btf.order!r})"
            if len(fields) > 1:
                lines.append(f" w = {whole}")
                whole = "w"
            for bit_offset, size, variable in fields:
                shift = _shift(self._btf.order, window, bit_offset, size)
                lines.append(f" {variable} = {whole} >> {shift} & {(1 << size) - 1:#x}")
        return lines

    def _unpacking(self, group: list[tuple[int, int, str, str]]) -> str:
        layout, end = "", 0
        for offset, size, code, _ in group:
            layout += (f"{offset - end}x" if offset > end else "") + code
            end = offset + size
        variables = ", ".join(variable for *_, variable in group)
        return f" {variables}, = {self.unpacker(layout)}(d, at)"


def bitfield_source(btf: Btf, bit_offset: int, size: int) -> str:
    """Return the expression of one bit field that is read by itself."""
    window = bit_offset // 8, (bit_offset + size + 7) // 8
    shift = _shift(btf.order, window, bit_offset, size)
    whole = f"int.from_bytes(d[at + {window[0]}:at + {window[1]}], {btf.order!r})"
    return f"{whole} >> {shift} & {(1 << size) - 1:#x}"


def _shift(order: str, window: tuple[int, int], bit_offset: int, size: int) -> int:
    first, end = window
    return bit_offset - 8 * first if order == "little" else 8 * end - bit_offset - size


def _groups(numbers: list[tuple[int, int, str, str]]) -> list[list[tuple[int, int, str, str]]]:
    # Numbers that do not overlap are unpacked together; members of a union are not.
    groups: list[list[tuple[int, int, str, str]]] = []
    ends: list[tuple[int, int]] = []  # a heap: end of a group, its index
    for row in sorted(numbers):
        if ends and ends[0][0] <= row[0]:
            index = heapq.heappop(ends)[1]
            groups[index].append(row)
        else:
            index = len(groups)
            groups.append([row])
        heapq.heappush(ends, (row[0] + row[1], index))
    return groups


def _windows(
    fields: list[tuple[int, int, str]],
) -> list[tuple[tuple[int, int], list[tuple[int, int, str]]]]:
    # Bit fields that lie within eight bytes are taken out of one number.
    windows: list[tuple[tuple[int, int], list[tuple[int, int, str]]]] = []
    for row in sorted(fields):
        bit_offset, size, _ = row
        first, end = bit_offset // 8, (bit_offset + size + 7) // 8
        if windows and end - windows[-1][0][0] <= _WORD:
            (start, last), rows = windows.pop()
            windows.append(((start, max(last, end)), [*rows, row]))
        else:
            windows.append(((first, end), [row]))
    return windows
