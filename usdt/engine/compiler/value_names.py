"""Names of numbers: flags, symbols, error numbers and devices."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Self

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("KINDS", "NamedNumber", "ValueNames")

KINDS = ("flags", "symbols", "errno", "device")
_ERRORS = 4095  # MAX_ERRNO: a result of -4095…-1 is an error number


@frozen
class ValueNames:
    """The names of an argument's values. Hashable.

    Attributes:
        kind: ``flags``: each bit has a name, and names are joined; ``symbols``: each value has a
            name; ``errno``: negative error numbers; ``device``: MAJOR:MINOR of the kernel's dev_t
            (include/linux/kdev_t.h). The last two need no table.
        table: pairs of a value and its name; the first match counts.
        separator: the text between flags.
        mask: for flags, the bits that are looked up together in ``choices``.
        choices: for flags, pairs of a value of the masked bits and its name: ``O_RDONLY`` is 0 and
            has no bit of its own.
    """

    kind: str
    table: tuple[tuple[int, str], ...] = ()
    separator: str = "|"
    mask: int = 0
    choices: tuple[tuple[int, str], ...] = ()

    def find(self, value: int) -> str | None:
        """Return the name of a value, or None if it has none."""
        if self.kind == "errno":
            known = -_ERRORS <= value < 0
            return f"-{errno.errorcode.get(-value, -value)}" if known else None
        if self.kind == "device":
            return f"{value >> 20 & 0xFFF}:{value & 0xFFFFF}"
        if self.kind == "symbols":
            return next((name for number, name in self.table if number == value), None)
        return self._flags(value)

    def _flags(self, value: int) -> str | None:
        found = [name for number, name in self.choices if number == value & self.mask]
        known = self.mask if found else 0
        left = value & ~known
        for number, name in self.table:
            if number and left & number == number:
                found.append(name)
                left &= ~number
        if not found:
            return next((name for number, name in self.table if number == value), None)
        if left:
            found.append(hex(left & ((1 << 64) - 1)))
        return self.separator.join(found)

    def show(self, value: int) -> str:
        """Return the name of a value, or its digits if it has none."""
        return self.find(value) or str(value)

    def number(self, value: int) -> int:
        """Return ``value``, as a :class:`NamedNumber` if it has a name."""
        name = None if value is None else self.find(value)
        return value if name is None else NamedNumber(value, name)

    def number_of(self, name: str) -> int | None:
        """Return the value of a single symbol or flag; None if no value has this name."""
        if self.kind not in ("flags", "symbols"):
            return None
        return next(
            (number for number, known in (*self.choices, *self.table) if known == name), None
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "kind": self.kind,
            "table": [list(pair) for pair in self.table],
            "separator": self.separator,
            "mask": self.mask,
            "choices": [list(pair) for pair in self.choices],
        }

    @classmethod
    def from_json(cls, data: Any, refuse: Callable[[str], Exception]) -> ValueNames:
        """Return the names that to_json() has made ``data`` from.

        If to_json() cannot have made ``data``, raise the error that ``refuse`` returns.
        """
        if not isinstance(data, dict) or data.get("kind") not in KINDS:
            raise refuse("names: an object with a kind expected")
        separator, mask = data.get("separator"), data.get("mask")
        if not isinstance(separator, str) or len(separator) > 8 or type(mask) is not int:
            raise refuse("names: a separator and a mask expected")
        tables = (_pairs(data.get(key), refuse) for key in ("table", "choices"))
        table, choices = tables
        return cls(data["kind"], table, separator, mask, choices)


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
