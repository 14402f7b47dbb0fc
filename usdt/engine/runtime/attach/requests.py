"""Attach requests and failures, and what attaching to every kind of point has in common."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from usdt.base.errors import SyscallError, TracingError, VerifierError
from usdt.base.frozen import frozen
from usdt.bpf.asm.assembler import CodeTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from usdt.engine.compiler.codegen.model import ProgramVariant
    from usdt.engine.runtime.attach.attach_points import AttachPoint

T = TypeVar("T")

__all__ = (
    "MAX_VARIANTS",
    "AttachFailure",
    "AttachRequest",
    "bisect_load",
    "chunks",
    "explain",
    "halves",
    "program_too_large",
    "variants_of",
)

MAX_VARIANTS = 256  # in one program: the verifier's work grows with each


@frozen
class AttachRequest:
    """A point and the variant that runs there.

    Attributes:
        point: where to attach.
        variant: what runs at a hit.
        on_return: whether to attach at the return of the function that begins at the point.
    """

    point: AttachPoint
    variant: ProgramVariant
    on_return: bool = False


@frozen
class AttachFailure:
    """Points that could not be attached, and why."""

    points: tuple[AttachPoint, ...]
    error: TracingError


def variants_of(requests: Sequence[AttachRequest]) -> list[ProgramVariant]:
    """Return the variants of some requests, each once, in order."""
    return list(dict.fromkeys(request.variant for request in requests))


def chunks(items: Sequence[T], size: int) -> Iterator[list[T]]:
    """Yield parts of at most ``size`` items."""
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part


def halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Return the first and the second half."""
    middle = len(items) // 2
    return items[:middle], items[middle:]


def bisect_load(
    items: Sequence[T], load: Callable[[Sequence[T]], None], name_of: Callable[[T], str]
) -> None:
    """Call ``load`` with all items; with each half if they make too large a program, and so on.

    Args:
        items: what one program is to serve; at least one.
        load: generates the program, loads and attaches it; raises CodeTooLarge before it changes
            anything.
        name_of: the probe of an item, for messages.

    Raises:
        TracingError: a single item makes too large a program.
    """
    try:
        load(items)
    except CodeTooLarge as err:
        if len(items) == 1:
            raise program_too_large(name_of(items[0])) from err
        for half in halves(items):
            bisect_load(half, load, name_of)


def program_too_large(probe: str) -> TracingError:
    """Return the error for a probe whose program is larger than the kernel accepts."""
    return TracingError(
        f"{probe}: its items make a program too large for the kernel; show fewer, "
        "or name the probe twice with some of them each"
    )


def explain(err: TracingError, where: str, hints: Mapping[int, str]) -> TracingError:
    """Return an error that says where attaching failed and, by its errno, what may be done."""
    if isinstance(err, VerifierError) or not isinstance(err, SyscallError):
        return TracingError(f"{where}: {err}")
    number = err.errno or 0
    return SyscallError(number, f"attach to {where}", hints.get(number, err.hint))
