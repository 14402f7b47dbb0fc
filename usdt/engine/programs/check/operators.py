"""The check of operators, casts, members and elements."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.frozen import replace
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    S64,
    U64,
    Arithmetic,
    Compare,
    Convert,
    Deref,
    Not,
    Number,
    PointerExpr,
    ShortCircuit,
)
from usdt.engine.compiler.resolve.conversions import moved
from usdt.engine.language import tree as language
from usdt.engine.programs.check.casts import CastChecker
from usdt.engine.programs.check.nodes import (
    constant,
    literal,
    lvalue_of,
    pointer_of,
    value_of,
    wide,
)
from usdt.engine.programs.events import EventKind
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    Choose,
    ChooseBytes,
    CompareBytes,
    Element,
    Emit,
    If,
    JoinSteps,
    MakeTuple,
    MapAddress,
    Read,
    ReadText,
    Scalar,
    Text,
    VariableBytes,
    saved,
)
from usdt.engine.programs.types import (
    BOOLEAN,
    INT64,
    UINT64,
    AggregateType,
    ArrayType,
    IntegerType,
    PointerType,
    StringType,
    TupleType,
    bytes_of,
    size_of,
    spelled,
)

if TYPE_CHECKING:
    from usdt.base.errors import LanguageError
    from usdt.engine.compiler.ir import LValue, Node
    from usdt.engine.programs.typed import Step, Value
    from usdt.engine.programs.types import Type

__all__ = ("OperatorChecker",)

_ORDER = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OF_TRUTHS = ("+", "-", "&", "|", "^")  # of two truths they give one
_CHARACTER = IntegerType(1, signed=True)
_NOWHERE = language.Name("it", 0, 0)


class OperatorChecker(CastChecker):
    """A checker of expressions with operators."""

    # ------------------------------------------------------------ operators

    def _unary(self, node: tree.Unary) -> Value:
        if node.op == "*":
            return self._follow(node)
        if node.op == "&":
            return self._address_of(node)
        operand = self.number(node.operand, node.op)
        if node.op == "!":
            return Scalar(fold(Not(operand.node)), BOOLEAN, operand.before)
        inner = wide(operand)
        if node.op == "+":
            return replace(operand, node=inner)
        signed = node.op == "-" or inner.type.signed
        made = fold(Arithmetic(node.op, inner, None, S64 if signed else U64))
        if node.op == "-" and isinstance(made, Number) and isinstance(operand.node, Number):
            return replace(literal(made.value), before=operand.before)
        return Scalar(made, INT64 if signed else UINT64, operand.before)

    def _binary(self, node: tree.Binary) -> Value:
        left, changes = self.value(node.left), self.changes
        right = self.value(node.right)
        if not isinstance(left, Scalar) or not isinstance(right, Scalar):
            return self._compare_bytes(node, left, right)
        left = self.kept(left, changes)
        if node.op in ("&&", "||"):
            return self._logic(node, left, right)
        pointers = isinstance(left.type, PointerType), isinstance(right.type, PointerType)
        if node.op in ("+", "-") and any(pointers) and not all(pointers):
            return self._move(node, left, right)
        if node.op not in _ORDER:
            return self.arithmetic(node.op, left, self.divisor(node, node.op, right))
        one, two, kind = _in_one_type(node.op, left, right)
        made = fold(Compare(node.op, one, two, kind))
        return Scalar(made, BOOLEAN, (*left.before, *right.before))

    def divisor(self, node: tree.Expression | tree.Statement, op: str, right: Scalar) -> Scalar:
        """Return the right side of an operator; a division warns if it is 0 at a hit."""
        if op not in ("/", "%") or isinstance(right.node, Number):
            return right
        kept = self.new_variable(right.type)
        what = "Divide or modulo by 0 detected. This can lead to unexpected results."
        text = str(self.error(node, f"WARNING: {what} 1 is being used as the result."))
        warning = Emit(self.state.event(EventKind.WARNING, (), text))
        divisor = Scalar(fold(Convert(saved(kept), right.node.type)), right.type)
        check = JoinSteps((If(divisor, (), (warning,)),), constant(0))
        return replace(divisor, before=((kept, right), (self.new_variable(), check)))

    def arithmetic(self, op: str, left: Scalar, right: Scalar) -> Scalar:
        """Return the result of an operator on two numbers."""
        one, two, kind = _in_one_type(op, left, right)
        if op in ("/", "%") and two == Number(0, kind):
            return replace(constant(1), before=(*left.before, *right.before))
        if op in ("<<", ">>"):
            one, two = wide(left), wide(right)
            kind = one.type
        before = (*left.before, *right.before)
        made = fold(Arithmetic(op, one, two, kind))
        if left.type == right.type == BOOLEAN and op in _OF_TRUTHS:
            return Scalar(fold(Not(fold(Not(made)))), BOOLEAN, before)
        if isinstance(made, Number) and all(map(_is_literal, (left, right))):
            return replace(literal(made.value), before=before)
        signed = kind.signed or op == "-"
        return Scalar(made, INT64 if signed else UINT64, before)

    def _logic(self, node: tree.Binary, left: Scalar, right: Scalar) -> Scalar:
        # The right side is computed only if the left one does not decide.
        if not right.before:
            made = fold(ShortCircuit(node.op, left.node, right.node))
            return Scalar(made, BOOLEAN, left.before)
        true = Scalar(fold(Not(fold(Not(right.node)))), BOOLEAN, right.before)
        decided = replace(constant(int(node.op == "||")), type=BOOLEAN)
        sides = (decided, true) if node.op == "||" else (true, decided)
        return self.step(Choose(left, *sides), BOOLEAN)

    def _move(self, node: tree.Binary, left: Scalar, right: Scalar) -> Scalar:
        # An address and a number: the unit is the size of the target.
        pointer, count = (left, right) if isinstance(left.type, PointerType) else (right, left)
        if node.op == "-" and pointer is right:
            raise self.error(node, "an address cannot be subtracted from a number")
        return replace(self.moved(pointer, count, node.op), before=(*left.before, *right.before))

    def moved(self, pointer: Scalar, count: Scalar, op: str) -> Scalar:
        """Return an address that is moved by a number of targets; ``op`` is ``+`` or ``-``."""
        whole = pointer_of(pointer)
        if not isinstance(whole, PointerExpr):
            raise TypeError(pointer)
        made = moved(whole, wide(count), op)
        return Scalar(made.address, pointer.type, (*pointer.before, *count.before))

    def _compare_bytes(self, node: tree.Binary, left: Value, right: Value) -> Scalar:
        texts = isinstance(left.type, StringType) and isinstance(right.type, StringType)
        if isinstance(left, Text) and isinstance(right, Text) and node.op in _ORDER:
            return Scalar(Number(int(_ORDER[node.op](left.text, right.text)), S64), BOOLEAN)
        if node.op not in ("==", "!=") or isinstance(left, Scalar) or isinstance(right, Scalar):
            reason = f"{node.op} does not go with {spelled(left.type)} and {spelled(right.type)}"
            raise self.error(node, reason)
        both = left.type if texts else self.state.common(left.type, right.type)
        if both is None:
            reason = f"{spelled(left.type)} and {spelled(right.type)} cannot be compared"
            raise self.error(node, reason)
        if not texts:
            left, right = self.filled(left, both), self.filled(right, both)
        if isinstance(left, Scalar) or isinstance(right, Scalar):
            raise TypeError(both)
        found = self.step(CompareBytes(left, right), BOOLEAN)
        return found if node.op == "==" else replace(found, node=fold(Not(found.node)))

    def _ternary(self, node: tree.Ternary) -> Value:
        condition = self.condition(node.condition)
        return self.choice(node, condition, self.value(node.then), self.value(node.otherwise))

    def choice(self, node: tree.Expression, condition: Scalar, yes: Value, no: Value) -> Value:
        """Return one of two values of one type."""
        if isinstance(yes, Scalar) and isinstance(no, Scalar):
            kind = self.state.common(yes.type, no.type) or INT64
            return self.step(Choose(condition, yes, no), kind)
        if isinstance(yes, Scalar) or isinstance(no, Scalar):
            reason = f"one side is {spelled(yes.type)}, the other {spelled(no.type)}"
            raise self.error(node, reason)
        both = self.state.common(yes.type, no.type)
        if both is None:
            reason = f"one side is {spelled(yes.type)}, the other {spelled(no.type)}"
            raise self.error(node, reason)
        sides = self.filled(yes, both), self.filled(no, both)
        if isinstance(sides[0], Scalar) or isinstance(sides[1], Scalar):
            raise TypeError(both)
        return ChooseBytes(condition, sides[0], sides[1], both)

    def _tuple(self, node: tree.Tuple) -> Value:
        elements = tuple(self._storable(one) for one in node.elements)
        return MakeTuple(elements, TupleType(tuple(one.type for one in elements)))

    def _record(self, node: tree.Record) -> Value:
        elements = tuple(self._storable(one.value) for one in node.fields)
        names = tuple(one.name for one in node.fields)
        return MakeTuple(elements, TupleType(tuple(one.type for one in elements), names))

    def _storable(self, node: tree.Expression) -> Value:
        value = self.value(node)
        self.key_type(value, node)
        return value

    # ------------------------------------------------------------ memory

    def _follow(self, node: tree.Unary) -> Value:
        operand = self.number(node.operand, "*")
        kind = operand.type
        if isinstance(kind, IntegerType) and kind.size == 8:  # an address, as of kaddr()
            return Scalar(fold(Deref(wide(operand), U64)), UINT64, operand.before)
        if not isinstance(kind, PointerType):
            raise self.error(node, f"* follows a pointer, not {spelled(kind)}: cast it first")
        return self.at(node, operand, kind)

    def _address_of(self, node: tree.Unary) -> Scalar:
        # An address in memory of the program, as a number: it is read as those of the kernel are.
        target = node.operand
        if not isinstance(target, tree.Variable | tree.Map):
            raise self.error(node, "& takes a variable or a map without keys")
        value = self.value(target)
        kind = value.type
        if isinstance(target, tree.Map):
            found, key = self.place(target)
            if isinstance(found.value, AggregateType):
                what_it_holds = f"{target.name} holds {found.value.function.value}()"
                raise self.error(node, f"{what_it_holds}, which has no address")
            what: MapAddress | VariableBytes = MapAddress(found.variable, key)
        else:
            variable = self.lookup(target.name)
            if variable is None:
                raise TypeError(target.name)
            what = VariableBytes(variable, kind)
        pointer = PointerType(
            ValueType(ValueClass.BYTES, size_of(kind)),
            kernel=True,
            spelling=f"{spelled(kind)} *",
            value=kind,
        )
        address = self.new_variable(pointer)
        return Scalar(saved(address), pointer, ((address, what),))

    def _member(self, node: tree.Member) -> Value:
        if isinstance(node.object, tree.Identifier) and node.object.name == "args":
            return self.named(node.name, node)
        return self.member(node, self.value(node.object))

    def member(self, node: tree.Member, whole: Value) -> Value:
        """Return the member ``node.name`` of a value: of a record, a structure or a pointer.

        Raises:
            LanguageError: it has none of the name.
        """
        if isinstance(whole.type, TupleType) and not isinstance(whole, Scalar):
            if node.name not in whole.type.names:
                known = ", ".join(whole.type.names)
                raise self.error(node, f"the record has no field {node.name}; it has {known}")
            return self.element(whole, whole.type.names.index(node.name))
        arrow = isinstance(whole, Scalar)  # bpftrace takes . for -> and -> for . as well
        ask = language.Member(_NOWHERE, node.name, arrow, node.start, node.end)
        if isinstance(whole, Scalar):
            return self._member_of_pointer(node, whole, ask)
        found = lvalue_of(whole, self.new_variable)
        if found is None:
            raise self.error(node, f"{spelled(whole.type)} has no members")
        target, types, before = found
        made = self.asked(node, lambda known: known.member(ask, target), types)
        if made is None:
            raise self._no_number(node, whole.type)
        kernel = target.kernel
        return value_of(made, types, before, self.state.max_string, in_program=kernel)

    def _member_of_pointer(self, node: tree.Member, whole: Scalar, ask: language.Member) -> Value:
        kind = whole.type
        if not isinstance(kind, PointerType) or kind.types is None:
            reason = f"{spelled(kind)} has no members: cast it, as in (struct file *)arg0"
            raise self.error(node, reason)
        target = pointer_of(whole)
        made = self.asked(node, lambda types: types.member(ask, target), kind.types)
        if made is None:
            raise self._no_number(node, kind)
        return value_of(made, kind.types, whole.before, self.state.max_string)

    def _no_number(self, node: tree.Member, kind: Type) -> LanguageError:
        # Type information has the member; values of its type are not the language's.
        reason = f"the member {node.name} of {spelled(kind)} is no integer, such as a float"
        return self.error(node, f"{reason}: print() shows the whole structure")

    def _tupleaccess(self, node: tree.TupleAccess) -> Value:
        whole = self.value(node.object)
        kind = whole.type
        if isinstance(whole, Scalar) or not isinstance(kind, TupleType):
            raise self.error(node, f"{spelled(kind)} is no tuple")
        if not 0 <= node.index < len(kind.elements):
            reason = f"the tuple has {len(kind.elements)} elements, 0 to {len(kind.elements) - 1}"
            raise self.error(node, reason)
        return self.element(whole, node.index)

    def _index(self, node: tree.Index) -> Value:
        whole, index = self.value(node.object), self.number(node.index, "an index")
        if isinstance(whole.type, TupleType) and not isinstance(whole, Scalar):
            at = self.integer(node.index, "the index of a tuple")
            access = tree.TupleAccess(node.object, at, node.start, node.end)
            return self._tupleaccess(access)
        ask = language.Index(_NOWHERE, _NOWHERE, node.start, node.end)
        if isinstance(whole.type, StringType) and not isinstance(whole, Scalar):
            whole = Element(whole, 0, ArrayType(_CHARACTER, whole.type.size))
        if isinstance(whole, Scalar):
            kind = whole.type
            if not isinstance(kind, PointerType):
                raise self.error(node, f"{spelled(kind)} has no elements")
            pointer = pointer_of(whole)
            if not isinstance(pointer, PointerExpr):
                raise TypeError(kind)
            before = (*whole.before, *index.before)
            moved_by = moved(pointer, wide(index), "+")
            return self.at(node, Scalar(moved_by.address, kind, before), kind)
        found = lvalue_of(whole, self.new_variable)
        if found is None:
            raise self.error(node, f"{spelled(whole.type)} has no elements")
        if isinstance(whole.type, ArrayType) and isinstance(index.node, Number):
            at, count = index.node.value, whole.type.count
            if count and not 0 <= at < count:
                reason = f"the index {at} is out of bounds for array of size {count}"
                raise self.error(node.index, reason)
        target, types, before = found
        made = self.asked(node, lambda known: known.index(ask, target, wide(index)), types)
        if made is None and isinstance(whole.type, ArrayType):
            return self._element_at(whole.type.element, index, target, before)
        if made is None:
            raise self.error(node, f"{spelled(whole.type)} has no elements")
        steps, kernel = (*before, *index.before), target.kernel
        return value_of(made, types, steps, self.state.max_string, in_program=kernel)

    def _element_at(
        self, kind: Type, index: Scalar, target: LValue, before: tuple[Step, ...]
    ) -> Value:
        # An element of an array whose type is not from type information.
        offset = fold(Arithmetic("*", wide(index), Number(bytes_of(kind), S64), S64))
        address = fold(Arithmetic("+", target.address, fold(Convert(offset, U64)), U64))
        steps = (*before, *index.before)
        if isinstance(kind, IntegerType):
            size = ValueType(ValueClass.SIGNED if kind.signed else ValueClass.UNSIGNED, kind.size)
            return Scalar(Deref(address, size, None, target.kernel), kind, steps)
        if isinstance(kind, PointerType):
            return Scalar(Deref(address, U64, None, target.kernel), kind, steps)
        whole = Scalar(address, PointerType(kernel=target.kernel), steps)
        return ReadText(whole, kind) if isinstance(kind, StringType) else Read(whole, kind)


def _in_one_type(op: str, left: Scalar, right: Scalar) -> tuple[Node, Node, ValueType]:
    # Two numbers as ones of 64 bits, and their type. A constant is unsigned beside a number that
    # is, unless it is negative. Of a signed and an unsigned number both are signed, as in bpftrace,
    # but unsigned in divisions. Comparisons are those of C.
    sides = (left, right)
    unsigned = [one for one in sides if _is_unsigned(one)]
    as_unsigned = [one for one in sides if one in unsigned or _is_natural(one)]
    mixed = S64 if op not in ("/", "%") else U64
    if op in _ORDER:
        sizes = [one.type.size for one in unsigned if isinstance(one.type, IntegerType)]
        mixed = U64 if len(sizes) < len(unsigned) or 8 in sizes else S64
    kind = S64 if op == "-" or not unsigned else U64 if len(as_unsigned) == 2 else mixed
    return fold(Convert(wide(left), kind)), fold(Convert(wide(right), kind)), kind


def _is_unsigned(value: Scalar) -> bool:
    kind = value.type
    return kind != BOOLEAN and not (isinstance(kind, IntegerType) and kind.signed)


def _is_literal(value: Scalar) -> bool:
    return (
        isinstance(value.node, Number) and isinstance(value.type, IntegerType) and value.type.signed
    )


def _is_natural(value: Scalar) -> bool:
    return value.type == BOOLEAN or (isinstance(value.node, Number) and value.node.value >= 0)
