"""The types of a program in the probe language, from its debug information.

This module extends :class:`usdt.engine.compiler.resolve.btf_types.BtfTypes` by values in registers,
references, and strings and sequences of C++ and Rust, which are shown by their contents.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.errors import BtfError
from usdt.base.frozen import replace
from usdt.base.machine import BIG_ENDIAN
from usdt.btf import format as btf_format
from usdt.btf import types as btf_types
from usdt.btf.tagged_union import tagged_union_of
from usdt.engine.compiler.arguments import Display
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    S64,
    U64,
    Arithmetic,
    BtfType,
    ByAddress,
    Compare,
    Convert,
    Deref,
    LValue,
    Node,
    Number,
    PointerExpr,
    Unavailable,
)
from usdt.engine.compiler.limits import DEFAULT_STRUCT
from usdt.engine.compiler.resolve.btf_types import BtfTypes, value_type
from usdt.engine.compiler.scope import DefaultFormat
from usdt.engine.compiler.value_names import Enumerators
from usdt.engine.language.tree import TypeKind
from usdt.uprobes.library_types.containers import sequence_view_of
from usdt.uprobes.library_types.smart_pointers import pointer_in, value_in
from usdt.uprobes.name_patterns import closest_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.values.type_snapshot import TypeSnapshot
    from usdt.dwarf.types.variants import Variant
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.compiler.ir import ArgumentValue
    from usdt.engine.language.tree import Cast, Index, Member, Unary
    from usdt.uprobes.debug_info import Debug
    from usdt.uprobes.library_types.containers import SequenceView

__all__ = ("DwarfTypeProvider",)

_MAX_NESTING = 32  # nested structures
_INLINE_NAMESPACES = re.compile("(?:__cxx11|__1|__ndk1)::")  # of libstdc++ and libc++
_VALUES = (btf_types.Int, btf_types.Enum, btf_types.Float, btf_types.Pointer, btf_types.Composite)


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
    def debug(self) -> Debug:
        """The debug information.

        Raises:
            BtfError: there is none, or it is damaged.
        """
        return self._opened()

    def variable_hint(self, name: str) -> str:
        """Return the end of a message about an unknown name: a variable that was meant; or ""."""
        try:
            near = closest_path(name, self.debug.variable_names(name))
        except BtfError:
            return ""
        hint = self.debug.path_hint(name)
        return f"{hint}; did you mean the variable {near}?" if near else hint

    def argument(self, argument: Argument, node: ArgumentValue) -> Node:
        """Return an argument with its type; an expression may compute it."""
        match argument.type_ref:
            case BtfType(id=number, computed=value) if value is not None:
                return self._typed(self._with_type(value, argument.type, number), number)
            case ByAddress(id=number, computed=address) if address is not None:
                reason = f"values of its type ({argument.type.size} bytes) cannot be read"
                return self._at(address, 0, number, 0) or Unavailable(reason)
        return super().argument(argument, node)

    def _with_type(self, value: Node, kind: ValueType, number: int) -> Node:
        if isinstance(self.btf.resolve(number), btf_types.Pointer):
            return value
        made = fold(Convert(value, kind))
        return replace(made, type_id=number) if isinstance(made, Convert) else made

    def _typed(self, node: Node, number: int) -> Node:
        # A reference is replaced by the object it refers to.
        found = self.btf.resolve(number)
        if isinstance(found, btf_types.Pointer) and self.debug.is_reference(number):
            return self._at(node, 0, found.type_id, 0) or node
        return super()._typed(node, number)

    # ------------------------------------------------------------ members

    def member(self, tree: Member, target: Node) -> Node | None:
        """Resolve ``target->name`` or ``target.name``, also of a std::optional."""
        if self._rust and isinstance(target, PointerExpr) and not tree.arrow:
            target_value = self._at(target.address, 0, target.type_id or 0, 0)
            return None if target_value is None else self.member(tree, target_value)
        if tree.arrow and isinstance(target, LValue):
            inner = self._optional(target)
            if isinstance(inner, LValue):
                return super().member(replace(tree, arrow=False), inner)
        return super().member(tree, target)

    def deref(self, tree: Unary, target: Node) -> Node | None:
        """Resolve ``*target``, also for a std::optional."""
        inner = self._optional(target) if isinstance(target, LValue) else None
        return inner or super().deref(tree, target)

    def _optional(self, target: LValue) -> Node | None:
        found = None if target.type_id is None else self.btf.resolve(target.type_id)
        name = found.name if isinstance(found, btf_types.Composite) else ""
        return value_in(self, target, name) if "optional<" in name else None

    def _no_member(self, found: btf_types.Composite, name: str) -> str:
        virtual = self.debug.virtual_bases(found.id)
        if not virtual:
            return super()._no_member(found, name)
        return (
            f"struct {found.name} has no member {name!r} at a fixed offset; members of its virtual "
            f"base {', '.join(virtual)} are not supported, because their offset differs from "
            "object to object"
        )

    def member_by_name(self, target: Node, name: str) -> Node | None:
        """Return the named member of a structure in memory or registers, or None."""
        number = target.type_id if isinstance(target, LValue) else None
        if number is None:
            return None
        found = self.btf.resolve(number)
        if not isinstance(found, btf_types.Composite):
            return None
        member = self._find(found, name, 0, 0)
        return None if member is None else self.member_at(target, *member)

    def index(self, tree: Index, target: Node, index: Node) -> Node | None:
        """Resolve ``target[index]``, also for sequences of C++ or Rust."""
        lvalue: Node | None = target
        if self._rust and isinstance(target, PointerExpr) and target.type_id is not None:
            lvalue = self._at(target.address, 0, target.type_id, 0)
        content = None if lvalue is None else self.content(lvalue)
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
        try:
            self.debug.type_id(kind.tagged_name)
        except BtfError:
            name = self._full_name(kind.name) if "::" in kind.name or "<" in kind.name else None
            if name is None:
                raise
            tree = replace(tree, type=replace(kind, kind=TypeKind.TYPEDEF, name=name))
        return super().cast(tree, operand)

    def _full_name(self, name: str) -> str | None:
        # The name of a type that is written without inline namespaces and default arguments, as in
        # std::vector<int>; None if there is none.
        wanted = _bare(name)
        beginning = f"{wanted[:-1]}," if wanted.endswith(">") else wanted
        found = [
            known
            for _, known in self.btf.named(btf_format.Kind.STRUCT, btf_format.Kind.TYPEDEF)
            if known.endswith(name[-1]) and (bare := _bare(known)).startswith(wanted[:-1])
            if bare == wanted or bare.startswith(beginning)
        ]
        # Parts of the type, such as its iterators, have longer names.
        return min(found, key=len, default=None)

    @property
    def big_endian(self) -> bool:
        """True if the program's CPU is big-endian."""
        return self._big_endian

    def content(self, node: Node) -> SequenceView | None:
        """Return the content of a string or sequence of C++ or Rust; None for other types."""
        return sequence_view_of(self, node)

    def shown(self, node: Node) -> DefaultFormat | None:
        """Return the default format: strings and sequences by content, Rust enums by name."""
        lvalue: Node | None = node
        if self._rust and isinstance(node, PointerExpr) and node.type_id is not None:
            lvalue = self._at(node.address, 0, node.type_id, 0)
        if not isinstance(lvalue, LValue):
            return super().shown(node)
        form = self._variant_number(lvalue)
        if form is not None:
            shape = None if lvalue.type_id is None else self._shape(lvalue.type_id)
            return DefaultFormat(Display.TAGGED_UNION, shape, begin=form)
        held = self.content(lvalue)
        if held is not None and held.text:
            return DefaultFormat(Display.BUFFER, begin=held.address, length=held.count)
        element = None if held is None else value_type(self.btf, held.element)
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
            element_size = self.btf.size_of(held.element)
            fits = 0 < element_size <= DEFAULT_STRUCT
            row = (
                self.debug.array_type_of(held.element, DEFAULT_STRUCT // element_size)
                if fits
                else 0
            )
            self._lists[held.element] = self._shape(row) if fits else None
        shape = self._lists[held.element]
        if shape is None:
            return None
        size = Number(self.btf.size_of(held.element), U64)
        length = fold(Arithmetic("*", fold(Convert(held.count, U64)), size, U64))
        return DefaultFormat(Display.STRUCT, shape, begin=held.address, length=length)

    def _variant_number(self, lvalue: LValue) -> Node | None:
        # The active variant of a Rust enum, as a number with names.
        part = None if lvalue.type_id is None else self.debug.variants(lvalue.type_id)
        if part is None or part.discriminant is None:
            return None
        node = self.member_at(lvalue, part.discriminant.bit_offset, part.discriminant)
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
            return self.debug.type_id(name)
        except BtfError:
            return None

    def _shape(self, number: int) -> TypeSnapshot | None:
        # None for a type that contains an incomplete type.
        try:
            return super()._shape(number) if self._is_complete(number, 0, set()) else None
        except BtfError:
            return None

    def _is_complete(self, number: int, depth: int, seen: set[int]) -> bool:
        # ``seen`` has the types that were looked at; one that is not complete ends the search.
        if number in seen:
            return True
        seen.add(number)
        found = self.btf.resolve(number)
        forms = self.debug.variants(number)
        has_tag = forms is None or forms.discriminant is None or tagged_union_of(self.btf, found)
        if not has_tag and found.kind != btf_format.Kind.UNION:
            return False  # BTF cannot express which variant is active
        if isinstance(found, btf_types.Array):
            return self._is_complete(found.type_id, depth, seen)
        if isinstance(found, btf_types.Composite) and depth < _MAX_NESTING:
            members = found.members
            return all(self._is_complete(one.type_id, depth + 1, seen) for one in members)
        return isinstance(found, _VALUES)

    # ------------------------------------------------------------ objects

    def _at(self, address: Node, bits: int, number: int, width: int) -> Node | None:
        found = self.btf.resolve(number)
        start = fold(Arithmetic("+", address, Number(bits // 8, U64), U64))
        if isinstance(found, btf_types.Pointer) and not width and self.debug.is_reference(number):
            word = Deref(start, ValueType(ValueClass.UNSIGNED, self.btf.pointer_size))
            address = word if word.type == U64 else Convert(word, U64)
            return self._at(address, 0, found.type_id, 0)
        if isinstance(found, btf_types.Forward):
            return LValue(start, ValueType(ValueClass.BYTES, 0), type_id=number)
        return super()._at(address, bits, number, width)

    def _value_type(self, number: int) -> ValueType | None:
        found = self.btf.resolve(number)
        if isinstance(found, btf_types.Float) and found.size in (4, 8):
            return ValueType(ValueClass.FLOAT, found.size)
        return super()._value_type(number)

    def lvalue_at(self, address: Node, number: int) -> Node | None:
        """Return the object of type ``number`` at an address."""
        return self._at(address, 0, number, 0)

    def _object(self, lvalue: LValue, found: btf_types.Type) -> Node:
        # A smart pointer is replaced by the pointer in it.
        if not isinstance(found, btf_types.Composite) or "<" not in found.name:
            return lvalue
        return pointer_in(self, lvalue, found.name) or lvalue


def _bare(name: str) -> str:
    return _INLINE_NAMESPACES.sub("", name.replace(" ", ""))


def _named(variant: Variant) -> list[tuple[int, str]]:
    # The discriminants of a variant, with its name.
    return [(low, variant.name) for low, high in variant.values or () if low == high]
