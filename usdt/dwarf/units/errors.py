"""Errors of damaged debug information."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("DAMAGE", "DwarfError", "MalformedDwarf", "checked")


class DwarfError(TracingError, ValueError):
    """Debug information is damaged, implausibly large, or in an unsupported form."""


class MalformedDwarf(DwarfError):  # noqa: N818 - what it is
    """Debug information with invalid bytes; the message does not name the file."""


#: Errors that reading damaged bytes raises.
DAMAGE = (DwarfError, LookupError, ValueError, struct.error, OverflowError, RecursionError)


@contextlib.contextmanager
def checked(name: str, what: str) -> Iterator[None]:
    """Convert errors of reading damaged bytes (:data:`DAMAGE`) to a DwarfError.

    Args:
        name: name of the file.
        what: the part that is read, for the message.

    Raises:
        DwarfError: in place of errors of indexing, unpacking and conversion.
    """
    try:
        yield
    except DAMAGE as err:
        if isinstance(err, TracingError) and not isinstance(err, MalformedDwarf):
            raise
        reason = str(err) or type(err).__name__
        raise DwarfError(f"{name}: damaged debug information: {what}: {reason}") from err
