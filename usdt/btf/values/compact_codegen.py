"""Structures as one short line, by generated code: one function per structure.

Returns what :class:`usdt.btf.values.value_reader.CompactFormatter` returns for the same
bytes, several times as fast. The data must reach to the end of the value.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Protocol

from usdt.btf.format import MAX_NESTING, Encoding, nesting_error
from usdt.btf.tagged_union import tagged_union_of
from usdt.btf.traits import flag_names
from usdt.btf.types import Array, Composite, Enum, Int, Member, Pointer, Type
from usdt.btf.values.batched_reads import BatchedReads, struct_code
from usdt.btf.values.scalars import flags_text, literal, sign_extended

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

__all__ = ("CompactCodegen", "Writers")

_MOST_ZEROES = 4096  # bytes: what is longer is not compared with zeroes


class Writers(Protocol):
    """Who shows what has no line of its own here."""

    def writer(self, number: int) -> Callable[[bytes, int], str | None]:
        """The function for a type; None if the value is zero."""

    def shown(self, found: Pointer) -> Callable[[int], str] | None:
        """What shows addresses that are not NULL; None: they are numbers."""


class CompactCodegen:
    """Writes the function of a structure: all its numbers are read at once.

    Args:
        btf: the types.
        writers: show what is within.

    Attributes:
        extent: how many bytes the function looks at; known once it is made.
    """

    def __init__(self, btf: Btf, writers: Writers) -> None:
        self._btf = btf
        self._writers = writers
        self._space: dict[str, Any] = {"SIGNED": sign_extended}
        self._reads = BatchedReads(btf, self._space)
        self._lines: list[str] = []
        self.extent = 0

    def function(self, found: Composite) -> Callable[[bytes, int], str | None]:
        """The function, of data and a place in it; None if the value is zero.

        Raises:
            BtfError: a member is of a type that has no values.
        """
        self._members(found, 0)
        lines = ["def line(d, at):", " t = []", " e = t.append"]
        lines += [*self._reads.lines(), *self._lines]
        lines.append(" return f\"{{{', '.join(t)}}}\" if t else None")
        code = compile("\n".join(lines) + "\n", f"<line of type {found.id}>", "exec")
        exec(code, self._space)  # noqa: S102 - our own code; texts are literals in it
        made: Callable[[bytes, int], str | None] = self._space["line"]
        return made

    def _members(self, found: Composite, start: int, depth: int = 0) -> None:
        if depth > MAX_NESTING:
            raise nesting_error(self._btf.name, found.id)
        for member in found.members:
            inner = self._btf.resolve(member.type_id)
            place = start + member.bit_offset
            if isinstance(inner, Composite) and not member.name:
                self._members(inner, place - place % 8, depth + 1)
            else:
                self._value(member, inner, place)

    def _value(self, member: Member, found: Type, place: int) -> None:
        byte, bit = divmod(place, 8)
        if member.bitfield_size and isinstance(found, Int | Enum):
            name = self._reads.bitfield(place, member.bitfield_size)
            self.extent = max(self.extent, byte + (bit + member.bitfield_size + 7) // 8)
            value = f"SIGNED({name}, {member.bitfield_size})" if found.signed else name
            self._number(member, found, name, value)
            return
        code = struct_code(self._btf, found)
        if code:
            name = self._reads.number(byte, code)
            self.extent = max(self.extent, byte + struct.calcsize(f"={code}"))
            self._number(member, found, name, name)
            return
        self._other(member, found, byte)

    def _number(self, member: Member, found: Type, name: str, value: str) -> None:
        lead = literal(f"{member.name}=" if member.name else "")
        if isinstance(found, Enum):
            table = self._constant(f"E{found.id}", _EnumNames(found))
            self._lines.append(f' if {name} and (s := {table}[{value}]): e(f"{lead}{{s}}")')
            return
        if isinstance(found, Pointer):
            shown = self._writers.shown(found)
            value = f"{value}:#x"
            if shown is not None:
                value = f"{self._constant(f'P{found.id}', shown)}({name})"
        elif isinstance(found, Int) and found.encoding & Encoding.BOOL:
            value = "'true'"
        self._lines.append(f' if {name}: e(f"{lead}{{{value}}}")')

    def _other(self, member: Member, found: Type, byte: int) -> None:
        # Texts, lists, structures within, numbers of other sizes: not asked while they are zero.
        size = self._btf.size_of(member.type_id)
        write = self._constant(f"W{found.id}", self._writers.writer(member.type_id))
        place = f"at + {byte}" if byte else "at"
        text = f"{write}(d, {place})"
        lead = literal(f"{member.name}=" if member.name else "")
        test = "True"
        self.extent = max(self.extent, byte + size)
        shown = isinstance(found, Composite) and tagged_union_of(self._btf, found) is not None
        if isinstance(found, Composite | Array) and size <= _MOST_ZEROES and not shown:
            zeroes = self._constant(f"Z{size}", bytes(size))
            test = f"d[{place}:at + {byte + size}] != {zeroes}"
        self._lines.append(f' if {test} and (s := {text}) is not None: e(f"{lead}{{s}}")')

    def _constant(self, name: str, value: object) -> str:
        self._space[name] = value
        return name


class _EnumNames(dict[int, str | None]):
    # Value → what is shown of it; None: what has the name of zero is hidden.
    def __init__(self, found: Enum) -> None:
        super().__init__()
        zeroes = {one.name for one in found.values if not one.value}
        self._flags = flag_names(found)
        for one in found.values:
            self.setdefault(one.value, None if one.name in zeroes else one.name)

    def __missing__(self, value: int) -> str:
        return flags_text(self._flags, value) if self._flags else str(value)
