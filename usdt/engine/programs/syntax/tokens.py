r"""The lexer of programs: text → tokens, and values of constants.

Comments and directives are not here: the preprocessor replaces them by blanks before. What begins
no token is a token of kind ``bad``, so that the first error of a text is the one that is reported.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from usdt.base.durations import UNITS
from usdt.base.errors import LanguageError
from usdt.base.text import printable
from usdt.engine.language.tokens import string_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.programs.syntax.source import Source

__all__ = ("Token", "integer_of", "scan", "string_of")

Kind = Literal["name", "number", "string", "variable", "map", "parameter", "operator", "bad", "end"]

_MAX_SHOWN = 40  # characters of a token in a message
_MAX_INTEGER = (1 << 64) - 1
_MAX_DIGITS = 64  # int() refuses thousands of digits, and takes long for hundreds
_MAX_EXPONENT = 19  # of ten, in 64 bits

# Unit of a duration → nanoseconds.
_UNITS = UNITS | {"h": 3600 * 10**9, "d": 24 * 3600 * 10**9}

# A string ends on its line. Possessive quantifiers avoid backtracking.
_STRING = r'"(?:[^"\\\n]++|\\[^\n])*+"'
# The longest first.
_OPERATORS = (
    "<<= >>= ... -> ++ -- << >> <= >= == != && || += -= *= /= %= &= |= ^= .. "
    "! ~ - + * / % & | ^ < > = ? : ; ( ) [ ] , . { }"
)
_NUMBER = re.compile(
    r"(?P<hex>0[xX](?P<digits>[0-9A-Fa-f][0-9A-Fa-f_]*))(?P<c>[uUlL]*)"
    r"|(?P<decimal>[0-9][0-9_]*)(?:[eE](?P<exponent>[0-9]+))?"
    r"(?:(?P<unit>ns|us|ms|[smhd])|(?P<suffix>[uUlL]*))"
)
_SUFFIXES = frozenset(("", "u", "l", "ul", "lu", "ll", "ull", "llu"))


class Token(NamedTuple):
    """A token; ``start`` and ``end`` are offsets in the text of the program."""

    kind: Kind
    text: str
    start: int
    end: int

    def __str__(self) -> str:
        """Return the token as an error text names it."""
        if self.kind == "end":
            return "the end of the program"
        text = self.text
        if len(text) > _MAX_SHOWN:
            text = text[: _MAX_SHOWN - 1] + "…"
        text = printable(text)
        if text.startswith('"'):
            return text  # it includes its quotes
        return f'"{text}"' if "'" in text else f"'{text}'"


@functools.cache
def _token_pattern() -> re.Pattern[str]:
    operators = "|".join(map(re.escape, _OPERATORS.split()))
    return re.compile(
        r"\s*+(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*+)|(?P<number>[0-9][0-9A-Za-z_]*+)"
        rf"|(?P<string>{_STRING})|(?P<parameter>\$(?:[0-9]++|\#))"
        r"|(?P<variable>\$[A-Za-z_][A-Za-z0-9_]*+)|(?P<map>@(?:[A-Za-z_][A-Za-z0-9_]*+)?)"
        rf"|(?P<operator>{operators})|(?P<bad>\"[^\n]*+|\S))",
        re.DOTALL,
    )


def scan(text: str, start: int, end: int) -> Iterator[Token]:
    """Yield the tokens of ``text[start:end]``."""
    make = tuple.__new__
    for found in _token_pattern().finditer(text, start, end):
        kind = found.lastgroup
        word = found[kind]  # type: ignore[index]
        at = found.end()
        yield make(Token, (kind, word, at - len(word), at))


def integer_of(source: Source, token: Token) -> int:
    """Return the value of a number token; that of a duration is in nanoseconds.

    Raises:
        ProgramError: it is not a number of the language, or exceeds 64 bits.
    """
    found = _NUMBER.fullmatch(token.text)
    if found is None or (found["c"] or found["suffix"] or "").lower() not in _SUFFIXES:
        reason = f"found {token}: expected a number, or a duration in ns, us, ms, s, m, h or d"
        raise source.error(token.start, reason)
    digits = (found["digits"] or found["decimal"]).replace("_", "")
    base = 16 if found["hex"] else 10
    if base == 10 and digits.startswith("0") and not found["exponent"] and not found["unit"]:
        base = 8
        if set(digits) & {"8", "9"}:
            reason = f"found {token}: a number that begins with 0 is octal, with digits from 0 to 7"
            raise source.error(token.start, reason)
    exponent = (found["exponent"] or "").lstrip("0")
    value = _MAX_INTEGER + 1
    if len(digits) <= _MAX_DIGITS and len(exponent) <= 2 and int(exponent or 0) <= _MAX_EXPONENT:
        value = int(digits, base) * 10 ** int(exponent or 0) * _UNITS.get(found["unit"], 1)
    if value > _MAX_INTEGER:
        reason = f"{token} is beyond 64 bits: expected at most {_MAX_INTEGER}"
        raise source.error(token.start, reason)
    return value


def string_of(source: Source, token: Token) -> bytes:
    """Return the bytes of a string token.

    Raises:
        ProgramError: it has an escape that C does not have, or a character that is none.
    """
    try:
        return string_value(token.text, 0, len(token.text))
    except LanguageError as err:
        as_written = source.text.startswith(token.text, token.start)
        raise source.error(token.start + err.column * as_written, err.reason) from err
