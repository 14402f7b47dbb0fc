"""What a structure is, as a value: it fits a plan, a layout and a recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

__all__ = ("TypeSnapshot", "snapshot_of")

_MAX_BYTES = 1 << 20  # bytes of types of one value
_MAX_SIZE = 1 << 30


@frozen
class TypeSnapshot:
    """A type. Hashable: equal ones share what renders them.

    Attributes:
        types: BTF with the type and all that its values are made of.
        type_id: its ID there.
        size: bytes of a value.
    """

    types: bytes
    type_id: int
    size: int

    def to_json(self) -> dict[str, Any]:
        """A JSON object with all of it."""
        import base64  # noqa: PLC0415 - only for recordings
        import zlib  # noqa: PLC0415

        packed = base64.b64encode(zlib.compress(self.types)).decode()
        return {"types": packed, "type": self.type_id, "size": self.size}

    @classmethod
    def from_json(cls, data: Any, refuse: Callable[[str], Exception]) -> TypeSnapshot:
        """What to_json() made; ``refuse`` makes the error where it did not."""
        import base64  # noqa: PLC0415 - only for recordings
        import zlib  # noqa: PLC0415

        from usdt.base.errors import BtfError  # noqa: PLC0415
        from usdt.btf.reader import Btf  # noqa: PLC0415
        from usdt.btf.values.limits import TypeLimits  # noqa: PLC0415

        type_id, size = (data.get(key) if isinstance(data, dict) else None for key in _NUMBERS)
        if type(type_id) is not int or type(size) is not int or not 0 < size <= _MAX_SIZE:
            raise refuse("shape: a type and its size expected")
        try:
            inflate = zlib.decompressobj()
            types = inflate.decompress(base64.b64decode(data.get("types")), _MAX_BYTES)
            btf = Btf(types, name="the recorded types")
            TypeLimits(btf).extent(type_id)
            if inflate.unconsumed_tail or btf.size_of(type_id) != size:
                raise refuse("shape: its types are not those of a value of this size")
        except (TypeError, ValueError, zlib.error, BtfError) as err:
            raise refuse(f"shape: damaged types: {err}") from err
        return cls(types, type_id, size)


_NUMBERS = ("type", "size")


def snapshot_of(btf: Btf, type_id: int) -> TypeSnapshot | None:
    """The shape of a type; None of what has no values, or none that take room.

    Raises:
        BtfError: the type is absurd.
    """
    from usdt.base.errors import BtfError  # noqa: PLC0415
    from usdt.btf.minimize import minimize  # noqa: PLC0415 - only where structures are shown
    from usdt.btf.values.limits import TypeLimits  # noqa: PLC0415

    try:
        size = btf.size_of(type_id)
    except BtfError:
        return None
    if not 0 < size <= _MAX_SIZE:
        return None
    TypeLimits(btf).extent(type_id)
    types, own = minimize(btf, type_id)
    return TypeSnapshot(types, own, size)
