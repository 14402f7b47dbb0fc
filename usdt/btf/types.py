"""The types of BTF: one immutable record per kind. Records refer to one another by ``type_id``.

Every record has ``id``, ``kind`` and ``name`` ("" for none). ID 0 is void. Sizes are in bytes,
bit sizes and bit offsets in bits.
"""

from __future__ import annotations

from typing import TypeAlias

from usdt.base.frozen import frozen
from usdt.btf.format import Encoding, Kind

__all__ = (
    "Array",
    "Composite",
    "DataSection",
    "DeclTag",
    "Enum",
    "Enumerator",
    "Float",
    "Forward",
    "Function",
    "FunctionProto",
    "Int",
    "Member",
    "Modifier",
    "Parameter",
    "Pointer",
    "SectionItem",
    "Type",
    "Typedef",
    "Unknown",
    "Variable",
    "Void",
    "flag_names",
    "is_char",
)

_MIN_FLAGS = 3  # enumerators of one bit that make an enumeration one of flags


@frozen
class Void:
    """``void``, ID 0."""

    id: int
    name: str
    kind = Kind.VOID


@frozen
class Int:
    """An integer, character or boolean that uses ``bits`` bits from ``bit_offset`` on."""

    id: int
    name: str
    size: int
    encoding: int
    bits: int
    bit_offset: int
    kind = Kind.INT

    @property
    def signed(self) -> bool:
        """True for signed integers."""
        return bool(self.encoding & Encoding.SIGNED)


@frozen
class Float:
    """A floating-point number."""

    id: int
    name: str
    size: int
    kind = Kind.FLOAT


@frozen
class Pointer:
    """A pointer to ``type_id``."""

    id: int
    name: str
    type_id: int
    kind = Kind.PTR


@frozen
class Array:
    """An array of ``count`` elements of ``type_id``."""

    id: int
    name: str
    type_id: int
    index_type_id: int
    count: int
    kind = Kind.ARRAY


@frozen
class Member:
    """A member of a structure or union; ``bitfield_size`` is 0 unless it is a bit field."""

    name: str
    type_id: int
    bit_offset: int
    bitfield_size: int


@frozen
class Composite:
    """A structure or union."""

    id: int
    kind: Kind
    name: str
    size: int
    members: tuple[Member, ...]
    flag: bool


@frozen
class Enumerator:
    """A name and its value in an enumeration."""

    name: str
    value: int


@frozen
class Enum:
    """An enumeration of 32-bit (ENUM) or 64-bit (ENUM64) values."""

    id: int
    kind: Kind
    name: str
    size: int
    signed: bool
    values: tuple[Enumerator, ...]


@frozen
class Forward:
    """A forward declaration: a structure or union without its members."""

    id: int
    name: str
    union: bool
    kind = Kind.FWD


@frozen
class Typedef:
    """Another name for ``type_id``."""

    id: int
    name: str
    type_id: int
    kind = Kind.TYPEDEF


@frozen
class Modifier:
    """CONST, VOLATILE, RESTRICT or TYPE_TAG; with ``flag``, a tag is an attribute of its own."""

    id: int
    kind: Kind
    name: str
    type_id: int
    flag: bool


@frozen
class Function:
    """A function whose prototype is ``type_id``."""

    id: int
    name: str
    type_id: int
    linkage: int
    kind = Kind.FUNC


@frozen
class Parameter:
    """A parameter of a prototype; a last one without name and type means ``...``."""

    name: str
    type_id: int


@frozen
class FunctionProto:
    """The parameters of a function, and the type of what it returns."""

    id: int
    name: str
    return_type_id: int
    parameters: tuple[Parameter, ...]
    kind = Kind.FUNC_PROTO

    @property
    def variadic(self) -> bool:
        """True if the parameters end with ``...``."""
        last = self.parameters[-1:]
        return bool(last) and not last[0].type_id and not last[0].name and len(self.parameters) > 1


@frozen
class Variable:
    """A global or static variable."""

    id: int
    name: str
    type_id: int
    linkage: int
    kind = Kind.VAR


@frozen
class SectionItem:
    """A variable in a section: its type, offset and size."""

    type_id: int
    offset: int
    size: int


@frozen
class DataSection:
    """An ELF section with variables."""

    id: int
    name: str
    size: int
    items: tuple[SectionItem, ...]
    kind = Kind.DATASEC


@frozen
class DeclTag:
    """A tag of a declaration, or of its member or parameter ``component_idx`` (-1: of none)."""

    id: int
    name: str
    type_id: int
    component_idx: int
    flag: bool
    kind = Kind.DECL_TAG


@frozen
class Unknown:
    """A type of a kind that this toolkit does not know and skips."""

    id: int
    name: str
    kind: int


Type: TypeAlias = (
    Void
    | Int
    | Float
    | Pointer
    | Array
    | Composite
    | Enum
    | Forward
    | Typedef
    | Modifier
    | Function
    | FunctionProto
    | Variable
    | DataSection
    | DeclTag
    | Unknown
)


def is_char(found: Type) -> bool:
    """Return True for ``char``, whose arrays are strings, but not for other integers of a byte."""
    if not isinstance(found, Int) or found.size != 1:
        return False
    return bool(found.encoding & Encoding.CHAR) or found.name == "char"


def flag_names(found: Enum) -> dict[int, str] | None:
    """Return bit → enumerator if an enumeration's values are flags; None for other enumerations."""
    bits: dict[int, str] = {}
    for one in found.values:
        if one.value > 0 and not one.value & (one.value - 1):
            bits.setdefault(one.value, one.name)
    every = sum(bits)
    others = [one.value for one in found.values if one.value not in bits and one.value]
    if len(bits) < _MIN_FLAGS or any(value < 0 or value & ~every for value in others):
        return None
    # Flags are 1, 2, 4 and their sums; 1, 2, 3, 4, 5 in a row are not.
    return bits if len(others) < len(bits) else None
