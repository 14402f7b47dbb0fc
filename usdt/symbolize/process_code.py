"""The code of one process, as the unwinder sees it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.procfs.maps import Mapping
    from usdt.symbolize.file_symbols import FileSymbols
    from usdt.unwind.frame_table import FrameTable

    Locate = Callable[[int], tuple[Mapping | None, FileSymbols | None, int]]

__all__ = ("ProcessCode",)


class ProcessCode:
    """The code of a process: a :class:`usdt.unwind.unwinder.CodeMap`.

    Args:
        locate: returns the mapping of an address, its file, and the link-time address there.
    """

    def __init__(self, locate: Locate) -> None:
        self._locate = locate

    def table(self, address: int) -> tuple[FrameTable, int] | None:
        """Return the unwind table for an address, and the address of its file's address 0."""
        _, file, link = self._locate(address)
        table = None if file is None else file.frame_table
        return None if table is None else (table, address - link)

    def module(self, address: int) -> str | None:
        """Return the name of the executable mapping at an address; None if there is none."""
        mapping, _, _ = self._locate(address)
        if mapping is None or not mapping.executable:
            return None
        return os.path.basename(mapping.path) or "[anon]"  # noqa: PTH119 - as fast as can be

    def code(self, address: int, size: int) -> bytes:
        """Return the instructions at an address; b"" if they cannot be read."""
        _, file, link = self._locate(address)
        return b"" if file is None else file.code(link, size)
