"""Random programs, made by the grammar: trees whose text ``program_text`` gives.

The same seed gives the same program. They are valid as far as syntax goes; names and types mean
nothing. All nodes are at the place 0.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from usdt.engine.programs.syntax import program as p
from usdt.engine.programs.syntax import tree as t
from usdt.engine.programs.syntax.grammar.expressions import PRECEDENCE

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_NAMES = ("pid", "comm", "nsecs", "arg0", "args", "retval", "curtask", "AF_INET", "x")
_FUNCTIONS = ("str", "hist", "printf", "count", "kstack", "f")
_TYPES = ("int", "unsigned long", "uint8", "int64", "string", "void", "char", "bool")
_POINTS = ("begin", "kprobe:vfs_*", "interval:s:1", "usdt:/a/b.so:p:n", 't:"a b":c', "u:./a:f+0x4")


class Programs:
    """Makes the parts of one program."""

    def __init__(self, seed: int, *, depth: int = 4) -> None:
        self.random = random.Random(seed)
        self.depth = depth

    def program(self) -> p.Program:
        """A program with one part of each kind at most, and one to three probes."""
        some = self._some
        config = p.Config((p.ConfigValue("a_b", self._constant(), 0, 0),), 0, 0)
        return p.Program(
            config if self._chance(3) else None,
            tuple(some(lambda: t.Import("lib/a", 0, 0), 1)),
            tuple(some(self.definition, 2)),
            tuple(some(self._map_declaration, 1)),
            tuple(some(self._macro, 2)),
            tuple(some(self._function, 1)),
            tuple(self._probe() for _ in range(self.random.randint(1, 3))),
        )

    def definition(self) -> p.Definition:
        """A structure, a union, an enumeration or a typedef."""
        match self.random.randrange(4):
            case 0:
                constants = tuple(
                    p.Enumerator(f"C{i}", self._integer() if self._chance(2) else None, 0, 0)
                    for i in range(self.random.randint(1, 4))
                )
                return p.EnumDefinition("e", constants, 0, 0)
            case 1:
                return p.Typedef("t_t", self._declared_type(2), 0, 0)
        members = tuple(
            p.StructMember(f"m{i}", self._declared_type(2), None, 0, 0)
            for i in range(self.random.randint(0, 4))
        )
        bits = p.StructMember("bits", t.NamedType("", "int", 0, 0), self._integer(), 0, 0)
        tag = self.random.choice(("struct", "union"))
        return p.StructDefinition(tag, "s", (*members, bits), self._chance(4), 0, 0)

    def expression(self, depth: int | None = None) -> t.Expression:
        """An expression of at most this many levels, more or less."""
        left = self.depth if depth is None else depth
        if left <= 0:
            return self._leaf()
        return self.random.choice(self._inner())(left - 1)

    def block(self, depth: int) -> t.Block:
        """A block, with a value or without."""
        statements = tuple(self._some(lambda: self.statement(depth - 1), 3))
        value = self.expression(min(depth, 2)) if self._chance(3) else None
        if isinstance(value, t.If | t.Block):
            value = None
        if value is None and statements:
            # Without a semicolon the text of a last statement might be a value.
            statements = (*statements, t.Return(None, 0, 0))
        return t.Block(statements, value, 0, 0)

    def statement(self, depth: int) -> t.Statement:
        """A statement with blocks of at most this many levels."""
        if depth > 0 and self._chance(3):
            return self.random.choice(
                (
                    lambda: self._if(depth),
                    lambda: self.block(depth),
                    lambda: t.While(self.expression(2), self.block(depth), 0, 0),
                    lambda: t.Unroll(self._integer(), self.block(depth), 0, 0),
                    lambda: t.For(self._variable(), self._iterable(), self.block(depth), 0, 0),
                )
            )()
        match self.random.randrange(6):
            case 0:
                kind = self._type(1) if self._chance(2) else None
                value = self.expression(2) if self._chance(2) else None
                return t.Declaration(self._variable(), kind, value, 0, 0)
            case 1:
                return self.random.choice((t.Break(0, 0), t.Continue(0, 0)))
            case 2:
                return t.Return(self.expression(1), 0, 0)
            case 3:
                return t.Assignment(t.Discard(0, 0), "=", self.expression(2), 0, 0)
            case 4:
                op = self.random.choice(("=", "+=", "<<=", "%=", "^="))
                return t.Assignment(self._target(), op, self.expression(3), 0, 0)
        call = t.Call("print", (self.expression(3),), 0, 0)
        return t.ExpressionStatement(call, 0, 0)

    def _inner(self) -> tuple[Callable[[int], t.Expression], ...]:
        make = self.expression
        return (
            lambda d: t.Binary(self.random.choice(list(PRECEDENCE)), make(d), make(d), 0, 0),
            lambda d: t.Binary("&&", make(d), make(d), 0, 0),
            lambda d: t.Unary(self.random.choice("!~-*&"), make(d), 0, 0),
            lambda d: t.Ternary(make(d), make(d), make(d), 0, 0),
            lambda d: t.Cast(self._type(2), make(d), 0, 0),
            lambda d: t.Call(self.random.choice(_FUNCTIONS), self._list(d), 0, 0),
            lambda d: t.Member(make(d - 1), "member", self._chance(2), 0, 0),
            lambda d: t.TupleAccess(self._variable(), d, 0, 0),
            lambda d: t.Index(self._variable(), make(d), 0, 0),
            lambda d: t.MapAccess(t.Map("@m", 0, 0), make(d), 0, 0),
            lambda d: t.Tuple(self._list(d), 0, 0),
            self._record,
            self._increment,
            lambda _: t.SizeOf(t.PointerType(t.NamedType("struct", "s", 0, 0), 0, 0), 0, 0),
            lambda _: t.OffsetOf(t.NamedType("struct", "s", 0, 0), ("a", "b"), 0, 0),
            lambda d: t.TypeInfo(make(d), 0, 0),
            lambda d: t.Comptime(make(d), 0, 0),
        )  # fmt: skip

    def _record(self, depth: int) -> t.Expression:
        fields = (t.RecordField(name, self.expression(depth), 0, 0) for name in "ab")
        return t.Record(tuple(fields), 0, 0)

    def _increment(self, depth: int) -> t.Expression:
        del depth
        op = self.random.choice(("++", "--"))
        return t.Increment(op, self._target(), self._chance(2), 0, 0)

    def _leaf(self) -> t.Expression:
        return self.random.choice(
            (
                self._constant,
                self._variable,
                lambda: t.Map(self.random.choice(("@", "@m")), 0, 0),
                lambda: t.PositionalParameter(self.random.randint(1, 9), 0, 0),
                lambda: t.ParameterCount(0, 0),
                lambda: t.Identifier(self.random.choice(_NAMES), 0, 0),
            )
        )()

    def _constant(self) -> t.Constant:
        text = bytes(self.random.choices(b'ab"\\\n\x00\xff% ', k=self.random.randint(0, 5)))
        return self.random.choice(
            (self._integer(), t.String(text, 0, 0), t.Boolean(self._chance(2), 0, 0))
        )

    def _integer(self) -> t.Integer:
        return t.Integer(self.random.randrange(1 << self.random.choice((1, 4, 32, 64))), 0, 0)

    def _variable(self) -> t.Variable:
        return t.Variable(self.random.choice(("$a", "$b", "$long_name")), 0, 0)

    def _target(self) -> t.Variable | t.Map | t.MapAccess:
        map_ = t.Map("@m", 0, 0)
        return self.random.choice((self._variable(), map_, t.MapAccess(map_, self._leaf(), 0, 0)))

    def _iterable(self) -> t.Range | t.Expression:
        if self._chance(2):
            return t.Map("@m", 0, 0)
        return t.Range(self.expression(1), self.expression(1), 0, 0)

    def _if(self, depth: int) -> t.If:
        otherwise = self.random.choice((None, self.block(depth), None))
        return t.If(self.expression(2), self.block(depth), otherwise, 0, 0)

    def _type(self, depth: int) -> t.Type:
        if depth > 0 and self._chance(3):
            return t.PointerType(self._type(depth - 1), 0, 0)
        if self._chance(6):
            element = t.NamedType("", "uint8", 0, 0)
            return t.ArrayType(element, self._integer() if self._chance(2) else None, 0, 0)
        tag = self.random.choice(("", "", "struct", "union", "enum"))
        return t.NamedType(tag, "s" if tag else self.random.choice(_TYPES), 0, 0)

    def _declared_type(self, depth: int) -> t.Type:
        kind: t.Type = t.NamedType("", self.random.choice(("int", "char", "u_t", "long")), 0, 0)
        for _ in range(self.random.randint(0, depth)):
            if self._chance(2):
                kind = t.PointerType(kind, 0, 0)
            else:
                kind = t.ArrayType(kind, self._integer(), 0, 0)
        return kind

    def _map_declaration(self) -> p.MapDeclaration:
        return p.MapDeclaration(t.Map("@m", 0, 0), "lruhash", (self._integer(),), 0, 0)

    def _macro(self) -> p.Macro:
        parameters = (t.Variable("$a", 0, 0), t.Map("@m", 0, 0), t.Identifier("e", 0, 0))
        return p.Macro("mac", parameters, self.block(2), 0, 0)

    def _function(self) -> p.Function:
        parameter = p.Parameter(self._variable(), self._type(1), 0, 0)
        return p.Function("g", (parameter,), self._type(1), self.block(2), 0, 0)

    def _probe(self) -> p.Probe:
        points = self._some(lambda: p.AttachPoint(self.random.choice(_POINTS), "", 0, 0), 2)
        first = p.AttachPoint("begin", "", 0, 0)
        predicate = self.expression(2) if self._chance(3) else None
        return p.Probe((first, *points), predicate, self.block(3), 0, 0)

    def _chance(self, of: int) -> bool:
        return self.random.randrange(of) == 0

    def _list(self, depth: int) -> tuple[t.Expression, ...]:
        return tuple(self._some(lambda: self.expression(depth), 3))

    def _some(self, make: Callable[[], T], most: int) -> list[T]:
        return [make() for _ in range(self.random.randint(0, most))]
