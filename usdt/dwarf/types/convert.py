"""Convert entries of debug information to BTF types.

Separate tables keep the facts that BTF cannot express: pointers that are references, members that
are base classes, and the variants of Rust enums.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.format import Encoding, Kind
from usdt.btf.tagged_union import DISCRIMINANT
from usdt.btf.types import (
    Array,
    Composite,
    Enum,
    Enumerator,
    Float,
    Forward,
    FunctionProto,
    Int,
    Member,
    Modifier,
    Parameter,
    Pointer,
    Typedef,
    Unknown,
)
from usdt.dwarf.types.abi_known_types import abi_known_type
from usdt.dwarf.types.variants import read_variants
from usdt.dwarf.units.constants import At, Ate, Tag
from usdt.dwarf.units.errors import DwarfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.types import Type
    from usdt.dwarf.types.dwarf_btf import DwarfTypes
    from usdt.dwarf.types.variants import VariantPart
    from usdt.dwarf.units.dies import Die

__all__ = ("Converter",)

_MAX_MEMBERS = 1 << 16
_MAX_SIZE = 1 << 40  # bytes of one value
_MAX_ELEMENTS = 1 << 32
_MAX_DIMENSIONS = 32
_WORDS = (1, 2, 4, 8)
_MINUS_ONE = frozenset(((1 << 32) - 1, (1 << 64) - 1))  # -1 in four or eight bytes
_SIGNED = frozenset((Ate.SIGNED, Ate.SIGNED_CHAR))
_FLOATS = frozenset((Ate.FLOAT, 0x0F))  # 0x0F: DW_ATE_decimal_float
_STRINGS = frozenset(("char", "char8_t"))
_COMPOSITES = frozenset((Tag.STRUCTURE, Tag.CLASS, Tag.INTERFACE, Tag.UNION))
_TUPLE_FIELD = re.compile(r"std::(?:_Head_base|__\w+::__tuple_leaf)<(\d{1,4})U?L?,")
_MODIFIERS = {
    Tag.CONST: (Kind.CONST, ""),
    Tag.VOLATILE: (Kind.VOLATILE, ""),
    Tag.RESTRICT: (Kind.RESTRICT, ""),
    Tag.IMMUTABLE: (Kind.CONST, ""),
    Tag.ATOMIC: (Kind.TYPE_TAG, "atomic"),
    Tag.PACKED: (Kind.TYPE_TAG, "packed"),
    Tag.SHARED: (Kind.TYPE_TAG, "shared"),
}


class Converter:
    """A converter of entries to types.

    Args:
        name: name of the file, for messages.
        qualified: returns the qualified name of an entry.
        definition: returns the entry that defines a type which the given entry only declares.

    Attributes: tables with type IDs as keys.
        references: pointer → "&" or "&&".
        bases: structure → index of a member that is a base class → name of that class.
        variants: tagged union → its variants.
    """

    types: DwarfTypes

    def __init__(
        self,
        name: str,
        qualified: Callable[[Die], str],
        definition: Callable[[Die], Die | None],
    ) -> None:
        self._name = name
        self._qualified = qualified
        self._definition = definition
        self.references: dict[int, str] = {}
        self.bases: dict[int, dict[int, str]] = {}
        self.variants: dict[int, VariantPart] = {}

    def __call__(self, type_id: int, die: Die) -> Type:
        """Return the type of an entry; ``type_id`` is its ID.

        Raises:
            DwarfError: the entry is damaged, or the type is implausibly large.
        """
        tag = die.tag
        if tag in _COMPOSITES:
            return self._composite(type_id, die)
        make = _MAKERS.get(tag)
        if make is not None:
            return make(self, type_id, die)
        if tag in _MODIFIERS:
            kind, name = _MODIFIERS[tag]
            return Modifier(type_id, kind, name, self._target(die), flag=kind == Kind.TYPE_TAG)
        return Unknown(type_id, die.text(), tag)

    def declared(self, type_id: int, die: Die) -> Forward | None:
        """Return the type of a structure or union that an entry only declares; None of any other.

        Raises:
            DwarfError: the entry is damaged.
        """
        if die.tag not in _COMPOSITES or not die.flag(At.DECLARATION) or At.SIGNATURE in die:
            return None
        name = self._qualified(die)
        return Forward(type_id, name, die.tag == Tag.UNION) if name else None

    def _target(self, die: Die) -> int:
        target = die.target(At.TYPE)
        if target is None and At.TYPE in die:  # the type is in a file that was not found: not void
            return self.types.unknown
        return self.types.id_of(target)

    def _size(self, die: Die, default: int = 0) -> int:
        size = die.number(At.BYTE_SIZE)
        if size is None:
            bits = die.number(At.BIT_SIZE)
            size = default if bits is None else (bits + 7) // 8
        if not 0 <= size <= _MAX_SIZE:
            raise DwarfError(f"{self._name}: {die.where}: a type of {size} bytes")
        return size

    # ------------------------------------------------------------ plain types

    def _base(self, type_id: int, die: Die) -> Type:
        size, name, kind = self._size(die), die.text(), die.number(At.ENCODING)
        if kind in _FLOATS:
            return Float(type_id, name, size)
        if kind == Ate.COMPLEX_FLOAT:
            plain = name.replace("complex ", "").replace("_Complex ", "")  # gcc's, clang's none
            half = self.types.add(lambda part: Float(part, plain, size // 2))
            return Array(type_id, "", half, 0, 2)
        if size > 255:
            raise DwarfError(f"{self._name}: {die.where}: a number of {size} bytes")
        encoding = Encoding.SIGNED if kind in _SIGNED else 0
        if kind == Ate.BOOLEAN:
            encoding = Encoding.BOOL
        elif name in _STRINGS and size == 1:
            encoding |= Encoding.CHAR
        bits = die.number(At.BIT_SIZE) or 8 * size
        return Int(type_id, name, size, int(encoding), bits, die.number(At.DATA_BIT_OFFSET) or 0)

    def _pointer(self, type_id: int, die: Die) -> Type:
        if die.tag != Tag.POINTER:
            self.references[type_id] = "&" if die.tag == Tag.REFERENCE else "&&"
        return Pointer(type_id, "", self._target(die))

    def _typedef(self, type_id: int, die: Die) -> Type:
        return Typedef(type_id, self._qualified(die), self._target(die))

    def _unspecified(self, type_id: int, die: Die) -> Type:
        # A decltype(nullptr) has a value; other unspecified types (void, Rust's "!") have none.
        name = die.text()
        target = self.types.pointer_to(0) if "null" in name else 0
        return Typedef(type_id, name, target)

    def _text(self, type_id: int, die: Die) -> Type:
        size = self._size(die)
        char = self.types.add(lambda one: Int(one, "char", 1, int(Encoding.CHAR), 8, 0))
        return Array(type_id, "", char, 0, size)

    def _array(self, type_id: int, die: Die) -> Type:
        counts = [self._count(one) for one in die.children(Tag.SUBRANGE, Tag.ENUMERATION)]
        if len(counts) > _MAX_DIMENSIONS:
            raise DwarfError(f"{self._name}: {die.where}: {len(counts)} dimensions")
        target = self._target(die)
        for count in reversed(counts[1:]):
            target = self._array_of(target, count)
        return Array(type_id, "", target, 0, counts[0] if counts else 0)

    def _array_of(self, target: int, count: int) -> int:
        return self.types.add(lambda type_id: Array(type_id, "", target, 0, count))

    def _count(self, die: Die) -> int:
        if die.tag == Tag.ENUMERATION:
            return sum(1 for _ in die.children(Tag.ENUMERATOR))
        count = die.number(At.COUNT)
        if count is None:
            high = die.number(At.UPPER_BOUND)
            if high is None:
                return 0
            if high in _MINUS_ONE:  # an empty array
                return 0
            count = high + 1 - (die.number(At.LOWER_BOUND) or 0)
        if count > _MAX_ELEMENTS:
            raise DwarfError(f"{self._name}: {die.where}: an array of {count} elements")
        return max(0, count)

    def _enum(self, type_id: int, die: Die) -> Type:
        definition = self._defined(die)
        name = self._name_of(die)
        size = self._size(definition, 4)
        underlying = definition.target(At.TYPE)
        signed_type = underlying is not None and self._is_signed(underlying)
        values = []
        for one in definition.children(Tag.ENUMERATOR):
            value = one.number(At.CONST_VALUE, signed=size if signed_type else 0)
            if signed_type and size and value is not None and value >> 8 * size - 1 == 1:
                value -= 1 << 8 * size  # old versions of rustc write -1 of one byte as 255
            values.append(Enumerator(one.text(), 0 if value is None else value))
            if len(values) > _MAX_MEMBERS:
                raise DwarfError(f"{self._name}: {die.where}: more than {_MAX_MEMBERS} values")
        is_signed = signed_type if underlying is not None else any(one.value < 0 for one in values)
        kind = Kind.ENUM if size <= 4 else Kind.ENUM64
        return Enum(type_id, kind, name, size, is_signed, tuple(values))

    def _is_signed(self, die: Die) -> bool:
        try:
            return bool(getattr(self.types.resolve(self.types.id_of(die)), "signed", False))
        except BtfError:
            return False

    def _defined(self, die: Die) -> Die:
        # The entry that defines the type, if this one only declares it.
        if not die.flag(At.DECLARATION) and At.SIGNATURE not in die:
            return die
        return self._definition(die) or die

    def _name_of(self, die: Die) -> str:
        # An entry that refers to a type unit may have no name: the type unit has it.
        return self._qualified(die) or self._qualified(self._defined(die))

    # ------------------------------------------------------------ functions

    def _prototype(self, type_id: int, die: Die) -> Type:
        found = []
        for one in die.children(Tag.PARAMETER, Tag.UNSPECIFIED_PARAMETERS):
            target = self._target(one) if one.tag == Tag.PARAMETER else 0
            found.append(Parameter(one.text() if target else "", target))
            if len(found) > _MAX_MEMBERS:
                raise DwarfError(f"{self._name}: {die.where}: more than {_MAX_MEMBERS} parameters")
        return FunctionProto(type_id, "", self._target(die), tuple(found))

    def _member_pointer(self, type_id: int, die: Die) -> Type:
        # In the Itanium C++ ABI: an offset, or a function and an adjustment of "this".
        types, size = self.types, self.types.pointer_size
        signed_word = types.add(
            lambda one: Int(one, "long", size, int(Encoding.SIGNED), 8 * size, 0)
        )
        target = die.target(At.TYPE)
        if target is None or target.tag not in (Tag.SUBROUTINE, Tag.SUBPROGRAM):
            return Typedef(type_id, "", signed_word)
        pointer = types.pointer_to(types.id_of(target))
        members = (Member("__pfn", pointer, 0, 0), Member("__delta", signed_word, 8 * size, 0))
        return Composite(type_id, Kind.STRUCT, "", 2 * size, members, flag=False)

    # ------------------------------------------------------------ structures

    def _composite(self, type_id: int, die: Die) -> Type:
        definition = self._defined(die)
        name = self._name_of(die)
        union = definition.tag == Tag.UNION
        if definition.flag(At.DECLARATION):
            return abi_known_type(self.types, type_id, name) or Forward(type_id, name, union)
        size = self._size(definition)
        members: list[Member] = []
        bases: dict[int, str] = {}
        part = None
        for one in definition.children(Tag.MEMBER, Tag.INHERITANCE, Tag.VARIANT_PART):
            if one.tag == Tag.VARIANT_PART:
                part = one
                continue
            made = self._member(one)
            if made is None:
                continue
            if one.tag == Tag.INHERITANCE:
                base = one.target(At.TYPE)
                base_name = "" if base is None else self._name_of(base)
                field = self._tuple_field(made, base_name)
                if field is None:
                    bases[len(members)] = base_name
                made = field or made
            members.append(made)
            if len(members) > _MAX_MEMBERS:
                raise DwarfError(f"{self._name}: {die.where}: more than {_MAX_MEMBERS} members")
        if part is not None:
            variants = read_variants(part, self._member, self.types.size_of)
            self.variants[type_id] = variants
            members += self._variant_union(variants, size)
        if any(a.bit_offset > b.bit_offset for a, b in itertools.pairwise(members)):
            bases, members = _by_offset(bases, members)  # rustc reorders members
        discriminant = self._discriminant(self.variants.get(type_id), members)
        if discriminant is not None and not bases:
            members.insert(0, discriminant)
        if bases:
            self.bases[type_id] = bases
        kind = Kind.UNION if union else Kind.STRUCT
        return Composite(
            type_id, kind, name, size, tuple(members), any(one.bitfield_size for one in members)
        )

    def _variant_union(self, part: VariantPart, size: int) -> list[Member]:
        # The variants as an anonymous union, so that C's rules find their members.
        inner = tuple(one.member for one in part.variants if one.member is not None)
        if not inner:
            return []
        type_id = self.types.add(
            lambda one: Composite(one, Kind.UNION, "", size, inner, flag=False)
        )
        self.variants[type_id] = part
        return [Member("", type_id, 0, 0)]

    def _tuple_field(self, base: Member, name: str) -> Member | None:
        # A field of a std::tuple, which is a base class. All fields have the same name; rename
        # them to "__0", "__1", ….
        match = _TUPLE_FIELD.match(name)
        found = self.types.resolve(base.type_id) if match else None
        if match is None or not isinstance(found, Composite) or len(found.members) != 1:
            return None
        (field,) = found.members
        if field.name not in ("_M_head_impl", "__value_"):
            return None
        bit_offset = base.bit_offset + field.bit_offset
        return Member(f"__{match[1]}", field.type_id, bit_offset, field.bitfield_size)

    def _discriminant(self, part: VariantPart | None, members: list[Member]) -> Member | None:
        # The member that selects the variant, in the form that usdt.btf.tagged_union expects.
        if part is None or part.discriminant is None or len(members) != 1:
            return None
        selector, size, names = part.discriminant, part.size, part.names_by_value()
        if names is None or selector.bitfield_size or selector.bit_offset % 8 or size not in _WORDS:
            return None
        values = tuple(Enumerator(name, value) for value, name in names)
        kind = Kind.ENUM if size <= 4 else Kind.ENUM64
        target = self.types.add(lambda one: Enum(one, kind, "", size, False, values))  # noqa: FBT003
        return Member(DISCRIMINANT, target, selector.bit_offset, 0)

    def _member(self, die: Die) -> Member | None:
        # None for members that are not stored in the object: static ones, virtual base classes.
        if die.flag(At.EXTERNAL) or die.flag(At.DECLARATION) or At.CONST_VALUE in die:
            return None
        target = self._target(die)
        name = "" if die.tag == Tag.INHERITANCE else die.text()
        bits = die.number(At.BIT_SIZE) or 0
        bit_offset = die.number(At.DATA_BIT_OFFSET)
        if bit_offset is None:
            offset = die.member_offset(At.DATA_MEMBER_LOCATION)
            if offset is None:
                return None
            bit_offset = 8 * offset
            if bits and At.BIT_OFFSET in die:
                bit_offset += self._old_bits(die, target, bits)
        if not 0 <= bit_offset <= 8 * _MAX_SIZE or bits > 8 * 64:
            raise DwarfError(f"{self._name}: {die.where}: a member at bit {bit_offset}")
        return Member(name, target, bit_offset, bits)

    def _old_bits(self, die: Die, target: int, bits: int) -> int:
        # DWARF 2 and 3 count from the most significant bit of the storage unit.
        before = die.number(At.BIT_OFFSET) or 0
        if self.types.order == "big":
            return before
        unit = die.number(At.BYTE_SIZE)
        if unit is None:
            unit = self.types.size_of(target)
        return 8 * unit - before - bits


def _by_offset(bases: dict[int, str], members: list[Member]) -> tuple[dict[int, str], list[Member]]:
    order = sorted(range(len(members)), key=lambda index: members[index].bit_offset)
    moved = {new: bases[old] for new, old in enumerate(order) if old in bases}
    return moved, [members[index] for index in order]


_MAKERS: dict[int, Callable[[Converter, int, Die], Type]] = {
    Tag.BASE: Converter._base,  # noqa: SLF001 - its own
    Tag.POINTER: Converter._pointer,  # noqa: SLF001
    Tag.REFERENCE: Converter._pointer,  # noqa: SLF001
    Tag.RVALUE_REFERENCE: Converter._pointer,  # noqa: SLF001
    Tag.TYPEDEF: Converter._typedef,  # noqa: SLF001
    Tag.TEMPLATE_ALIAS: Converter._typedef,  # noqa: SLF001
    Tag.UNSPECIFIED: Converter._unspecified,  # noqa: SLF001
    Tag.STRING: Converter._text,  # noqa: SLF001
    Tag.ARRAY: Converter._array,  # noqa: SLF001
    Tag.ENUMERATION: Converter._enum,  # noqa: SLF001
    Tag.SUBROUTINE: Converter._prototype,  # noqa: SLF001
    Tag.SUBPROGRAM: Converter._prototype,  # noqa: SLF001
    Tag.PTR_TO_MEMBER: Converter._member_pointer,  # noqa: SLF001
}
