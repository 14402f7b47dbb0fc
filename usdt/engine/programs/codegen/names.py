"""The names of maps, by which code refers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from usdt.engine.programs.variables import MapVariable

__all__ = ("map_name", "scratch_name", "stacks_name", "walked_name")


def map_name(variable: MapVariable) -> str:
    """Return the name of a map of the program."""
    return f"map.{variable.number}"


def stacks_name(frames: int) -> str:
    """Return the name of the map of stacks of so many frames."""
    return f"stacks.{frames}"


def walked_name(frames: int) -> str:
    """Return the name of the map of stacks of so many frames that are walked by unwind tables."""
    return f"walked.{frames}"


def scratch_name(size: int) -> str:
    """Return the name of the map of scratch memory whose entries have ``size`` bytes."""
    return f"scratch.{size}"
