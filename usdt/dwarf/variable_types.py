"""Types of variables in C, from the debug information of a kernel's image.

:mod:`usdt.engine.run.registry` names this module for the probes of the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import ElfError, TargetError
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("type_of_variable",)

_NOWHERE = 0  # the address of no code: a name means a variable that all files share


def type_of_variable(paths: Iterable[str], build_id: str, name: str) -> str:
    """Return the type of a global variable, as C declares one; "" if it is not known.

    Args:
        paths: files to search; the first one with debug information counts.
        build_id: files with another build ID do not count; "" if it is not known.
        name: the variable.

    Raises:
        DwarfError: the debug information is damaged.
    """
    for path in paths:
        try:
            elf = ElfFile(path)
        except (ElfError, TargetError):
            continue
        with elf:
            fits = not build_id or elf.build_id in (None, build_id)
            info = DebugInfo.of(elf) if fits else None
            if info is not None:
                with info:
                    found = info.variable(name, _NOWHERE)
                    return "" if found is None or found.problem else info.type_text(found.type_id)
    return ""
