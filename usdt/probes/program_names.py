"""Types and variables of a program, for items of USDT probes, which have no types themselves."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.language.tree import Item
    from usdt.uprobes.dwarf_types import DwarfTypeProvider

__all__ = ("ProgramNames",)

_types: weakref.WeakValueDictionary[tuple[str, str, int], DwarfTypeProvider] = (
    weakref.WeakValueDictionary()
)


class ProgramNames(Closeable):
    """What items name at the sites of one file, besides arguments; a context manager.

    Args:
        path: the file's name, for messages.
        open_path: the path to open.
        machine: CPU of the file.
        pid: the process whose mount namespace contains the file; 0 for this process.
        items: the items.

    Attributes:
        types: the program's types; None if no item needs them.

    Raises:
        ElfError: the file is damaged.
        TracingError: the debug information is needed and damaged.
    """

    def __init__(
        self, path: str, open_path: str, machine: str, pid: int, items: Sequence[Item]
    ) -> None:
        self.types: DwarfTypeProvider | None = None
        self._names: list[str] = []
        self._variables = None
        if not items:
            return
        from usdt.engine.language.needs_types import needs_types, untyped_names  # noqa: PLC0415 - not for listings

        self._names = untyped_names(items)
        if not needs_types(items):
            return
        roots = (f"/proc/{pid}/root", "") if pid else ("",)
        self.types = _types_of((path, open_path, pid), machine, roots)
        if self._names:
            from usdt.uprobes.debug_info import debug_of  # noqa: PLC0415 - only for names
            from usdt.uprobes.variables import FileVariables  # noqa: PLC0415

            debug = debug_of(path, open_path, roots)
            # The IDs of types are those of one object, which the provider keeps.
            kept = None if debug is None else self.types.debug
            self._variables = FileVariables(path, open_path, kept, roots=roots)

    def close(self) -> None:
        """Close all files; idempotent."""
        if self._variables is not None:
            self._variables.close()

    def variables(self, known: Sequence[Argument], site: int) -> tuple[Argument, ...]:
        """Return the variables that items name at a site, given its arguments and its address."""
        if self._variables is None:
            return ()
        taken = {one.name for one in known}
        return self._variables.arguments([one for one in self._names if one not in taken], site)


def _types_of(key: tuple[str, str, int], machine: str, roots: Sequence[str]) -> DwarfTypeProvider:
    # Reads the debug information when it is needed.
    from usdt.uprobes.debug_info import required_debug  # noqa: PLC0415 - listing needs neither
    from usdt.uprobes.dwarf_types import DwarfTypeProvider  # noqa: PLC0415

    known = _types.get(key)
    if known is None:
        known = DwarfTypeProvider(partial(required_debug, key[0], key[1], roots), machine)
        _types[key] = known
    return known
