"""Numbers that have names: flags, symbols, error numbers; what a value is shown as."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Self

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("KINDS", "NamedNumber", "ValueNames")

KINDS = ("flags", "symbols", "errno", "device")
_ERRORS = 4095  # MAX_ERRNO: -4095…-1 are error numbers where a function returns one


@frozen
class ValueNames:
    """Names of an argument's values. Hashable: equal ones are one.

    Attributes:
        kind: ``flags``: bits, several of them joined; ``symbols``: one value has one name;
            ``errno``: negative error numbers; ``device``: MAJOR:MINOR of the kernel's dev_t
            (include/linux/kdev_t.h); these two need no table.
        table: value → name, the first that fits counts.
        separator: between flags.
        mask: of flags, the bits whose value is looked for in ``choices``.
        choices: of flags, value under the mask → name: ``O_RDONLY`` has no bit of its own.
    """

    kind: str
    table: tuple[tuple[int, str], ...] = ()
    separator: str = "|"
    mask: int = 0
    choices: tuple[tuple[int, str], ...] = ()

    def find(self, value: int) -> str | None:
        """The name of a value, None where it has none."""
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
        """The name, or the number where it has none."""
        return self.find(value) or str(value)

    def number(self, value: int) -> int:
        """The number, which shows its name if it has one."""
        name = None if value is None else self.find(value)
        return value if name is None else NamedNumber(value, name)

    def number_of(self, name: str) -> int | None:
        """The value with this name; of flags, the one with no other."""
        if self.kind not in ("flags", "symbols"):
            return None
        return next(
            (number for number, known in (*self.choices, *self.table) if known == name), None
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object with all of it."""
        return {
            "kind": self.kind,
            "table": [list(pair) for pair in self.table],
            "separator": self.separator,
            "mask": self.mask,
            "choices": [list(pair) for pair in self.choices],
        }

    @classmethod
    def from_json(cls, data: Any, refuse: Callable[[str], Exception]) -> ValueNames:
        """What to_json() made; ``refuse`` makes the error where it did not."""
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
    """An integer that is shown by its name."""

    name: str

    def __new__(cls, value: int, name: str) -> Self:
        """The number, and what to show for it."""
        made = super().__new__(cls, value)
        made.name = name
        return made

    def __str__(self) -> str:
        return self.name
