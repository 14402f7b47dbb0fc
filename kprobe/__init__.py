"""Kernel probes, and the kernel's types.

Names are loaded when they are first used: importing the package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kprobe.datatypes import DataType, Types, types

_HOMES = {"DataType": "kprobe.datatypes", "Types": "kprobe.datatypes", "types": "kprobe.datatypes"}

__all__ = ("DataType", "Types", "types")


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kprobe' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
