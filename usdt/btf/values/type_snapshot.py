"""A type as an immutable value, for plans, record layouts and recordings."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

__all__ = ("TypeSnapshot", "in_short", "snapshot_of")

_MAX_BYTES = 1 << 20  # bytes of types of one value
_MAX_SIZE = 1 << 30


@frozen
class TypeSnapshot:
    """A type together with the types within its values. Equal snapshots share their formatters.

    Attributes:
        types: BTF with the type and all types within its values.
        type_id: its ID there.
        size: bytes of a value.
    """

    types: bytes
    type_id: int
    size: int

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot as a JSON object."""
        import base64  # noqa: PLC0415 - only for recordings
        import zlib  # noqa: PLC0415

        packed = base64.b64encode(zlib.compress(self.types)).decode()
        return {"types": packed, "type": self.type_id, "size": self.size}

    @classmethod
    def from_json(cls, data: Any, refuse: Callable[[str], Exception]) -> TypeSnapshot:
        """Return the snapshot that to_json() wrote; ``refuse`` makes the error for other data."""
        import base64  # noqa: PLC0415 - only for recordings
        import zlib  # noqa: PLC0415

        from usdt.base.errors import BtfError  # noqa: PLC0415
        from usdt.btf.reader import Btf  # noqa: PLC0415
        from usdt.btf.values.read_plan import ReadPlans  # noqa: PLC0415

        type_id, size = (data.get(key) if isinstance(data, dict) else None for key in _NUMBERS)
        if type(type_id) is not int or type(size) is not int or not 0 < size <= _MAX_SIZE:
            raise refuse("shape: a type and its size expected")
        try:
            inflate = zlib.decompressobj()
            types = inflate.decompress(base64.b64decode(data.get("types")), _MAX_BYTES)
            btf = Btf(types, name="the recorded types")
            ReadPlans(btf).of(type_id)
            if inflate.unconsumed_tail or btf.size_of(type_id) != size:
                raise refuse("shape: its types are not those of a value of this size")
        except (TypeError, ValueError, zlib.error, BtfError) as err:
            raise refuse(f"shape: damaged types: {err}") from err
        return cls(types, type_id, size)


_NUMBERS = ("type", "size")


def snapshot_of(btf: Btf, type_id: int) -> TypeSnapshot | None:
    """Return the snapshot of a type; None if its values have no size or size 0.

    Raises:
        BtfError: the type is nested too deeply, or too large.
    """
    from usdt.base.errors import BtfError  # noqa: PLC0415
    from usdt.btf.minimize import minimize  # noqa: PLC0415 - only where structures are shown
    from usdt.btf.values.read_plan import ReadPlans  # noqa: PLC0415

    try:
        size = btf.size_of(type_id)
    except BtfError:
        return None
    if not 0 < size <= _MAX_SIZE:
        return None
    ReadPlans(btf).of(type_id)
    types, own = minimize(btf, type_id)
    return TypeSnapshot(types, own, size)


@functools.lru_cache(maxsize=256)
def in_short(shape: TypeSnapshot) -> TypeSnapshot:
    """Return the snapshot of a type without the members that are larger structures.

    See :func:`usdt.btf.minimize.minimize`.
    """
    from usdt.btf.minimize import minimize  # noqa: PLC0415 - only where structures are shown
    from usdt.btf.reader import Btf  # noqa: PLC0415

    btf = Btf(shape.types, name="types of a structure")
    types, own = minimize(btf, shape.type_id, in_short=True)
    return TypeSnapshot(types, own, shape.size)
