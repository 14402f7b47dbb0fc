"""Parsing of what operators stand between: constants, names, calls, tuples, records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.programs.syntax.grammar.types import TypeParser
from usdt.engine.programs.syntax.tokens import integer_of, string_of
from usdt.engine.programs.syntax.tree import (
    Boolean,
    Call,
    Identifier,
    Integer,
    Map,
    OffsetOf,
    ParameterCount,
    PositionalParameter,
    Record,
    RecordField,
    SizeOf,
    String,
    Tuple,
    TypeInfo,
    Variable,
)

if TYPE_CHECKING:
    from usdt.engine.programs.syntax.tokens import Token
    from usdt.engine.programs.syntax.tree import Block, Expression, If, Type

__all__ = ("KEYWORDS", "PrimaryParser")

#: Words that cannot be the name of a built-in, a macro or a constant.
KEYWORDS = frozenset(
    (
        *("break", "comptime", "config", "continue", "else", "enum", "for", "if", "import", "let"),
        *("macro", "offsetof", "return", "sizeof", "struct", "typeinfo", "typeof", "union"),
        *("unroll", "while"),
    )
)

# After "(name)": tokens that begin an operand and are no binary operator make it a cast; the
# operators that are both only if the name is a known type.
_OPERAND_KINDS = frozenset(("name", "number", "string", "variable", "map", "parameter"))
_SURELY_OPERAND = frozenset(("(", "!", "~", "++", "--"))
_MAYBE_OPERAND = frozenset(("-", "+", "*", "&", "{"))
_MAX_PARAMETER = 1 << 16


class PrimaryParser(TypeParser):
    """Reads the operands of expressions."""

    def block(self, where: str) -> Block:
        """Read a block; ``where`` continues "expected '{'"."""
        raise NotImplementedError

    def if_else(self) -> If:
        """Read ``if`` with its branches."""
        raise NotImplementedError

    def primary(self) -> Expression:  # noqa: RET503 - fail() never returns
        """Read an operand without its prefix and postfix operators.

        Raises:
            ProgramError: there is none.
        """
        token = self.token
        self.height = 1
        if token.text == "(":
            return self._parenthesis()
        if token.text == "{":
            return self.block("")
        match token.kind:
            case "variable":
                self.advance()
                return Variable(token.text, token.start, token.end)
            case "map":
                self.advance()
                return Map(token.text, token.start, token.end)
            case "number":
                self.advance()
                return Integer(integer_of(self.source, token), token.start, token.end)
            case "name":
                return self._name()
            case "string":
                return self._string()
            case "parameter":
                self.advance()
                return self._parameter(token)
        self.fail("a value")

    def begins_cast(self) -> bool:
        """Whether the parenthesis that is the next token begins a cast."""
        token = self.peek()
        if token.kind != "name":
            return False
        following = self.peek(2).text
        known = self.known_type(token.text)
        if self.begins_type(1):
            return True
        ahead = 2
        while self.peek(ahead).text == "*":
            ahead += 1
        if ahead > 2 and self.peek(ahead).text in (")", "["):
            return True
        if following == "[":
            return known
        if following != ")":
            return False
        after = self.peek(3)
        if after.kind in _OPERAND_KINDS or after.text in _SURELY_OPERAND:
            return token.text not in KEYWORDS
        return known and after.text in _MAYBE_OPERAND

    def list_until(self, closing: str, what: str) -> tuple[tuple[Expression, ...], int]:
        """Read one or more expressions between commas, and what closes the list.

        Returns:
            The expressions, and the height of the highest.

        Raises:
            ProgramError: there is none, or the list is not closed.
        """
        found: list[Expression] = []
        highest = 0
        while True:
            found.append(self.expression())
            highest = max(highest, self.height)
            if not self.accept(","):
                break
        if self.token.text != closing:
            self.fail(f"an operator, ',' or '{closing}' after {what}")
        self.advance()
        return tuple(found), highest

    def _name(self) -> Expression:
        token = self.token
        word = token.text
        if word in ("true", "false"):
            self.advance()
            return Boolean(word == "true", token.start, token.end)
        if word in _QUESTIONS:
            return self._question(token)
        if word == "if":
            return self.if_else()
        if word in KEYWORDS and not (word == "config" and self.peek().text == "("):
            self.fail("a value")
        self.advance()
        if self.token.text == "(":
            return self._call(token)
        return Identifier(word, token.start, token.end)

    def _call(self, name: Token) -> Expression:
        self.advance()
        arguments: list[Expression | Type] = []
        highest = 0
        while self.token.text != ")":
            arguments.append(self.type_name() if self.begins_type() else self.expression())
            highest = max(highest, self.height)
            if not self.accept(","):
                break
        if self.token.text != ")":
            self.fail(f"an operator, ',' or ')' in the call of {name.text}")
        self.advance()
        self.grow(name.start, highest)
        return Call(name.text, tuple(arguments), name.start, self.at)

    def _question(self, token: Token) -> Expression:
        word = self.advance().text
        if word == "sizeof" and self.token.text != "(":
            self.fail("'(' after sizeof")
        self.expect("(", f"after {word}")
        operand = self.type_or_expression()
        self.grow(token.start, self.height)
        path: list[str] = []
        if word == "offsetof":
            self.expect(",", "after the type of offsetof")
            path.append(self.name("the name of a member").text)
            while self.accept("."):
                path.append(self.name("the name of a member after '.'").text)
        self.expect(")", f"after the operand of {word}")
        if word == "offsetof":
            return OffsetOf(operand, tuple(path), token.start, self.at)
        return (SizeOf if word == "sizeof" else TypeInfo)(operand, token.start, self.at)

    def _string(self) -> Expression:
        first = self.token
        value = b""
        while self.token.kind == "string":
            value += string_of(self.source, self.advance())
        return String(value, first.start, self.at)

    def _parameter(self, token: Token) -> Expression:
        if token.text == "$#":
            return ParameterCount(token.start, token.end)
        digits = token.text[1:].lstrip("0")
        if not digits or len(digits) > 5 or int(digits) > _MAX_PARAMETER:
            reason = f"found {token}: arguments have numbers from $1 to ${_MAX_PARAMETER}"
            raise self.source.error(token.start, reason)
        return PositionalParameter(int(digits), token.start, token.end)

    def _parenthesis(self) -> Expression:
        start = self.advance().start
        if self.token.text == ")":
            self.advance()
            return Tuple((), start, self.at)
        if self.token.kind == "name" and self.peek().text == "=":
            return self._record(start)
        first = self.expression()
        if self.accept(")"):
            return first
        if self.token.text != ",":
            self.fail("an operator, ',' or ')'")
        elements = [first]
        highest = self.height
        while self.accept(","):
            if self.token.text == ")":
                break
            elements.append(self.expression())
            highest = max(highest, self.height)
        if self.token.text != ")":
            self.fail("an operator, ',' or ')' in the tuple")
        self.advance()
        self.grow(start, highest)
        return Tuple(tuple(elements), start, self.at)

    def _record(self, start: int) -> Expression:
        fields: list[RecordField] = []
        highest = 0
        while self.token.text != ")":
            name = self.name("a name and '=' in the record")
            if any(field.name == name.text for field in fields):
                raise self.source.error(name.start, f"the record has two fields {name}")
            self.expect("=", f"after {name.text}: all fields of a record have a name")
            value = self.expression()
            highest = max(highest, self.height)
            fields.append(RecordField(name.text, value, name.start, value.end))
            if not self.accept(","):
                break
        if self.token.text != ")":
            self.fail("an operator, ',' or ')' in the record")
        self.advance()
        self.grow(start, highest + 1)
        return Record(tuple(fields), start, self.at)


_QUESTIONS = frozenset(("sizeof", "offsetof", "typeinfo"))
