"""What a value is made of, as calling conventions look at it: numbers at offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.base.frozen import frozen
from usdt.btf import types as btf_types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.btf.reader import Btf

__all__ = ("Leaf", "Shape", "shape_of")

_LARGEST = 64  # bytes of what conventions look into: four numbers of 16 bytes on arm64
_DEEPEST = 32


@frozen
class Leaf:
    """A number in a value.

    Attributes:
        start, size: in bytes; of a bit field, of the bytes that it touches.
        bits: whether it is a bit field.
    """

    start: int
    size: int
    align: int
    floating: bool = False
    bits: bool = False

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.start + self.size


@frozen
class Shape:
    """A type as calling conventions look at it.

    Attributes:
        size, align: in bytes.
        scalar: whether it is one number, and no structure.
        leaves: the numbers in it; none of what is larger than any convention cares for.
        words: what it is, for messages.
    """

    size: int
    align: int
    scalar: bool
    leaves: tuple[Leaf, ...]
    words: str

    @property
    def floating(self) -> bool:
        """Whether it is floating-point numbers and nothing else."""
        return bool(self.leaves) and all(leaf.floating for leaf in self.leaves)

    @property
    def unaligned(self) -> bool:
        """Whether a member does not lie where its type wants it."""
        return any(leaf.start % leaf.align for leaf in self.leaves if not leaf.bits)

    @property
    def extended(self) -> bool:
        """Whether there is a long double in it."""
        return any(leaf.floating and leaf.size > 8 for leaf in self.leaves)

    @property
    def homogeneous(self) -> int:
        """How many equal floating-point numbers it is, if it is nothing else; up to four."""
        kinds = {(leaf.floating, leaf.size) for leaf in self.leaves}
        if self.scalar or len(kinds) != 1 or not self.leaves[0].floating:
            return 0
        number = len({leaf.start for leaf in self.leaves})
        return number if number <= 4 else 0


def shape_of(btf: Btf, number: int) -> Shape:
    """The shape of a type.

    Raises:
        BtfError: it has no size, or is absurd.
    """
    size = btf.size_of(number)
    found = btf.resolve(number)
    scalar = isinstance(found, (btf_types.Int, btf_types.Enum, btf_types.Float, btf_types.Pointer))
    leaves = tuple(_leaves(btf, number, 0, 0)) if size <= _LARGEST else ()
    aligned = max((leaf.align for leaf in leaves), default=0)
    kind = "union" if getattr(found, "kind", None) == _UNION else "structure"
    if isinstance(found, btf_types.Float):
        kind = "floating-point number"
    elif scalar:
        kind = "number"
    words = f"{kind} of {size} bytes"
    return Shape(size, aligned or btf.align_of(number), scalar, leaves, words)


_UNION = 5  # BTF_KIND_UNION


def _leaves(btf: Btf, number: int, start: int, depth: int) -> Iterator[Leaf]:
    found = btf.resolve(number)
    if depth > _DEEPEST:
        raise BtfError(f"{btf.name}: types nested deeper than {_DEEPEST}")
    match found:
        case btf_types.Float():
            yield from _float(found, start)
        case btf_types.Array():
            step = btf.size_of(found.target)
            for index in range(min(found.count, _LARGEST) if step else 0):
                yield from _leaves(btf, found.target, start + index * step, depth + 1)
        case btf_types.Composite():
            for member in found.members[:_LARGEST]:
                if member.bits:
                    first = start * 8 + member.bit_offset
                    last = (first + member.bits - 1) // 8
                    yield Leaf(first // 8, last - first // 8 + 1, 1, bits=True)
                else:
                    inner = start + member.bit_offset // 8
                    yield from _leaves(btf, member.target, inner, depth + 1)
        case _:
            size = btf.size_of(number)
            yield Leaf(start, size, size)


def _float(found: btf_types.Float, start: int) -> Iterator[Leaf]:
    # A complex number is two.
    if "omplex" in found.name:
        half = found.size // 2
        yield Leaf(start, half, half, floating=True)
        yield Leaf(start + half, half, half, floating=True)
    else:
        # i386 has a long double of twelve bytes.
        align = 4 if found.size == 12 else found.size
        yield Leaf(start, found.size, align, floating=True)
