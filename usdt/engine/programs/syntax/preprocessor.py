"""The preprocessor: comments and directives → blanks, and definitions of names.

The text keeps its length and its lines, so that offsets point at what the user wrote. It knows
``#define`` of constants and of simple functions, ``#undef``, the conditional directives, and
``#include`` of headers, of which only the lines ``#define NAME NUMBER`` count: types come from the
kernel's type information.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.base.text import closest
from usdt.engine.language.tokens import quotable
from usdt.engine.programs.syntax.conditions import condition_holds
from usdt.engine.programs.syntax.defines import Define, read_define

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.programs.syntax.source import Source

__all__ = ("Preprocessed", "preprocess")

_MAX_NESTED = 100  # #if in #if

# A path of an attach point can have /* or // in it.
_PIECES = re.compile(
    r'"(?:[^"\\\n]++|\\.)*+"?'
    r"|(?P<path>:\.{0,2}/[^\s*/][^\s,{]*+)"
    r"|(?P<comment>//[^\n]*+|/\*(?:.*?\*/)?)"
    r"|(?P<directive>^[ \t]*+\#(?:[^\n\\]++|\\(?:\n|.))*+)",
    re.DOTALL | re.MULTILINE,
)
# Patterns of directives, which re compiles when a program has one.
_DIRECTIVE = r"(?s)\s*#\s*(?P<word>\w*)(?P<rest>.*)"
_INCLUDE = r'\s*(?:<(?P<system>[^>\n]+)>|"(?P<local>[^"\n]+)")\s*'
_HEADER_CONSTANT = (
    r"(?m)^[ \t]*\#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+"
    r"\(?(-?(?:0[xX][0-9A-Fa-f]+|[0-9]+)[uUlL]*)\)?"
    r"[ \t]*(?:/[/*][^\n]*)?$"
)
_COMMENT = r"(?s)//[^\n]*|/\*.*?(?:\*/|$)"

_CONDITIONS = frozenset(("if", "ifdef", "ifndef", "elif", "else", "endif"))
_WORDS = _CONDITIONS | {"define", "undef", "include", "error", "pragma", "line", "warning"}


@frozen
class Preprocessed:
    """A text without comments and directives, and the names that it defines.

    Attributes:
        text: as long as the source, with blanks for what is left out.
        defines: name → definition.
    """

    text: str
    defines: dict[str, Define]


class _Condition:
    # An open #if: where it is, whether its text counts, and whether one of its branches did.
    def __init__(self, start: int, *, holds: bool, outer: bool) -> None:
        self.start = start
        self.holds = holds
        self.taken = holds
        self.outer = outer
        self.in_else = False


def preprocess(
    source: Source,
    predefined: dict[str, str],
    read_header: Callable[[str], str | None],
    headers: Sequence[str] = (),
) -> Preprocessed:
    """Replace comments and directives by blanks.

    Args:
        source: the program.
        predefined: names that are defined from the start → their text.
        read_header: path as in ``#include <path>`` → the text of the header; None: not there.
        headers: paths of headers that are included before.

    Raises:
        ProgramError: a comment or condition is not closed, or a directive is not known.
    """
    made = _Preprocessor(source, predefined, read_header)
    for path in headers:
        made.include(path)
    return made.run()


class _Preprocessor:
    def __init__(
        self,
        source: Source,
        predefined: dict[str, str],
        read_header: Callable[[str], str | None],
    ) -> None:
        self.source = source
        self.read_header = read_header
        self.defines = {name: Define(name, None, text) for name, text in predefined.items()}
        self.conditions: list[_Condition] = []
        self.pieces: list[str] = []
        self.at = 0

    def run(self) -> Preprocessed:
        """Return what :func:`preprocess` does."""
        for found in _PIECES.finditer(self.source.text):
            kind = found.lastgroup
            if kind == "comment":
                if found[0] == "/*":
                    raise self.source.error(
                        found.start(), "this comment is not closed: expected */"
                    )
                self._keep_until(found.start())
                self._blank_until(found.end())
            elif kind == "directive":
                self._keep_until(found.start())
                self._directive(found[0], found.start())
                self._blank_until(found.end())
        if self.conditions:
            reason = "this condition is not closed: expected #endif after it"
            raise self.source.error(self.conditions[-1].start, reason)
        self._keep_until(len(self.source.text))
        return Preprocessed("".join(self.pieces), self.defines)

    @property
    def _active(self) -> bool:
        return not self.conditions or self.conditions[-1].holds

    def _keep_until(self, end: int) -> None:
        if self._active:
            self.pieces.append(self.source.text[self.at : end])
            self.at = end
        else:
            self._blank_until(end)

    def _blank_until(self, end: int) -> None:
        self.pieces.append(re.sub(r"[^\n]", " ", self.source.text[self.at : end]))
        self.at = end

    def _directive(self, text: str, start: int) -> None:
        found = re.fullmatch(_DIRECTIVE, text)
        if found is None or text.startswith("#!"):
            return
        start += text.index("#")
        word = found["word"]
        rest = re.sub(_COMMENT, " ", found["rest"].replace("\\\n", " ")).strip()
        if word in _CONDITIONS:
            self._condition(word, rest, start)
        elif not self._active:
            return
        elif word == "define":
            define = read_define(self.source, start, rest)
            self.defines[define.name] = define
        elif word == "undef":
            self.defines.pop(rest, None)
        elif word == "include":
            self._include(rest, start)
        elif word == "error":
            raise self.source.error(start, f"#error {rest}")
        elif word not in _WORDS:
            near = closest(word, sorted(_WORDS))
            hint = f"; did you mean #{near}?" if near else f", but {', '.join(sorted(_WORDS))} are"
            raise self.source.error(start, f"{quotable('#' + word)} is no directive{hint}")

    def _condition(self, word: str, rest: str, start: int) -> None:
        if word in ("if", "ifdef", "ifndef"):
            if len(self.conditions) >= _MAX_NESTED:
                raise self.source.error(start, f"more than {_MAX_NESTED} conditions in one another")
            outer = self._active
            holds = outer and self._holds(word, rest, start)
            self.conditions.append(_Condition(start, holds=holds, outer=outer))
            return
        if not self.conditions:
            raise self.source.error(start, f"#{word} without an #if before it")
        condition = self.conditions[-1]
        if word == "endif":
            self.conditions.pop()
        elif condition.in_else:
            raise self.source.error(start, f"#{word} after #else: expected #endif")
        else:
            condition.in_else = word == "else"
            open_ = condition.outer and not condition.taken
            condition.holds = open_ and (word == "else" or self._holds("if", rest, start))
            condition.taken |= condition.holds

    def _holds(self, word: str, rest: str, start: int) -> bool:
        if word == "if":
            return condition_holds(self.source, start, rest, self.defines)
        if not rest.isidentifier():
            raise self.source.error(start, f"#{word} needs a name, found {quotable(rest)}")
        return (rest in self.defines) == (word == "ifdef")

    def _include(self, rest: str, start: int) -> None:
        found = re.fullmatch(_INCLUDE, rest)
        if found is None:
            reason = f'#include needs <FILE> or "FILE", found {quotable(rest)}'
            raise self.source.error(start, reason)
        self.include(found["system"] or found["local"])

    def include(self, path: str) -> None:
        """Take the constants of a header."""
        header = self.read_header(path)
        for name, value in re.findall(_HEADER_CONSTANT, header or ""):
            self.defines.setdefault(name, Define(name, None, value))
