"""Where a parser is in the tokens of a program: what is next, and what was expected instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NoReturn

from usdt.base.text import closest
from usdt.engine.language.tokens import quotable
from usdt.engine.programs.syntax.defines import expand
from usdt.engine.programs.syntax.tokens import Token, scan

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from usdt.engine.programs.syntax.defines import Define
    from usdt.engine.programs.syntax.source import Source

__all__ = ("MAX_HEIGHT", "Cursor")

MAX_HEIGHT = 100  # levels of a tree; consumers walk it recursively

_OPENING = frozenset("({[")
_CLOSING = frozenset(")}]")
_BRACE = re.compile(r"\s*\{")
_ATTRIBUTE = re.compile(r"\s*__attribute")


class Cursor:
    """Reads the tokens of one part of a program after another.

    A part ends where its outermost brace is closed, because attach points, which stand between
    the parts, have other tokens.

    Attributes:
        token: the next token; of kind ``end`` at the end of the part.
        text: the program without comments and directives.
        height: the height of the node that was made last.
    """

    def __init__(self, source: Source, text: str, defines: Mapping[str, Define]) -> None:
        self.source = source
        self.text = text
        self.token = Token("end", "", 0, 0)
        self.height = 0
        self._end = len(text.rstrip())
        self._depth = 0
        self._defines = defines
        self._tokens: list[Token] = []
        self._index = 0

    def load(self, start: int, until: Literal["}", ";", "/", "string"] = "}") -> None:
        """Go to the part of the program that begins at ``start``.

        Args:
            start: offset of its first token, or of blanks before that.
            until: its last token: the brace that closes its outermost one, or a semicolon if that
                comes first; only a semicolon; the slash before a brace, which ends a predicate; or
                a string.
        """
        tokens: list[Token] = []
        depth = 0
        for token in scan(self.text, start, self._end):
            tokens.append(token)
            word = token.text
            if word in _OPENING:
                depth += 1
            elif word in _CLOSING:
                depth -= 1
            if depth <= 0 and len(tokens) > 1 and self._is_last(token, until):
                break
        else:
            end = len(self.text)
            tokens.append(Token("end", "", end, end))
        if self._defines:
            tokens = expand(self.source, tokens, self._defines)
        if tokens[-1].kind != "end":
            tokens.append(Token("end", "", tokens[-1].end, tokens[-1].end))
        self._tokens, self._index = tokens, 0
        self.token = tokens[0]

    def _is_last(self, token: Token, until: str) -> bool:
        match token.text:
            case "}":
                return until == "}" and not _ATTRIBUTE.match(self.text, token.end)
            case ";":
                return until != "/"
            case "/":
                return until == "/" and bool(_BRACE.match(self.text, token.end))
            case _:
                return token.kind == until

    @property
    def at(self) -> int:
        """The offset behind the last token that was taken."""
        return self._tokens[self._index - 1].end if self._index else self.token.start

    @property
    def previous(self) -> Token:
        """The last token that was taken; there must be one."""
        return self._tokens[self._index - 1]

    def advance(self) -> Token:
        """Take the next token."""
        token = self.token
        if token.kind != "end":
            self._index += 1
            self.token = self._tokens[self._index]
        return token

    def peek(self, ahead: int = 1) -> Token:
        """Return a token behind the next one."""
        return self._tokens[min(self._index + ahead, len(self._tokens) - 1)]

    def accept(self, word: str) -> bool:
        """Take the next token if it is ``word``."""
        if self.token.text != word:
            return False
        self.advance()
        return True

    def expect(self, word: str, where: str) -> Token:
        """Take the next token, which must be ``word``; ``where`` continues "expected '…'".

        Raises:
            ProgramError: it is another one.
        """
        if self.token.text != word:
            self.fail(f"'{word}' {where}")
        return self.advance()

    def name(self, what: str) -> Token:
        """Take the next token, which must be a name.

        Raises:
            ProgramError: it is not; ``what`` says what was expected.
        """
        if self.token.kind != "name":
            self.fail(what)
        return self.advance()

    def fail(self, expected: str, known: Collection[str] = ()) -> NoReturn:
        """Refuse the next token: name it, what was expected, and a known word like it."""
        token = self.token
        if token.kind == "bad":
            raise self.source.error(token.start, _not_a_token(token))
        near = closest(token.text, sorted(known)) if known and token.kind == "name" else ""
        hint = f"; did you mean {near}?" if near else ""
        raise self.source.error(token.start, f"found {token}: expected {expected}{hint}")

    def misspelt(self, word: str, start: int, known: Collection[str]) -> None:
        """Refuse a word that was taken for a name, if it is like one of ``known``.

        Raises:
            ProgramError: it is.
        """
        near = closest(word, sorted(known))
        if near:
            raise self.source.error(start, f"found {quotable(word)}: did you mean {near}?")

    def enter(self, token: Token) -> None:
        """Go down one level of nesting.

        Raises:
            ProgramError: there are more than :data:`MAX_HEIGHT`.
        """
        self._depth += 1
        if self._depth > MAX_HEIGHT:
            self._too_high(token.start)

    def leave(self) -> None:
        """Go up one level of nesting."""
        self._depth -= 1

    def grow(self, start: int, *heights: int) -> None:
        """Set :attr:`height` to that of a node above nodes of these heights.

        Raises:
            ProgramError: it is more than :data:`MAX_HEIGHT`.
        """
        self.height = 1 + max(heights, default=0)
        if self.height > MAX_HEIGHT:
            self._too_high(start)

    def _too_high(self, start: int) -> NoReturn:
        reason = f"nested too deeply: more than {MAX_HEIGHT} levels; split it with variables"
        raise self.source.error(start, reason)


def _not_a_token(token: Token) -> str:
    if token.text.startswith('"'):
        return "the string that begins here is not closed: expected '\"' at its end, on this line"
    if token.text == "'":
        return "found a single quote: strings have double quotes, and characters are numbers, as 65"
    if token.text == "$":
        return "found '$': expected a variable, as $x, or an argument, as $1"
    return f"found {token}, which is no part of the language"
