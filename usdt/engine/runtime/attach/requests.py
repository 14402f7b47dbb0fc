"""Attach requests and failures, and helpers for attaching to all kinds of attach points."""

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

MAX_VARIANTS = 256  # in one program: the verifier's work grows with each variant


@frozen
class AttachRequest:
    """An attach point and the variant that runs there.

    Attributes:
        point: the attach point.
        variant: the variant that runs at a hit.
        on_return: whether to attach at the return of the function that starts at the attach point.
    """

    point: AttachPoint
    variant: ProgramVariant
    on_return: bool = False


@frozen
class AttachFailure:
    """Attach points that could not be attached, and the error."""

    points: tuple[AttachPoint, ...]
    error: TracingError


def variants_of(requests: Sequence[AttachRequest]) -> list[ProgramVariant]:
    """Return the variants of some requests in order, without duplicates."""
    # By number: to compare variants by value would go through all that they do.
    return list({request.variant.number: request.variant for request in requests}.values())


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
    """Call ``load`` with all items; if their program is too large, with each half, recursively.

    Args:
        items: the items that one program is to serve; at least one.
        load: generates, loads and attaches the program; raises CodeTooLarge before any change.
        name_of: returns the probe of an item, for error messages.

    Raises:
        TracingError: the program of a single item is too large.
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
    """Return an error with the location at which attaching failed and a hint for its errno."""
    if isinstance(err, VerifierError) or not isinstance(err, SyscallError):
        return TracingError(f"{where}: {err}")
    number = err.errno or 0
    return SyscallError(number, f"attach to {where}", hints.get(number, err.hint))
