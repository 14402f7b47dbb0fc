"""The check of statements and blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.compiler.ir import Number
from usdt.engine.programs.check.functions.aggregates import AGGREGATES
from usdt.engine.programs.check.helper_errors import HelperErrorChecker
from usdt.engine.programs.check.nodes import constant
from usdt.engine.programs.check.state import TypeNotKnownError
from usdt.engine.programs.events import EventKind
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    AddToMap,
    Emit,
    Evaluate,
    ForMap,
    If,
    JoinBytes,
    JoinSteps,
    Leave,
    Loop,
    Scalar,
    SetMap,
    SetVariable,
    Statement,
    VariableBytes,
)
from usdt.engine.programs.types import (
    INT64,
    NOTHING,
    Aggregate,
    AggregateType,
    NoType,
    PointerType,
    TupleType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.programs.syntax.program import Probe
    from usdt.engine.programs.typed import Value
    from usdt.engine.programs.variables import Variable

__all__ = ("StatementChecker",)

_MOST_UNROLLED = 100


class StatementChecker(HelperErrorChecker):
    """A checker of the statements of one probe at one attach point."""

    def probe(self, node: Probe) -> tuple[Statement, ...]:
        """Return what a probe does at a hit.

        Raises:
            LanguageError: a name is unknown, or values do not fit.
        """
        before = tuple(self._outliving())
        condition = None if node.predicate is None else self.condition(node.predicate)
        body = (*before, *self.block(node.block))
        return body if condition is None else (If(condition, body),)

    def _outliving(self) -> Iterator[SetVariable]:
        # Until bpftrace 0.21 a variable lived until the end of the probe: scripts assign to it in
        # both branches of an if, and use it behind.
        for (index, name), start in self.state.outlive.items():
            kind = self.state.variables.get((index, start))
            if index == self.site.index and kind is not None:
                made = self.scopes[0][name] = self.new_variable(kind)
                self.made_at[made.number] = start
                yield SetVariable(made, self.nothing(kind))

    def block(self, node: tree.Block) -> tuple[Statement, ...]:
        """Return the statements of a block, which has a scope of its own."""
        self.scopes.append({})
        made = [one for statement in node.body for one in self.statement(statement)]
        for name, variable in self.scopes.pop().items():
            self.ended.setdefault(name, variable)
        return tuple(made)

    def statement(self, node: tree.Statement) -> tuple[Statement, ...]:
        """Return what a statement does; nothing, if that is not known in this pass."""
        try:
            return self._statement(node)
        except TypeNotKnownError:
            return ()

    def _statement(self, node: tree.Statement) -> tuple[Statement, ...]:
        match node:
            case tree.Assignment():
                return self._assignment(node)
            case tree.Declaration():
                return self._declaration(node)
            case tree.ExpressionStatement(expression=inner):
                return self._expression(inner)
            case tree.If():
                return self._if_statement(node)
            case tree.Block():
                return self.block(node)
            case tree.While():
                body = self.block(node.block)
                return (Loop(None, self.condition(node.condition), body),)
            case tree.Unroll():
                return self._unroll(node)
            case tree.For():
                return self._for(node)
            case tree.Break():
                return (Leave("break"),)
            case tree.Continue():
                return (Leave("continue"),)
            case tree.Return():
                return self._return(node)
            case _:
                if isinstance(node, tree.Import):
                    raise self.error(node, "import stands before the probes, not in one")
                raise self.error(node, f"{type(node).__name__.lower()} is not supported yet")

    def _return(self, node: tree.Return) -> tuple[Statement, ...]:
        leave = Leave("return")
        if node.value is None:
            return (leave,)
        if self.site.kind != "test":  # nobody takes it
            return (Evaluate(self.value(node.value)), leave)
        result = self.number(node.value, "the result of a test")
        return (Emit(self.state.event(EventKind.RETURN, (INT64,)), (result,)), leave)

    def _expression(self, node: tree.Expression) -> tuple[Statement, ...]:
        if isinstance(node, tree.Call):
            made = self.statement_of(node)
            if made is not None:
                return made
        if isinstance(node, tree.Ternary):
            condition = self.condition(node.condition)
            yes, no = self._expression(node.then), self._expression(node.otherwise)
            return (If(condition, yes, no),)
        return (Evaluate(self.value(node)),)

    def _if_statement(self, node: tree.If) -> tuple[Statement, ...]:
        if isinstance(node.condition, tree.Comptime):
            chosen = self._chosen(node, node.condition)
            if isinstance(chosen, tree.If):
                return self._if_statement(chosen)
            return () if chosen is None else self.block(chosen)
        condition = self.condition(node.condition)
        known = condition.node.value if isinstance(condition.node, Number) else None
        yes = self._branch(node.then, left_out=known == 0)
        no = () if node.otherwise is None else self._branch(node.otherwise, left_out=bool(known))
        return (If(condition, yes, no),)

    def _branch(self, node: tree.Block | tree.If, *, left_out: bool) -> tuple[Statement, ...]:
        self.left_out += left_out
        made = self._if_statement(node) if isinstance(node, tree.If) else self.block(node)
        self.left_out -= left_out
        return made

    def _chosen(self, node: tree.If, condition: tree.Comptime) -> tree.Block | tree.If | None:
        # The branch that is left of ``if comptime``; the other one is not checked.
        found = self.number(condition, "a condition")
        if not isinstance(found.node, Number):
            raise TypeError(found)
        return node.then if found.node.value else node.otherwise

    # ------------------------------------------------------------ assignments

    def _assignment(self, node: tree.Assignment) -> tuple[Statement, ...]:
        if isinstance(node.target, tree.Discard):
            return (Evaluate(self.value(node.value)),)
        if isinstance(node.target, tree.Variable):
            return (self._assign_variable(node, node.target),)
        return (self._assign_map(node, node.target),)

    def _operand(self, node: tree.Assignment, before: Value) -> Value:
        # The value of ``target op= value``.
        changes = self.changes
        right = self.value(node.value)
        if node.op == "=":
            return right
        if not isinstance(before, Scalar) or not isinstance(right, Scalar):
            raise self.error(node, f"{node.op} needs numbers")
        op = node.op[:-1]
        if op in ("+", "-") and isinstance(before.type, PointerType):
            return self.moved(self.kept(before, changes), right, op)
        return self.arithmetic(op, self.kept(before, changes), self.divisor(node, op, right))

    def _assign_variable(self, node: tree.Assignment, target: tree.Variable) -> SetVariable:
        found = self.lookup(target.name)
        if node.op != "=":
            value = self._operand(node, self._variable(target))
        else:
            value = self.value(node.value)
        if isinstance(value.type, NoType | AggregateType):
            raise self.error(node.value, f"{target.name}: this has no value")
        return self._set(target, found, value)

    def _set(self, target: tree.Variable, found: Variable | None, value: Value) -> SetVariable:
        where = (self.site.index, target.start if found is None else self.made_at[found.number])
        kind = self.state.widen_variable(where, target.name, value.type, target.start)
        if found is None:
            found = self.new_variable(kind)
            self.made_at[found.number] = target.start
            self.scopes[-1][target.name] = found
        self.changes += 1
        return SetVariable(found, self.filled(value, kind))

    def _declaration(self, node: tree.Declaration) -> tuple[Statement, ...]:
        self._check_new(node.variable)
        if node.type is not None:
            kind = self.type_of(node.type)
            value = self.nothing(kind)
            if node.value is not None:
                value = self.converted(node, self.value(node.value), kind)
        elif node.value is not None:
            value = self.value(node.value)
        else:
            known = self.state.variables.get((self.site.index, node.variable.start))
            if known is None and not self.state.guessing:  # an assignment will tell
                made = self.scopes[-1][node.variable.name] = self.new_variable(NOTHING)
                self.made_at[made.number] = node.variable.start
                self.not_known_yet()
            value = self.nothing(INT64 if known is None else known)
        return (self._set(node.variable, None, value),)

    def assigned(self, target: tree.Variable, value: Value) -> SetVariable:
        """Return the statement that gives a variable a value."""
        return self._set(target, self.lookup(target.name), value)

    def _check_new(self, variable: tree.Variable) -> None:
        # The first scope has variables of blocks that have ended, which may be declared again.
        if any(variable.name in scope for scope in self.scopes[1:]):
            reason = f"{variable.name} was already declared: variable shadowing is not allowed"
            raise self.error(variable, reason)

    def _assign_map(self, node: tree.Assignment, target: tree.Map | tree.MapAccess) -> Statement:
        found, key = self.place(target)
        value = node.value
        if isinstance(value, tree.Call) and value.function in AGGREGATES:
            if node.op != "=":
                raise self.error(node, f"{node.op} does not go with {value.function}()")
            kind, number = self.aggregate(value)
            whole = self.state.widen_value(found, kind, node.start)
            kind = whole if isinstance(whole, AggregateType) else kind
            moment = self.moment() if kind.function is Aggregate.TSERIES else None
            return AddToMap(found.variable, key, kind, number, found.in_array, moment)
        before = constant(0) if node.op == "=" else self.value(target)
        stored = self._operand(node, before)
        own = self.type_in_map(stored, node.value)
        widened = self.state.widen_value(found, own, node.start)
        return SetMap(found.variable, key, self.filled(stored, widened), widened)

    # ------------------------------------------------------------ loops

    def _unroll(self, node: tree.Unroll) -> tuple[Statement, ...]:
        count = self.integer(node.count, "unroll()")
        if not 1 <= count <= _MOST_UNROLLED:
            raise self.error(node.count, f"unroll() takes 1 to {_MOST_UNROLLED}, not {count}")
        return tuple(one for _ in range(count) for one in self.block(node.block))

    def _for(self, node: tree.For) -> tuple[Statement, ...]:
        self._check_new(node.variable)
        if isinstance(node.iterable, tree.Range):
            first = self.number(node.iterable.first, "a range")
            last = self.number(node.iterable.last, "a range")
            self.scopes.append({})
            variable = self.new_variable(INT64)
            self.scopes[-1][node.variable.name] = variable
            self.made_at[variable.number] = node.variable.start
            self.state.variables.setdefault((self.site.index, node.variable.start), INT64)
            body = self.block(node.block)
            self.scopes.pop()
            times = self.arithmetic("-", last, first)
            return (Loop(times, None, body, variable, first),)
        if not isinstance(node.iterable, tree.Map):
            raise self.error(node.iterable, "for takes a map or a range, as in 0..10")
        return self._for_map(node, node.iterable)

    def _for_map(self, node: tree.For, whole: tree.Map) -> tuple[Statement, ...]:
        found = self.entries_of(whole)
        if found.keyed is False:
            raise self.error(whole, f"{whole.name} has no keys over which for could go")
        if (found.key is None or found.value is None) and not self.state.final:
            self.not_known_yet()
        key, value = found.key or INT64, found.value or INT64
        aggregate = value if isinstance(value, AggregateType) else None
        kind = TupleType((key, INT64 if aggregate is not None else value))
        self.scopes.append({})
        variable = self.new_variable(kind)
        number = None
        if aggregate is not None:
            taken = self.element(VariableBytes(variable, kind), 0)
            number = self.aggregate_number(whole, found, taken, aggregate)
        self.scopes[-1][node.variable.name] = variable
        body = self.block(node.block)
        self.scopes.pop()
        return (ForMap(found.variable, variable, kind, body, number),)

    # ------------------------------------------------------------ blocks as values

    def _if(self, node: tree.If) -> Value:
        if node.otherwise is None:
            raise self.error(node, "this if has no value: it has no else")
        if isinstance(node.condition, tree.Comptime):
            return self.value(self._chosen(node, node.condition) or node.otherwise)
        condition = self.condition(node.condition)
        return self.choice(node, condition, self.value(node.then), self.value(node.otherwise))

    def _block(self, node: tree.Block) -> Value:
        if node.value is None:
            raise self.error(node, "this block has no value: its last expression ends with a ;")
        self.scopes.append({})
        made = [one for statement in node.statements for one in self.statement(statement)]
        value = self.value(node.value)
        self.scopes.pop()
        if not made:
            return value
        if isinstance(value, Scalar):
            return self.step(JoinSteps(tuple(made), value), value.type)
        return JoinBytes(tuple(made), value, value.type)
