"""The nanoseconds of many times as decimal digits, by arithmetic on all of them at once.

A block of 64-bit times is one large integer: its lanes. A multiplication, shift or mask of that
integer does the same to every lane, and costs two nanoseconds a lane, where a loop of Python needs
fifty for a division. Every intermediate value fits its lane, so lanes do not disturb each other.

The first digit is in the highest byte of its lane. The first time is in the lane in which the byte
order of the machine puts it, so that times are lanes as they are.
"""

from __future__ import annotations

import functools
import sys
from typing import NamedTuple

from usdt.engine.output.wall_clock import TENTH

__all__ = ("fraction_digits",)

_DIGITS = 8  # of a number below TENTH
_LATEST = 1 << 62  # nanoseconds: a later start is not plausible, and not calculated
_BITS = 27  # of a number below TENTH
# x // 10_000 is x * M >> S. That is exact for x below TENTH.
_SHIFT = 40
_FACTOR = -(-(1 << _SHIFT) // 10_000)


class _Lanes(NamedTuple):
    # The same constant in every lane.
    one: int
    top: int  # the bits that no number below TENTH has
    beyond: int  # what makes TENTH or more reach ``top``
    half: int  # masks of results
    quarters: int
    digits: int
    zeros: int


@functools.lru_cache(maxsize=4)
def _lanes(count: int) -> _Lanes:
    one = int.from_bytes((1).to_bytes(_DIGITS, "big") * count, "big")
    constants = (
        1,
        (1 << 64) - (1 << _BITS),
        (1 << _BITS) - TENTH,
        (1 << 14) - 1,
        0x7F << 32 | 0x7F,
        0xF << 48 | 0xF << 32 | 0xF << 16 | 0xF,
        int.from_bytes(b"0" * _DIGITS, "big"),
    )
    return _Lanes(*(one * constant for constant in constants))


@functools.lru_cache(maxsize=4)
def _starts(count: int, start: int) -> int:
    return _lanes(count).one * start


def fraction_digits(times: memoryview, start: int) -> memoryview | None:
    """Return the nanoseconds of times within a tenth of a second: eight ASCII digits for each.

    Args:
        times: nanoseconds, integers of 64 bits.
        start: nanoseconds at which the tenth of a second begins.

    Returns:
        A word of eight bytes per time; None if one of the times is not in that tenth of a second.
    """
    if not 0 <= start < _LATEST:
        return None
    lanes = _lanes(len(times))
    value = int.from_bytes(times.tobytes(), sys.byteorder) - _starts(len(times), start)
    # A time before the start borrows from the next lane, which leaves the highest bits set.
    if value < 0 or (value | value + lanes.beyond) & lanes.top:
        return None
    # Halves of four digits, then quarters of two, then digits: a quotient moves up, and leaves the
    # remainder.
    value += (value * _FACTOR >> _SHIFT & lanes.half) * ((1 << 32) - 10_000)
    value += (value * 5243 >> 19 & lanes.quarters) * ((1 << 16) - 100)
    value += (value * 103 >> 10 & lanes.digits) * ((1 << 8) - 10)
    digits = memoryview((value | lanes.zeros).to_bytes(8 * len(times), "big")).cast("Q")
    return digits[::-1] if sys.byteorder == "little" else digits
