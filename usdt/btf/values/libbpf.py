"""Render values exactly as libbpf does, with its state and its errors.

It is slow. With all of :class:`~usdt.btf.values.options.Quirk` the text is libbpf's; with none, it
is that of :mod:`usdt.btf.values.tree_codegen`, whose tests use it as reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.dump.declare import CDeclarationPrinter
from usdt.btf.format import MAX_NESTING, Kind, nesting_error
from usdt.btf.types import (
    Array,
    Composite,
    DataSection,
    Enum,
    Float,
    Int,
    Member,
    Pointer,
    Type,
    Typedef,
    Variable,
)
from usdt.btf.values.options import ALL_QUIRKS, DumpError, Options, Quirk, Rendered
from usdt.btf.values.read_plan import ReadPlans
from usdt.btf.values.scalars import (
    byte_order,
    character_texts,
    escaped_string,
    float_text,
    libbpf_enum_table,
    sign_extended,
)

if TYPE_CHECKING:
    from usdt.btf.reader import Btf

__all__ = ("render_libbpf",)

_MAX_TEXTS = 1 << 22
_LINKAGES = {0: "static ", 2: "extern "}
_CHARACTERS = {sign: character_texts(signed=sign) for sign in (False, True)}


def render_libbpf(
    btf: Btf,
    type_id: int,
    data: bytes,
    options: Options = Options(),  # noqa: B008 - immutable
    *,
    quirks: frozenset[Quirk] = ALL_QUIRKS,
) -> Rendered:
    """Return a value as a new ``struct btf_dump`` of libbpf shows it.

    Raises:
        BtfError: the type is damaged, nested too deeply or too large.
    """
    ReadPlans(btf).of(type_id)
    dump = _Dump(btf, data, options, quirks)
    try:
        dump.value("", type_id, 0)
    except DumpError as err:
        return Rendered("".join(dump.out), None, err.error)
    return Rendered("".join(dump.out), btf.size_of(type_id), "")


class _UniqueNames:
    # Of several types of one name, the second that is shown gets the suffix ___2.
    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._counts: dict[tuple[bool, str], int] = {}

    def __call__(self, found: Type) -> str:
        if not found.name or not isinstance(found, Composite | Enum | Typedef):
            return found.name
        if isinstance(found, Enum) and not found.values:
            return found.name
        if found.id not in self._known:
            key = isinstance(found, Typedef), found.name
            self._counts[key] = count = self._counts.get(key, 0) + 1
            self._known[found.id] = f"{found.name}___{count}" if count > 1 else found.name
        return self._known[found.id]


class _Dump:
    def __init__(self, btf: Btf, data: bytes, options: Options, quirks: frozenset[Quirk]) -> None:
        self.btf = btf
        self.data = data
        self.options = options
        self.quirks = quirks
        self.out: list[str] = []
        self.depth = 0  # libbpf does not decrease it where it ignores an error
        self.nesting = 0
        self.in_array = False
        self.chars = False
        self.terminated = False
        self._order = byte_order(btf)
        names = _UniqueNames() if Quirk.SUFFIX in quirks else None
        self._declarer = CDeclarationPrinter(btf, names=names)
        self._casts: dict[int, str] = {}

    # -------------------------------------------------------- pieces of text

    def put(self, text: str) -> None:
        self.out.append(text)
        if len(self.out) > _MAX_TEXTS:
            raise BtfError(f"{self.btf.name}: a value with more than {_MAX_TEXTS} parts")

    def finish(self, text: str) -> None:
        self.put(text + ("," if self.depth else "") + self.newline())

    def newline(self) -> str:
        return "" if self.options.compact or not self.depth else "\n"

    def indent(self) -> None:
        if not self.options.compact:
            self.put(self.options.indent_str * (self.options.indent_level + self.depth))

    def cast(self, type_id: int) -> str:
        if type_id not in self._casts:
            self._casts[type_id] = self._declarer.declare(type_id, strip=True)
        return self._casts[type_id]

    # -------------------------------------------------------- reading

    def bytes_at(self, at: int, size: int) -> bytes:
        return self.data[at : at + size].ljust(size, b"\0")

    def number_at(self, at: int, size: int) -> int:
        return int.from_bytes(self.bytes_at(at, size), self._order)

    @property
    def little(self) -> bool:
        return self._order == "little"

    def bits_at(self, found: Int | Enum, at: int, offset: int, bits: int) -> int:
        number = (offset + bits + 7) // 8
        if at + number > len(self.data) and Quirk.OLD_BOUND not in self.quirks:
            raise DumpError("E2BIG")
        if Quirk.BITS not in self.quirks:
            value = self.number_at(at, number)
            shift = offset if self.little else 8 * number - offset - bits
            return value >> shift & (1 << bits) - 1
        if found.size > 8:
            raise DumpError("EINVAL")
        value = self.number_at(at, found.size)
        copied = bits + offset if self.little else found.size * 8 - offset
        # The CPU's shifts count modulo 64.
        return (value << (64 - copied) % 64 & (1 << 64) - 1) >> (64 - bits) % 64

    def enum_at(self, found: Enum, type_id: int, at: int) -> int:
        align = self.btf.align_of(type_id)
        if Quirk.BITS in self.quirks and (not align or at % align):
            return 0  # a shift by 64, which C leaves open and compilers make 0 of
        value = self.number_at(at, found.size)
        if found.size not in (1, 2, 4, 8):
            raise DumpError("EINVAL")
        return sign_extended(value, 8 * found.size) if found.signed else value

    # -------------------------------------------------------- is it zero?

    def zero(self, type_id: int, at: int, offset: int = 0, bits: int = 0, level: int = 0) -> bool:
        if self.options.emit_zeroes or not self.depth or (self.in_array and not self.chars):
            return False
        if level > MAX_NESTING:
            raise nesting_error(self.btf.name, type_id)
        found = self.btf.resolve(type_id)
        if isinstance(found, Array):
            return self.zero_array(found, at, level)
        if isinstance(found, Composite):
            members = found.members
            if Quirk.FIRST_MEMBER in self.quirks:
                members = members[:1]
            return all(self.zero_member(member, at, level) for member in members)
        kinds = Int if Quirk.BITS in self.quirks else Int | Enum
        if bits and isinstance(found, kinds):
            return not self.bits_at(found, at, offset, bits)
        if isinstance(found, Enum):
            return self.known(at, found.size) and not self.enum_at(found, type_id, at)
        if isinstance(found, Int | Float | Pointer):
            size = self.btf.size_of(found.id)
            if not 1 <= size <= 16:
                raise DumpError("EINVAL")
            return self.known(at, size) and not self.number_at(at, size)
        return False

    def known(self, at: int, size: int) -> bool:
        return Quirk.PAST_THE_END in self.quirks or at + size <= len(self.data)

    def zero_member(self, member: Member, at: int, level: int) -> bool:
        byte, bit = divmod(member.bit_offset, 8)
        if member.bitfield_size and not self.known(
            at + byte, (bit + member.bitfield_size + 7) // 8
        ):
            return False
        return self.zero(member.type_id, at + byte, bit, member.bitfield_size, level + 1)

    def zero_array(self, found: Array, at: int, level: int) -> bool:
        size = self.btf.size_of(found.type_id)
        element = self.btf.resolve(found.type_id)
        chars = found.count and isinstance(element, Int) and size == 1
        if chars and self.known(at, 1) and not self.number_at(at, 1):
            return True
        positions = range(at, at + found.count * size, size) if size else [at] * min(1, found.count)
        return all(self.zero(found.type_id, position, level=level + 1) for position in positions)

    # -------------------------------------------------------- values

    def value(self, name: str, type_id: int, at: int, offset: int = 0, bits: int = 0) -> None:
        if self.nesting > MAX_NESTING:
            raise nesting_error(self.btf.name, type_id)
        self.nesting += 1
        try:
            self.shown(name, type_id, at, offset, bits)
        finally:
            self.nesting -= 1

    def shown(self, name: str, type_id: int, at: int, offset: int, bits: int) -> None:
        found = self.check(type_id, at, offset, bits)
        if self.zero(type_id, at, offset, bits):
            return
        self.indent()
        if not self.options.skip_names:
            if name:
                self.put(f".{name} = ")
            if not self.in_array and not isinstance(found, Variable | DataSection):
                self.put(f"({self.cast(type_id)})")
        if isinstance(found, Composite):
            self.composite(found, at)
        elif isinstance(found, Array):
            self.array(found, at)
        elif isinstance(found, Variable):
            self.put(
                f"{_LINKAGES.get(found.linkage, '')}{self.cast(found.type_id)} {found.name} = "
            )
            self.value("", found.type_id, at)
        elif isinstance(found, DataSection):
            self.section(found, at)
        else:
            self.scalar(found, type_id, at, offset, bits)

    def check(self, type_id: int, at: int, offset: int, bits: int) -> Type:
        found = self.btf.type(type_id)
        if not isinstance(found, Variable | DataSection):
            found = self.btf.resolve(type_id)
        if bits and Quirk.OLD_BOUND not in self.quirks:
            if at + (offset + bits + 7) // 8 > len(self.data):
                raise DumpError("E2BIG")
            return found
        try:
            size = self.btf.size_of(type_id)
        except BtfError as err:
            raise DumpError("EINVAL") from err
        if isinstance(found, Int | Float | Pointer | Enum) and at + size > len(self.data):
            raise DumpError("E2BIG")
        return found

    def scalar(self, found: Type, type_id: int, at: int, offset: int, bits: int) -> None:
        if isinstance(found, Int):
            if bits:
                self.finish(f"{self.bits_at(found, at, offset, bits):#x}")
            else:
                self.integer(found, at)
        elif isinstance(found, Enum):
            if bits:
                value = self.bits_at(found, at, offset, bits)
                value = sign_extended(value, 8 * found.size) if found.signed else value
                self.enumerator(found, value)
            else:
                self.enumerator(found, self.enum_at(found, type_id, at))
        elif isinstance(found, Float):
            if found.size not in (4, 8, 16):
                raise DumpError("EINVAL")
            self.finish(float_text(self.bytes_at(at, found.size), self._order))
        else:
            size = self.btf.pointer_size
            value = self.number_at(at, size)
            null = "(nil)" if size == 8 and at % 8 == 0 else "0x0"
            self.finish(f"{value:#x}" if value else null)

    def integer(self, found: Int, at: int) -> None:
        size = found.size
        value = self.number_at(at, size)
        if size == 16:
            self.finish(f"{value:#x}")
            return
        if size not in (1, 2, 4, 8):
            raise DumpError("EINVAL")
        if size == 1 and self.chars and (self.in_array or Quirk.CHARS_FOREVER in self.quirks):
            if self.terminated:
                return
            if not value:
                if Quirk.OLD_NUL not in self.quirks:
                    self.finish("'\\0'")
                self.terminated = True
                return
            self.finish(_CHARACTERS[found.signed][value])
            return
        self.finish(str(sign_extended(value, 8 * size) if found.signed else value))

    def enumerator(self, found: Enum, value: int) -> None:
        text = libbpf_enum_table(found)
        if value not in text and found.kind == Kind.ENUM and Quirk.LOW_HALF in self.quirks:
            value = sign_extended(value, 32) if found.signed else value & 0xFFFFFFFF
        if value in text or not found.signed or Quirk.ENUM_DELIMITER not in self.quirks:
            self.finish(text[value])
        else:
            self.put(text[value])

    def composite(self, found: Composite, at: int) -> None:
        self.depth += 1
        self.put("{" + self.newline())
        for member in found.members:
            byte, bit = divmod(member.bit_offset, 8)
            self.value(member.name, member.type_id, at + byte, bit, member.bitfield_size)
        self.depth -= 1
        self.indent()
        self.finish("}")

    def array(self, found: Array, at: int) -> None:
        size = self.btf.size_of(found.type_id)
        element = self.btf.resolve(found.type_id)
        if not size and Quirk.NO_SIZE in self.quirks:
            raise DumpError("EINVAL")
        chars = isinstance(element, Int) and size == 1
        if chars and self.options.emit_strings and self.string(at, found.count):
            return
        state = self.in_array, self.terminated, self.chars, self.depth
        self.chars = chars or (self.chars and Quirk.CHARS_FOREVER in self.quirks)
        self.depth += 1
        self.put("[" + self.newline())
        self.in_array = True
        self.terminated = self.terminated and Quirk.OLD_NUL in self.quirks
        count = found.count
        if isinstance(element, Int | Float | Pointer | Enum):  # nothing is shown of later elements
            count = min(count, 1 + max(0, len(self.data) - at) // max(size, 1))
        for index in range(count):
            if self.terminated or not self.element(found.type_id, at + index * size, chars=chars):
                break
        self.in_array = state[0]
        if Quirk.OLD_NUL not in self.quirks:
            self.terminated = state[1]
        if Quirk.CHARS_FOREVER not in self.quirks:
            self.chars = state[2]
        self.depth = state[3] if Quirk.PAST_THE_END not in self.quirks else self.depth - 1
        self.indent()
        self.finish("]")

    def element(self, type_id: int, at: int, *, chars: bool) -> bool:
        # Return True to continue with the next element. libbpf also continues after the data ends.
        ends = chars and Quirk.NUL_DROPPED not in self.quirks and not self.options.emit_zeroes
        if ends and self.data[at : at + 1] == b"\0":
            return False
        try:
            self.value("", type_id, at)
        except DumpError:
            return Quirk.PAST_THE_END in self.quirks
        return True

    def string(self, at: int, count: int) -> bool:
        raw = self.data[at : at + count]
        end = raw.find(b"\0")
        if end < 0:
            return False
        if Quirk.STRING_DELIMITER in self.quirks:
            self.indent()
            self.put(escaped_string(raw[:end]))
        else:
            self.finish(escaped_string(raw[:end]))
        return True

    def section(self, found: DataSection, at: int) -> None:
        self.finish(f'SEC("{found.name}") ')
        for item in found.items:
            self.value("", item.type_id, at + item.offset)
            self.put(";")
