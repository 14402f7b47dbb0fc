"""The nodes of types, expressions and statements, before any name is looked up.

Every node has ``start`` and ``end``, offsets in the text of the program, so that a later error can
point at it. They do not count when nodes are compared. No tree is higher than the parser's
``MAX_HEIGHT``, so that code may walk it recursively. The names are those of bpftrace's language.
"""

from __future__ import annotations

from typing import Literal

from usdt.base.frozen import field, frozen

__all__ = (
    "Access", "ArrayType", "Assignment", "Binary", "Block", "Boolean", "Break", "Call", "Cast",
    "Composite", "Comptime", "Constant", "Continue", "Declaration", "Discard", "Expression",
    "ExpressionStatement", "For", "Identifier", "If", "Import", "Increment", "Index", "Integer",
    "Jump", "Loop", "Map", "MapAccess", "Member", "NamedType", "OffsetOf", "Operation",
    "ParameterCount", "PointerType", "PositionalParameter", "Range", "Record", "RecordField",
    "Reference", "Return", "SizeOf", "Statement", "String", "Target", "Ternary", "Tuple",
    "TupleAccess", "Type", "TypeInfo", "TypeOf", "TypeQuestion", "Unary", "Unroll", "Variable",
    "While",
)  # fmt: skip


@frozen
class NamedType:
    """A type that has a name: ``int32``, ``unsigned long``, ``string``, ``struct file``.

    Attributes:
        tag: ``struct``, ``union`` or ``enum``; "" for the types of the language, those of C and
            typedefs.
        name: the name without the tag. Types of C have one spelling: ``unsigned long`` for
            ``long unsigned int``, ``signed char``, ``long long``. Qualifiers are left out.
    """

    tag: Literal["", "struct", "union", "enum"]
    name: str
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class PointerType:
    """A pointer to ``target``; one to a function is ``void *``."""

    target: Type
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class ArrayType:
    """An array: ``uint8[8]``. Of ``string``, ``buffer`` and ``inet``, ``length`` is the size.

    Attributes:
        length: the number of elements; None if it was left out: ``(uint8[])x``.
    """

    element: Type
    length: Expression | None
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class TypeOf:
    """The type of an expression, or of a type: ``typeof(@map)``, in place of a type."""

    operand: Expression | Type
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Integer:
    """An integer constant, 0…2^64-1; a duration (``1ms``) is its number of nanoseconds.

    A suffix as in ``1UL`` changes nothing.
    """

    value: int
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class String:
    """A string constant: its bytes, without a NUL at the end. Adjacent strings are one."""

    value: bytes
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Boolean:
    """``true`` or ``false``."""

    value: bool
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Identifier:
    """A name: a built-in (``pid``, ``args``), a constant, a macro without arguments, a parameter.

    Also the operand of ``sizeof(name)`` if ``name`` is not known to be a type, and the mode of
    ``kstack(perf)``.
    """

    name: str
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class PositionalParameter:
    """An argument of the script: ``$1`` is number 1."""

    number: int
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class ParameterCount:
    """The number of arguments of the script: ``$#``."""

    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Variable:
    """A scratch variable; ``name`` has the dollar sign: ``$x``."""

    name: str
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Map:
    """A map, or the value of a map without keys; ``name`` has the sign: ``@m``, ``@``."""

    name: str
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class MapAccess:
    """A value of a map: ``@m[key]``. Several keys are one :class:`Tuple`, as if written so."""

    map: Map
    key: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Call:
    """A call of a function, of a built-in with parentheses, or of a macro."""

    function: str
    arguments: tuple[Expression | Type, ...]
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Unary:
    """A unary operator; ``op`` is one of ``! ~ - + * &``. ``&`` is of a map or a variable."""

    op: str
    operand: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Increment:
    """``++`` or ``--`` (``op``) of a variable or map; its value is the new one if ``prefix``."""

    op: Literal["++", "--"]
    target: Variable | Map | MapAccess
    prefix: bool
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Binary:
    """A binary operator; ``op`` is a key of :data:`PRECEDENCE`."""

    op: str
    left: Expression
    right: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Ternary:
    """``condition ? then : otherwise``."""

    condition: Expression
    then: Expression
    otherwise: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Cast:
    """A cast: ``(type)operand``."""

    type: Type
    operand: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Member:
    """A member of a structure, a record or ``args``: ``object.name``, or ``object->name``."""

    object: Expression
    name: str
    arrow: bool
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class TupleAccess:
    """An element of a tuple: ``object.0``."""

    object: Expression
    index: int
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Index:
    """An element of an array, a pointer or a tuple: ``object[index]``; not a :class:`MapAccess`."""

    object: Expression
    index: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Tuple:
    """A tuple: ``(1, "a")``, ``(1,)``, ``()``."""

    elements: tuple[Expression, ...]
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class RecordField:
    """A field of a record: ``name=value``."""

    name: str
    value: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Record:
    """A record: ``(x=1, y="a")``; it has at least one field, and no name twice."""

    fields: tuple[RecordField, ...]
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class SizeOf:
    """``sizeof(operand)``: bytes of a type, or of the type of an expression."""

    operand: Expression | Type
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class OffsetOf:
    """``offsetof(operand, a.b)``: bytes before a member; ``path`` has the names of members."""

    operand: Expression | Type
    path: tuple[str, ...]
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class TypeInfo:
    """``typeinfo(operand)``: a tuple that describes a type when the program is compiled."""

    operand: Expression | Type
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Comptime:
    """``comptime operand``: an expression that must be known when the program is compiled."""

    operand: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Block:
    """``{ … }``: the body of a probe, loop or macro, a statement, or an expression.

    Attributes:
        value: the last expression if no semicolon follows it, which is the value where the block
            is an expression; elsewhere it is one more statement: see :attr:`body`.
    """

    statements: tuple[Statement, ...]
    value: Expression | None
    start: int = field(compare=False)
    end: int = field(compare=False)

    @property
    def body(self) -> tuple[Statement, ...]:
        """All statements; the value is the last one, where nobody uses it."""
        value = self.value
        if value is None:
            return self.statements
        if isinstance(value, If | Block):
            return (*self.statements, value)
        return (*self.statements, ExpressionStatement(value, value.start, value.end))


@frozen
class If:
    """``if (condition) { … } else { … }``; as an expression, its value is that of a branch.

    Attributes:
        condition: a :class:`Comptime` for ``if comptime``.
        otherwise: the ``else`` branch; another :class:`If` for ``else if``; None without one.
    """

    condition: Expression
    then: Block
    otherwise: Block | If | None
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Discard:
    """``_``: what is assigned to it is evaluated and forgotten."""

    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Assignment:
    """``target op value``; ``op`` is ``=`` or a compound one: ``+=``, ``<<=``."""

    target: Target
    op: str
    value: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Declaration:
    """``let $x``, ``let $x: type``, ``let $x = value``, ``let $x: type = value``."""

    variable: Variable
    type: Type | None
    value: Expression | None
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class ExpressionStatement:
    """An expression whose value is not used; it is never an :class:`If` or a :class:`Block`."""

    expression: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class While:
    """``while (condition) { … }``."""

    condition: Expression
    block: Block
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Range:
    """``first..last``, integers from ``first`` up to the one before ``last``."""

    first: Expression
    last: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class For:
    """``for ($variable : iterable) { … }``; the iterable is a range or a map."""

    variable: Variable
    iterable: Range | Expression
    block: Block
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Unroll:
    """``unroll(count) { … }``: the block, ``count`` times."""

    count: Expression
    block: Block
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Break:
    """``break``."""

    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Continue:
    """``continue``."""

    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Return:
    """``return`` or ``return value``."""

    value: Expression | None
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Import:
    """``import "path"``, before the probes or in a block."""

    path: str
    start: int = field(compare=False)
    end: int = field(compare=False)


Type = NamedType | PointerType | ArrayType | TypeOf

Constant = Integer | String | Boolean
Reference = Identifier | PositionalParameter | ParameterCount | Variable | Map | MapAccess
Access = Member | TupleAccess | Index
Operation = Unary | Increment | Binary | Ternary | Cast
TypeQuestion = SizeOf | OffsetOf | TypeInfo
Composite = Call | Tuple | Record | Comptime | Block | If
Expression = Constant | Reference | Access | Operation | TypeQuestion | Composite

Target = Variable | Map | MapAccess | Discard
Loop = While | For | Unroll
Jump = Break | Continue | Return
Statement = Assignment | Declaration | ExpressionStatement | If | Block | Loop | Jump | Import
