"""What is to be attached where, and what could not be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from usdt.engine.compiler.codegen.model import ProgramVariant
    from usdt.engine.runtime.attach.attach_points import AttachPoint

__all__ = ("AttachFailure", "AttachRequest", "program_too_large")


@frozen
class AttachRequest:
    """A point and the case that runs there; ``returns``: where the function of it returns."""

    point: AttachPoint
    case: ProgramVariant
    returns: bool = False


@frozen
class AttachFailure:
    """Points that could not be attached, and why."""

    points: tuple[AttachPoint, ...]
    error: TracingError


def program_too_large(item: AttachRequest) -> TracingError:
    """What to say of a point whose program is larger than the kernel takes."""
    return TracingError(
        f"{item.point.probe}: its items make a program too large for the kernel; show fewer, "
        "or name the probe twice with some of them each"
    )
