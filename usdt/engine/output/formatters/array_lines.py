"""Lines of records that show nothing but integers, by numpy: a column of a block at a time.

What all lines of a block have in common is repeated. Then each column of numbers is divided by
powers of ten, and a table has the digits of what remains, four at a time. A number shorter than the
longest of its column begins with NULs. At the end these are removed from the whole block.

numpy is an extra. Its import takes as long as some hundred thousand lines without it, so it waits
for these.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from usdt.engine.output.wall_clock import TENTH

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("LEAST", "ArrayLines", "Column", "import_numpy", "numpy_after")

LEAST = 512  # lines of a block for which arrays are worth it
_MANY = 200_000  # lines; numpy saves as much on some more as its import takes
_VALUES = re.compile(rb"%[db]")
_THREADS = "OPENBLAS_NUM_THREADS"
_FRACTION = 8  # digits of a number below TENTH
_WORD = 8  # bytes of a number in a record
_NARROW = 1 << 32  # numbers below it are divided in half the time

_Array: TypeAlias = Any  # numpy.ndarray: numpy need not be installed


class _State:
    # numpy, once it was imported, and the lines until then; it is None if it is not installed.
    def __init__(self) -> None:
        self.left = _MANY
        self.module: Any = None


_STATE = _State()


def import_numpy() -> Any:
    """Import numpy now, without threads for linear algebra; return None if it is not installed."""
    if _STATE.left > 0 or _STATE.module is None:
        _STATE.left = 0
        before = os.environ.get(_THREADS)
        os.environ[_THREADS] = "1"
        with suppress(ImportError):
            _STATE.module = import_module("numpy")
        del os.environ[_THREADS]
        if before is not None:
            os.environ[_THREADS] = before
    return _STATE.module


def numpy_after(lines: int) -> Any:
    """Count lines that were made without numpy. Return it once it is worth its import, or None."""
    if _STATE.left <= 0:
        return _STATE.module
    _STATE.left -= lines
    return None if _STATE.left > 0 else import_numpy()


class Column(NamedTuple):
    """Numbers of eight bytes in records.

    Attributes:
        offset: bytes from the start of a record, with the ring buffer's header.
        signed: whether they may be negative.
        digits: if not 0, they are times, of which so many digits behind the tenth of a second are
            shown.
    """

    offset: int
    signed: bool = False
    digits: int = 0


class _Digits(NamedTuple):
    # Digits to write in all lines.
    place: int  # bytes from the start of a line
    width: int
    values: _Array  # unsigned
    padded: bool  # whether some numbers are shorter, and begin with NULs


class ArrayLines:
    """What makes the lines of records of one layout.

    Args:
        numpy: the module.
        columns: the numbers that a line shows, in its order.
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

    def lines(self, records: bytes | memoryview, unit: bytes, begin: int) -> bytearray | None:
        """Return the lines of records.

        Args:
            records: their bytes.
            unit: the template of a line for ``%``.
            begin: nanoseconds at which the tenth of a second of the times begins.

        Returns:
            The lines; None if a time is not in that tenth of a second, or the template has a NUL.
        """
        if b"\0" in unit:
            return None
        texts = [one.replace(b"\0", b"%") for one in _VALUES.split(unit.replace(b"%%", b"\0"))]
        line = bytearray(texts[0])
        found: list[_Digits] = []
        for column, text in zip(self._columns, texts[1:], strict=True):
            numbers = self.column(records, column.offset, signed=column.signed)
            if not column.digits:
                self._add(line, found, numbers)
            elif not self._add_times(line, found, numbers, begin, column.digits):
                return None
            line += text
        count = len(records) // self._size
        data = line * count
        for digits in found:
            self._write(data, len(line), digits)
        return data.replace(b"\0", b"") if 0 in line else data

    def _add_times(
        self, line: bytearray, found: list[_Digits], times: _Array, begin: int, width: int
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

    def _add(self, line: bytearray, found: list[_Digits], numbers: _Array) -> None:
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
