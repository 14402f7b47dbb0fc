"""The parser of the probe language: ``PROBE[(ITEM, …)]`` → tree.

Every text gives a tree or a :class:`~usdt.base.errors.LanguageError`; the parser has no side
effects. It parses expressions by operator precedence, with explicit stacks of values and of
pending operators, so that no input can exhaust Python's call stack. The height of trees and the
number of pending operators are limited to :data:`MAX_HEIGHT`.
"""

from __future__ import annotations

import itertools
from typing import Literal

from usdt.base.errors import LanguageError
from usdt.base.frozen import frozen, replace
from usdt.base.text import closest
from usdt.engine.language.c_type_names import TYPE_WORDS, read_cast, read_path
from usdt.engine.language.pattern import find_items, read_pattern
from usdt.engine.language.tokens import (
    Token,
    character_value,
    check_length,
    integer_value,
    string_parts,
    tokenize,
)
from usdt.engine.language.tree import (
    FUNCTIONS,
    MAX_FRAMES,
    MAX_HEIGHT,
    PRECEDENCE,
    STACKS,
    Binary,
    Call,
    Cast,
    Expression,
    Index,
    Integer,
    Item,
    Member,
    Name,
    ProbeKind,
    ProbeText,
    Text,
    TypeName,
    Unary,
    names_in,
    read_at_return,
    walk,
)

__all__ = ("parse_expression", "parse_items", "parse_probe")

_PREFIXES = frozenset(("!", "~", "-", "+", "*", "&"))
_PREFIX_LEVEL = 1 + max(PRECEDENCE.values())

# Operators of C that this language does not have → why, or what to write instead.
_REFUSED = {
    "=": "'=' would assign: expected '==' to compare",
    "++": "'++' would change a variable: the language only reads; put a blank between two signs",
    "--": "'--' would change a variable: the language only reads; put a blank between two signs",
    "?": "'?' begins a conditional, which the language does not have: give two items",
    ";": "found ';': items are separated by ','",
} | {
    f"{op}=": f"'{op}=' would assign: the language only reads"
    for op in ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")
}
_NOTHING_TO_READ = (
    "out() reads memory that an argument leads to, when the function returns: expected an argument "
    "in it, as in out(*(int *)arg0)"
)
_WORDS_OF_OTHERS = {"and": "&&", "or": "||", "is": "==", "eq": "==", "ne": "!=", "mod": "%"}


def parse_probe(text: str, *, default: ProbeKind = "usdt") -> ProbeText:
    """Parse a probe with its items.

    Args:
        text: the probe as the user wrote it.
        default: the kind of the probe if ``text`` does not name one.

    Raises:
        LanguageError: the text is not a probe. The error gives the column, what was found and
            what was expected.
    """
    check_length(text)
    opening, closing = find_items(text)
    pattern = read_pattern(text, opening, default)
    items = _items(text, opening + 1, closing) if opening < closing else ()
    if pattern.returns and not any("return" in names_in(item.expression) for item in items):
        items = (*items, Item("return", Name("return", opening, opening), implied=True))
    return ProbeText(
        text, pattern.kind, pattern.text, items, pattern.path, pattern.provider, pattern.name
    )


def parse_items(text: str) -> tuple[Item, ...]:
    """Parse items without a probe, separated by commas, as in the value of an option.

    A blank text has no items.

    Raises:
        LanguageError: as :func:`parse_probe`.
    """
    check_length(text)
    return _items(text, 0, len(text))


def parse_expression(text: str) -> Item:
    """Parse a text that is exactly one item.

    Raises:
        LanguageError: as :func:`parse_probe`; also if there is no item, or more than one.
    """
    items = parse_items(text)
    if len(items) != 1:
        column = items[1].expression.start if items else len(text)
        raise LanguageError(text, column, f"found {len(items)} expressions: expected one")
    return items[0]


def _items(text: str, start: int, end: int) -> tuple[Item, ...]:
    tokens = tokenize(text, start, end)
    if len(tokens) == 1:
        return ()
    items: list[Item] = []
    first = 0
    while True:
        expression, last = _Reader(text, tokens, first).read()
        items.append(Item(_written(tokens[first:last]), expression))
        if tokens[last].kind == "end":
            return tuple(items)
        first = last + 1


def _written(tokens: list[Token]) -> str:
    # The text of the tokens, without the blanks that are not needed to separate them.
    pieces = [tokens[0].text]
    for before, token in itertools.pairwise(tokens):
        if before.end < token.start and _would_join(before, token):
            pieces.append(" ")
        pieces.append(token.text)
    return "".join(pieces)


def _would_join(before: Token, token: Token) -> bool:
    if before.kind in ("name", "number"):
        # "1 .x" is a member access; "1.x" is a malformed number.
        return token.kind in ("name", "number") or (before.kind == "number" and token.text == ".")
    return before.text == token.text and token.text in ("-", "+", "&")


@frozen
class _Value:
    # A complete operand; start and end include the parentheses around it.
    tree: Expression
    start: int
    end: int
    height: int


@frozen
class _Waiting:
    # An operator, cast, or open bracket that waits for operands to its right. Brackets have level
    # 0, so that nothing is reduced across them.
    kind: Literal["prefix", "cast", "binary", "group", "index", "call"]
    level: int
    token: Token
    type: TypeName | None = None
    below: int = 0  # call: the number of values on the stack below its arguments


class _Reader:
    """Parses one expression, up to a comma or the end."""

    def __init__(self, text: str, tokens: list[Token], index: int) -> None:
        self._text = text
        self._tokens = tokens
        self._index = index
        self._values: list[_Value] = []
        self._waiting: list[_Waiting] = []

    def read(self) -> tuple[Expression, int]:
        """Return the tree, and the index of the token after it: a comma or the end."""
        while True:
            while not self._operand():
                pass
            while (more := self._after_operand()) == "operator":
                pass
            if more == "done":
                return self._values[0].tree, self._index

    def _error(self, token: Token, reason: str) -> LanguageError:
        return LanguageError(self._text, token.start, reason)

    def _take(self) -> Token:
        token = self._tokens[self._index]
        self._index += 1
        return token

    def _wait(self, waiting: _Waiting) -> None:
        if len(self._waiting) >= MAX_HEIGHT:
            raise self._error(waiting.token, _too_deep())
        self._waiting.append(waiting)

    def _push(self, tree: Expression, start: int, end: int, *below: _Value) -> None:
        height = 1 + max((value.height for value in below), default=0)
        if height > MAX_HEIGHT:
            raise LanguageError(self._text, start, _too_deep())
        self._values.append(_Value(tree, start, end, height))

    # --- where an operand is expected ---------------------------------------------------------

    def _operand(self) -> bool:
        # Read one token: the operand itself, then return True; or a prefix operator or an opening
        # bracket before it, then return False.
        token = self._take()
        if token.kind == "name":
            return self._name(token)
        if token.kind != "operator":
            self._constant(token)
            return True
        if token.text == "(":
            self._open(token)
        elif token.text == "::" and self._tokens[self._index].kind == "name":
            self._index += 1
            self._variable(token)
            return True
        elif token.text in _PREFIXES:
            self._wait(_Waiting("prefix", _PREFIX_LEVEL, token))
        else:
            raise self._error(token, self._no_operand(token))
        return False

    def _no_operand(self, token: Token) -> str:
        if token.text in _REFUSED and token.text != "=":
            return _REFUSED[token.text]
        return f"found {token}: expected a value{self._where()}"

    def _where(self) -> str:
        # Name the token after which a value was expected.
        if self._index < 2:
            return ""
        return f" after {self._tokens[self._index - 2]}"

    def _constant(self, token: Token) -> None:
        start, end = token.start, token.end
        if token.kind == "number":
            value, unsigned, size = integer_value(token, self._text)
            self._push(Integer(value, unsigned, size, start, end), start, end)
        elif token.kind == "character":
            value = character_value(token, self._text)
            self._push(Integer(value, unsigned=False, size=4, start=start, end=end), start, end)
        elif token.kind == "string":
            self._push(Text(string_parts(self._text, start, end), start, end), start, end)
        else:
            raise self._error(token, self._no_operand(token))

    def _name(self, token: Token) -> bool:
        following = self._tokens[self._index]
        if following.kind == "operator" and following.text == "(":
            self._open_call(token)
            return False
        if token.text in ("true", "false"):
            value, start, end = int(token.text == "true"), token.start, token.end
            self._push(Integer(value, unsigned=False, size=4, start=start, end=end), start, end)
            return True
        if token.text in TYPE_WORDS:
            raise self._error(token, f"found the type {token}: a cast is written (type)value")
        self._variable(token)
        return True

    def _variable(self, first: Token) -> None:
        # Push a name, perhaps a path of C++ or Rust; the token of its first name was taken.
        start = self._index - 1
        path, behind = read_path(self._tokens, start)
        if "::" not in path or path.endswith(">"):  # the "<" is an operator
            path, behind = self._tokens[start].text, self._index
        if first.text == "::":
            path = f"::{path}"
        self._index = behind
        end = self._tokens[behind - 1].end
        self._push(Name(path, first.start, end), first.start, end)

    def _open_call(self, token: Token) -> None:
        if token.text not in FUNCTIONS:
            raise self._error(token, _unknown_function(token))
        self._wait(_Waiting("call", 0, token, below=len(self._values)))
        self._index += 1
        following = self._tokens[self._index]
        if following.kind == "operator" and following.text == ")":
            raise self._error(token, _wrong_count(token.text, 0))

    def _open(self, token: Token) -> None:
        cast = read_cast(self._tokens, self._index - 1, self._text)
        if cast is None:
            self._wait(_Waiting("group", 0, token))
            return
        type_name, self._index = cast
        self._wait(_Waiting("cast", _PREFIX_LEVEL, token, type_name))

    # --- where an operator is expected --------------------------------------------------------

    def _after_operand(self) -> Literal["operator", "operand", "done"]:
        # Read one operator. Return what is expected next.
        token = self._tokens[self._index]
        if token.kind == "end" or (token.kind == "operator" and token.text == ","):
            return self._separated(token)
        if token.kind != "operator":
            raise self._error(token, self._no_operator(token))
        self._index += 1
        if token.text in ("->", "."):
            self._member(token)
        elif token.text in (")", "]"):
            self._close(token)
        elif token.text == "[":
            self._wait(_Waiting("index", 0, token))
            return "operand"
        elif token.text in PRECEDENCE:
            level = PRECEDENCE[token.text]
            self._reduce(level)
            self._wait(_Waiting("binary", level, token))
            return "operand"
        else:
            raise self._error(token, _REFUSED.get(token.text) or self._no_operator(token))
        return "operator"

    def _no_operator(self, token: Token) -> str:
        if token.text in _WORDS_OF_OTHERS:
            operator = _WORDS_OF_OTHERS[token.text]
            return f"found {token}: expected an operator, here perhaps '{operator}'"
        if token.text == "(":
            return f"found {token}: only {', '.join(sorted(FUNCTIONS))} can be called"
        opener = next((w for w in reversed(self._waiting) if w.level == 0), None)
        closer = "']'" if opener and opener.kind == "index" else "')'"
        if opener is None and self._tokens[-1].text != ")":
            closer = "the end"
        wanted = "an operator, ','" if opener is None or opener.kind == "call" else "an operator"
        return f"found {token}: expected {wanted} or {closer}"

    def _separated(self, token: Token) -> Literal["operand", "done"]:
        self._reduce(1)
        if not self._waiting:
            return "done"
        opener = self._waiting[-1]
        if token.kind == "end" or opener.kind != "call":
            raise self._error(token, self._not_closed(opener, token))
        self._index += 1
        return "operand"

    def _not_closed(self, opener: _Waiting, found: Token) -> str:
        wanted = "']'" if opener.kind == "index" else "')'"
        bracket = "'['" if opener.kind == "index" else "'('"
        column = opener.token.end if opener.kind == "call" else opener.token.start
        return f"found {found}: expected {wanted} for the {bracket} at column {column + 1}"

    def _member(self, token: Token) -> None:
        name = self._take()
        if name.kind != "name":
            raise self._error(name, f"found {name}: expected a member's name after {token}")
        value = self._values.pop()
        tree = Member(value.tree, name.text, token.text == "->", value.start, name.end)
        self._push(tree, value.start, name.end, value)

    def _close(self, token: Token) -> None:
        self._reduce(1)
        if not self._waiting:
            raise self._error(token, f"found {token}, but nothing is open that it would close")
        opener = self._waiting.pop()
        if (opener.kind == "index") != (token.text == "]"):
            raise self._error(token, self._not_closed(opener, token))
        start, end = opener.token.start, token.end
        if opener.kind == "group":
            self._values[-1] = replace(self._values[-1], start=start, end=end)
        elif opener.kind == "index":
            index, target = self._values.pop(), self._values.pop()
            tree = Index(target.tree, index.tree, target.start, end)
            self._push(tree, target.start, end, target, index)
        else:
            self._call(opener, end)

    def _call(self, opener: _Waiting, end: int) -> None:
        arguments = self._values[opener.below :]
        del self._values[opener.below :]
        function, start = opener.token.text, opener.token.start
        least, most = FUNCTIONS[function]
        if not least <= len(arguments) <= most:
            raise self._error(opener.token, _wrong_count(function, len(arguments)))
        trees = tuple(value.tree for value in arguments)
        if function == "out":
            if not any(isinstance(node, Name) for node in walk(trees[0])):
                raise self._error(opener.token, _NOTHING_TO_READ)
            self._values.append(
                replace(arguments[0], tree=read_at_return(trees[0]), start=start, end=end)
            )
            return
        if function == "reg":
            trees = (self._register(trees[0]),)
        if function in STACKS:
            self._check_frames(function, trees[0])
        tree: Expression = Call(function, trees, start, end)
        if function == "contains":
            tree = self._contains(trees, start, end)
        self._push(tree, start, end, *arguments)

    def _check_frames(self, function: str, frames: Expression) -> None:
        if not isinstance(frames, Integer) or not 0 < frames.value <= MAX_FRAMES:
            reason = f"{function}() takes the number of frames, a constant from 1 to {MAX_FRAMES}"
            raise LanguageError(self._text, frames.start, reason)

    def _register(self, name: Expression) -> Text:
        # The name of a register is not that of an argument: reg(di) is reg("di").
        if isinstance(name, Name):
            return Text((name.name.encode(),), name.start, name.end)
        if isinstance(name, Text) and len(name.parts) == 1:
            return name
        reason = 'reg() takes the name of a register, as in reg("di")'
        raise LanguageError(self._text, name.start, reason)

    def _contains(self, trees: tuple[Expression, ...], start: int, end: int) -> Binary:
        # contains(a, "b") is a == "*b*", but a star in it is itself.
        text, part = trees
        if not isinstance(part, Text):
            reason = "the second argument of contains() is a string constant"
            raise LanguageError(self._text, part.start, reason)
        whole = Text((b"", b"*".join(part.parts), b""), part.start, part.end)
        return Binary("==", text, whole, start, end)

    def _reduce(self, level: int) -> None:
        # Build the trees of waiting operators that bind at least as tightly as ``level``, so that
        # operators of the same level are left-associative.
        while self._waiting and self._waiting[-1].level >= level:
            waiting = self._waiting.pop()
            right = self._values.pop()
            start = waiting.token.start
            if waiting.kind == "binary":
                left = self._values.pop()
                tree = Binary(waiting.token.text, left.tree, right.tree, left.start, right.end)
                self._push(tree, left.start, right.end, left, right)
            elif waiting.type is not None:
                cast = Cast(waiting.type, right.tree, start, right.end)
                self._push(cast, start, right.end, right)
            else:
                unary = Unary(waiting.token.text, right.tree, start, right.end)
                self._push(unary, start, right.end, right)


def _too_deep() -> str:
    return f"the expression is nested deeper than {MAX_HEIGHT} levels: expected a simpler one"


def _unknown_function(token: Token) -> str:
    near = closest(token.text, FUNCTIONS)
    known = f"did you mean {near}()?" if near else f"expected {', '.join(sorted(FUNCTIONS))}"
    return f"{token} is no function: {known}"


def _wrong_count(function: str, found: int) -> str:
    least, most = FUNCTIONS[function]
    wanted = str(least) if least == most else f"{least} or {most}"
    plural = "" if wanted == "1" else "s"
    return f"{function}() takes {wanted} argument{plural}, found {found or 'none'}"
