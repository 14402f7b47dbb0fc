"""The microseconds of many times as decimal digits, by arithmetic on all of them at once.

A block of 64-bit times is one large integer: its lanes. A multiplication, shift or mask of that
integer does the same to every lane, and costs two nanoseconds a lane, where a loop of Python needs
fifty for a division. Every intermediate value fits its lane, so lanes do not disturb each other.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

__all__ = ("microsecond_digits",)

_SECOND = 1_000_000_000
_LATEST = 1 << 62  # nanoseconds: a later start of a second is not plausible, and not calculated
_TOP = (1 << 64) - (1 << 30)  # the bits of a lane that no nanosecond of a second has
_HALF = 24  # bits of a lane for three digits

# x // 1000 is x * M >> S. That is exact for x below 10 ** 9, and below 10 ** 6.
_NANO_SHIFT = 40
_NANO_FACTOR = -(-(1 << _NANO_SHIFT) // 1000)
_MICRO_SHIFT = 30
_MICRO_FACTOR = -(-(1 << _MICRO_SHIFT) // 1000)


class _Lanes(NamedTuple):
    # The same constant in every lane.
    one: int
    top: int
    beyond: int  # what makes a second or more reach ``top``
    micro: int  # masks of results
    thousand: int
    digit: int
    zeros: int


@functools.lru_cache(maxsize=4)
def _lanes(count: int) -> _Lanes:
    one = int.from_bytes((1).to_bytes(8, "little") * count, "little")
    constants = (
        1,
        _TOP,
        (1 << 30) - _SECOND,
        (1 << 20) - 1,
        (1 << 10) - 1,
        0xF << _HALF | 0xF,
        int.from_bytes(b"000000", "little"),
    )
    return _Lanes(*(one * constant for constant in constants))


def microsecond_digits(times: bytes, start: int) -> bytes | None:
    """Return the microseconds of times within one second: six ASCII digits and two NULs for each.

    Args:
        times: nanoseconds, little-endian integers of 64 bits.
        start: nanoseconds at which the second begins.

    Returns:
        Eight bytes per time; None if one of the times is not in that second.
    """
    if not 0 <= start < _LATEST:
        return None
    lanes = _lanes(len(times) // 8)
    past = int.from_bytes(times, "little") - lanes.one * start
    # A time before the start borrows from the next lane, which leaves the highest bits set.
    if past < 0 or (past | past + lanes.beyond) & lanes.top:
        return None
    micros = past * _NANO_FACTOR >> _NANO_SHIFT & lanes.micro
    millis = micros * _MICRO_FACTOR >> _MICRO_SHIFT & lanes.thousand
    # Two halves of three digits: the milliseconds, and above them the rest of the microseconds.
    halves = (micros << _HALF) - millis * ((1000 << _HALF) - 1)
    hundreds = halves * 41 >> 12 & lanes.digit
    rest = halves - hundreds * 100
    tens = rest * 103 >> 10 & lanes.digit
    # Three bytes: the hundreds, the tens, and what both leave; the tens are in two of them.
    digits = hundreds + (rest << 16) - tens * ((10 << 16) - (1 << 8)) + lanes.zeros
    return digits.to_bytes(len(times), "little")
