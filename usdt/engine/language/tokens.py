r"""Text of the probe language to tokens, and constants to values.

C's lexical rules (C17 6.4), with these differences: binary constants and ``\e`` as GNU C has
them, no floating-point constants, no comments, no joined strings.
"""

from __future__ import annotations

import functools
import re
from typing import Literal, NamedTuple

from usdt.base.errors import LanguageError
from usdt.base.text import printable

__all__ = (
    "MAX_LENGTH",
    "STRING",
    "Token",
    "character_value",
    "check_length",
    "integer_value",
    "quotable",
    "string_value",
    "tokenize",
)

MAX_LENGTH = 16384  # characters of a probe; nobody writes one, and programs can be told
_MAX_SHOWN = 40  # characters of a token in a message
_MAX_INTEGER = (1 << 64) - 1

_BLANKS = " \t\r\n\f\v"
# A string as a regular expression; possessive, so that it never tries twice.
STRING = r'"(?:[^"\\]++|\\.)*+"'
_CHARACTER = r"'(?:[^'\\]++|\\.)*+'"
# The longest first. Some are here only to be refused as what they are.
_OPERATORS = (
    "<<= >>= -> ++ -- << >> <= >= == != && || += -= *= /= %= &= |= ^= "
    "! ~ - + * / % & | ^ < > = ? : ; ( ) [ ] , . { }"
)

_ESCAPES = {
    "a": 7, "b": 8, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11,
    "\\": 92, "'": 39, '"': 34, "?": 63,
}  # fmt: skip


class Token(NamedTuple):
    """One token; ``start`` and ``end`` are columns into the whole text."""

    kind: Literal["name", "number", "string", "character", "operator", "end"]
    text: str
    start: int
    end: int

    def __str__(self) -> str:
        """As a message names it."""
        if self.kind in ("string", "character"):
            return _shortened(self.text)  # it has quotes of its own
        return quotable(self.text) if self.text else "the end"


def quotable(text: str) -> str:
    """Text in quotes for a one-line message: shortened, control characters escaped."""
    quote = '"' if "'" in text else "'"
    return quote + _shortened(text) + quote


def _shortened(text: str) -> str:
    if len(text) > _MAX_SHOWN:
        text = text[: _MAX_SHOWN - 1] + "…"
    return printable(text)


def check_length(text: str) -> None:
    """Refuse a text longer than :data:`MAX_LENGTH`.

    Raises:
        LanguageError: its ``text`` is only the beginning.
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
        r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]++)|u(?P<short>[0-9A-Fa-f]{4})"
        r"|U(?P<long>[0-9A-Fa-f]{8})|(?P<other>.))",
        re.DOTALL,
    )


def tokenize(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """The tokens of ``text[start:end]``, and one of kind ``end``.

    The last one's text is what stands at ``end``: the parenthesis that closes the items, or "".

    Raises:
        LanguageError: a character that begins no token, or a quote that is not closed.
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
    """Value, whether it is unsigned, and size of an integer constant, by C17 6.4.4.1.

    Raises:
        LanguageError: not a number, a floating-point number, or beyond 64 bits.
    """
    word = token.text.lower()
    digits = word.rstrip("ul")
    suffix = word[len(digits) :]
    base, digits = _base(digits)
    if suffix not in ("", "u", "l", "ul", "lu", "ll", "ull", "llu") or not digits:
        raise LanguageError(text, token.start, f"found {token}: expected a number")
    known = "0123456789abcdef"[:base]
    wrong = next((digit for digit in digits if digit not in known), "")
    if wrong:
        raise LanguageError(text, token.start, _wrong_digit(token, base, wrong))
    digits = digits.lstrip("0") or "0"
    # int() itself refuses thousands of digits, with an error of its own.
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
        return f"found {token}: floating-point constants are not part of the language"
    if base == 8 and wrong.isdigit():
        return f"found {token}: a number that begins with 0 is octal, and {wrong} no octal digit"
    return f"found {token}: expected a number"


def _type_of(value: int, base: int, suffix: str) -> tuple[bool, int]:
    # The first type that holds the value, of those the suffix and the base allow.
    small, unsigned = "l" not in suffix, "u" in suffix
    if small and not unsigned and value < 1 << 31:
        return False, 4
    if small and (unsigned or base != 10) and value < 1 << 32:
        return True, 4
    return unsigned or value >= 1 << 63, 8


def character_value(token: Token, text: str) -> int:
    r"""The value of a character constant, 0…127.

    Raises:
        LanguageError: no or several characters, or one that is not ASCII: what '\xff' is depends
            on the CPU.
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


def string_value(text: str, start: int, end: int) -> bytes:
    """The bytes that ``text[start:end]``, quotes included, stands for.

    Raises:
        LanguageError: an escape that C does not have or that is beyond a byte, or a lone
            surrogate that stands for no byte.
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
