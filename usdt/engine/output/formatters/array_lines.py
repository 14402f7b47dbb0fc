"""Lines of records that show nothing but integers, by numpy: a column of a block at a time.

What all lines of a block have in common is repeated. Then each column of numbers is divided by
powers of ten, and a table has the digits of what remains, four at a time. A number shorter than the
longest of its column begins with NULs. At the end these are removed from the whole block. What a
line shows of its thread is a column of texts where threads alternate.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from usdt.engine.output.formatters.block_parts import CONTEXT_WORDS, Column
from usdt.engine.output.wall_clock import TENTH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ("ArrayLines", "Contexts")

_VALUES = re.compile(rb"%[db]")
_FRACTION = 8  # digits of a number below TENTH
_WORD = 8  # bytes of a number in a record
_FEW = 16  # contexts of a block, each of which is looked for; more are sorted
_SHARE = 4  # lines of a context, on average, for which arrays are worth it
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)
_NARROW = 1 << 32  # numbers below it are divided in half the time

_Array: TypeAlias = Any  # numpy.ndarray: numpy need not be installed


class Contexts(NamedTuple):
    """The contexts of a block of records.

    Attributes:
        firsts: a record of each context.
        which: the context of each record, as an index of ``firsts``; None if there is one context.
    """

    firsts: list[int]
    which: _Array | None


class _Words(NamedTuple):
    # Texts to write in all lines.
    place: int  # bytes from the start of a line
    texts: _Array  # as long as the longest: they end with NULs


class _Digits(NamedTuple):
    # Digits to write in all lines.
    place: int
    width: int
    values: _Array  # unsigned
    padded: bool  # whether some numbers are shorter, and begin with NULs


class ArrayLines:
    """What makes the lines of records of one layout.

    Args:
        numpy: the module.
        columns: what a line shows, in its order.
        size: bytes of a record, with the ring buffer's header.
    """

    def __init__(self, numpy: Any, columns: Sequence[Column], size: int) -> None:
        self._np = numpy
        self._columns = columns
        self._size = size
        self._tables = {width: _table(numpy, width) for width in (4, 2, 1)}

    def column(self, records: bytes | memoryview, offset: int, *, signed: bool = False) -> _Array:
        """Return the words at an offset of each record."""
        code, count = "=i8" if signed else "=u8", len(records) // self._size
        return self._np.ndarray((count,), code, records, offset, (self._size,))

    def alike(self, records: bytes | memoryview, offsets: Sequence[int]) -> bool:
        """Whether the records have the same words at the offsets."""
        columns = (self.column(records, offset) for offset in offsets)
        return all(bool((column == column[0]).all()) for column in columns)

    def contexts(self, records: bytes | memoryview) -> Contexts | None:
        """Return the contexts of records; None if they are many."""
        np = self._np
        columns = [self.column(records, word * _WORD) for word in CONTEXT_WORDS]
        if all(bool((column == column[0]).all()) for column in columns):
            return Contexts([0], None)
        # One number for each context. If two should have the same, the last comparison shows it.
        mixed = columns[0] * np.uint64(_FACTORS[0])
        for column, factor in zip(columns[1:], _FACTORS[1:], strict=True):
            mixed += column * np.uint64(factor)
        which = np.zeros(len(mixed), np.uint8)
        unknown = np.ones(len(mixed), bool)
        firsts: list[int] = []
        while len(firsts) < _FEW:
            first = int(unknown.argmax())
            same = mixed == mixed[first]
            which += same.view(np.uint8) * np.uint8(len(firsts))
            unknown &= ~same
            firsts.append(first)
            if not unknown.any():
                break
        else:
            _, places, which = np.unique(mixed, return_index=True, return_inverse=True)
            firsts = places.tolist()
            if len(firsts) > len(mixed) // _SHARE:
                return None
        equal = (bool((one == one[firsts].take(which)).all()) for one in columns)
        return Contexts(firsts, which) if all(equal) else None

    def lines(
        self,
        records: bytes | memoryview,
        unit: bytes,
        begin: int,
        which: _Array | None,
        names: Mapping[int, Sequence[bytes]],
    ) -> bytearray | None:
        """Return the lines of records.

        Args:
            records: their bytes.
            unit: the template of a line for ``%``.
            begin: nanoseconds at which the tenth of a second of the times begins.
            which: the context of each record; None if ``unit`` has what is shown of it.
            names: by the index of a text of contexts, that of each context.

        Returns:
            The lines; None if a time is not in that tenth of a second, or the template has a NUL.
        """
        if b"\0" in unit or any(b"\0" in text for texts in names.values() for text in texts):
            return None
        texts = [one.replace(b"\0", b"%") for one in _VALUES.split(unit.replace(b"%%", b"\0"))]
        line = bytearray(texts[0])
        found: list[_Digits | _Words] = []
        shown = [one for one in self._columns if which is not None or one.context < 0]
        for column, text in zip(shown, texts[1:], strict=True):
            if column.context >= 0:
                width = max(map(len, names[column.context]))
                table = self._np.array(names[column.context], f"S{width}")
                found += [_Words(len(line), table.take(which))] if width else []
                line += bytes(width)
            else:
                numbers = self.column(records, column.offset, signed=column.signed)
                if not column.digits:
                    self._add(line, found, numbers)
                elif not self._add_times(line, found, numbers, begin, column.digits):
                    return None
            line += text
        count = len(records) // self._size
        data = line * count
        for part in found:
            if isinstance(part, _Words):
                kind = part.texts.dtype
                self._np.ndarray((count,), kind, data, part.place, (len(line),))[:] = part.texts
            else:
                self._write(data, len(line), part)
        return data.replace(b"\0", b"") if 0 in line else data

    def _add_times(
        self, line: bytearray, found: list[_Digits | _Words], times: _Array, begin: int, width: int
    ) -> bool:
        # Adds the digits of times behind the tenth of a second; False if one is not in it.
        if begin < 0:
            return False
        past = times - self._np.uint64(begin)  # a time before it becomes a large number
        if past.max() >= TENTH:
            return False
        values = past.astype(self._np.uint32)
        if width < _FRACTION:
            values //= self._np.uint32(10 ** (_FRACTION - width))
        found.append(_Digits(len(line), width, values, padded=False))
        line += b"0" * width
        return True

    def _add(self, line: bytearray, found: list[_Digits | _Words], numbers: _Array) -> None:
        # Adds what a line shows of numbers: what they begin with, if that is the same, and digits.
        np = self._np
        least, most = int(numbers.min()), int(numbers.max())
        if least == most:
            line += b"%d" % least
            return
        if least < 0:
            found.append(_Digits(len(line), 0, numbers, padded=True))
            line += b"\0"
            # The lowest number has no positive one of its type.
            numbers = np.abs(numbers).view(np.uint64)
            least, most = 0, max(most, -least)
        for width in (4, _FRACTION):
            start = most // 10**width
            if start and start == least // 10**width:
                line += b"%d" % start
                values = (numbers - numbers.dtype.type(start * 10**width)).astype(np.uint32)
                found.append(_Digits(len(line), width, values, padded=False))
                line += b"0" * width
                return
        width = len(str(most))
        padded = least < 10 ** (width - 1)
        values = numbers.astype(np.uint32 if most < _NARROW else np.uint64)
        found.append(_Digits(len(line), width, values, padded))
        line += (b"\0" if padded else b"0") * width

    def _write(self, data: bytearray, length: int, digits: _Digits) -> None:
        # Writes digits into all lines of a block, which are of one length. Those of a group may be
        # written once more with the next one, so that few tables are enough.
        np = self._np
        place, width, values, padded = digits
        if not width:
            signs = np.ndarray((len(values),), np.uint8, data, place, (length,))
            np.multiply(values < 0, np.uint8(ord("-")), out=signs)
            return
        group = next(size for size in self._tables if size <= width)
        table, number = self._tables[group], values.dtype.type
        base = number(10**group)
        for low in (*range(0, width - group, group), width - group):
            left = values // number(10**low) if low else values
            rest = left - left // base * base if low + group < width else left
            if padded:
                rest = rest + (left < base) * number(10**group * (2 if low else 1))
            at = place + width - group - low
            shown = np.ndarray((len(values),), table.dtype, data, at, (length,))
            shown[:] = table.take(rest.astype(np.intp))


@cache
def _table(np: Any, width: int) -> _Array:
    # The digits of the numbers of at most so many digits: with all their zeros, with NULs in place
    # of those before a number, and with a NUL in place of 0 as well.
    powers = 10 ** np.arange(width - 1, -1, -1)
    numbers = np.arange(10**width)[:, None]
    full = numbers // powers % 10 + ord("0")
    empty = np.where(numbers < powers, 0, full)
    short = empty.copy()
    short[0, -1] = ord("0")
    return np.concatenate((full, short, empty)).astype(np.uint8).view(f"=u{width}").ravel()
