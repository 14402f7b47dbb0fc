"""What is to be attached where, and what could not be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from usdt.engine.compiler.codegen.model import Case
    from usdt.engine.runtime.attach.attach_points import Point

__all__ = ("Failure", "Placed", "too_large")


@frozen
class Placed:
    """A point and the case that runs there; ``returns``: where the function of it returns."""

    point: Point
    case: Case
    returns: bool = False


@frozen
class Failure:
    """Points that could not be attached, and why."""

    points: tuple[Point, ...]
    error: TracingError


def too_large(item: Placed) -> TracingError:
    """What to say of a point whose program is larger than the kernel takes."""
    return TracingError(
        f"{item.point.probe}: its items make a program too large for the kernel; show fewer, "
        "or name the probe twice with some of them each"
    )
