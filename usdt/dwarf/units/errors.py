"""The error of damaged debug information."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("DAMAGE", "DwarfError", "checked")


class DwarfError(TracingError, ValueError):
    """Debug information is damaged, larger than real ones, or in an unsupported form."""


#: Errors that reading damaged bytes raises.
DAMAGE = (DwarfError, LookupError, ValueError, struct.error, OverflowError, RecursionError)


@contextlib.contextmanager
def checked(name: str, what: str) -> Iterator[None]:
    """Turn errors that reading damaged bytes raises into a DwarfError.

    Args:
        name: of the file.
        what: is being read.

    Raises:
        DwarfError: in place of errors of indexing, unpacking and converting.
    """
    try:
        yield
    except DAMAGE as err:
        if isinstance(err, TracingError):
            raise
        reason = str(err) or type(err).__name__
        raise DwarfError(f"{name}: damaged debug information: {what}: {reason}") from err
