"""What a session needs of Python processes, for programs that record Python stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.bpf.maps import Map

__all__ = ("PythonProcesses",)


@frozen
class PythonProcesses:
    """What programs need that record Python stacks.

    Attributes:
        maps: the maps in which they find the processes, by name.
        descriptors: readable when processes have begun or changed.
        update: lets programs know these.
    """

    maps: dict[str, Map]
    descriptors: tuple[int, ...]
    update: Callable[[], object]
