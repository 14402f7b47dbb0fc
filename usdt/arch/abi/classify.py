"""Types as calling conventions classify them: scalar fields at offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.base.frozen import frozen, replace
from usdt.btf import types as btf_types
from usdt.btf.format import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.btf.reader import Btf

__all__ = ("AbiType", "ScalarField", "abi_type_of")

_MAX_SIZE = 64  # bytes; fields of larger types do not matter: four 16-byte floats on arm64
_MAX_NESTING = 32


@frozen
class ScalarField:
    """A scalar inside a value: an integer, a float or a pointer.

    Attributes:
        start: offset in bytes; for a bit field, of the first byte that it touches.
        size: size in bytes; for a bit field, of the bytes that it touches.
        align: alignment in bytes.
        floating: True for a floating-point number.
        bits: True for a bit field.
    """

    start: int
    size: int
    align: int
    floating: bool = False
    bits: bool = False

    @property
    def end(self) -> int:
        """The offset of the first byte after it."""
        return self.start + self.size


@frozen
class AbiType:
    """A type as calling conventions classify it.

    Attributes:
        size: size in bytes.
        align: alignment in bytes.
        scalar: True for a single number, False for a structure, union or array.
        fields: the scalars in it; empty if the type is larger than any convention inspects.
        description: the type as text, for messages.
    """

    size: int
    align: int
    scalar: bool
    fields: tuple[ScalarField, ...]
    description: str

    @property
    def floating(self) -> bool:
        """True if it consists of floating-point numbers only."""
        return bool(self.fields) and all(field.floating for field in self.fields)

    @property
    def unaligned(self) -> bool:
        """True if a member is not aligned as its type requires."""
        return any(field.start % field.align for field in self.fields if not field.bits)

    @property
    def extended(self) -> bool:
        """True if it contains a long double."""
        return any(field.floating and field.size > 8 for field in self.fields)

    @property
    def homogeneous(self) -> int:
        """The number of floats of a homogeneous floating-point aggregate (1 to 4); 0 otherwise."""
        kinds = {(field.floating, field.size) for field in self.fields}
        if self.scalar or len(kinds) != 1 or not self.fields[0].floating:
            return 0
        number = len({field.start for field in self.fields})
        return number if number <= 4 else 0


def abi_type_of(btf: Btf, number: int, *, floats: bool = True) -> AbiType:
    """Classify a type; without ``floats``, floating-point numbers are like integers of their size.

    Raises:
        BtfError: the type has no size, or is nested too deeply.
    """
    size = btf.size_of(number)
    found = btf.resolve(number)
    scalar = isinstance(found, (btf_types.Int, btf_types.Enum, btf_types.Float, btf_types.Pointer))
    fields = _scalar_fields(btf, number, 0, {}) if size <= _MAX_SIZE else ()
    if not floats:
        fields = tuple(replace(field, floating=False) for field in fields)
    aligned = max((field.align for field in fields), default=0)
    is_union = isinstance(found, btf_types.Composite) and found.kind == Kind.UNION
    kind = "union" if is_union else "structure"
    if isinstance(found, btf_types.Float):
        kind = "floating-point number"
    elif scalar:
        kind = "number"
    description = f"{kind} of {size} bytes"
    return AbiType(size, aligned or btf.align_of(number), scalar, fields, description)


def _scalar_fields(
    btf: Btf, number: int, depth: int, known: dict[int, tuple[ScalarField, ...]]
) -> tuple[ScalarField, ...]:
    # The scalars of a type, each once. ``known`` has those of the types within it: damaged types
    # contain one another many times.
    if number not in known:
        if depth > _MAX_NESTING:
            raise BtfError(f"{btf.name}: types nested deeper than {_MAX_NESTING}")
        inside = dict.fromkeys(_fields_within(btf, number, depth, known))
        known[number] = tuple(field for field in inside if field.end <= _MAX_SIZE)
    return known[number]


def _fields_within(
    btf: Btf, number: int, depth: int, known: dict[int, tuple[ScalarField, ...]]
) -> Iterator[ScalarField]:
    found = btf.resolve(number)
    match found:
        case btf_types.Float():
            yield from _float(found)
        case btf_types.Array():
            step = btf.size_of(found.type_id)
            inner = _scalar_fields(btf, found.type_id, depth + 1, known) if step else ()
            for index in range(min(found.count, _MAX_SIZE)):
                yield from (_moved(field, index * step) for field in inner)
        case btf_types.Composite():
            for member in found.members[:_MAX_SIZE]:
                if member.bitfield_size:
                    first, last = member.bit_offset, member.bit_offset + member.bitfield_size - 1
                    yield ScalarField(first // 8, last // 8 - first // 8 + 1, 1, bits=True)
                else:
                    inner = _scalar_fields(btf, member.type_id, depth + 1, known)
                    yield from (_moved(field, member.bit_offset // 8) for field in inner)
        case _:
            size = btf.size_of(number)
            if size:  # Rust's () is a number of no bytes
                yield ScalarField(0, size, size)


def _moved(field: ScalarField, by: int) -> ScalarField:
    return replace(field, start=field.start + by) if by else field


def _float(found: btf_types.Float) -> Iterator[ScalarField]:
    # A complex number is a pair of floats.
    if "omplex" in found.name and found.size > 1:
        half = found.size // 2
        yield ScalarField(0, half, half, floating=True)
        yield ScalarField(half, half, half, floating=True)
    elif found.size:
        # The long double of i386 has 12 bytes and is aligned to 4.
        align = 4 if found.size == 12 else found.size
        yield ScalarField(0, found.size, align, floating=True)
