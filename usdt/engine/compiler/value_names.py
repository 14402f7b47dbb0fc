"""Names of numbers: flags, enumerators, error numbers and devices."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, Self

from usdt.base.frozen import frozen
from usdt.engine.language.error_numbers import ERROR_NUMBERS, error_name

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("DevT", "Enumerators", "Errno", "ErrnoOrAddress", "Flags", "NamedNumber", "ValueNames")

_ALL_BITS = (1 << 64) - 1
_MAX_ERROR = 4095  # MAX_ERRNO: a result of -4095…-1 is an error number


class ValueNames:
    """The names of an argument's values: Flags, Enumerators, Errno, ErrnoOrAddress or DevT.

    Hashable.

    Attributes:
        kind: the word for the class in recordings.
        table: pairs of a value and its name; the first match counts.
        separator: the text between flags.
        mask: for flags, the bits that are looked up together in ``choices``.
        choices: for flags, pairs of a value of the masked bits and its name: ``O_RDONLY`` is 0 and
            has no bit of its own.
    """

    __slots__ = ()
    kind = ""
    table: tuple[tuple[int, str], ...] = ()
    separator: str = "|"
    mask: int = 0
    choices: tuple[tuple[int, str], ...] = ()

    def find(self, value: int) -> str | None:
        """Return the name of a value, or None if it has none."""
        return next((name for number, name in self.table if number == value), None)

    def show(self, value: int) -> str:
        """Return the name of a value, or its digits if it has none."""
        return self.find(value) or str(value)

    def show_result(self, value: int) -> str:
        """Return the text for a result of a call: an error has its number and its name."""
        return self.show(value)

    def number(self, value: int) -> int:
        """Return ``value``, as a :class:`NamedNumber` if it has a name."""
        name = None if value is None else self.find(value)
        return value if name is None else NamedNumber(value, name)

    def number_of(self, name: str) -> int | None:
        """Return the value of a single enumerator or flag; None if no value has this name."""
        return next((number for number, known in self.every if known == name), None)

    @property
    def every(self) -> tuple[tuple[int, str], ...]:
        """All pairs of a value and its name."""
        return (*self.choices, *self.table)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "kind": self.kind,
            "table": [list(pair) for pair in self.table],
            "separator": self.separator,
            "mask": self.mask,
            "choices": [list(pair) for pair in self.choices],
        }

    @staticmethod
    def from_json(data: Any, refuse: Callable[[str], Exception]) -> ValueNames:
        """Return the names that to_json() has made ``data`` from.

        If to_json() cannot have made ``data``, raise the error that ``refuse`` returns.
        """
        kind = data.get("kind") if isinstance(data, dict) else None
        if kind not in ("flags", "symbols", *_FIXED):
            raise refuse("names: an object with a kind expected")
        separator, mask = data.get("separator"), data.get("mask")
        if not isinstance(separator, str) or len(separator) > 8 or type(mask) is not int:
            raise refuse("names: a separator and a mask expected")
        table, choices = (_pairs(data.get(key), refuse) for key in ("table", "choices"))
        if kind == "flags":
            return Flags(table, separator, mask, choices)
        return Enumerators(table) if kind == "symbols" else _FIXED[kind]()


@frozen
class Flags(ValueNames):
    """Bits with names, which are joined."""

    table: tuple[tuple[int, str], ...]
    separator: str = "|"
    mask: int = 0
    choices: tuple[tuple[int, str], ...] = ()

    kind = "flags"

    def find(self, value: int) -> str | None:
        """Return the names of a value's bits, joined by ``separator``; None if none has a name."""
        found = [name for number, name in self.choices if number == value & self.mask]
        known = self.mask if found else 0
        left = value & ~known
        for number, name in self.table:
            if number and left & number == number:
                found.append(name)
                left &= ~number
        if not found:
            return ValueNames.find(self, value)
        if left:
            found.append(hex(left & ((1 << 64) - 1)))
        return self.separator.join(found)

    def number_of(self, name: str) -> int | None:
        """Return the value of flags, joined by ``separator``; None if a name is unknown."""
        numbers = [ValueNames.number_of(self, one.strip()) for one in name.split(self.separator)]
        known = [number for number in numbers if number is not None]
        return functools.reduce(operator.or_, known) if len(known) == len(numbers) else None


@frozen
class Enumerators(ValueNames):
    """Single values with names."""

    table: tuple[tuple[int, str], ...]

    kind = "symbols"


@frozen
class Errno(ValueNames):
    """Negative error numbers."""

    kind = "errno"

    def find(self, value: int) -> str | None:
        """Return the name of an error number, or None for any other value."""
        known = -_MAX_ERROR <= value < 0
        return f"-{error_name(-value) or -value}" if known else None

    def number_of(self, name: str) -> int | None:
        """Return the value of ``-ENOENT``."""
        number = ERROR_NUMBERS.get(name.removeprefix("-"))
        return -number if number is not None and name.startswith("-") else None

    def show_result(self, value: int) -> str:
        """Return ``-2 ENOENT`` for an error, the digits for any other value."""
        name = error_name(-value) if value < 0 else None
        return str(value) if name is None else f"{value} {name}"


@frozen
class ErrnoOrAddress(ValueNames):
    """The results of mmap() and similar calls: negative error numbers, or addresses."""

    kind = "address"

    def find(self, value: int) -> str | None:
        """Return the name of an error number, or the address in hexadecimal."""
        return Errno().find(value) or f"{value & _ALL_BITS:#x}"

    def number_of(self, name: str) -> int | None:
        """Return the value of ``-ENOMEM``."""
        return Errno().number_of(name)

    def show_result(self, value: int) -> str:
        """Return ``-12 ENOMEM`` for an error, else the address."""
        return Errno().show_result(value) if Errno().find(value) else self.show(value)


@frozen
class DevT(ValueNames):
    """MAJOR:MINOR of the kernel's dev_t (include/linux/kdev_t.h)."""

    kind = "device"

    def find(self, value: int) -> str | None:
        """Return the two numbers of a device."""
        return f"{value >> 20 & 0xFFF}:{value & 0xFFFFF}"


# Names without a table of their own, by their word in recordings.
_FIXED: dict[str, Callable[[], ValueNames]] = {
    made.kind: made for made in (Errno, ErrnoOrAddress, DevT)
}


def _pairs(data: Any, refuse: Callable[[str], Exception]) -> tuple[tuple[int, str], ...]:
    if not isinstance(data, list) or len(data) > 1 << 16:
        raise refuse("names: a list of numbers and names expected")
    for pair in data:
        if not isinstance(pair, list) or len(pair) != 2:
            raise refuse("names: a number and a name expected")
        if type(pair[0]) is not int or not isinstance(pair[1], str) or len(pair[1]) > 1 << 10:
            raise refuse("names: a number and a name expected")
    return tuple((number, name) for number, name in data)


class NamedNumber(int):
    """An integer whose ``str()`` is its name."""

    name: str

    def __new__(cls, value: int, name: str) -> Self:
        """Return ``value`` with the name ``name``."""
        made = super().__new__(cls, value)
        made.name = name
        return made

    def __str__(self) -> str:
        return self.name
