"""The types of a program in the probe language, from its debug information.

This module extends :class:`usdt.engine.compiler.resolve.btf_types.BtfTypes` by values in registers,
references, and strings and sequences of C++ and Rust, which are shown by their contents.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.arch.locations import AtFunctionReturn, Register, Unreadable, ValueClass, ValueType
from usdt.base.errors import BtfError
from usdt.base.frozen import frozen, replace
from usdt.base.machine import BIG_ENDIAN
from usdt.btf import format as btf_format
from usdt.btf import types as btf_types
from usdt.btf.tagged_union import tagged_union_of
from usdt.engine.compiler.arguments import Display
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    S64,
    U64,
    ArgumentValue,
    Arithmetic,
    Compare,
    Convert,
    Deref,
    LValue,
    Node,
    Number,
    PointerExpr,
    RegisterAggregate,
    Unavailable,
)
from usdt.engine.compiler.limits import DEFAULT_STRUCT
from usdt.engine.compiler.resolve.btf_types import BtfTypes, enum_names, value_type
from usdt.engine.compiler.scope import DefaultFormat
from usdt.engine.compiler.value_names import Enumerators
from usdt.uprobes.library_types.containers import sequence_view_of
from usdt.uprobes.library_types.smart_pointers import pointer_in, value_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.arch.abi import RegisterPiece
    from usdt.btf.values.type_snapshot import TypeSnapshot
    from usdt.dwarf.types.variants import Variant
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.language.tree import Cast, Index, Member, Unary
    from usdt.uprobes.debug_info import Debug
    from usdt.uprobes.library_types.containers import SequenceView

__all__ = ("ByAddress", "DwarfTypeProvider", "InRegisters")

_WORD = 8  # bytes of the registers from which a split number is combined
_MAX_NESTING = 32  # nested structures
_VALUES = (btf_types.Int, btf_types.Enum, btf_types.Float, btf_types.Pointer, btf_types.Composite)


@frozen
class ByAddress:
    """Type reference of an argument whose value is the address of the object."""

    type: int


@frozen
class InRegisters:
    """Type reference of a value in registers.

    Attributes:
        type: ID of its type.
        pieces: the registers.
        bits: bit offset of the value in the pieces.
        returned: True if the registers are those at the function's return.
    """

    type: int
    pieces: tuple[RegisterPiece, ...]
    bits: int = 0
    returned: bool = False


class DwarfTypeProvider(BtfTypes):
    """The types of debug information: a :class:`usdt.engine.compiler.scope.TypeProvider`.

    Args:
        open_debug: returns the program's debug information; called once, when it is needed.
        machine: CPU of the program.
        rust: True if ``.`` dereferences pointers, as in Rust.
    """

    def __init__(
        self, open_debug: Callable[[], Debug], machine: str, *, rust: bool = False
    ) -> None:
        opened = functools.cache(open_debug)
        super().__init__(lambda: opened().btf, big_endian=machine in BIG_ENDIAN, kernel=False)
        self._opened = opened
        self._rust = rust
        # Element type → array of as many elements as are shown; None if they are not shown.
        self._lists: dict[int, TypeSnapshot | None] = {}

    @property
    def _debug(self) -> Debug:
        return self._opened()

    def argument(self, argument: Argument, node: Node) -> Node:
        """Return an argument with its type; a reference becomes the object it refers to."""
        handle = argument.handle
        if isinstance(handle, InRegisters):
            return self._load_member(handle, 0, handle.type, 0)
        if isinstance(handle, ByAddress) and isinstance(node, ArgumentValue):
            found = self._at(ArgumentValue(node.fetch, U64), 0, handle.type, 0)
            return found or Unavailable(
                f"values of its type ({argument.type.size} bytes) cannot be read"
            )
        if isinstance(handle, int) and isinstance(node, ArgumentValue):
            return self._typed(node, handle)
        return node

    def _typed(self, node: Node, number: int) -> Node:
        # An integer with its type: a pointer, a reference, an enum.
        found = self.btf.resolve(number)
        if isinstance(found, btf_types.Pointer):
            if self._debug.is_reference(number):
                return self._at(node, 0, found.type_id, 0) or node
            return self._pointer(node, found.type_id)
        if isinstance(node, ArgumentValue):
            node = ArgumentValue(node.fetch, node.type, number)
        names = enum_names(found)
        if names is not None:
            self._names[node] = names
        return node

    # ------------------------------------------------------------ members

    def member(self, tree: Member, target: Node) -> Node | None:
        """Resolve ``target->name`` or ``target.name``, also in registers."""
        handle = target.handle if isinstance(target, LValue) else None
        if self._rust and isinstance(target, PointerExpr) and not tree.arrow:
            known = target.handle if isinstance(target.handle, int) else 0
            led = self._at(target.address, 0, known, 0)
            return None if led is None else self.member(tree, led)
        if tree.arrow and isinstance(target, LValue):
            inner = self._optional(target)
            if isinstance(inner, LValue):
                plain = replace(tree, arrow=False)
                return self.member(plain, inner)
        if not isinstance(handle, InRegisters):
            return super().member(tree, target)
        if tree.arrow:
            return None
        found = self.btf.resolve(handle.type)
        if not isinstance(found, btf_types.Composite):
            return None
        place = self._find(found, tree.name, handle.bits, 0)
        if place is None:
            raise BtfError(self._no_member(found, tree.name))
        bits, member = place
        return self._load_member(handle, bits, member.type_id, member.bitfield_size)

    def deref(self, tree: Unary, target: Node) -> Node | None:
        """Resolve ``*target``, also for a std::optional."""
        inner = self._optional(target) if isinstance(target, LValue) else None
        return inner or super().deref(tree, target)

    def _optional(self, target: LValue) -> Node | None:
        number = getattr(target.handle, "type", target.handle)
        found = self.btf.resolve(number) if isinstance(number, int) else None
        name = found.name if isinstance(found, btf_types.Composite) else ""
        return value_in(self, target, name) if "optional<" in name else None

    def _no_member(self, found: btf_types.Composite, name: str) -> str:
        virtual = self._debug.virtual_bases(found.id)
        if not virtual:
            return super()._no_member(found, name)
        return (
            f"struct {found.name} has no member {name!r} at a fixed offset; members of its virtual "
            f"base {', '.join(virtual)} are not supported, because their offset differs from "
            "object to object"
        )

    def member_by_name(self, target: Node, name: str) -> Node | None:
        """Return the named member of a structure in memory or registers, or None."""
        handle = target.handle if isinstance(target, LValue) else None
        number = handle.type if isinstance(handle, InRegisters) else handle
        if not isinstance(target, LValue) or not isinstance(number, int):
            return None
        found = self.btf.resolve(number)
        if not isinstance(found, btf_types.Composite):
            return None
        place = self._find(found, name, 0, 0)
        return None if place is None else self.member_at(target, *place)

    def member_at(self, target: LValue, bits: int, member: btf_types.Member) -> Node | None:
        """Return a member that begins ``bits`` bits into a structure."""
        handle = target.handle
        if isinstance(handle, InRegisters):
            return self._load_member(
                handle, handle.bits + bits, member.type_id, member.bitfield_size
            )
        return self._at(target.address, bits, member.type_id, member.bitfield_size)

    def index(self, tree: Index, target: Node, index: Node) -> Node | None:
        """Resolve ``target[index]``, also for arrays in registers and sequences of C++ or Rust."""
        handle = target.handle if isinstance(target, LValue) else None
        if isinstance(handle, InRegisters):
            found = self.btf.resolve(handle.type)
            if isinstance(found, btf_types.Array) and isinstance(index, Number):
                bits = handle.bits + 8 * self.btf.size_of(found.type_id) * index.value
                return self._load_member(handle, bits, found.type_id, 0)
        place: Node | None = target
        if self._rust and isinstance(target, PointerExpr) and isinstance(target.handle, int):
            place = self._at(target.address, 0, target.handle, 0)
        content = None if place is None else self.content(place)
        if content is not None:
            size = Number(self.btf.size_of(content.element), S64)
            steps = fold(Convert(index, S64)) if index.type != S64 else index
            offset = fold(Convert(fold(Arithmetic("*", steps, size, S64)), U64))
            address = fold(Arithmetic("+", content.address, offset, U64))
            return self._at(address, 0, content.element, 0)
        return super().index(tree, target, index)

    def cast(self, tree: Cast, operand: Node) -> Node | None:
        """Resolve ``(struct X *)operand``; the type is searched in all of the debug information."""
        kind = tree.type
        tag = "" if kind.kind in ("typedef", "void") else f"{kind.kind} "
        self._debug.type_id(f"{tag}{kind.name}")
        return super().cast(tree, operand)

    @property
    def big_endian(self) -> bool:
        """True if the program's CPU is big-endian."""
        return self._big_endian

    def content(self, node: Node) -> SequenceView | None:
        """Return the content of a string or sequence of C++ or Rust; None for other types."""
        return sequence_view_of(self, node)

    def shown(self, node: Node) -> DefaultFormat | None:
        """Return the default format: strings and sequences by content, Rust enums by name."""
        place: Node | None = node
        if self._rust and isinstance(node, PointerExpr) and isinstance(node.handle, int):
            place = self._at(node.address, 0, node.handle, 0)
        if not isinstance(place, LValue):
            return super().shown(node)
        form = self._variant_number(place)
        if form is not None:
            handle = place.handle
            number = handle.type if isinstance(handle, InRegisters) else handle
            shape = self._shape(number) if isinstance(number, int) else None
            return DefaultFormat(Display.TAGGED_UNION, shape, begin=form)
        held = self.content(place)
        if held is not None and held.text:
            return DefaultFormat(Display.BUFFER, begin=held.address, length=held.count)
        element = None if held is None else value_type(self.btf, held.element)
        if held is None and isinstance(place.handle, InRegisters):
            return DefaultFormat(Display.STRUCT, self._shape(place.handle.type))
        if held is None:
            return super().shown(node)
        if element is None:
            return self._shown_sequence(held) or super().shown(node)
        size = Number(element.size, U64)
        length = fold(Arithmetic("*", fold(Convert(held.count, U64)), size, U64))
        return DefaultFormat(Display.ARRAY, begin=held.address, length=length, element=element)

    def _shown_sequence(self, held: SequenceView) -> DefaultFormat | None:
        # A sequence of structures or other elements that are not integers.
        if held.element not in self._lists:
            room = self.btf.size_of(held.element)
            fits = 0 < room <= DEFAULT_STRUCT
            row = self._debug.array_type_of(held.element, DEFAULT_STRUCT // room) if fits else 0
            self._lists[held.element] = self._shape(row) if fits else None
        shape = self._lists[held.element]
        if shape is None:
            return None
        size = Number(self.btf.size_of(held.element), U64)
        length = fold(Arithmetic("*", fold(Convert(held.count, U64)), size, U64))
        return DefaultFormat(Display.STRUCT, shape, begin=held.address, length=length)

    def _variant_number(self, place: LValue) -> Node | None:
        # The active variant of a Rust enum, as a number with names.
        handle = place.handle
        number = handle.type if isinstance(handle, InRegisters) else handle
        part = self._debug.variants(number) if isinstance(number, int) else None
        if part is None or part.discriminant is None:
            return None
        chosen = part.discriminant
        if isinstance(handle, InRegisters):
            bits = handle.bits + chosen.bit_offset
            node: Node | None = self._load_member(
                handle, bits, chosen.type_id, chosen.bitfield_size
            )
        else:
            node = self._at(place.address, chosen.bit_offset, chosen.type_id, chosen.bitfield_size)
        if node is None or isinstance(node, LValue):
            return None
        value = fold(Convert(node, ValueType(ValueClass.UNSIGNED, part.size)))
        listed = [pair for variant in part.variants for pair in _named(variant)]
        rest = [v.name for v in part.variants if v.values is None]
        if rest and len(listed) == 1:  # Option<&T>: None is 0, Some any other value
            one, name = listed[0]
            same = fold(Compare("==", value, Number(one, value.type), value.type))
            listed = [(1, name), (0, rest[0])]
            value = same
        self._names[value] = Enumerators(tuple(listed))
        return value

    def type_named(self, name: str) -> int | None:
        """Return the ID of the type with this source-level name, or None."""
        try:
            return self._debug.type_id(name)
        except BtfError:
            return None

    def _shape(self, number: int) -> TypeSnapshot | None:
        # None for a type that contains an incomplete type.
        try:
            return super()._shape(number) if self._is_complete(number, 0) else None
        except BtfError:
            return None

    def _is_complete(self, number: int, depth: int) -> bool:
        found = self.btf.resolve(number)
        forms = self._debug.variants(number)
        told = forms is None or forms.discriminant is None or tagged_union_of(self.btf, found)
        if not told and found.kind != btf_format.Kind.UNION:
            return False  # BTF cannot express which variant is active
        if isinstance(found, btf_types.Array):
            return self._is_complete(found.type_id, depth)
        if isinstance(found, btf_types.Composite) and depth < _MAX_NESTING:
            return all(self._is_complete(member.type_id, depth + 1) for member in found.members)
        return isinstance(found, _VALUES)

    # ------------------------------------------------------------ places

    def _at(self, address: Node, bits: int, number: int, width: int) -> Node | None:
        found = self.btf.resolve(number)
        start = fold(Arithmetic("+", address, Number(bits // 8, U64), U64))
        if isinstance(found, btf_types.Pointer) and not width and self._debug.is_reference(number):
            return self._at(Deref(start, U64), 0, found.type_id, 0)
        if isinstance(found, btf_types.Forward):
            return LValue(start, ValueType(ValueClass.BYTES, 0), handle=number)
        if isinstance(found, btf_types.Float) and found.size in (4, 8):
            return Deref(start, ValueType(ValueClass.FLOAT, found.size), number)
        node = super()._at(address, bits, number, width)
        return self._through_smart_pointer(node, found) if isinstance(node, LValue) else node

    def lvalue_at(self, address: Node, number: int) -> Node | None:
        """Return the object of type ``number`` at an address."""
        return self._at(address, 0, number, 0)

    def _through_smart_pointer(self, node: LValue, found: btf_types.Type) -> Node:
        # A smart pointer is replaced by the pointer in it.
        if not isinstance(found, btf_types.Composite) or "<" not in found.name:
            return node
        return pointer_in(self, node, found.name) or node

    def _load_member(self, handle: InRegisters, bits: int, number: int, width: int) -> Node:
        # The value of type ``number``, ``bits`` bits into the registers of ``handle``.
        found = self.btf.resolve(number)
        if width:
            return self._load_bitfield(handle, bits, width, found)
        if isinstance(found, btf_types.Pointer):
            return self._typed(
                self._load_bytes(handle, bits // 8, ValueType(ValueClass.UNSIGNED, 8)), number
            )
        kind = value_type(self.btf, number)
        if isinstance(found, btf_types.Float) and found.size in (4, 8):
            kind = ValueType(ValueClass.FLOAT, found.size)
        if kind is not None:
            return self._typed(self._load_bytes(handle, bits // 8, kind), number)
        size = self.btf.size_of(number)
        inner = InRegisters(number, handle.pieces, bits, handle.returned)
        start = self._load_all(handle, bits // 8, size, number)
        return self._through_smart_pointer(
            LValue(start, ValueType(ValueClass.BYTES, size), handle=inner), found
        )

    def _load_all(self, handle: InRegisters, start: int, size: int, number: int) -> Node:
        # All bytes of a structure or array; unreadable if any of them is.
        if self._shape(number) is None:
            reason = "a structure in registers can only be read member by member"
            return _unreadable(handle, reason, U64)
        parts: list[tuple[int, Node]] = []
        for piece in handle.pieces:
            first, end = max(piece.start, start), min(piece.start + piece.size, start + size)
            if first < end and piece.register is None:
                return _unreadable(handle, piece.problem, U64)
            while first < end and piece.register is not None:
                at = piece.register.offset + first - piece.start
                room = next(n for n in (8, 4, 2, 1) if n <= end - first and at % n == 0)
                kind = ValueType(ValueClass.UNSIGNED, room)
                parts.append((first - start, self._load_bytes(handle, first, kind)))
                first += room
        return RegisterAggregate(tuple(parts), U64)

    def _load_bytes(self, handle: InRegisters, start: int, kind: ValueType) -> Node:
        for piece in handle.pieces:
            if piece.start <= start < piece.start + piece.size:
                if piece.register is None:
                    return _unreadable(handle, piece.problem, kind)
                if start + kind.size > piece.start + piece.size:
                    return self._split_register_load(handle, piece, start, kind)
                at = Register(piece.register.offset + start - piece.start, kind.size)
                return ArgumentValue(AtFunctionReturn(at) if handle.returned else at, kind)
        return _unreadable(handle, "it is in no register", kind)

    def _split_register_load(
        self, handle: InRegisters, first: RegisterPiece, start: int, kind: ValueType
    ) -> Node:
        # A number of a packed structure that starts in one register and ends in the next.
        later = next((one for one in handle.pieces if one.start == first.start + first.size), None)
        halves = [None if one is None else one.register for one in (first, later)]
        low, high = halves
        if low is None or high is None or self._big_endian or low.size != _WORD:
            return _unreadable(handle, "it is split between two registers", kind)
        wide = Register(high.offset, _WORD)
        parts = [
            ArgumentValue(AtFunctionReturn(one) if handle.returned else one, U64)
            for one in (low, wide)
        ]
        skipped = 8 * (start - first.start)
        begin = Arithmetic(">>", parts[0], Number(skipped, U64), U64)
        end = Arithmetic("<<", parts[1], Number(8 * _WORD - skipped, U64), U64)
        return fold(Convert(Arithmetic("|", begin, end, U64), kind))

    def _load_bitfield(
        self, handle: InRegisters, bits: int, width: int, found: btf_types.Type
    ) -> Node:
        first, shift = divmod(bits, 8)
        size = next((size for size in (1, 2, 4, 8) if size * 8 >= shift + width), 0)
        # Do not read past the end of its register.
        while size and first % 8 + size > 8 and first:
            first, shift = first - 1, shift + 8
        if not size or shift + width > 64:
            reason = f"a bit field of {width} bits in two registers is not supported"
            return _unreadable(handle, reason, U64)
        size = next(size for size in (1, 2, 4, 8) if size * 8 >= shift + width)
        whole = self._load_bytes(handle, first, ValueType(ValueClass.UNSIGNED, size))
        if isinstance(whole, Unavailable) or not _readable(whole):
            return whole
        if self._big_endian:
            shift = size * 8 - shift - width
        kind = S64 if getattr(found, "signed", False) else U64
        left = fold(
            Arithmetic("<<", fold(Convert(whole, U64)), Number(64 - shift - width, U64), U64)
        )
        value = fold(Arithmetic(">>", fold(Convert(left, kind)), Number(64 - width, U64), kind))
        node = Convert(value, kind, found.id)
        names = enum_names(found)
        if names is not None:
            self._names[node] = names
        return node


def _named(variant: Variant) -> list[tuple[int, str]]:
    # The discriminants of a variant, with its name.
    return [(low, variant.name) for low, high in variant.values or () if low == high]


def _unreadable(handle: InRegisters, reason: str, kind: ValueType) -> Node:
    # An unreadable value at the return keeps its location, so that the probe fires at the return.
    if handle.returned:
        return ArgumentValue(AtFunctionReturn(Unreadable(reason)), kind)
    return Unavailable(reason, kind)


def _readable(node: Node) -> bool:
    fetch = node.fetch if isinstance(node, ArgumentValue) else None
    return not (isinstance(fetch, AtFunctionReturn) and isinstance(fetch.register, Unreadable))
