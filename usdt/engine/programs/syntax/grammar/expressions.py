"""Parsing of expressions, with C's precedence of operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.programs.syntax.grammar.primaries import PrimaryParser
from usdt.engine.programs.syntax.tree import (
    Binary,
    Block,
    Cast,
    Comptime,
    Declaration,
    Increment,
    Index,
    Integer,
    Map,
    MapAccess,
    Member,
    Ternary,
    Tuple,
    TupleAccess,
    Unary,
    Variable,
)

if TYPE_CHECKING:
    from typing import Literal

    from usdt.engine.programs.syntax.tree import Expression

__all__ = ("PRECEDENCE", "ExpressionParser")

# Binary operators → precedence, C17 6.5.5 to 6.5.14: a larger number binds tighter. All are
# left-associative.
PRECEDENCE = {
    op: level
    for level, ops in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %"), 1
    )
    for op in ops.split()
}

_PREFIXES = frozenset(("!", "~", "-", "+", "*", "&"))
_COUNTS: dict[str, Literal["++", "--"]] = {"++": "++", "--": "--"}
_WORDS_OF_OTHERS = {"and": "&&", "or": "||", "not": "!", "mod": "%", "eq": "==", "ne": "!="}


class ExpressionParser(PrimaryParser):
    """Reads expressions."""

    def expression(self) -> Expression:
        """Read an expression: no assignment, because that is a statement.

        Raises:
            ProgramError: there is none.
        """
        self.enter(self.token)
        tree = self._binary(1)
        if self.token.text == "?":
            tree = self._ternary(tree)
        self.leave()
        return tree

    def predicate(self) -> Expression:
        """Read what stands between the slashes of a predicate; take both slashes.

        Raises:
            ProgramError: there is none, or it is not closed.
        """
        self.advance()
        if self.token.text == "/":
            self.fail("a condition between the slashes of the predicate")
        tree = self.expression()
        if self.token.text != "/":
            self.fail("an operator, or '/' and '{' after the predicate")
        self.advance()
        return tree

    def _ternary(self, condition: Expression) -> Expression:
        height = self.height
        self.advance()
        if self.token.text == ":":
            return self._or_else(condition, height)
        then = self.expression()
        height = max(height, self.height)
        self.expect(":", "between the two values after '?'")
        otherwise = self.expression()
        self.grow(condition.start, height, self.height)
        return Ternary(condition, then, otherwise, condition.start, otherwise.end)

    def _or_else(self, condition: Expression, height: int) -> Block:
        # "a ?: b" is a if that is true, else b; a is evaluated once.
        start = condition.start
        self.advance()
        otherwise = self.expression()
        self.grow(start, height, self.height)
        self.grow(start, self.height)
        kept = Variable(f"$?{start}", start, condition.end)
        made = Declaration(kept, None, condition, start, condition.end)
        chosen = Ternary(kept, kept, otherwise, start, otherwise.end)
        return Block((made,), chosen, start, otherwise.end)

    def _binary(self, lowest: int) -> Expression:
        left = self._unary()
        precedence = PRECEDENCE
        while True:
            op = self.token.text
            level = precedence.get(op, 0)
            if level < lowest:
                return left
            if op == "/" and self.peek().kind == "end":
                return left  # the end of a predicate
            height = self.height
            self.advance()
            # Operators that bind tighter are the right operand's.
            self.enter(self.token)
            right = self._binary(level + 1)
            self.leave()
            self.grow(left.start, height, self.height)
            left = Binary(op, left, right, left.start, right.end)

    def _unary(self) -> Expression:
        token = self.token
        if token.kind == "operator":
            if token.text in _PREFIXES:
                self.advance()
                operand = self._operand()
                self.grow(token.start, self.height)
                return Unary(token.text, operand, token.start, operand.end)
            if token.text in _COUNTS:
                return self._prefix_increment()
            if token.text == "(" and self.begins_cast():
                return self._cast()
        elif token.text == "comptime" and token.kind == "name":
            self.advance()
            operand = self.expression()
            self.grow(token.start, self.height)
            return Comptime(operand, token.start, operand.end)
        start = self.token.start
        return self._postfix(self.primary(), start)

    def _operand(self) -> Expression:
        self.enter(self.token)
        operand = self._unary()
        self.leave()
        return operand

    def _cast(self) -> Expression:
        start = self.advance().start
        kind = self.type_name()
        height = self.height
        self.expect(")", "after the type of the cast")
        operand = self._operand()
        self.grow(start, height, self.height)
        return Cast(kind, operand, start, operand.end)

    def _prefix_increment(self) -> Expression:
        token = self.advance()
        target = self._operand()
        if not isinstance(target, Variable | Map | MapAccess):
            reason = f"'{token.text}' changes a variable or a map: expected one after it"
            raise self.source.error(token.start, reason)
        self.grow(token.start, self.height)
        return Increment(
            _COUNTS[token.text], target, prefix=True, start=token.start, end=target.end
        )

    def _postfix(self, tree: Expression, start: int) -> Expression:
        # ``start``: of the parenthesis around the operand, if it has one.
        while self.token.kind == "operator":
            word = self.token.text
            if word == "[":
                tree = self._element(tree, start)
            elif word in (".", "->"):
                tree = self._member(tree, start, arrow=word == "->")
            elif word in _COUNTS:
                tree = self._postfix_increment(tree)
            else:
                break
        return tree

    def _element(self, tree: Expression, start: int) -> Expression:
        height = self.height
        self.advance()
        key, highest = self.list_until("]", "the key" if isinstance(tree, Map) else "the index")
        end = self.at
        if isinstance(tree, Map):
            first = key[0]
            keys = first if len(key) == 1 else Tuple(key, first.start, key[-1].end)
            self.grow(tree.start, height, highest + (len(key) > 1))
            return MapAccess(tree, keys, tree.start, end)
        if len(key) != 1:
            reason = (
                f"found {len(key)} values between brackets: an index is one, only maps have more"
            )
            raise self.source.error(tree.start, reason)
        self.grow(tree.start, height, highest)
        return Index(tree, key[0], start, end)

    def _member(self, tree: Expression, start: int, *, arrow: bool) -> Expression:
        height = self.height
        self.advance()
        token = self.token
        self.grow(tree.start, height)
        if token.kind == "number" and not arrow:
            if isinstance(tree, Integer):
                reason = "floating-point numbers are not part of the language"
                raise self.source.error(tree.start, reason)
            self.advance()
            if not token.text.isdecimal() or len(token.text) > 4:
                reason = f"found {token}: expected the number of an element of the tuple"
                raise self.source.error(token.start, reason)
            return TupleAccess(tree, int(token.text), start, token.end)
        self.name(f"the name of a member after '{'->' if arrow else '.'}'")
        return Member(tree, token.text, arrow, start, token.end)

    def _postfix_increment(self, tree: Expression) -> Expression:
        token = self.advance()
        if not isinstance(tree, Variable | Map | MapAccess):
            reason = f"'{token.text}' changes a variable or a map: expected one before it"
            raise self.source.error(token.start, reason)
        self.grow(tree.start, self.height)
        return Increment(_COUNTS[token.text], tree, prefix=False, start=tree.start, end=token.end)
