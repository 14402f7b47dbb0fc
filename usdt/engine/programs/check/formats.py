"""The formats of printf(): their conversions, and whether values fit them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.base.text import plural
from usdt.engine.programs.types import (
    BufferType,
    IntegerType,
    PointerType,
    ShownAs,
    is_number,
    spelled,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.programs.types import Type

__all__ = ("Conversion", "check_format", "check_kernel_format", "conversions")

_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>[0-9]*)(?:\.(?P<precision>[0-9]*))?"
    r"(?P<size>hh|h|ll|l|j|z|t)?(?P<letter>r[xh]|gr|[%a-zA-Z])"
)
_NUMBERS = frozenset((*"duixXocp", "gr"))
_MOST_WIDTH = 16384  # characters; a hit would print more than a value can have
_OF_KERNEL, _MOST_OF_KERNEL = "duixps", 3  # conversions of bpf_trace_printk(), and values


@frozen
class Conversion:
    """A conversion of a format, and the text before it.

    Attributes:
        before: text without conversions; ``%%`` is ``%``.
        letter: ``d``, ``s``, ``rx``…; "" for the text at the end.
        flags, width, precision: as written; ``precision`` is None without a dot.
        size: ``hh`` to ``ll``, or "".
    """

    before: str
    letter: str = ""
    flags: str = ""
    width: str = ""
    precision: str | None = None
    size: str = ""


def conversions(text: str) -> list[Conversion]:
    """Return the conversions of a format.

    Raises:
        ValueError: a percent sign does not begin one, or a width or precision is too large.
    """
    found: list[Conversion] = []
    before = ""
    at = 0
    while (start := text.find("%", at)) >= 0:
        match = _CONVERSION.match(text, start)
        if match is None:
            raise ValueError(f"found {text[start : start + 2]!r}, which is no conversion")
        before += text[at:start]
        at = match.end()
        if match["letter"] == "%":
            before += "%"
            continue
        if match["letter"] not in (*_NUMBERS, "s", "r", "rx", "rh"):
            raise ValueError(f"found {match[0]!r}, which is no conversion of printf()")
        letter, flags, width = match["letter"], match["flags"], match["width"]
        precision, size = match["precision"], match["size"] or ""
        if any(len(one) > 5 or int(one) > _MOST_WIDTH for one in (width, precision) if one):
            raise ValueError(f"found {match[0]!r}: widths and precisions are at most {_MOST_WIDTH}")
        found.append(Conversion(before, letter, flags, width, precision, size))
        before = ""
    return [*found, Conversion(before + text[at:])]


def check_format(text: str, types: Sequence[Type], error: Callable[[str], Exception]) -> None:
    """Check that a format fits the types of its values.

    Raises:
        Exception: what ``error`` returns for the reason.
    """
    try:
        *wanted, _ = conversions(text)
    except ValueError as err:
        raise error(str(err)) from err
    if len(wanted) != len(types):
        counts = plural(len(wanted), "conversion"), plural(len(types), "value")
        raise error(f"the format has {' for '.join(counts)}")
    for conversion, kind in zip(wanted, types, strict=True):
        if not _fits(conversion.letter, kind):
            shown = f"%{conversion.size}{conversion.letter}"
            raise error(f"{shown} does not go with {spelled(kind)}")


def check_kernel_format(text: str, error: Callable[[str], Exception]) -> None:
    """Check that the kernel can print a format, which fits its values.

    Raises:
        Exception: what ``error`` returns for the reason.
    """
    *wanted, _ = conversions(text)
    if len(wanted) > _MOST_OF_KERNEL:
        raise error(f"the kernel prints at most {_MOST_OF_KERNEL} values, not {len(wanted)}")
    for one in wanted:
        plain = not one.flags and not one.width and one.precision is None
        if not plain or one.letter not in _OF_KERNEL or one.size not in ("", "l", "ll"):
            shown = f"%{one.flags}{one.width}{one.size}{one.letter}"
            raise error(f"the kernel prints numbers as %d, %u and %x, and %s and %p, not {shown}")


def _fits(letter: str, kind: Type) -> bool:
    if letter in ("r", "rx", "rh"):
        return isinstance(kind, BufferType)
    if letter in _NUMBERS:
        return is_number(kind)
    if isinstance(kind, PointerType):
        return False
    if isinstance(kind, IntegerType):
        return kind.shown is not ShownAs.NUMBER or kind.names is not None
    return True
