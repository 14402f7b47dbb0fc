"""Read plans: what is at which offset of a type's values, and how it is read.

A :class:`ReadPlans` looks at each type once. Generators of code take its plans, and the plans
themselves read values as Python objects for JSON, also from data that ends too early:
structures are dicts (the members of anonymous ones are in their parent's), arrays of ``char`` are
strings up to their NUL, enumerators are their names, pointers are numbers, and what lies behind the
end of the data is None. :mod:`usdt.btf.values.json_codegen` is faster and needs whole data.

A value is zero, and hidden in text, if all of it but the padding is. An array of characters is zero
if it begins with a NUL. What is not completely in the data is not zero, and no tagged union is.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any

from usdt.base.errors import BtfError
from usdt.base.frozen import frozen
from usdt.btf.format import MAX_NESTING, Encoding, nesting_error
from usdt.btf.tagged_union import tagged_union_of
from usdt.btf.types import (
    Array,
    Composite,
    DataSection,
    Enum,
    Float,
    FunctionProto,
    Int,
    Member,
    Modifier,
    Pointer,
    Type,
    Variable,
    is_char,
)
from usdt.btf.values.scalars import EnumTable, byte_order, sign_extended, struct_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from usdt.btf.reader import Btf
    from usdt.btf.tagged_union import TaggedUnion

__all__ = (
    "ArrayPlan",
    "BitFieldPlan",
    "Field",
    "FloatPlan",
    "NumberPlan",
    "Plan",
    "ReadPlans",
    "StructPlan",
    "TaggedUnionPlan",
    "Variant",
    "max_text",
)

# The text of a value is bounded by the value's size: damaged types describe a few bytes as millions
# of members. Real types stay below: in the kernel's, unions have up to 1,940 characters for a byte,
# and the largest text has 12 MB.
_MAX_TEXT = 32 << 20
_TEXT_OF_ANY = 64 << 10
_TEXT_PER_BYTE = 3072
_MAX_SCALAR = 64  # bytes of a number; of real ones 16
_MAX_CHAIN = 16  # pointers, arrays and qualifiers of one declaration that are counted
_TEXT_OF_NUMBER = 48  # of a value without its name: indentation, type, digits
_CODES = {(1, True): "b", (2, True): "h", (4, True): "i", (8, True): "q"}
_CODES |= {(size, False): code.upper() for (size, _), code in _CODES.items()}
_FLOATS = {4: "f", 8: "d"}


class Plan:
    """How values of a type are read. Of this class itself: the type has no values.

    Attributes:
        type: the type, resolved.
        size: bytes of a value; 0 if the type has no size.
        extent: bytes from a value's start to the end of its last member: in damaged BTF, that may
            be more than the size.
        values: how many values a value contains, counting each structure as one more.
        text: about how many characters the longest text of a value has.
        sized: False if the type has no size.
        lacking: ID of a type in it that has no values; None if there is none.
    """

    def __init__(self, found: Type, size: int = 0) -> None:
        self.type = found
        self.size = self.extent = size
        self.values = 1
        self.text = _TEXT_OF_NUMBER + len(found.name)
        self.lacking = found.id if type(self) is Plan else None
        self.sized = self.lacking is None

    def read(self, data: bytes, at: int) -> Any:
        """Return the value at an offset of the data, for JSON; None if the data ends before it."""
        raise NotImplementedError

    def is_zero(self, data: bytes, at: int) -> bool:
        """Return True if the value is zero."""
        raw = data[at : at + self.size]
        return 0 < self.size == len(raw) and raw == bytes(self.size)


class NumberPlan(Plan):
    """An integer, boolean, enumeration or pointer.

    Attributes:
        code: its :mod:`struct` format; "" if there is none for its size.
        signed: whether it can be negative.
    """

    def __init__(self, found: Type, size: int, btf: Btf) -> None:
        super().__init__(found, size)
        self.order = byte_order(btf)
        self.signed = isinstance(found, Int | Enum) and found.signed
        if isinstance(found, Enum):
            names = sorted((len(one.name) for one in found.values), reverse=True)
            self.text += sum(names[: 8 * size])  # flags are shown as their names
        self.code = _CODES.get((size, self.signed and not self.is_truth), "")

    @property
    def is_truth(self) -> bool:
        """True for booleans."""
        return isinstance(self.type, Int) and bool(self.type.encoding & Encoding.BOOL)

    @property
    def is_plain(self) -> bool:
        """True for numbers that are shown as numbers: neither booleans nor enumerators."""
        return not self.is_truth and not isinstance(self.type, Enum)

    @functools.cached_property
    def _value_of(self) -> Callable[[int], Any]:
        if isinstance(self.type, Enum):
            return EnumTable(self.type, int).__getitem__
        return bool if self.is_truth else int

    def number(self, data: bytes, at: int) -> int | None:
        """Return the value as a number; None if the data ends before it."""
        raw = data[at : at + self.size]
        if len(raw) < self.size:
            return None
        return int.from_bytes(raw, self.order, signed=self.signed)

    def read(self, data: bytes, at: int) -> Any:
        """Return a number, boolean or the name of an enumerator."""
        number = self.number(data, at)
        return None if number is None else self._value_of(number)


class BitFieldPlan(NumberPlan):
    """A bit field: ``bits`` bits from ``bit`` of its first byte on.

    Attributes:
        whole: the plan of its type.
    """

    def __init__(self, whole: NumberPlan, bit: int, bits: int, btf: Btf) -> None:
        super().__init__(whole.type, (bit + bits + 7) // 8, btf)
        self.whole = whole
        self.bit = bit
        self.bits = bits
        self._shift = bit if self.order == "little" else 8 * self.size - bit - bits

    def _unsigned(self, data: bytes, at: int) -> int:
        raw = data[at : at + self.size]
        return int.from_bytes(raw, self.order) >> self._shift & (1 << self.bits) - 1

    def number(self, data: bytes, at: int) -> int | None:
        """Return the value as a number; None if the data ends before it."""
        if at + self.size > len(data):
            return None
        value = self._unsigned(data, at)
        return sign_extended(value, self.bits) if self.signed else value

    def is_zero(self, data: bytes, at: int) -> bool:
        """Return True if all of its bits are there and zero."""
        return at + self.size <= len(data) and not self._unsigned(data, at)


class FloatPlan(Plan):
    """A floating-point number. Sizes other than 4 and 8 are read as hexadecimal digits."""

    def __init__(self, found: Float, btf: Btf) -> None:
        super().__init__(found, found.size)
        code = _FLOATS.get(found.size)
        self._layout = struct.Struct(struct_mark(btf) + code) if code else None

    def read(self, data: bytes, at: int) -> float | str | None:
        """Return a number, or text where JSON has no number."""
        if self._layout is None:
            return data[at : at + self.size].hex() or None
        if len(data) < at + self.size:
            return None
        value: float = self._layout.unpack_from(data, at)[0]
        return value if value - value == 0 else str(value)  # JSON has no infinity


class ArrayPlan(Plan):
    """An array.

    Attributes:
        element: the plan of its elements.
        count: how many it has.
        is_text: True for arrays of ``char``.
        is_bytes: True for arrays of integers of one byte, which a tree shows as characters.
    """

    def __init__(self, found: Array, element: Plan) -> None:
        super().__init__(found, element.size * found.count)
        self.element = element
        self.count = count = found.count
        self.is_text = is_char(element.type)
        self.is_bytes = isinstance(element.type, Int) and element.size == 1
        self.sized, self.lacking = element.sized, element.lacking
        self.extent = max(self.size, element.extent + element.size * (count - 1)) if count else 0
        self.values = max(1, count) * element.values
        self.text += 8 * count if self.is_bytes else count * element.text

    def read(self, data: bytes, at: int) -> Any:
        """Return a list, or the text of an array of ``char``."""
        if self.is_text:
            raw = data[at : at + self.count]
            return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape") if raw else None
        read, size = self.element.read, self.element.size
        return [read(data, at + size * index) for index in range(self.count)]

    def is_zero(self, data: bytes, at: int) -> bool:
        """Return True if all elements are zero, or the first of characters."""
        if self.is_bytes and self.count:
            return data[at : at + 1] == b"\0"
        if isinstance(self.element, NumberPlan | FloatPlan) and self.count:
            return super().is_zero(data, at)
        size = self.element.size
        positions = range(at, at + self.size, size) if size else [at] * min(1, self.count)
        return all(self.element.is_zero(data, position) for position in positions)


@frozen
class Field:
    """A member: its plan, and its offset in the structure in whole bytes."""

    name: str
    type_id: int
    byte: int
    plan: Plan


class StructPlan(Plan):
    """A structure or union with its members."""

    def __init__(self, found: Composite, fields: tuple[Field, ...]) -> None:
        super().__init__(found, found.size)
        self.fields = fields
        for field in fields:
            self.extent = max(self.extent, field.byte + field.plan.extent)
            self.values += field.plan.values
            self.text += len(field.name) + field.plan.text
        self.lacking = _lacking(field.plan for field in fields)
        self._parts = [(field.name, field.byte, field.plan.read) for field in fields]

    def read(self, data: bytes, at: int) -> Any:
        """Return a dict, with the members of anonymous structures."""
        values: dict[str, Any] = {}
        for name, byte, read in self._parts:
            value = read(data, at + byte)
            if name:
                values[name] = value
            elif isinstance(value, dict):
                values.update(value)
        return values

    def is_zero(self, data: bytes, at: int) -> bool:
        """Return True if all bytes are zero, or all that members have."""
        return super().is_zero(data, at) or all(
            field.plan.is_zero(data, at + field.byte) for field in self.fields
        )


@frozen
class Variant:
    """A variant of a tagged union: its name, and the offset and plan of its data if it has any."""

    name: str
    byte: int
    plan: StructPlan | None


class TaggedUnionPlan(StructPlan):
    """A tagged union. As JSON: ``"None"``, ``{"Some": {"__0": 7}}``."""

    def __init__(
        self, found: Composite, fields: tuple[Field, ...], choice: TaggedUnion, btf: Btf
    ) -> None:
        super().__init__(found, fields)
        self._at, self._end = fields[0].byte, fields[0].byte + choice.size
        self._order = byte_order(btf)
        union = fields[1].plan
        members = union.fields if isinstance(union, StructPlan) else ()
        data = {field.name: field for field in members}
        self._variants = {
            number: _variant(name, data.get(name)) for number, (name, _) in choice.variants.items()
        }
        rest = choice.default
        self._default = None if rest is None else _variant(rest[0], data.get(rest[0]))
        self.all_variants = [*self._variants.values(), *([self._default] if self._default else [])]
        self.lacking = _lacking(one.plan for one in self.all_variants if one.plan is not None)

    def variant(self, data: bytes, at: int) -> Variant | int | None:
        """Return a value's variant, or the discriminant if it selects none.

        The result is None if the data ends before the discriminant.
        """
        raw = data[at + self._at : at + self._end]
        if len(raw) < self._end - self._at:
            return None
        number = int.from_bytes(raw, self._order)
        return self._variants.get(number) or self._default or number

    def read(self, data: bytes, at: int) -> Any:
        """Return the variant's name, with its data if it has any."""
        one = self.variant(data, at)
        if not isinstance(one, Variant):
            return one
        return one.name if one.plan is None else {one.name: one.plan.read(data, at + one.byte)}

    def is_zero(self, data: bytes, at: int) -> bool:  # noqa: ARG002 - as the other plans have it
        """Return False: the name of a variant is always shown."""
        return False


def max_text(size: int) -> int:
    """Return how many characters the text of a value of ``size`` bytes may have."""
    return min(_TEXT_OF_ANY + _TEXT_PER_BYTE * size, _MAX_TEXT)


def _variant(name: str, field: Field | None) -> Variant:
    plan = None if field is None else field.plan
    if field is None or not isinstance(plan, StructPlan) or not plan.fields:
        return Variant(name, 0, None)
    return Variant(name, field.byte, plan)


def _lacking(plans: Iterable[Plan]) -> int | None:
    return next((plan.lacking for plan in plans if plan.lacking is not None), None)


class ReadPlans:
    """The read plans of one BTF's types, each made once."""

    def __init__(self, btf: Btf) -> None:
        self.btf = btf
        self._known: dict[int, Plan] = {}

    def of(self, type_id: int) -> Plan:
        """Return the plan of a type.

        Raises:
            BtfError: the type is nested too deeply, or too large.
        """
        return self._of(type_id, 0)

    def readable(self, type_id: int) -> Plan:
        """Return the plan of a type whose values can be read as Python objects.

        Raises:
            BtfError: the type is nested too deeply, too large, or has no values.
        """
        plan = self._of(type_id, 0)
        if plan.lacking is not None:
            raise BtfError(f"{self.btf.name}: BTF type {plan.lacking} has no values")
        return plan

    def read(self, type_id: int, data: bytes) -> Any:
        """Return a value as dicts, lists, strings, numbers and booleans.

        Raises:
            BtfError: the type is nested too deeply, too large, or has no values.
        """
        return self.readable(type_id).read(data, 0)

    def _of(self, type_id: int, depth: int) -> Plan:
        found = self.btf.resolve(type_id)
        known = self._known.get(found.id)
        if known is not None:
            return known
        if depth > MAX_NESTING:
            raise nesting_error(self.btf.name, type_id)
        plan = self._made(found, depth + 1)
        if not isinstance(found, DataSection) and plan.text > max_text(min(plan.size, plan.extent)):
            raise BtfError(
                f"{self.btf.name}: values of BTF type {type_id} are not shown: {plan.values} values"
                f" in {plan.size} bytes, about {plan.text} characters"
            )
        self._known[found.id] = plan
        return plan

    def _made(self, found: Type, depth: int) -> Plan:
        match found:
            case Composite():
                return self._composite(found, depth)
            case Array():
                return ArrayPlan(found, self._of(found.type_id, depth))
            case Int() | Enum() | Float() if found.size > _MAX_SCALAR:
                return Plan(found)
            case Int() | Enum():
                return NumberPlan(found, found.size, self.btf)
            case Pointer():
                return NumberPlan(found, self.btf.pointer_size, self.btf)
            case Float():
                return FloatPlan(found, self.btf)
        plan = Plan(found)
        inner = [(0, found.type_id)] if isinstance(found, Variable) else []
        if isinstance(found, DataSection):
            inner = [(item.offset, item.type_id) for item in found.items]
        for start, type_id in inner:
            one = self._of(type_id, depth)
            plan.extent = max(plan.extent, start + one.extent)
            plan.values += one.values
            plan.text += one.text
        return plan

    def _composite(self, found: Composite, depth: int) -> StructPlan:
        fields = tuple(self._field(member, depth) for member in found.members)
        choice = tagged_union_of(self.btf, found)
        if choice is None:
            plan = StructPlan(found, fields)
        else:
            plan = TaggedUnionPlan(found, fields, choice, self.btf)
        plan.text += sum(self._declaration_text(member.type_id) for member in found.members)
        return plan

    def _declaration_text(self, type_id: int) -> int:
        # About how many characters the declaration of a member's type has.
        total = 0
        for _ in range(_MAX_CHAIN):
            found = self.btf.type(type_id)
            total += len(found.name)
            if isinstance(found, FunctionProto):
                return total + _TEXT_OF_NUMBER * len(found.parameters)
            if found.name or not isinstance(found, Modifier | Pointer | Array):
                break
            type_id = found.type_id
        return total

    def _field(self, member: Member, depth: int) -> Field:
        byte, bit = divmod(member.bit_offset, 8)
        plan = self._of(member.type_id, depth)
        if (
            member.bitfield_size
            and isinstance(plan, NumberPlan)
            and not isinstance(plan.type, Pointer)
        ):
            plan = BitFieldPlan(plan, bit, member.bitfield_size, self.btf)
        return Field(member.name, member.type_id, byte, plan)
