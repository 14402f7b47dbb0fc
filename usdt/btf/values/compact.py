"""Values as one short line without types, which hides what is zero.

Structures are formatted by generated code, one function per structure; data that ends too early by
closures, several times slower.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, TypeAlias

from usdt.btf.format import MAX_NESTING, Encoding, nesting_error
from usdt.btf.tagged_union import tagged_union_of
from usdt.btf.types import (
    Array,
    Composite,
    Enum,
    FunctionProto,
    Int,
    Member,
    Pointer,
    Type,
    Void,
    flag_names,
    is_char,
)
from usdt.btf.values.batched_reads import BatchedReads, struct_code
from usdt.btf.values.limits import TypeLimits
from usdt.btf.values.scalars import flags_text, literal, sign_extended
from usdt.btf.values.value_reader import ValueReader
from usdt.btf.values.variants import variant_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

    #: (data, offset of the value) → the value.
    Reader: TypeAlias = Callable[[bytes, int], Any]
    #: (data, offset of the value) → text; None if the value is zero.
    Writer: TypeAlias = Callable[[bytes, int], str | None]
    Lookup: TypeAlias = Callable[[int], str | None]

__all__ = ("CompactFormatter",)

_MAX_COMPARED = 4096  # bytes; longer members are not compared with zeroes first


class CompactFormatter:
    """Formats values as one line: ``{len=84, dev="lo", flags=A|B, fn=tcp_v4_rcv}``.

    Args:
        btf: the types.
        symbol: returns the name of an address, or None; called for pointers that are not NULL.
        string: returns the text at an address, or None; called for pointers to ``char``.
        most: how many elements of an array are shown.
        code: call ``symbol`` for pointers to functions and ``void`` only.
        once: do not generate code: few values will be formatted.
    """

    def __init__(
        self,
        btf: Btf,
        *,
        symbol: Lookup | None = None,
        string: Lookup | None = None,
        most: int = 16,
        code: bool = False,
        once: bool = False,
    ) -> None:
        self._btf = btf
        self._symbol = symbol
        self._string = string
        self._most = most
        self._code = code
        self._once = once
        self._values = ValueReader(btf)
        self._limits = TypeLimits(btf)
        self._made: dict[int, Writer] = {}

    def line(self, type_id: int, data: bytes) -> str:
        """Return a value as text without line ends.

        Raises:
            BtfError: the type is absurd or has no values.
        """
        self._limits.extent(type_id)
        text = self.writer(type_id)(data, 0)
        if text is None:
            found = self._btf.resolve(type_id)
            return (
                "{}" if isinstance(found, Composite) else "[]" if isinstance(found, Array) else "0"
            )
        return text

    def writer(self, type_id: int) -> Writer:
        """Return the function that formats values of a type."""
        made = self._made.get(type_id)
        if made is None:
            made = self._made[type_id] = self._make(type_id)
        return made

    def _make(self, type_id: int) -> Writer:
        found = self._btf.resolve(type_id)
        choice = tagged_union_of(self._btf, found)
        if choice is not None:
            return variant_line(choice, self._btf, self._values.reader, self.writer)
        if isinstance(found, Composite):
            return self._composite(found)
        if isinstance(found, Array) and not is_char(self._btf.resolve(found.type_id)):
            return self._array(found)
        return self._scalar(found, self._values.reader(type_id))

    def _scalar(self, found: Type, read: Reader) -> Writer:
        if isinstance(found, Pointer):
            return self._pointer(found, read)
        flags = flag_names(found) if isinstance(found, Enum) else None
        every = found.values if isinstance(found, Enum) else ()
        zeroes = {one.name for one in every if not one.value}

        def write(data: bytes, at: int) -> str | None:
            value = read(data, at)
            if not value or value in zeroes:
                return "?" if value is None and not isinstance(found, Array) else None
            if isinstance(found, Array):
                return json.dumps(value, ensure_ascii=False)
            if flags and isinstance(value, int):
                return flags_text(flags, value)
            return str(value).lower() if isinstance(value, bool) else str(value)

        return write

    def _pointer(self, found: Pointer, read: Reader) -> Writer:
        shown = self.address_text(found) or hex

        def write(data: bytes, at: int) -> str | None:
            address = read(data, at)
            if not address:
                return "?" if address is None else None
            return shown(address)

        return write

    def address_text(self, found: Pointer) -> Callable[[int], str] | None:
        """Return the function that formats pointers other than NULL; None if they are numbers."""
        target = self._btf.resolve(found.type_id)
        string = self._string if is_char(target) else None
        code = isinstance(target, FunctionProto)
        named = self._symbol if code or not self._code or isinstance(target, Void) else None
        if string is None and named is None:
            return None

        def show(address: int) -> str:
            if string is not None and (text := string(address)) is not None:
                return json.dumps(text, ensure_ascii=False)
            name = named(address) if named else None
            if name:
                return name if code else f"&{name}"
            return f"{address:#x}"

        return show

    def _array(self, found: Array) -> Writer:
        element = self.writer(found.type_id)
        size, count, most = self._btf.size_of(found.type_id), found.count, self._most
        empty = "{}" if isinstance(self._btf.resolve(found.type_id), Composite) else "0"
        end = size * count

        def write(data: bytes, at: int) -> str | None:
            if not data[at : at + end].strip(b"\0"):
                return None if at < len(data) or not end else "?"
            texts = [element(data, at + size * index) for index in range(min(count, most))]
            more = ", …" if count > most else ""
            return f"[{', '.join(text or empty for text in texts)}{more}]"

        return write

    def _composite(self, found: Composite) -> Writer:
        parts = [(member.name, *self._member(member)) for member in found.members]

        def write(data: bytes, at: int) -> str | None:
            texts = []
            for name, byte, part in parts:
                text = part(data, at + byte)
                if text is not None:
                    texts.append(f"{name}={text}" if name else _within(text))
            return f"{{{', '.join(texts)}}}" if texts else None

        return write if self._once else self._compiled(found, write)

    def _compiled(self, found: Composite, cut: Writer) -> Writer:
        # Generated code does not check bounds: ``cut`` formats data that ends within the structure.
        size = found.size
        codegen = _Codegen(self._btf, self)
        whole = codegen.function(found)
        if codegen.extent > size:  # damaged: members behind the end
            return cut
        return lambda data, at: (whole if len(data) - at >= size else cut)(data, at)

    def _member(self, member: Member) -> tuple[int, Writer]:
        found = self._btf.resolve(member.type_id)
        if member.bitfield_size and isinstance(found, Int | Enum):
            byte, read = self._values.member(member)
            return byte, self._scalar(found, read)
        return member.bit_offset // 8, self.writer(member.type_id)


def _within(text: str) -> str:
    # The contents of an anonymous structure; bit fields without a name come here, too.
    return text[1:-1] if text.startswith("{") else text


class _Codegen:
    # Writes the function of one structure, which reads all its numbers at once. ``extent`` is
    # then the number of bytes that the function looks at.

    def __init__(self, btf: Btf, formatter: CompactFormatter) -> None:
        self._btf = btf
        self._formatter = formatter
        self._space: dict[str, Any] = {"SIGNED": sign_extended}
        self._reads = BatchedReads(btf, self._space)
        self._lines: list[str] = []
        self.extent = 0

    def function(self, found: Composite) -> Callable[[bytes, int], str | None]:
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
            shown = self._formatter.address_text(found)
            value = f"{value}:#x"
            if shown is not None:
                value = f"{self._constant(f'P{found.id}', shown)}({name})"
        elif isinstance(found, Int) and found.encoding & Encoding.BOOL:
            value = "'true'"
        self._lines.append(f' if {name}: e(f"{lead}{{{value}}}")')

    def _other(self, member: Member, found: Type, byte: int) -> None:
        # Texts, lists, structures within, numbers of other sizes: not asked while they are zero.
        size = self._btf.size_of(member.type_id)
        write = self._constant(f"W{found.id}", self._formatter.writer(member.type_id))
        place = f"at + {byte}" if byte else "at"
        text = f"{write}(d, {place})"
        lead = literal(f"{member.name}=" if member.name else "")
        test = "True"
        self.extent = max(self.extent, byte + size)
        shown = isinstance(found, Composite) and tagged_union_of(self._btf, found) is not None
        if isinstance(found, Composite | Array) and size <= _MAX_COMPARED and not shown:
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
