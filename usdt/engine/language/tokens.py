r"""The lexer of the probe language: text → tokens, and values of constants.

The rules are C's (C17 6.4), with these differences: GNU C's binary constants, ``\e`` and ``\*``; at
most two digits after ``\x``; durations (``2.5ms``), which are nanoseconds; no floating-point
constants, no comments, no concatenation of adjacent strings.
"""

from __future__ import annotations

import functools
import re
from itertools import pairwise
from typing import Literal

from usdt.base.durations import nanoseconds
from usdt.base.errors import LanguageError
from usdt.base.frozen import frozen
from usdt.base.text import printable

__all__ = (
    "MAX_LENGTH",
    "STRING",
    "Token",
    "character_value",
    "check_length",
    "integer_value",
    "quotable",
    "string_parts",
    "string_value",
    "tokenize",
)

MAX_LENGTH = 16384  # characters of a probe or of items
_MAX_SHOWN = 40  # characters of a token in a message
_MAX_INTEGER = (1 << 64) - 1
_EXPECTED = "expected a number, or a duration in ns, us, ms, s or m"

_BLANKS = " \t\r\n\f\v"
# A string as a regular expression. Possessive quantifiers avoid backtracking.
STRING = r'"(?:[^"\\]++|\\.)*+"'
_CHARACTER = r"'(?:[^'\\]++|\\.)*+'"
# The longest first. Some are here only so that an error can name them.
_OPERATORS = (
    "<<= >>= -> ++ -- << >> <= >= == != && || :: += -= *= /= %= &= |= ^= "
    "! ~ - + * / % & | ^ < > = ? : ; ( ) [ ] , . { }"
)

_ESCAPES = {
    "a": 7, "b": 8, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11,
    "\\": 92, "'": 39, '"': 34, "?": 63, "*": 42,
}  # fmt: skip


@frozen
class Token:
    """A token; ``start`` and ``end`` are columns of the text that is parsed."""

    kind: Literal["name", "number", "string", "character", "operator", "end"]
    text: str
    start: int
    end: int

    def __str__(self) -> str:
        """Return the token as an error text names it."""
        if self.kind in ("string", "character"):
            return _shortened(self.text)  # its text includes its quotes
        return quotable(self.text) if self.text else "the end"


def quotable(text: str) -> str:
    """Return ``text`` in quotes for a one-line error: shortened, control characters escaped."""
    quote = '"' if "'" in text else "'"
    return quote + _shortened(text) + quote


def _shortened(text: str) -> str:
    if len(text) > _MAX_SHOWN:
        text = text[: _MAX_SHOWN - 1] + "…"
    return printable(text)


def check_length(text: str) -> None:
    """Refuse a text longer than :data:`MAX_LENGTH`.

    Raises:
        LanguageError: the text is too long. The error's ``text`` is only its beginning.
    """
    if len(text) > MAX_LENGTH:
        beginning = text[:_MAX_SHOWN]
        reason = f"{len(text)} characters are too many: a probe has at most {MAX_LENGTH}"
        raise LanguageError(beginning + "…", len(beginning), reason)


@functools.cache
def _token_pattern() -> re.Pattern[str]:
    operators = "|".join(map(re.escape, _OPERATORS.split()))
    return re.compile(
        rf"[{_BLANKS}]*+(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*+)|(?P<number>[0-9][0-9A-Za-z_.]*+)"
        rf"|(?P<string>{STRING})|(?P<character>{_CHARACTER})|(?P<operator>{operators}))",
        re.DOTALL,
    )


@functools.cache
def _escape_pattern() -> re.Pattern[str]:
    return re.compile(
        r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})|u(?P<short>[0-9A-Fa-f]{4})"
        r"|U(?P<long>[0-9A-Fa-f]{8})|(?P<other>.))",
        re.DOTALL,
    )


def tokenize(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Return the tokens of ``text[start:end]``, and a last one of kind ``end``.

    The text of the last token is the character at ``end``: the parenthesis that closes the items,
    or "" at the end of the text.

    Raises:
        LanguageError: a character begins no token, or a quote is not closed.
    """
    end = len(text) if end is None else end
    match = _token_pattern().match
    tokens: list[Token] = []
    at = start
    while found := match(text, at, end):
        kind = found.lastgroup
        at = found.end()
        tokens.append(Token(kind, found[kind], found.start(kind), at))  # type: ignore[arg-type, index]
    while at < end and text[at] in _BLANKS:
        at += 1
    if at < end:
        raise LanguageError(text, at, _not_a_token(text[at]))
    tokens.append(Token("end", text[end : end + 1], end, end))
    return tokens


def _not_a_token(character: str) -> str:
    if character == '"':
        return "the string that begins here is not closed: expected '\"' at its end"
    if character == "'":
        return "the character constant that begins here is not closed: expected a ' at its end"
    return f"found {quotable(character)}, which is no part of the language"


def integer_value(token: Token, text: str) -> tuple[int, bool, int]:
    """Return the value of an integer constant, whether it is unsigned, and its size in bytes.

    Its type is that of C17 6.4.4.1; a duration is a long.

    Raises:
        LanguageError: the token is not a number, is a floating-point number, or exceeds 64 bits.
    """
    duration = nanoseconds(token.text)
    if duration is not None:
        if duration >= 1 << 63:
            raise LanguageError(text, token.start, f"{token} is beyond 64 bits of nanoseconds")
        return duration, False, 8
    word = token.text.lower()
    digits = word.rstrip("ul")
    suffix = word[len(digits) :]
    base, digits = _base(digits)
    if suffix not in ("", "u", "l", "ul", "lu", "ll", "ull", "llu") or not digits:
        raise LanguageError(text, token.start, f"found {token}: {_EXPECTED}")
    known = "0123456789abcdef"[:base]
    wrong = next((digit for digit in digits if digit not in known), "")
    if wrong:
        raise LanguageError(text, token.start, _wrong_digit(token, base, wrong))
    digits = digits.lstrip("0") or "0"
    # int() raises an error for thousands of digits.
    value = int(digits, base) if len(digits) <= 64 else _MAX_INTEGER + 1
    if value > _MAX_INTEGER:
        reason = f"{token} is beyond 64 bits: expected at most {_MAX_INTEGER}"
        raise LanguageError(text, token.start, reason)
    unsigned, size = _type_of(value, base, suffix)
    return value, unsigned, size


def _base(digits: str) -> tuple[int, str]:
    if digits.startswith("0x"):
        return 16, digits[2:]
    if digits.startswith("0b"):
        return 2, digits[2:]
    return (8 if digits.startswith("0") and digits != "0" else 10), digits


def _wrong_digit(token: Token, base: int, wrong: str) -> str:
    if wrong == "." or (base in (8, 10) and wrong == "e"):
        known = "floating-point constants are not part of the language"
        return f"found {token}: {known}; a duration has a unit, as in 2.5ms"
    if base == 8 and wrong.isdigit():
        return f"found {token}: a number that begins with 0 is octal, and {wrong} no octal digit"
    return f"found {token}: {_EXPECTED}"


def _type_of(value: int, base: int, suffix: str) -> tuple[bool, int]:
    # Of the types that the suffix and the base allow, the first that can represent the value:
    # whether it is unsigned, and its size in bytes.
    small, unsigned = "l" not in suffix, "u" in suffix
    if small and not unsigned and value < 1 << 31:
        return False, 4
    if small and (unsigned or base != 10) and value < 1 << 32:
        return True, 4
    return unsigned or value >= 1 << 63, 8


def character_value(token: Token, text: str) -> int:
    r"""Return the value of a character constant, 0…127.

    Raises:
        LanguageError: there is not exactly one character, or it is not ASCII: the value of '\xff'
            depends on the CPU.
    """
    value = string_value(text, token.start, token.end)
    if len(value) == 1 and value[0] < 128:
        return value[0]
    if not value:
        reason = "found '': a character constant holds one character"
    elif len(value) == 1:
        reason = f"{token} is {value[0]} or {value[0] - 256}, as the CPU has it: write the number"
    elif value.isascii():
        reason = f"found {token}: strings stand in double quotes"
    else:
        reason = f"{token} is not one byte: expected an ASCII character, or a string"
    raise LanguageError(text, token.start, reason)


def string_parts(text: str, start: int, end: int) -> tuple[bytes, ...]:
    """Return the bytes of the string ``text[start:end]``, split at its unescaped stars.

    Stars in a row are one.

    Raises:
        LanguageError: as :func:`string_value`.
    """
    cuts = [start, *_stars(text, start + 1, end - 1), end - 1]
    parts = [string_value(text, one, two + 1) for one, two in pairwise(cuts)]
    return (parts[0], *filter(None, parts[1:-1]), *parts[1:][-1:])


def _stars(text: str, start: int, end: int) -> list[int]:
    # The positions of the stars that no escape has.
    escaped_or_star = re.compile(r"\\.|\*", re.DOTALL)
    return [
        found.start() for found in escaped_or_star.finditer(text, start, end) if found[0] == "*"
    ]


def string_value(text: str, start: int, end: int) -> bytes:
    """Return the bytes of the string ``text[start:end]``, which includes the quotes.

    Raises:
        LanguageError: an escape is not one of C's or exceeds a byte, or the text has a lone
            surrogate that does not represent a byte.
    """
    pieces: list[bytes] = []
    at, last = start + 1, end - 1
    for found in _escape_pattern().finditer(text, at, last):
        pieces += [_utf8(text, at, found.start()), _escaped(text, found)]
        at = found.end()
    pieces.append(_utf8(text, at, last))
    return b"".join(pieces)


def _utf8(text: str, start: int, end: int) -> bytes:
    try:
        return text[start:end].encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as err:
        column = start + err.start
        reason = f"found {quotable(text[column])}: a lone surrogate is not a character"
        raise LanguageError(text, column, reason) from err


def _escaped(text: str, found: re.Match[str]) -> bytes:
    kind, digits = found.lastgroup, found[found.lastgroup or 0]
    if kind == "other":
        if digits in _ESCAPES:
            return bytes((_ESCAPES[digits],))
        reason = f"found the escape {quotable(found[0])}, which C does not have"
        raise LanguageError(text, found.start(), reason)
    number = int(digits, 8 if kind == "octal" else 16) if len(digits) <= 64 else 1 << 32
    if kind in ("octal", "hex"):
        if number < 256:
            return bytes((number,))
        reason = f"the escape {quotable(found[0])} is beyond a byte"
        raise LanguageError(text, found.start(), reason)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise LanguageError(text, found.start(), f"{quotable(found[0])} is not a character")
    return chr(number).encode()
