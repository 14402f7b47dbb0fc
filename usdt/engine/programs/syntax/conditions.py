"""The conditions of ``#if``."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError
from usdt.engine.programs.syntax.grammar.expressions import ExpressionParser
from usdt.engine.programs.syntax.source import Source
from usdt.engine.programs.syntax.tree import Binary, Boolean, Identifier, Integer, Ternary, Unary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from usdt.engine.programs.syntax.defines import Define
    from usdt.engine.programs.syntax.tree import Expression

__all__ = ("condition_holds",)

_DEFINED = r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))"
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "||": lambda left, right: left or right,
    "&&": lambda left, right: left and right,
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<<": lambda left, right: left << min(max(right, 0), 64),
    ">>": lambda left, right: left >> min(max(right, 0), 64),
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_MASK = (1 << 64) - 1


def condition_holds(source: Source, start: int, text: str, defines: Mapping[str, Define]) -> bool:
    """Return whether ``text``, which follows ``#if``, is true; unknown names are 0, as in C.

    Raises:
        ProgramError: it is not a constant expression.
    """

    def defined(found: re.Match[str]) -> str:
        return str(int((found[1] or found[2]) in defines))

    condition = Source(re.sub(_DEFINED, defined, text), source.name)
    parser = ExpressionParser(condition, condition.text, defines)
    try:
        parser.load(0)
        tree = parser.expression()
        if parser.token.kind != "end":
            parser.fail("an operator, or the end of the line")
        return _value(condition, tree) != 0
    except LanguageError as err:
        raise source.error(start, f"in this condition: {err.reason}") from err


def _value(source: Source, tree: Expression) -> int:
    match tree:
        case Integer() | Boolean():
            return int(tree.value)
        case Identifier():
            return 0
        case Unary(op="!"):
            return int(not _value(source, tree.operand))
        case Unary(op="-"):
            return -_value(source, tree.operand)
        case Unary(op="~"):
            return ~_value(source, tree.operand)
        case Ternary():
            chosen = tree.then if _value(source, tree.condition) else tree.otherwise
            return _value(source, chosen)
        case Binary():
            return _binary(source, tree)
    raise source.error(tree.start, "expected numbers, names and operators")


def _binary(source: Source, tree: Binary) -> int:
    left, right = _value(source, tree.left), _value(source, tree.right)
    if tree.op in ("/", "%"):
        if right == 0:
            raise source.error(tree.start, "division by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if tree.op == "/" else left - quotient * right
    value = int(_OPERATIONS[tree.op](left, right))
    return value if abs(value) <= _MASK else value & _MASK
