"""Names that ``#define`` defines, and tokens in which they are replaced."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.base.text import plural
from usdt.engine.language.tokens import quotable
from usdt.engine.programs.syntax.tokens import Token, scan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from usdt.engine.programs.syntax.source import Source

__all__ = ("Define", "expand", "read_define")

_MAX_TOKENS = 200_000  # of one part of a program, when all names are replaced
_MAX_NESTED = 50  # names that are replaced in the text of one another

_FORM = r"(?s)(?P<name>[A-Za-z_]\w*)(?:\((?P<parameters>[^()]*)\))?(?P<text>.*)"


@frozen
class Define:
    """A name that stands for a text.

    Attributes:
        parameters: the names of its parameters; None if it has no parentheses.
    """

    name: str
    parameters: tuple[str, ...] | None
    text: str


def read_define(source: Source, start: int, rest: str) -> Define:
    """Read what follows ``#define``, without comments.

    Raises:
        ProgramError: there is no name, or a parameter is not one.
    """
    found = re.fullmatch(_FORM, rest)
    if found is None:
        raise source.error(start, f"#define needs a name, found {quotable(rest)}")
    text = found["text"].strip()
    if "#" in re.sub(r'"(?:[^"\\]|\\.)*"', "", text):
        raise source.error(start, f"# and ## in the text of {found['name']} are not supported")
    if found["parameters"] is None:
        return Define(found["name"], None, text)
    names = [name.strip() for name in found["parameters"].split(",")]
    names = [] if names == [""] else names
    wrong = next((name for name in names if not re.fullmatch(r"[A-Za-z_]\w*", name)), None)
    if wrong is not None:
        raise source.error(start, f"{quotable(wrong)} is no parameter of {found['name']}")
    return Define(found["name"], tuple(names), text)


def expand(source: Source, tokens: list[Token], defines: Mapping[str, Define]) -> list[Token]:
    """Return the tokens with all defined names replaced; what replaces one is at its place.

    Raises:
        ProgramError: a call has the wrong number of arguments, or the text grows too long.
    """
    if not any(token.kind == "name" and token.text in defines for token in tokens):
        return tokens
    return _Expansion(source, defines).run(tokens, ())


@functools.lru_cache(1024)
def _tokens(text: str) -> tuple[Token, ...]:
    return tuple(scan(text, 0, len(text)))


class _Expansion:
    def __init__(self, source: Source, defines: Mapping[str, Define]) -> None:
        self.source = source
        self.defines = defines
        self.count = 0
        self.depth = 0

    def run(self, tokens: list[Token], inside: tuple[str, ...]) -> list[Token]:
        """Return the tokens with the names replaced that are not being replaced already."""
        out: list[Token] = []
        index = 0
        while index < len(tokens):
            token = tokens[index]
            index += 1
            define = self.defines.get(token.text) if token.kind == "name" else None
            if define is None or define.name in inside:
                out.append(token)
            elif define.parameters is None:
                out += self._replaced(define, token, {}, inside)
            elif index < len(tokens) and tokens[index].text == "(":
                arguments, index = self._arguments(define, tokens, index, inside)
                out += self._replaced(define, token, arguments, inside)
            else:
                out.append(token)
        return out

    def _replaced(
        self, define: Define, use: Token, arguments: dict[str, list[Token]], inside: tuple[str, ...]
    ) -> list[Token]:
        if len(inside) >= _MAX_NESTED:
            raise self.source.error(use.start, f"{use} needs more than {_MAX_NESTED} replacements")
        made: list[Token] = []
        for token in _tokens(define.text):
            if token.kind == "name" and token.text in arguments:
                made += arguments[token.text]
            else:
                made.append(Token(token.kind, token.text, use.start, use.end))
        self.count += len(made)
        if self.count > _MAX_TOKENS:
            raise self.source.error(use.start, f"{use} becomes more than {_MAX_TOKENS} tokens")
        return self.run(made, (*inside, define.name))

    def _arguments(
        self, define: Define, tokens: list[Token], index: int, inside: tuple[str, ...]
    ) -> tuple[dict[str, list[Token]], int]:
        # The arguments of a call whose ( is tokens[index], and the index behind its ).
        use = tokens[index - 1]
        self.depth += 1
        if self.depth > _MAX_NESTED:
            raise self.source.error(use.start, f"more than {_MAX_NESTED} calls in one another")
        arguments: list[list[Token]] = [[]]
        depth = 0
        while True:
            if index >= len(tokens) or tokens[index].kind == "end":
                raise self.source.error(use.start, f"the parenthesis after {use} is not closed")
            token = tokens[index]
            index += 1
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
            if depth == 0:
                break
            if depth == 1 and token.text == ",":
                arguments.append([])
            elif depth > 1 or token.text != "(":
                arguments[-1].append(token)
        names = define.parameters or ()
        if not names and arguments == [[]]:
            arguments = []
        if len(arguments) != len(names):
            reason = f"{use} takes {plural(len(names), 'argument')}, found {len(arguments)}"
            raise self.source.error(use.start, reason)
        done = [self.run(argument, inside) for argument in arguments]
        self.depth -= 1
        return dict(zip(names, done, strict=True)), index
