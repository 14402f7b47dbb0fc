"""The headers that programs include, of which the constants count."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from usdt.base.files import open_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("header_reader", "read_text")

_MAX_SIZE = 1 << 22  # bytes of a header


def header_reader(folder: str, others: Sequence[str] = ()) -> Callable[[str], str | None]:
    """Return a function that reads a header, or returns None if there is none of that path.

    It looks in the headers of the kernel, then in those of the C library.

    Args:
        folder: that of the program, where headers are looked for first; "" for none.
        others: folders where they are looked for next.
    """
    kernel = f"/lib/modules/{os.uname().release}/build/include"
    places = [
        *([folder] if folder else []),
        *others,
        kernel,
        f"{kernel}/uapi",
        f"/usr/include/{os.uname().machine}-linux-gnu",
        "/usr/include",
    ]

    def read(path: str) -> str | None:
        texts = (read_text(os.path.join(place, path)) for place in places)  # noqa: PTH118 - speed
        return next((text for text in texts if text is not None), None)

    return read


def read_text(path: str) -> str | None:
    """Return the text of a file, at most 4 MiB of it; None if it is no file that can be read."""
    try:
        number = open_at_once(path)
    except (OSError, ValueError):
        return None
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        try:
            return file.read(_MAX_SIZE).decode("utf-8", "replace")
        except OSError:
            return None
