"""Rendering of trees as text, and of errors with a caret under the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.text import printable
from usdt.engine.language.tree import (
    PRECEDENCE,
    Binary,
    Call,
    Cast,
    Index,
    Integer,
    Member,
    Name,
    Text,
    TypeKind,
    Unary,
)

if TYPE_CHECKING:
    from usdt.base.errors import LanguageError
    from usdt.engine.language.tree import Expression, TypeName

__all__ = ("caret", "render", "render_type")

_AROUND = 60  # characters shown on each side of the error
_NAMED_BYTES = {
    7: "a",
    8: "b",
    9: "t",
    10: "n",
    11: "v",
    12: "f",
    13: "r",
    34: '"',
    42: "*",
    92: "\\",
}


def caret(error: LanguageError) -> str:
    """Return the text on one line, and a second line with ``^`` under the column of the error.

    The lines are for terminals: characters that are not printable are escaped, a long text is cut
    on both sides, and East Asian wide characters count as two columns.
    """
    column = min(max(error.column, 0), len(error.text))
    start, end = max(column - _AROUND, 0), column + _AROUND
    before = ("…" if start else "") + printable(error.text[start:column])
    after = printable(error.text[column:end]) + ("…" if end < len(error.text) else "")
    return f"{before}{after}\n{' ' * _width(before)}^"


def _width(text: str) -> int:
    # Return the width of text in columns of a terminal.
    if text.isascii():
        return len(text)
    import unicodedata  # noqa: PLC0415 - only for a message

    marks = sum(unicodedata.combining(character) != 0 for character in text)
    wide = sum(unicodedata.east_asian_width(character) in ("W", "F") for character in text)
    return len(text) + wide - marks


def render(tree: Expression, *, full: bool = False) -> str:
    """Return the canonical text of an expression; parsing it gives an equal tree.

    Args:
        tree: a tree of at most :data:`~usdt.engine.language.tree.MAX_HEIGHT` levels.
        full: put parentheses around every operation, even if they are not needed.
    """
    match tree:
        case Name():
            return f"out({tree.name})" if tree.at_return else tree.name
        case Integer():
            return _integer(tree)
        case Text():
            return _text(tree)
        case Call():
            arguments = ", ".join(render(argument, full=full) for argument in tree.arguments)
            return f"{tree.function}({arguments})"
        case Member():
            return f"{_object(tree.object, full=full)}{'->' if tree.arrow else '.'}{tree.name}"
        case Index():
            return f"{_object(tree.object, full=full)}[{render(tree.index, full=full)}]"
    text = _operation(tree, full=full)
    return f"({text})" if full else text


def _operation(tree: Unary | Cast | Binary, *, full: bool) -> str:
    if isinstance(tree, Binary):
        level = PRECEDENCE[tree.op]
        left = _operand(tree.left, level, full=full)
        return f"{left} {tree.op} {_operand(tree.right, level + 1, full=full)}"
    operand = _operand(tree.operand, len(PRECEDENCE), full=full)
    if isinstance(tree, Unary):
        blank = " " if operand.startswith(tree.op) and tree.op in ("-", "+", "&") else ""
        return f"{tree.op}{blank}{operand}"
    if tree.type.kind is TypeKind.TYPEDEF and not tree.type.pointers and operand[0] in "-+*":
        operand = f"({operand})"  # (name)-1 would be a subtraction
    return f"({render_type(tree.type)}){operand}"


def _operand(tree: Expression, level: int, *, full: bool) -> str:
    # Put an operator that binds less tightly than ``level`` in parentheses.
    text = render(tree, full=full)
    needed = isinstance(tree, Binary) and PRECEDENCE[tree.op] < level
    return f"({text})" if needed and not full else text


def _object(tree: Expression, *, full: bool) -> str:
    text = render(tree, full=full)
    needed = isinstance(tree, Unary | Cast | Binary) and not full
    return f"({text})" if needed or isinstance(tree, Integer) else text


def render_type(kind: TypeName) -> str:
    """Return a type as it is written in a cast, without the parentheses."""
    stars = " " + "*" * kind.pointers if kind.pointers else ""
    return kind.tagged_name + stars


def _text(tree: Text) -> str:
    return '"' + "*".join("".join(map(_byte, part)) for part in tree.parts) + '"'


def _integer(tree: Integer) -> str:
    suffix = "u" if tree.unsigned else ""
    if tree.size == 8 and tree.value < 1 << (32 if tree.unsigned else 31):
        suffix += "l"
    return f"{tree.value}{suffix}"


def _byte(value: int) -> str:
    if value in _NAMED_BYTES:
        return "\\" + _NAMED_BYTES[value]
    # An octal escape ends after three digits, so the next character cannot become a part of it.
    return chr(value) if 32 <= value < 127 else f"\\{value:03o}"
