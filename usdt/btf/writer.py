"""Write BTF: build records and strings, and join them to bytes.

    types = BtfWriter()
    number = types.integer("int", 4, Encoding.SIGNED)
    types.composite(Kind.STRUCT, "point", 8, [("x", number, 0, 0), ("y", number, 32, 0)])
    btf = Btf(types.data())

Methods return the ID of the type they add. They check nothing: tests also write damaged BTF.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.btf.format import MAGIC, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ("BtfWriter",)

_HEADER = 24
_LAYOUT_HEADER = 32
_WORD = 0xFFFFFFFF


class BtfWriter:
    """Builds BTF, type by type.

    Args:
        order: "little" or "big".
        first: ID of the first type; more than 1 for split BTF.
        strings_before: length of the base's strings in bytes, for split BTF.
    """

    def __init__(self, order: str = "little", *, first: int = 1, strings_before: int = 0) -> None:
        self._mark = "<" if order == "little" else ">"
        self._first = first
        self._before = strings_before
        self._strings = bytearray(b"" if strings_before else b"\0")
        self._offsets: dict[str, int] = {"": 0}
        self._records: list[bytes] = []

    def string(self, text: str) -> int:
        """Return the offset of a string; add it if it is new."""
        if text not in self._offsets:
            self._offsets[text] = self._before + len(self._strings)
            self._strings += text.encode("utf-8", "surrogateescape") + b"\0"
        return self._offsets[text]

    def record(
        self,
        kind: int,
        name: str,
        value: int,
        words: Sequence[int] = (),
        *,
        items: int = 0,
        flag: bool = False,
        number: int | None = None,
    ) -> int:
        """Add any record: ``value`` is its size or type, ``items`` its number of items.

        ``number``: the ID that reserve() returned for it.
        """
        info = items | kind << 24 | flag << 31
        every = [self.string(name), info, value, *words]
        masked = [word & _WORD for word in every]
        number = self.reserve() if number is None else number
        self._records[number - self._first] = struct.pack(f"{self._mark}{len(masked)}I", *masked)
        return number

    def reserve(self) -> int:
        """Return the ID of a type that is added later, for types that refer to one another."""
        self._records.append(b"")
        return self._first + len(self._records) - 1

    def integer(self, name: str, size: int, encoding: int = 0, bits: int | None = None) -> int:
        """Add an integer."""
        used = 8 * size if bits is None else bits
        return self.record(Kind.INT, name, size, [encoding << 24 | used & 0xFF])

    def pointer(self, target: int) -> int:
        """Add a pointer."""
        return self.record(Kind.PTR, "", target)

    def array(self, target: int, count: int, index: int = 1) -> int:
        """Add an array."""
        return self.record(Kind.ARRAY, "", 0, [target, index, count])

    def composite(
        self,
        kind: Kind,
        name: str,
        size: int,
        members: Iterable[tuple[str, int, int, int]],
        *,
        number: int | None = None,
    ) -> int:
        """Add a structure or union; members are (name, type, bit offset, bit field size or 0).

        ``number``: the ID that reserve() returned for it.
        """
        rows = list(members)
        flag = any(bits for *_, bits in rows)
        words = [
            word
            for label, target, offset, bits in rows
            for word in (self.string(label), target, offset | (bits << 24 if flag else 0))
        ]
        return self.record(kind, name, size, words, items=len(rows), flag=flag, number=number)

    def enum(
        self, name: str, size: int, values: Iterable[tuple[str, int]], *, signed: bool = False
    ) -> int:
        """Add an enumeration of 32-bit values."""
        rows = list(values)
        words = [word for label, value in rows for word in (self.string(label), value)]
        return self.record(Kind.ENUM, name, size, words, items=len(rows), flag=signed)

    def enum64(
        self, name: str, size: int, values: Iterable[tuple[str, int]], *, signed: bool = False
    ) -> int:
        """Add an enumeration of 64-bit values."""
        rows = [(self.string(label), value, value >> 32) for label, value in values]
        words = [word for row in rows for word in row]
        return self.record(Kind.ENUM64, name, size, words, items=len(rows), flag=signed)

    def prototype(self, target: int, parameters: Iterable[tuple[str, int]]) -> int:
        """Add a prototype; a last parameter ("", 0) means ``...``."""
        rows = list(parameters)
        words = [word for label, kind in rows for word in (self.string(label), kind)]
        return self.record(Kind.FUNC_PROTO, "", target, words, items=len(rows))

    def section(self, name: str, size: int, items: Iterable[tuple[int, int, int]]) -> int:
        """Add a data section; items are (variable, offset, size)."""
        rows = list(items)
        words = [word for row in rows for word in row]
        return self.record(Kind.DATASEC, name, size, words, items=len(rows))

    def data(self, *, layout: dict[int, tuple[int, int]] | None = None) -> bytes:
        """Return the BTF; ``layout`` (kind → bytes once, bytes per item) adds a layout section."""
        types, strings = b"".join(self._records), bytes(self._strings)
        strings += bytes(-len(strings) % 4) if layout is not None else b""
        size = _HEADER if layout is None else _LAYOUT_HEADER
        fields = [0, len(types), len(types), len(strings)]
        rows = b""
        if layout is not None:
            last = max(layout, default=-1) + 1
            rows = b"".join(
                struct.pack(self._mark + "BBH", *layout.get(kind, (0, 0)), 0)
                for kind in range(last)
            )
            fields += [len(types) + len(strings), len(rows)]
        head = struct.pack(f"{self._mark}HBBI{len(fields)}I", MAGIC, 1, 0, size, *fields)
        return head + types + strings + rows
