"""What a value is made of, as calling conventions look at it: numbers at offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.base.frozen import frozen
from usdt.btf import types as btf_types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.btf.reader import Btf

__all__ = ("AbiType", "ScalarField", "abi_type_of")

_MAX_SIZE = 64  # bytes of what conventions look into: four numbers of 16 bytes on arm64
_MAX_NESTING = 32


@frozen
class ScalarField:
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
class AbiType:
    """A type as calling conventions look at it.

    Attributes:
        size, align: in bytes.
        scalar: whether it is one number, and no structure.
        fields: the numbers in it; none of what is larger than any convention cares for.
        description: what it is, for messages.
    """

    size: int
    align: int
    scalar: bool
    fields: tuple[ScalarField, ...]
    description: str

    @property
    def floating(self) -> bool:
        """Whether it is floating-point numbers and nothing else."""
        return bool(self.fields) and all(field.floating for field in self.fields)

    @property
    def unaligned(self) -> bool:
        """Whether a member does not lie where its type wants it."""
        return any(field.start % field.align for field in self.fields if not field.bits)

    @property
    def extended(self) -> bool:
        """Whether there is a long double in it."""
        return any(field.floating and field.size > 8 for field in self.fields)

    @property
    def homogeneous(self) -> int:
        """How many equal floating-point numbers it is, if it is nothing else; up to four."""
        kinds = {(field.floating, field.size) for field in self.fields}
        if self.scalar or len(kinds) != 1 or not self.fields[0].floating:
            return 0
        number = len({field.start for field in self.fields})
        return number if number <= 4 else 0


def abi_type_of(btf: Btf, number: int) -> AbiType:
    """The abi_type of a type.

    Raises:
        BtfError: it has no size, or is absurd.
    """
    size = btf.size_of(number)
    found = btf.resolve(number)
    scalar = isinstance(found, (btf_types.Int, btf_types.Enum, btf_types.Float, btf_types.Pointer))
    fields = tuple(_scalar_fields(btf, number, 0, 0)) if size <= _MAX_SIZE else ()
    aligned = max((field.align for field in fields), default=0)
    kind = "union" if getattr(found, "kind", None) == _UNION else "structure"
    if isinstance(found, btf_types.Float):
        kind = "floating-point number"
    elif scalar:
        kind = "number"
    description = f"{kind} of {size} bytes"
    return AbiType(size, aligned or btf.align_of(number), scalar, fields, description)


_UNION = 5  # BTF_KIND_UNION


def _scalar_fields(btf: Btf, number: int, start: int, depth: int) -> Iterator[ScalarField]:
    found = btf.resolve(number)
    if depth > _MAX_NESTING:
        raise BtfError(f"{btf.name}: types nested deeper than {_MAX_NESTING}")
    match found:
        case btf_types.Float():
            yield from _float(found, start)
        case btf_types.Array():
            step = btf.size_of(found.type_id)
            for index in range(min(found.count, _MAX_SIZE) if step else 0):
                yield from _scalar_fields(btf, found.type_id, start + index * step, depth + 1)
        case btf_types.Composite():
            for member in found.members[:_MAX_SIZE]:
                if member.bitfield_size:
                    first = start * 8 + member.bit_offset
                    last = (first + member.bitfield_size - 1) // 8
                    yield ScalarField(first // 8, last - first // 8 + 1, 1, bits=True)
                else:
                    inner = start + member.bit_offset // 8
                    yield from _scalar_fields(btf, member.type_id, inner, depth + 1)
        case _:
            size = btf.size_of(number)
            yield ScalarField(start, size, size)


def _float(found: btf_types.Float, start: int) -> Iterator[ScalarField]:
    # A complex number is two.
    if "omplex" in found.name:
        half = found.size // 2
        yield ScalarField(start, half, half, floating=True)
        yield ScalarField(start + half, half, half, floating=True)
    else:
        # i386 has a long double of twelve bytes.
        align = 4 if found.size == 12 else found.size
        yield ScalarField(start, found.size, align, floating=True)
