"""Errors of damaged debug information."""

from __future__ import annotations

import struct

from usdt.base.errors import TracingError

__all__ = ("DAMAGE", "DwarfError", "MalformedDwarf", "checked")


class DwarfError(TracingError, ValueError):
    """Debug information is damaged, implausibly large, or in an unsupported form."""


class MalformedDwarf(DwarfError):  # noqa: N818 - what it is
    """Debug information with invalid bytes; the message does not name the file."""


#: Errors that reading damaged bytes raises.
DAMAGE = (DwarfError, LookupError, ValueError, struct.error, OverflowError, RecursionError)


class _Checked:
    # Not a generator: from CPython 3.12 on, an error that a generator converts and its frames refer
    # to one another, and keep the files of these frames open until a garbage collection.

    def __init__(self, name: str, what: str) -> None:
        self._name = name
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, DAMAGE):
            return
        if isinstance(error, TracingError) and not isinstance(error, MalformedDwarf):
            return
        reason = str(error) or type(error).__name__
        text = f"{self._name}: damaged debug information: {self._what}: {reason}"
        raise DwarfError(text) from error


def checked(name: str, what: str) -> _Checked:
    """Return a context manager that converts errors of reading damaged bytes (:data:`DAMAGE`).

    Args:
        name: name of the file.
        what: the part that is read, for the message.

    Raises:
        DwarfError: in place of errors of indexing, unpacking and conversion.
    """
    return _Checked(name, what)
