"""The check of types, and of casts to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.errors import BtfError
from usdt.base.frozen import replace
from usdt.btf.lookup import find_type
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import S64, U64, Compare, Convert, Deref, Node, Not, Number
from usdt.engine.compiler.resolve.btf_types import BtfTypes
from usdt.engine.language import tree as language
from usdt.engine.programs.check.nodes import constant, pointer_of, value_of, wide
from usdt.engine.programs.check.values import ValueChecker
from usdt.engine.programs.members import type_of
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    Element,
    ElementNumber,
    MakeTuple,
    Padded,
    Read,
    ReadText,
    Scalar,
    Text,
    TextLength,
)
from usdt.engine.programs.types import (
    BOOLEAN,
    INT64,
    UINT64,
    ArrayType,
    IntegerType,
    PointerType,
    StringType,
    StructType,
    TupleType,
    Type,
    bytes_of,
    is_number,
    size_of,
    spelled,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.compiler.scope import TypeProvider
    from usdt.engine.programs.typed import Bytes, Value

__all__ = ("CastChecker",)

_NOWHERE = language.Name("it", 0, 0)
_TYPES = (tree.NamedType, tree.PointerType, tree.ArrayType, tree.TypeOf)
_BOOLEANS = ("bool", "_Bool")
_WORD = 8
_MOST_BYTES = 1 << 16  # of an array in a variable


class CastChecker(ValueChecker):
    """A checker of casts and of the types in them."""

    # ------------------------------------------------------------ types

    def type_of(self, node: tree.Type) -> Type:
        """Return a type that is written in the program as the type of values.

        Raises:
            LanguageError: it is not known, or no value can have it.
        """
        match node:
            case tree.TypeOf(operand=inner):
                if isinstance(inner, _TYPES):
                    return self.type_of(inner)
                return self.value(inner).type
            case tree.ArrayType(element=tree.NamedType(tag="", name="string")):
                return StringType(self._length(node))
            case tree.ArrayType(element=element):
                kind = self.type_of(element)
                count = self._length(node)
                if count * bytes_of(kind) > _MOST_BYTES:
                    raise self.error(node, f"the array is larger than {_MOST_BYTES} bytes")
                return ArrayType(kind, count)
            case tree.NamedType(tag="", name="string"):
                return StringType(self.state.max_string)
            case tree.NamedType(tag="", name=name) if name in _BOOLEANS:
                return BOOLEAN
        target = self.language_type(node)
        if target.built_in and not target.pointers and target.kind is language.TypeKind.INTEGER:
            return IntegerType(target.size, target.signed)
        if target.pointers:
            return self._to_named(node, constant(0), target).type
        return self._named(node, target)

    def _length(self, node: tree.ArrayType) -> int:
        if node.length is None:
            raise self.error(node, "the length of the array is missing")
        found = self.integer(node.length, "the length of an array")
        if not 0 < found <= _MOST_BYTES:
            raise self.error(node.length, f"an array has 1 to {_MOST_BYTES} elements, not {found}")
        return found

    def _named(self, node: tree.Type, target: language.TypeName) -> Type:
        errors: list[str] = []
        for types in self.site.type_sources():
            if isinstance(types, BtfTypes):
                try:
                    return type_of(types, find_type(types.btf, target.tagged_name))
                except BtfError as err:
                    errors.append(str(err))
        why = errors[0] if errors else f"no types are known here: {_written(target)} needs them"
        raise self.error(node, why)

    # ------------------------------------------------------------ casts

    def _cast(self, node: tree.Cast) -> Value:
        operand = self.value(node.operand)
        if isinstance(node.type, tree.ArrayType | tree.TypeOf):
            return self.converted(node, operand, self._cast_type(node.type, operand))
        if isinstance(node.type, tree.NamedType) and node.type.name == "string":
            return self.converted(node, operand, self.type_of(node.type))
        target = self.language_type(node.type)
        integer = target.kind is language.TypeKind.INTEGER and not target.pointers
        if not isinstance(operand, Scalar):
            if not integer:
                reason = f"{spelled(operand.type)} cannot be cast to {_written(target)}"
                raise self.error(node, reason)
            return self.converted(node, operand, self.type_of(node.type))
        if target.built_in and integer:
            kind = BOOLEAN if target.name in _BOOLEANS else IntegerType(target.size, target.signed)
            return _integer(operand, kind)
        return self._to_named(node, operand, target)

    def _cast_type(self, node: tree.Type, operand: Value) -> Type:
        # An array without a length is as long as what is cast to it.
        if not isinstance(node, tree.ArrayType) or node.length is not None:
            return self.type_of(node)
        element = self.type_of(node.element)
        return ArrayType(element, _size_of(operand) // max(bytes_of(element), 1))

    def converted(self, node: tree.Expression | tree.Statement, value: Value, kind: Type) -> Value:
        """Return a value as one of another type.

        Raises:
            LanguageError: there is no such conversion.
        """
        if value.type == kind:
            return value
        match value, kind:
            case Scalar(), IntegerType():
                return _integer(value, kind)
            case Scalar(before=before), PointerType():
                return Scalar(wide(value), kind, before)
            case Scalar(), ArrayType() if bytes_of(kind) <= _WORD:
                return Element(MakeTuple((value,), TupleType((UINT64,))), 0, kind)
            case Text(text=text), StringType(size=size):
                return Text(text[: size - 1], kind)
            case _, StringType(size=size):
                if isinstance(value.type, StringType) and value.type.size <= size:
                    return self.filled(value, kind)
            case _, IntegerType():
                if not isinstance(value, Scalar):
                    found = self._number_in(value, kind)
                    if found is not None:
                        return found
            case _, ArrayType():
                same = isinstance(value.type, ArrayType) and bytes_of(value.type) == bytes_of(kind)
                if same and not isinstance(value, Scalar):
                    return Element(value, 0, kind)
        raise self.error(node, f"{spelled(value.type)} cannot be cast to {spelled(kind)}")

    def _number_in(self, value: Bytes, kind: IntegerType) -> Scalar | None:
        if isinstance(value.type, StringType) and kind == BOOLEAN:
            length = self.step(TextLength(value), INT64)
            return replace(
                length, node=fold(Compare("!=", length.node, Number(0, S64), S64)), type=BOOLEAN
            )
        if not isinstance(value.type, ArrayType) or bytes_of(value.type) > _WORD:
            return None
        word = self.step(ElementNumber(value, 0), UINT64)
        return _integer(word, kind)

    def nothing(self, kind: Type) -> Value:
        """Return the value of a variable to which nothing was assigned: zeros."""
        if is_number(kind):
            return replace(constant(0), type=kind)
        if isinstance(kind, StringType):
            return Text(b"", kind)
        return Padded(Text(b"", StringType(1)), kind)

    def _to_named(
        self, node: tree.Expression | tree.Type, operand: Scalar, target: language.TypeName
    ) -> Value:
        inner = pointer_of(operand)
        if target.built_in:  # void *, int *, char **
            address = Scalar(wide(operand), UINT64, operand.before)
            return self._plain_pointer(address, target, kernel=getattr(inner, "kernel", False))
        cast = language.Cast(target, _NOWHERE, node.start, node.end)
        errors: list[str] = []
        for types in self.site.type_sources(kernels=getattr(inner, "kernel", False)):
            try:
                made = types.cast(cast, inner)
            except BtfError as err:
                errors.append(str(err))
                continue
            if made is not None:
                return value_of(made, types, operand.before, self.state.max_string)
        if errors:
            raise self.error(node, errors[0])
        raise self.error(node, f"no types are known here: {_written(target)} needs them")

    def _plain_pointer(self, address: Scalar, target: language.TypeName, *, kernel: bool) -> Scalar:
        whole = ValueType(ValueClass.BYTES, 1)
        if target.pointers > 1:
            whole = U64
        elif target.kind is language.TypeKind.INTEGER:
            whole = ValueType(
                ValueClass.SIGNED if target.signed else ValueClass.UNSIGNED, target.size
            )
        inner = replace(target, pointers=target.pointers - 1) if target.pointers > 1 else None
        kind = PointerType(whole, None, None, kernel, _written(target), inner)
        return replace(address, type=kind)

    def language_type(self, node: tree.Type) -> language.TypeName:
        """Return a type of the program as one of the language of probes."""
        pointers = 0
        while isinstance(node, tree.PointerType):
            node, pointers = node.target, pointers + 1
        if not isinstance(node, tree.NamedType):
            raise self.error(node, "a cast to this type is not supported yet")
        return self.site.named_type(node, pointers)

    # ------------------------------------------------------------ what a pointer leads to

    def at(self, node: tree.Expression, pointer: Scalar, kind: PointerType) -> Value:
        """Return what a pointer leads to."""
        if kind.value is not None:
            return self._own_value(pointer, kind.value)
        if kind.points_to is not None:
            address = Scalar(Deref(pointer.node, U64, None, kind.kernel), UINT64, pointer.before)
            return self._to_named(node, address, kind.points_to)
        whole = pointer_of(pointer)
        if kind.types is not None and kind.type_id is not None:
            ask = language.Unary("*", _NOWHERE, node.start, node.end)
            made = self.asked(node, lambda types: types.deref(ask, whole), kind.types)
            if made is not None:
                return value_of(made, kind.types, pointer.before, self.state.max_string)
        if kind.target.kind is ValueClass.BYTES:
            raise self.error(node, f"{kind.spelling} leads to no value of a known size: cast it")
        made = Deref(pointer.node, kind.target, None, kind.kernel)
        return value_of(made, None, pointer.before, self.state.max_string)

    def _own_value(self, pointer: Scalar, kind: Type) -> Value:
        # The value of a variable or a map, as it is laid out there.
        if is_number(kind):
            node = Deref(pointer.node, U64, None, kernel=True)
            return Scalar(self.signed(node, kind), kind, pointer.before)
        whole = Read(pointer, ArrayType(IntegerType(1, signed=False), size_of(kind)))
        return Element(whole, 0, kind)

    def asked(
        self,
        node: tree.Expression,
        ask: Callable[[TypeProvider], Node | None],
        types: TypeProvider | None,
    ) -> Node | None:
        """Return what type information answers; None without any."""
        if types is None:
            return None
        try:
            return ask(types)
        except BtfError as err:
            raise self.error(node, str(err)) from err

    # ------------------------------------------------------------ sizes

    def _sizeof(self, node: tree.SizeOf) -> Scalar:
        operand = node.operand
        if isinstance(operand, tree.PointerType):
            return constant(8)
        if isinstance(operand, tree.NamedType):
            target = self.site.named_type(operand, 0)
            if target.built_in:
                return constant(target.size)
            return constant(self._size_of_named(node, target.tagged_name))
        if isinstance(operand, tree.ArrayType | tree.TypeOf):
            return constant(bytes_of(self.type_of(operand)))
        found = self.value(operand)
        size = self.sizeof(found.type)
        # An array of characters is read with a NUL behind it.
        characters = isinstance(found, ReadText) and isinstance(operand, tree.Member | tree.Index)
        return constant(size - 1 if characters else size)

    def sizeof(self, kind: Type) -> int:
        """Return the size of values of a type as programs see it."""
        cut = isinstance(kind, StringType) and bool(kind.trailer)  # without the NUL, as in bpftrace
        return bytes_of(kind) - cut

    def _typeinfo(self, node: tree.TypeInfo) -> Value:
        reason = "typeinfo is an experiment of bpftrace, which is off there as well"
        raise self.error(node, f"{reason}: is_str() and the like ask about types")

    def _offsetof(self, node: tree.OffsetOf) -> Scalar:
        # The address of the member in a structure at 0.
        found: Value = self._nothing_at_zero(node)
        nowhere = tree.Integer(0, node.start, node.end)
        for name in node.path:
            member = tree.Member(nowhere, name, arrow=False, start=node.start, end=node.end)
            found = self.member(member, found)
        match found:
            case Read(address=Scalar(node=Number(value=offset))):
                return constant(offset)
            case ReadText(address=Scalar(node=Number(value=offset))):
                return constant(offset)
            case Scalar(node=Deref(address=Number(value=offset))):
                return constant(offset)
            case Scalar(node=Convert(operand=Deref(address=Number(value=offset)))):
                return constant(offset)
        raise self.error(node, "this member has no offset in bytes: it is a bit field")

    def _nothing_at_zero(self, node: tree.OffsetOf) -> Scalar:
        operand = node.operand
        kind = self.type_of(operand) if isinstance(operand, _TYPES) else self.value(operand).type
        if isinstance(kind, StructType):
            whole = ValueType(ValueClass.BYTES, kind.size)
            kind = PointerType(whole, kind.type_id, kind.types, spelling=f"{kind.spelling} *")
        if not isinstance(kind, PointerType):
            raise self.error(node, f"offsetof() takes a structure, not {spelled(kind)}")
        return replace(constant(0), type=kind)

    def member(self, node: tree.Member, whole: Value) -> Value:
        """Return the member ``node.name`` of a value."""
        raise NotImplementedError

    def _size_of_named(self, node: tree.Expression, name: str) -> int:
        errors: list[str] = []
        for types in self.site.type_sources():
            if isinstance(types, BtfTypes):
                try:
                    return types.btf.size_of(find_type(types.btf, name))
                except BtfError as err:
                    errors.append(str(err))
        raise self.error(node, errors[0] if errors else f"{name} is not known here")


def _integer(value: Scalar, kind: IntegerType) -> Scalar:
    if kind == BOOLEAN:
        return _truth(value)
    target = ValueType(ValueClass.SIGNED if kind.signed else ValueClass.UNSIGNED, kind.size)
    return Scalar(fold(Convert(value.node, target)), kind, value.before)


def _truth(operand: Scalar) -> Scalar:
    return Scalar(fold(Not(fold(Not(operand.node)))), BOOLEAN, operand.before)


def _size_of(value: Value) -> int:
    return value.type.size if isinstance(value.type, IntegerType) else bytes_of(value.type)


def _written(target: language.TypeName) -> str:
    stars = f" {'*' * target.pointers}" if target.pointers else ""
    return f"{target.tagged_name}{stars}"
