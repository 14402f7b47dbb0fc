"""``DwarfError``: what cannot be believed of debug information."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("DAMAGE", "DwarfError", "believed")


class DwarfError(TracingError, ValueError):
    """Debug information is damaged, absurd, or in a form that is not read."""


#: What reading damaged bytes raises.
DAMAGE = (DwarfError, LookupError, ValueError, struct.error, OverflowError, RecursionError)


@contextlib.contextmanager
def believed(name: str, what: str) -> Iterator[None]:
    """Turn what reading damaged bytes raises into one line.

    Raises:
        DwarfError: in the place of errors of indexing, unpacking and converting.
    """
    try:
        yield
    except DAMAGE as err:
        if isinstance(err, TracingError):
            raise
        reason = str(err) or type(err).__name__
        raise DwarfError(f"{name}: damaged debug information: {what}: {reason}") from err
