"""The check of constants, names, variables and maps: syntax tree → typed values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.frozen import replace
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    S64,
    Arithmetic,
    Convert,
    Node,
    Number,
    PointerExpr,
)
from usdt.engine.compiler.resolve.conversions import moved
from usdt.engine.compiler.resolve.expressions import resolve
from usdt.engine.language import tree as language
from usdt.engine.programs.check.fields import field_value
from usdt.engine.programs.check.nodes import constant, literal, pointer_of, value_of, wide
from usdt.engine.programs.check.state import TypeNotKnownError
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    AggregateNumber,
    Computation,
    Element,
    ElementNumber,
    Increment,
    JoinSteps,
    MakeTuple,
    MapBytes,
    MapNumber,
    Padded,
    Scalar,
    SetVariable,
    Text,
    VariableBytes,
    saved,
)
from usdt.engine.programs.types import (
    BOOLEAN,
    INT64,
    NOTHING,
    UINT64,
    Aggregate,
    AggregateType,
    IntegerType,
    NoType,
    ShownAs,
    StringType,
    TupleType,
    Type,
    is_number,
    size_of,
    spelled,
)
from usdt.engine.programs.variables import Variable

if TYPE_CHECKING:
    from usdt.base.errors import LanguageError
    from usdt.engine.programs.check.site import Site
    from usdt.engine.programs.check.state import MapState, ProgramState
    from usdt.engine.programs.typed import Bytes, Step, Value

_SYSTEM_CALLS = "tracepoint:syscalls:"
_ZERO = constant(0)
_IN_BUCKETS = (Aggregate.HIST, Aggregate.LHIST, Aggregate.TSERIES)
_OCTAL = re.compile("[+-]?0[0-7]+")  # which int() does not take


def _text(text: bytes) -> Text:
    return Text(text, StringType(len(text) + 1))


def _is_constant(value: Value) -> bool:
    match value:
        case Scalar(node=Number()) | Text():
            return True
        case MakeTuple(elements=elements):
            return all(map(_is_constant, elements))
    return False


def _in_map(value: Value) -> Type:
    # The type of a value in a map.
    match value:
        case Scalar(node=Number(), type=IntegerType(shown=ShownAs.NUMBER, names=None, signed=True)):
            return INT64
        case MakeTuple(elements=elements, type=kind):
            return replace(kind, elements=tuple(map(_in_map, elements)))
    return value.type


class ValueChecker:
    """A checker of the values of one probe at one attach point.

    Args:
        state: the state of the whole program.
        site: the probe and the attach point.
    """

    def __init__(self, state: ProgramState, site: Site) -> None:
        self.state = state
        self.site = site
        self.scopes: list[dict[str, Variable]] = [{}]
        self.made_at: dict[int, int] = {}  # number of a variable → where it is made
        self.ended: dict[str, Variable] = {}  # of blocks that have ended
        self._number = 0
        self.left_out = 0  # conditions around that leave this out: they are known to be false
        self.changes = 0  # how often a variable has been changed so far

    def error(
        self, where: tree.Expression | tree.Statement | tree.Type, reason: str
    ) -> LanguageError:
        """Return an error that points at a node."""
        return self.state.error(where.start, reason)

    # ------------------------------------------------------------ kinds of values

    def value(self, node: tree.Expression) -> Value:
        """Return the value of an expression.

        Raises:
            LanguageError: a name is unknown, or operands do not fit.
        """
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None:
            raise self.error(node, f"{type(node).__name__} is not supported yet")
        found: Value = method(node)
        return found

    def number(self, node: tree.Expression, what: str = "") -> Scalar:
        """Return the value of an expression that must be a number."""
        found = self.value(node)
        if not isinstance(found, Scalar):
            before = f"{what}: " if what else ""
            reason = f"{before}expected a number, found {spelled(found.type)}"
            raise self.error(node, reason)
        return found

    def condition(self, node: tree.Expression) -> Scalar:
        """Return an expression that decides: a number."""
        try:
            return self.number(node, "a condition")
        except TypeNotKnownError:  # what it decides about may make the type known
            return _ZERO

    def text(self, node: tree.Expression, what: str) -> bytes:
        """Return the bytes of an expression that must be a constant string."""
        found = self.value(node)
        if not isinstance(found, Text):
            raise self.error(node, f"{what}: expected a constant string")
        return found.text

    def integer(self, node: tree.Expression, what: str) -> int:
        """Return the value of an expression that must be a constant number."""
        found = self.number(node, what)
        if not isinstance(found.node, Number):
            raise self.error(node, f"{what}: expected a constant number")
        return found.node.value

    def new_variable(self, type_: Type = UINT64) -> Variable:
        """Return a variable of its own, for a value that is computed before an expression."""
        self._number += 1
        return Variable(self._number, type_)

    def step(self, what: Computation, type_: Type, before: tuple[Step, ...] = ()) -> Scalar:
        """Return a number that is computed before the expression."""
        variable = self.new_variable(type_)
        node = self.signed(saved(variable), type_)
        return Scalar(node, type_, (*before, (variable, what)))

    def kept(self, value: Scalar, changes: int) -> Scalar:
        """Return a number as it was before variables were changed, if they were since ``changes``.

        Operands are evaluated from left to right: ``$n + $n++``.
        """
        if self.changes == changes or isinstance(value.node, Number):
            return value
        variable = self.new_variable(value.type)
        node = fold(Convert(saved(variable), wide(value).type))
        return Scalar(node, value.type, ((variable, value),))

    # ------------------------------------------------------------ constants

    def _integer(self, node: tree.Integer) -> Scalar:
        return literal(node.value)

    def _boolean(self, node: tree.Boolean) -> Scalar:
        return Scalar(Number(int(node.value), S64), BOOLEAN)

    def _string(self, node: tree.String) -> Text:
        return _text(node.value.split(b"\0", 1)[0])

    def _positionalparameter(self, node: tree.PositionalParameter) -> Value:
        word = self._argument(node) or "0"
        base = 8 if _OCTAL.fullmatch(word) else 0
        try:
            number = int(word, base)
        except ValueError:
            return _text(word.encode("utf-8", "surrogateescape"))
        if not -1 << 63 <= number < 1 << 64:
            reason = f"${node.number} is beyond 64 bits: {word}"
            raise self.error(node, f"{reason}; str(${node.number}) has it as text")
        return literal(number)

    def argument_text(self, node: tree.Expression) -> Text | None:
        """Return an argument of the script as text for str(); None if the node is another.

        ``$1 + 2`` is the argument without its first two bytes.
        """
        match node:
            case tree.PositionalParameter():
                text = self._argument(node)
                start = 0
            case tree.Binary(
                op="+", left=tree.PositionalParameter() as left, right=tree.Integer(value=start)
            ):
                text = self._argument(left)
            case _:
                return None
        return _text(text.encode("utf-8", "surrogateescape")[start:])

    def _argument(self, node: tree.PositionalParameter) -> str:
        given = self.state.arguments
        return given[node.number - 1] if 0 < node.number <= len(given) else ""

    def _parametercount(self, node: tree.ParameterCount) -> Scalar:  # noqa: ARG002
        return constant(len(self.state.arguments))

    def _comptime(self, node: tree.Comptime) -> Value:
        found = self.value(node.operand)
        if not _is_constant(found):
            raise self.error(node.operand, "comptime: this is not known before the program runs")
        return found

    # ------------------------------------------------------------ names

    def _identifier(self, node: tree.Identifier) -> Value:
        return self.builtin(node.name, node)

    def builtin(self, name: str, node: tree.Expression) -> Value:
        """Return the value of a built-in, an argument or a constant."""
        raise NotImplementedError

    def named(self, name: str, node: tree.Expression) -> Value:
        """Return an argument, or a built-in of the engine."""
        argument = self.site.scope.arguments.get(name)
        if argument is not None and self.site.kind == "tracepoint":
            of_process = self.site.scope.probe.startswith(_SYSTEM_CALLS)
            field = field_value(argument, self.state.max_string, of_process=of_process)
            if field is not None:
                return field
        return self.typed(resolve(language.Name(name, node.start, node.end), self.site.scope))

    def typed(self, node: Node, before: tuple[Step, ...] = ()) -> Value:
        """Return the value of an expression of the probe."""
        return value_of(node, self.site.scope.types, before, self.state.max_string)

    def _variable(self, node: tree.Variable) -> Value:
        found = self.lookup(node.name) or self._outliving_block(node.name)
        if found is None:
            if self.state.waiting:  # for the statement that makes it
                raise TypeNotKnownError
            raise self.error(node, f"{node.name} has no value here: nothing was assigned to it")
        return self.value_of_variable(found)

    def value_of_variable(self, found: Variable) -> Value:
        """Return the value that a variable has."""
        if found.type == NOTHING:
            self.not_known_yet()
        if is_number(found.type):
            return Scalar(self.signed(saved(found), found.type), found.type)
        return VariableBytes(found, found.type)

    def lookup(self, name: str) -> Variable | None:
        """Return a variable by its name; None if it is not in a scope."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def _outliving_block(self, name: str) -> Variable | None:
        # The next pass makes it a variable of the whole probe.
        found = self.ended.get(name)
        if found is not None:
            self.state.outlive[self.site.index, name] = self.made_at[found.number]
            self.state.changed(self.site.index)
        return found

    def signed(self, node: Node, type_: Type) -> Node:
        """Return a number that is saved with 64 bits, with the sign that its type has."""
        # A truth is the number 0 or 1, beside which others stay signed.
        if isinstance(type_, IntegerType) and (type_.signed or type_ == BOOLEAN):
            return fold(Convert(node, S64))
        return node

    # ------------------------------------------------------------ maps

    def _map(self, node: tree.Map) -> Value:
        return self.read_map(node, *self.place(node))

    def _mapaccess(self, node: tree.MapAccess) -> Value:
        return self.read_map(node, *self.place(node))

    def place(self, node: tree.Map | tree.MapAccess) -> tuple[MapState, Value]:
        """Return a map and the key of one of its values."""
        if isinstance(node, tree.Map):
            found = self.state.map(node.name, node.start)
            self.state.widen_key(found, INT64, node.start, keyed=False)
            return found, _ZERO
        found = self.state.map(node.map.name, node.start)
        return found, self.key(found, node.key)

    def entries_of(self, node: tree.Map | tree.MapAccess) -> MapState:
        """Return a map that has one entry for each key.

        Raises:
            LanguageError: it holds a histogram, which has more.
        """
        whole = node if isinstance(node, tree.Map) else node.map
        found = self.state.map(whole.name, whole.start)
        kind = found.value
        if isinstance(kind, AggregateType) and kind.function in _IN_BUCKETS:
            what = f"{whole.name} holds {kind.function.value}()"
            reason = "an entry for each bucket: use print(), clear(), zero()"
            raise self.error(node, f"{what}, {reason}")
        return found

    def key(self, found: MapState, node: tree.Expression) -> Value:
        """Return a key of a map, as wide as the widest of its keys."""
        key = self.value(node)
        kind = self.state.widen_key(found, self.type_in_map(key, node), node.start, keyed=True)
        return self.filled(key, kind)

    def key_type(self, key: Value, node: tree.Expression) -> Type:
        """Return the type of a key, or of a value that is stored."""
        if isinstance(key.type, NoType | AggregateType):
            raise self.error(node, f"{spelled(key.type)} is no value that can be stored")
        return key.type

    def type_in_map(self, value: Value, node: tree.Expression) -> Type:
        """Return the type of a key or value of a map; the kernel has none of 0 bytes.

        Constants have 64 bits there: probes that are found later may need them.
        """
        self.key_type(value, node)
        kind = _in_map(value)
        if not size_of(kind):
            raise self.error(node, f"{spelled(kind)} has no bytes that a map can store")
        return kind

    def filled(self, value: Value, type_: Type) -> Value:
        """Return a value as one of a type whose strings may be larger."""
        if value.type == type_ or isinstance(value, Scalar):
            return value
        match value, type_:
            case Text(text=text), StringType():
                return Text(text, type_)
            case _, TupleType(elements=types, names=names):
                own = value.type.names if isinstance(value.type, TupleType) else ()
                places = [own.index(name) for name in names] or [*range(len(types))]
                found = [self.element(value, place) for place in places]
                parts = zip(found, types, strict=True)
                made = tuple(self.filled(part, kind) for part, kind in parts)
                # The fields of a record may be in another order; they are computed in their own.
                return MakeTuple(made, type_, tuple(places.index(n) for n in range(len(places))))
        return Padded(value, type_)

    def element(self, whole: Bytes, index: int) -> Value:
        """Return an element of a tuple."""
        kind = whole.type
        if not isinstance(kind, TupleType):
            raise TypeError(spelled(kind))
        if isinstance(whole, MakeTuple):
            return whole.elements[index]
        inner, offset = kind.elements[index], kind.offset(index)
        if is_number(inner):
            return self.step(ElementNumber(whole, offset), inner)
        return Element(whole, offset, inner)

    def read_map(self, node: tree.Expression, found: MapState, key: Value) -> Value:
        """Return the value of a map for a key."""
        kind = found.value
        if kind is None:
            if self.state.final:
                raise self.error(
                    node, f"{found.variable.name} has no value: nothing is assigned to it"
                )
            self.not_known_yet()
            kind = INT64
        if isinstance(kind, AggregateType):
            return self.aggregate_number(node, found, key, kind)
        if is_number(kind):
            return self.step(MapNumber(found.variable, key), kind)
        return MapBytes(found.variable, key, kind)

    def not_known_yet(self) -> None:
        """Leave the statement out of this pass: it needs a type that is not known yet.

        Raises:
            TypeNotKnownError: this pass may find it.
        """
        if not self.state.guessing:
            self.state.waiting = True
            raise TypeNotKnownError

    def aggregate_number(
        self, node: tree.Expression, found: MapState, key: Value, kind: AggregateType
    ) -> Scalar:
        """Return what count() and the like have computed for a key."""
        if kind.function in _IN_BUCKETS:
            name = f"{found.variable.name} holds {kind.function.value}()"
            raise self.error(node, f"{name}: it can be printed, not read")
        signed = kind.signed and kind.function is not Aggregate.COUNT
        what = AggregateNumber(found.variable, key, kind)
        return self.step(what, INT64 if signed else UINT64)

    def _increment(self, node: tree.Increment) -> Scalar:
        by = 1 if node.op == "++" else -1
        if isinstance(node.target, tree.Variable):
            return self._increment_variable(node, node.target, by)
        found, key = self.place(node.target)
        kind = self.state.widen_value(found, INT64, node.start)
        return self.step(Increment(found.variable, key, by, not node.prefix), kind)

    def _increment_variable(self, node: tree.Increment, target: tree.Variable, by: int) -> Scalar:
        before = self._variable(target)
        variable = self.lookup(target.name)
        if variable is None or not isinstance(before, Scalar):
            raise self.error(node, f"{node.op} needs a number")
        self.changes += 1
        pointer = pointer_of(before)
        if isinstance(pointer, PointerExpr):  # the unit is the size of the target
            after = replace(before, node=moved(pointer, Number(by, S64), "+").address)
        else:
            after = replace(before, node=fold(Arithmetic("+", wide(before), Number(by, S64), S64)))
            signed = isinstance(before.type, IntegerType) and before.type.signed
            where = (self.site.index, self.made_at[variable.number])
            kind = INT64 if signed else UINT64
            self.state.widen_variable(where, target.name, kind, target.start)
        if node.prefix:
            return self.step(JoinSteps((SetVariable(variable, after),), before), before.type)
        kept = self.new_variable()
        steps = (
            (kept, before),
            (self.new_variable(), JoinSteps((SetVariable(variable, after),), _ZERO)),
        )
        return Scalar(self.signed(saved(kept), before.type), before.type, steps)
