"""A table of the configuration: typed access; every mistake is one line that says what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.errors import TracingError
from usdt.base.text import closest, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ("Table",)

_LONGEST = 60  # characters of a value that a message shows


class Table:
    """A table of a TOML file.

    Args:
        path: the file.
        where: how the file names the table, ``[[metric]] requests``; "" for the top.
        values: key → value.
    """

    def __init__(self, path: str, where: str, values: dict[str, Any]) -> None:
        self._path = path
        self._where = where
        self.values = values

    def error(self, key: str, text: str) -> TracingError:
        """Return the error about a key; ``text`` says what is wrong and what to write."""
        places = [self._path, self._where, key]
        return TracingError(printable(": ".join([*filter(None, places), text])))

    def check_keys(self, known: Iterable[str]) -> None:
        """Refuse keys that are not known.

        Raises:
            TracingError: a key is not known; the message names the most similar one.
        """
        names = list(known)
        for key in self.values:
            if key not in names:
                near = closest(key, names)
                hint = f"did you mean {near}?" if near else f"write one of {', '.join(names)}"
                raise self.error(key, f"no such key; {hint}")

    def text(self, key: str, default: str | None = None, *, example: str) -> str:
        """Return a string.

        Raises:
            TracingError: it is missing without a default, empty, or no string.
        """
        value = self.values.get(key, default)
        if not isinstance(value, str) or not value:
            raise self._unexpected(key, "text", f'{key} = "{example}"')
        return value

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """Return an integer from ``low`` to ``high``.

        Raises:
            TracingError: it is none.
        """
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._unexpected(key, f"an integer from {low} to {high}", f"{key} = {default}")
        return value

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """Return one of some words.

        Raises:
            TracingError: it is none of them.
        """
        value = self.values.get(key)
        if value not in choices:
            raise self._unexpected(key, " or ".join(choices), f'{key} = "{choices[0]}"')
        return str(value)

    def texts(self, key: str, example: str) -> list[str]:
        """Return a list of strings; a single string is a list of one.

        Raises:
            TracingError: it is neither, or empty.
        """
        value = self.values.get(key)
        found = [value] if isinstance(value, str) else value
        if not found or not isinstance(found, list) or not all(isinstance(v, str) for v in found):
            raise self._unexpected(key, "text, or a list of texts", f'{key} = "{example}"')
        return found

    def table(self, key: str, example: str) -> Table:
        """Return a table inside this one.

        Raises:
            TracingError: it is no table.
        """
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self._unexpected(key, "a table", example)
        return Table(self._path, ": ".join(filter(None, (self._where, key))), value)

    def _unexpected(self, key: str, what: str, example: str) -> TracingError:
        if key not in self.values:
            return self.error(key, f"missing: expected {what}; write {example}")
        found = repr(self.values[key])
        shown = found if len(found) <= _LONGEST else found[:_LONGEST] + "…"
        return self.error(key, f"expected {what}, found {shown}; write {example}")
