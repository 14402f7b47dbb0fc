"""The structures, enumerations and typedefs that a program defines, as BTF.

They are laid out as C compilers for 64-bit CPUs do it: a member at a multiple of its alignment, and
bit fields in units of their type.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.format import Encoding, Kind
from usdt.btf.lookup import find_type
from usdt.btf.reader import Btf
from usdt.btf.writer import BtfWriter
from usdt.engine.compiler.resolve.btf_types import BtfTypes
from usdt.engine.compiler.value_names import Enumerators
from usdt.engine.programs.integer_types import FLOATS, INTEGERS
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.syntax.program import EnumDefinition, StructDefinition, Typedef

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.base.errors import ProgramError
    from usdt.engine.compiler.value_names import ValueNames
    from usdt.engine.programs.syntax.program import Definition, StructMember
    from usdt.engine.programs.syntax.source import Source

__all__ = ("Definitions",)

_POINTER = 8
_MOST_BYTES = 1 << 20  # of a structure or an array
_VOID = 0


def _tagged(node: tree.NamedType) -> str:
    return f"{node.tag} {node.name}" if node.tag else node.name


def _uses_others(definitions: Sequence[Definition]) -> bool:
    # Whether definitions use types that are not the program's.
    own = {(getattr(one, "tag", ""), one.name) for one in definitions}
    own |= {("enum", one.name) for one in definitions if isinstance(one, EnumDefinition)}
    used: list[tree.Type] = []
    for one in definitions:
        if isinstance(one, StructDefinition):
            used += (member.type for member in one.members)
        elif isinstance(one, Typedef):
            used.append(one.type)
    while used:
        match used.pop():
            case tree.PointerType(target=inner) | tree.ArrayType(element=inner):
                used.append(inner)
            case tree.NamedType(tag=tag, name=name):
                if (tag, name) not in own and (tag or name not in (*INTEGERS, *FLOATS, "void")):
                    return True
    return False


class _ProgramBtf(Btf):
    # The program's own types come before those of the kernel with their names.
    def find(self, name: str, *kinds: Kind) -> list[int]:
        return sorted(super().find(name, *kinds), key=lambda number: number < self.first)


class Definitions:
    """The types that a program defines.

    Args:
        definitions: the definitions, those within others before them.
        source: the program, for errors.
        kernel: returns the kernel's BTF, whose types definitions may use; None without it. It is
            asked only if they do.

    Attributes:
        enumerators: the constants of its enumerations.
        enumerations: constant → the names of the values of its enumeration.

    Raises:
        ProgramError: a type is unknown, or too large.
    """

    def __init__(
        self,
        definitions: Sequence[Definition],
        source: Source,
        kernel: Callable[[], Btf | None] = lambda: None,
    ) -> None:
        self.enumerators: dict[str, int] = {}
        self.enumerations: dict[str, ValueNames] = {}
        self._source = source
        self._base = kernel() if _uses_others(definitions) else None
        self._types = self._writer()
        self._types.integer("int", 4, Encoding.SIGNED)
        self._found: dict[tuple[str, str], tuple[int, int, int]] = {}  # ID, size, alignment
        self._numbers: dict[tuple[str, int], int] = {}
        # A pointer may lead to a structure that is defined later, or to its own.
        self._structures: dict[tuple[str, str], int] = {}
        for one in definitions:
            if isinstance(one, StructDefinition) and (one.tag, one.name) not in self._structures:
                self._structures[one.tag, one.name] = self._types.reserve()
        for one in definitions:
            self._define(one)
        self._used = bool(definitions)

    @functools.cached_property
    def _btf(self) -> Btf:
        return _ProgramBtf(self._types.data(), name="the program", base=self._base)

    def _writer(self) -> BtfWriter:
        # What uses types of the kernel continues its BTF.
        base = self._base
        if base is None:
            return BtfWriter(sys.byteorder)
        return BtfWriter(sys.byteorder, first=base.end, strings_before=base.strings_end)

    def types(self, *, kernel: bool) -> BtfTypes | None:
        """Return the types; ``kernel``: pointers to them are the kernel's. None without any."""
        return BtfTypes(lambda: self._btf, kernel=kernel) if self._used else None

    def _error(self, start: int, reason: str) -> ProgramError:
        return self._source.error(start, reason)

    def _define(self, one: Definition) -> None:
        match one:
            case StructDefinition(tag=tag, name=name):
                self._found[tag, name] = self._structure(one)
            case EnumDefinition(name=name):
                self._found["enum", name] = self._enumeration(one)
            case Typedef(name=name, type=inner):
                target, size, alignment = self._type(inner)
                number = self._types.record(Kind.TYPEDEF, name, target)
                self._found["", name] = number, size, alignment

    def _enumeration(self, one: EnumDefinition) -> tuple[int, int, int]:
        rows = []
        following = 0
        for item in one.enumerators:
            if item.value is not None:
                following = self._constant(item.value, "an enumerator")
            rows.append((item.name, following))
            self.enumerators[item.name] = following
            following += 1
        names = Enumerators(tuple((value, name) for name, value in rows))
        self.enumerations |= {name: names for name, _ in rows}
        signed = any(value < 0 for _, value in rows)
        return self._types.enum(one.name, 4, rows, signed=signed), 4, 4

    # ------------------------------------------------------------ structures

    def _structure(self, one: StructDefinition) -> tuple[int, int, int]:
        members: list[tuple[str, int, int, int]] = []
        bits = largest = 0
        alignment = 1
        for member in one.members:
            number, size, align = self._type(member.type)
            align = 1 if one.packed else align
            at = bits if one.tag == "struct" else 0
            if member.bits is not None:
                at, width = self._bit_field(member, at, size)
                if width:
                    members.append((member.name, number, at, width))
                bits = at + width
            else:
                at = -(-at // (8 * align)) * 8 * align
                members.append((member.name, number, at, 0))
                bits = at + 8 * size
            alignment = max(alignment, align)
            largest = max(largest, bits)
            if largest > 8 * _MOST_BYTES:
                raise self._error(member.start, f"{one.tag} {one.name} is larger than 1 MiB")
        size = -(-largest // (8 * alignment)) * alignment
        kind = Kind.STRUCT if one.tag == "struct" else Kind.UNION
        named = [row for row in members if row[0] or not row[3]]
        name = "" if one.name.startswith("(") else one.name
        number = self._structures[one.tag, one.name]
        return self._types.composite(kind, name, size, named, number=number), size, alignment

    def _bit_field(self, member: StructMember, at: int, size: int) -> tuple[int, int]:
        # Its place and width in bits; one of no width ends the unit.
        if member.bits is None:
            raise TypeError(member)
        width = self._constant(member.bits, "the width of a bit field")
        unit = 8 * size
        if not 0 <= width <= unit:
            raise self._error(member.start, f"a bit field has 0 to {unit} bits here, not {width}")
        if not width or at // unit != (at + width - 1) // unit:
            at = -(-at // unit) * unit
        return at, width

    def _constant(self, node: tree.Expression, what: str) -> int:
        match node:
            case tree.Integer(value=value):
                return value
            case tree.Identifier(name=name) if name in self.enumerators:
                return self.enumerators[name]
            case tree.Unary(op="-", operand=inner):
                return -self._constant(inner, what)
        raise self._error(node.start, f"{what}: expected a constant number")

    # ------------------------------------------------------------ types

    def _type(self, node: tree.Type) -> tuple[int, int, int]:
        # The ID of a type in BTF, its bytes and its alignment.
        match node:
            case tree.PointerType(target=target):
                return self._types.pointer(self._target(target)), _POINTER, _POINTER
            case tree.ArrayType(element=element, length=length):
                number, size, alignment = self._type(element)
                count = 0 if length is None else self._constant(length, "the length of an array")
                if not 0 <= count * max(size, 1) <= _MOST_BYTES:
                    raise self._error(node.start, "the array is larger than 1 MiB")
                return self._types.array(number, count), size * count, alignment
            case tree.NamedType():
                return self._named(node)
            case _:
                raise self._error(node.start, "this type is not supported in definitions")

    def _target(self, node: tree.Type) -> int:
        # What a pointer points to may be unknown.
        if isinstance(node, tree.NamedType):
            known = self._found.get((node.tag, node.name))
            if known is not None:
                return known[0]
            if (node.tag, node.name) in self._structures:
                return self._structures[node.tag, node.name]
            others = self._other(node)
            if others is not None:
                return others[0]
            if node.tag in ("struct", "union"):
                return self._types.record(Kind.FWD, node.name, 0, flag=node.tag == "union")
            if node.name not in (*INTEGERS, *FLOATS):
                return _VOID
        elif not isinstance(node, tree.PointerType | tree.ArrayType):
            return _VOID
        return self._type(node)[0]

    def _named(self, node: tree.NamedType) -> tuple[int, int, int]:
        known = self._found.get((node.tag, node.name))
        if known is not None:
            return known
        if not node.tag and node.name in INTEGERS:
            size, signed = INTEGERS[node.name]
            encoding = Encoding.SIGNED if signed else 0
            name = "char" if node.name == "char" else node.name
            if (name, size) not in self._numbers:
                self._numbers[name, size] = self._types.integer(name, size, encoding)
            return self._numbers[name, size], size, size
        if not node.tag and node.name in FLOATS:
            size = FLOATS[node.name]
            return self._types.record(Kind.FLOAT, node.name, size), size, size
        found = self._other(node)
        if found is not None:
            return found
        raise self._error(node.start, f"{_tagged(node)} is not defined before")

    def _other(self, node: tree.NamedType) -> tuple[int, int, int] | None:
        # A type of the kernel.
        if self._base is None or (node.tag, node.name) in self._structures:
            return None
        try:
            number = find_type(self._base, _tagged(node))
            return number, self._base.size_of(number), self._base.align_of(number)
        except BtfError:
            return None

    def __bool__(self) -> bool:
        return self._used
