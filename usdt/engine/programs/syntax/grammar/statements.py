"""Parsing of statements and blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from usdt.engine.programs.syntax.grammar.expressions import ExpressionParser
from usdt.engine.programs.syntax.tokens import string_of
from usdt.engine.programs.syntax.tree import (
    Assignment,
    Block,
    Break,
    Call,
    Continue,
    Declaration,
    Discard,
    ExpressionStatement,
    For,
    Identifier,
    If,
    Import,
    Map,
    MapAccess,
    Range,
    Return,
    TupleAccess,
    Unroll,
    Variable,
    While,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from usdt.engine.programs.syntax.defines import Define
    from usdt.engine.programs.syntax.source import Source
    from usdt.engine.programs.syntax.tokens import Token
    from usdt.engine.programs.syntax.tree import Expression, Statement, Target

__all__ = ("StatementParser",)

_ASSIGNMENTS = frozenset(
    ("=", *(f"{op}=" for op in ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")))
)


class StatementParser(ExpressionParser):
    """Reads statements."""

    def __init__(self, source: Source, text: str, defines: Mapping[str, Define]) -> None:
        super().__init__(source, text, defines)
        self._readers: dict[str, Callable[[], Statement]] = {
            "break": self._jump,
            "continue": self._jump,
            "for": self._for,
            "if": self.if_else,
            "import": self.import_,
            "let": self._declaration,
            "return": self._return,
            "unroll": self._unroll,
            "while": self._while,
        }

    def block(self, where: str) -> Block:
        """Read a block.

        Raises:
            ProgramError: there is none, or it is not closed.
        """
        opening = self.token
        self.expect("{", where)
        self.enter(opening)
        statements: list[Statement] = []
        value: Expression | None = None
        highest = 0
        while self.token.text != "}":
            if self.accept(";"):
                continue
            statement = self._statement()
            highest = max(highest, self.height)
            ends = self.token.text == "}"
            if ends and (value := _value(statement)) is not None:
                break
            statements.append(statement)
            if not (
                self.accept(";") or ends or isinstance(statement, If | Block | For | While | Unroll)
            ):
                self._not_ended(opening, statement)
        self.advance()
        self.leave()
        self.grow(opening.start, highest)
        return Block(tuple(statements), value, opening.start, self.at)

    def if_else(self) -> If:
        """Read ``if`` with its branches.

        Raises:
            ProgramError: a condition or a branch is missing.
        """
        start = self.advance().start
        if self.token.text == "comptime":
            condition = self.expression()
        else:
            self.expect("(", "after if")
            condition = self.expression()
            self._close("the condition")
        highest = self.height
        then = self.block("after the condition of if")
        highest = max(highest, self.height)
        otherwise: Block | If | None = None
        if self.token.text == "else":
            token = self.advance()
            if self.token.text == "if":
                self.enter(token)
                otherwise = self.if_else()
                self.leave()
            else:
                otherwise = self.block("or 'if' after else")
            highest = max(highest, self.height)
        self.grow(start, highest)
        return If(condition, then, otherwise, start, self.at)

    def _statement(self) -> Statement:
        token = self.token
        if token.kind == "name":
            read = self._readers.get(token.text)
            if read is not None:
                return read()
            if token.text == "_" and self.peek().text in _ASSIGNMENTS:
                return self._discard()
        elif token.text == "{":
            return self.block("")
        elif token.kind == "end":
            self.fail("a statement, or '}'")
        tree = self.expression()
        if self.token.text in _ASSIGNMENTS and self.token.kind == "operator":
            return self._assignment(tree)
        self.grow(token.start, self.height)
        return ExpressionStatement(tree, tree.start, tree.end)

    def _not_ended(self, opening: Token, statement: Statement) -> NoReturn:
        if self.token.kind == "end":
            reason = "the '{' that begins here is not closed: expected '}' before the program ends"
            raise self.source.error(opening.start, reason)
        if isinstance(statement, ExpressionStatement) and self.token.text == "{":
            tree = statement.expression
            if isinstance(tree, Call):
                self.misspelt(tree.function, tree.start, self._readers)
        self.fail("an operator, ';' or '}' after the statement")

    def _assignment(self, tree: Expression) -> Statement:
        height = self.height
        op = self.advance()
        target: Target
        if isinstance(tree, Variable | Map | MapAccess):
            target = tree
        else:
            raise self.source.error(tree.start, _no_target(tree, op.text))
        value = self.expression()
        self.grow(tree.start, height, self.height)
        return Assignment(target, op.text, value, tree.start, value.end)

    def _discard(self) -> Statement:
        token = self.advance()
        if self.token.text != "=":
            self.fail("'=' after '_', which has no value to change")
        self.advance()
        value = self.expression()
        self.grow(token.start, self.height)
        target = Discard(token.start, token.end)
        return Assignment(target, "=", value, token.start, value.end)

    def _declaration(self) -> Statement:
        start = self.advance().start
        if self.token.kind == "map":
            self.fail("a variable as $x: maps are declared before the probes")
        variable = self._variable("after let")
        kind, value, highest = None, None, 1
        if self.accept(":"):
            kind = self.type_name()
            highest = self.height
        if self.accept("="):
            value = self.expression()
            highest = max(highest, self.height)
        self.grow(start, highest)
        return Declaration(variable, kind, value, start, self.at)

    def _variable(self, where: str) -> Variable:
        token = self.token
        if token.kind != "variable":
            self.fail(f"a variable as $x {where}")
        self.advance()
        return Variable(token.text, token.start, token.end)

    def _close(self, what: str) -> None:
        if self.token.text == "=":
            self.fail("'==' to compare; '=' assigns, which is a statement")
        if self.token.text != ")":
            self.fail(f"an operator, or ')' after {what}")
        self.advance()

    def _while(self) -> Statement:
        start = self.advance().start
        self.expect("(", "after while")
        condition = self.expression()
        self._close("the condition")
        highest = self.height
        block = self.block("after the condition of while")
        self.grow(start, highest, self.height)
        return While(condition, block, start, self.at)

    def _for(self) -> Statement:
        start = self.advance().start
        enclosed = self.accept("(")
        variable = self._variable("after 'for ('" if enclosed else "or '(' after for")
        self.expect(":", "after the variable of for")
        first = self.expression()
        highest = self.height
        iterable: Range | Expression = first
        if self.accept(".."):
            last = self.expression()
            highest = max(highest, self.height) + 1
            iterable = Range(first, last, first.start, last.end)
        if enclosed:
            if self.token.text != ")":
                self.fail("an operator, '..' or ')' after what for runs over")
            self.advance()
        block = self.block("after what for runs over")
        self.grow(start, highest, self.height)
        return For(variable, iterable, block, start, self.at)

    def _unroll(self) -> Statement:
        start = self.advance().start
        self.expect("(", "after unroll")
        count = self.expression()
        self._close("the count")
        highest = self.height
        block = self.block("after the count of unroll")
        self.grow(start, highest, self.height)
        return Unroll(count, block, start, self.at)

    def _return(self) -> Statement:
        token = self.advance()
        value = None
        self.height = 1
        if self.token.text not in (";", "}") and self.token.kind != "end":
            value = self.expression()
            self.grow(token.start, self.height)
        return Return(value, token.start, self.at)

    def _jump(self) -> Statement:
        token = self.advance()
        self.height = 1
        return (Break if token.text == "break" else Continue)(token.start, token.end)

    def import_(self) -> Import:
        """Read an import.

        Raises:
            ProgramError: the path is missing.
        """
        start = self.advance().start
        self.height = 1
        if self.token.kind != "string":
            self.fail('a path in double quotes after import, as in import "lib"')
        token = self.advance()
        path = string_of(self.source, token).decode("utf-8", "surrogateescape")
        return Import(path, start, token.end)


def _value(last: Statement) -> Expression | None:
    # The value of a block whose last statement, without a semicolon, this is.
    match last:
        case ExpressionStatement():
            return last.expression
        case Block():
            return last if last.value is not None else None
        case If():
            return last if _branches_have_values(last) else None
    return None


def _branches_have_values(tree: If) -> bool:
    if tree.then.value is None or tree.otherwise is None:
        return False
    if isinstance(tree.otherwise, If):
        return _branches_have_values(tree.otherwise)
    return tree.otherwise.value is not None


def _no_target(tree: Expression, op: str) -> str:
    if isinstance(tree, TupleAccess):
        return "tuples cannot be changed: make a new one and assign it to the variable"
    if isinstance(tree, Identifier):
        return f"'{op}' assigns to variables and maps: did you mean ${tree.name} or @{tree.name}?"
    return f"'{op}' assigns to variables ($x) and maps (@m), not to this"
