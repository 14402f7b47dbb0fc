"""Generate code that reads values as JSON text or Python objects: one function per structure.

Returns what :class:`usdt.btf.values.value_reader.ValueReader` returns for the same bytes, ten times
as fast. The data must reach to the end of the value.
"""

from __future__ import annotations

import json
import struct
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, Any, TypeAlias

from usdt.btf.format import Encoding
from usdt.btf.tagged_union import tagged_union_of
from usdt.btf.types import Array, Composite, Enum, Int, Member, Type, is_char
from usdt.btf.values.batched_reads import BatchedReads, struct_code, struct_mark
from usdt.btf.values.limits import TypeLimits
from usdt.btf.values.scalars import EnumNames, sign_extended
from usdt.btf.values.value_reader import ValueReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

__all__ = ("JsonCodegen",)

_INLINED = 100  # values of a structure that has no function of its own
#: Member → the expression of its value, or of the values of a structure within.
_Parts: TypeAlias = "dict[str, str | _Parts]"


class JsonCodegen:
    """Generates functions from (data, offset of a value) to the value, each once.

    Args:
        btf: the types.
        text: return JSON text instead of Python objects.
    """

    def __init__(self, btf: Btf, *, text: bool) -> None:
        self.btf = btf
        self.text = text
        self._values = ValueReader(btf)
        self.measure = TypeLimits(btf)
        self._made: dict[int, str] = {}
        self.space: dict[str, Any] = {
            "SIGNED": sign_extended,
            "TRUTH": ("false", "true") if text else (False, True),
        }

    def function(self, type_id: int) -> Callable[[bytes, int], Any]:
        """Return the function that reads values of a type.

        Raises:
            BtfError: the type is nested too deeply, too large, or has no values.
        """
        self.measure.extent(type_id)
        made: Callable[[bytes, int], Any] = self.space[self.name_of(type_id)]
        return made

    def name_of(self, type_id: int) -> str:
        """Return the name of that function in generated code."""
        found = self.btf.resolve(type_id)
        if found.id not in self._made:
            self._made[found.id] = name = f"of{found.id}"
            self.space[name] = self._function(name, found)
        return self._made[found.id]

    def _function(self, name: str, found: Type) -> Any:
        if isinstance(found, Composite) and tagged_union_of(self.btf, found) is None:
            body = _Body(self, found)
            code = compile(body.source(name), f"<type {name}>", "exec")
            exec(code, self.space)  # noqa: S102 - our own code; texts are literals in it
            return self.space[name]
        if isinstance(found, Array):
            return self._array(found) or self._slow(found.id)
        return self._slow(found.id)

    def _slow(self, type_id: int) -> Callable[[bytes, int], Any]:
        read = self._values.reader(type_id)
        return (lambda data, at: json.dumps(read(data, at))) if self.text else read

    def _array(self, found: Array) -> Callable[[bytes, int], Any] | None:
        element = self.btf.resolve(found.type_id)
        size, count = self.btf.size_of(found.type_id), found.count
        if not size or not count or is_char(element):
            return None
        code = struct_code(self.btf, element)
        if code and not isinstance(element, Enum) and not is_truth(element):
            unpack = struct.Struct(f"{struct_mark(self.btf)}{count}{code}").unpack_from
            if self.text:
                return lambda data, at: str([*unpack(data, at)])
            return lambda data, at: [*unpack(data, at)]
        one = self.space[self.name_of(found.type_id)]
        end = size * count
        if self.text:
            return lambda d, at: f"[{', '.join([one(d, q) for q in range(at, at + end, size)])}]"
        return lambda data, at: [one(data, q) for q in range(at, at + end, size)]

    def table(self, found: Enum) -> str:
        """Return the name of an enumeration's table in generated code."""
        name = f"E{found.id}"
        if name not in self.space:
            self.space[name] = EnumNames(found, quoted=self.text)
        return name


def is_truth(found: Type) -> bool:
    """Return True for booleans."""
    return isinstance(found, Int) and bool(found.encoding & Encoding.BOOL)


class _Body:
    # The function of a structure: all its numbers read at once, and one expression.
    def __init__(self, owner: JsonCodegen, found: Composite) -> None:
        self._owner = owner
        self._reads = BatchedReads(owner.btf, owner.space)
        self._parts: _Parts = {}
        self._members(found, 0, self._parts)

    def _members(self, found: Composite, start: int, parts: _Parts) -> None:
        btf, measure = self._owner.btf, self._owner.measure
        for member in found.members:
            inner = btf.resolve(member.type_id)
            place = start + member.bit_offset
            if not isinstance(inner, Composite):
                if member.name:
                    parts[member.name] = self._value(member, inner, place)
            elif not member.name:
                self._members(inner, place, parts)
            elif place % 8 or measure.values(inner.id) > _INLINED or tagged_union_of(btf, inner):
                parts[member.name] = f"{self._owner.name_of(inner.id)}(d, at + {place // 8})"
            else:
                within: _Parts = {}
                self._members(inner, place, within)
                parts[member.name] = within

    def _value(self, member: Member, found: Type, place: int) -> str:
        byte, bit = divmod(place, 8)
        if member.bitfield_size and isinstance(found, Int | Enum):
            name = self._reads.bitfield(place, member.bitfield_size)
            return self._shown(
                found, f"SIGNED({name}, {member.bitfield_size})" if found.signed else name
            )
        code = struct_code(self._owner.btf, found)
        if code and not bit:
            return self._shown(found, self._reads.number(byte, code))
        return f"{self._owner.name_of(member.type_id)}(d, at + {byte})"

    def _shown(self, found: Type, value: str) -> str:
        if isinstance(found, Enum):
            return f"{self._owner.table(found)}[{value}]"
        return f"TRUTH[{value} > 0]" if is_truth(found) else value

    def source(self, name: str) -> str:
        """Return the source of the function."""
        lines = [f"def {name}(d, at):", *self._reads.lines()]
        made = _json(self._parts) if self._owner.text else _object(self._parts)
        lines.append(f" return f'''{made}'''" if self._owner.text else f" return {made}")
        return "\n".join(lines) + "\n"


def _json(parts: _Parts) -> str:
    # An object inside an f-string.
    pieces = (
        f"{_quoted(key)}: {_json(value) if isinstance(value, dict) else f'{{{value}}}'}"
        for key, value in parts.items()
    )
    return f"{{{{{', '.join(pieces)}}}}}"


def _object(parts: _Parts) -> str:
    # The same as a dict.
    pieces = (
        f"{key!r}: {_object(value) if isinstance(value, dict) else value}"
        for key, value in parts.items()
    )
    return f"{{{', '.join(pieces)}}}"


def _quoted(key: str) -> str:
    # A member's name as JSON, inside an f-string that is delimited by three apostrophes.
    text = quote(key).replace("\\", "\\\\").replace("'", "\\'")
    return text.replace("{", "{{").replace("}", "}}")
