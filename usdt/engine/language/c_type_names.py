"""Parsing of the type names in casts: those of C, and paths of C++ and Rust."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError
from usdt.engine.language.tree import TypeKind, TypeName

if TYPE_CHECKING:
    from usdt.engine.language.tokens import Token

__all__ = ("NAMED_TYPES", "TYPE_WORDS", "read_cast", "read_path")

# C17 6.7.2: type specifiers, in the order of _ORDER, → name, size and whether signed. "signed" is
# left out except for "signed char", and so is the "int" of "long int". Sizes are those of LP64.
_BASIC = {
    "char": ("char", 1, True),
    "signed char": ("signed char", 1, True),
    "char unsigned": ("unsigned char", 1, False),
    "short": ("short", 2, True),
    "short unsigned": ("unsigned short", 2, False),
    "int": ("int", 4, True),
    "int unsigned": ("unsigned int", 4, False),
    "long": ("long", 8, True),
    "long unsigned": ("unsigned long", 8, False),
    "long long": ("long long", 8, True),
    "long long unsigned": ("unsigned long long", 8, False),
    "_Bool": ("bool", 1, False),
}

# Typedef names → size and whether signed. Their size is the same wherever a long has eight bytes.
NAMED_TYPES: dict[str, tuple[int, bool]] = {
    "bool": (1, False),
    "gfp_t": (4, False),
    "gid_t": (4, False),
    "intptr_t": (8, True),
    "ktime_t": (8, True),
    "loff_t": (8, True),
    "off_t": (8, True),
    "pid_t": (4, True),
    "ptrdiff_t": (8, True),
    "sector_t": (8, False),
    "size_t": (8, False),
    "ssize_t": (8, True),
    "time_t": (8, True),
    "uid_t": (4, False),
    "uintptr_t": (8, False),
    "umode_t": (2, False),
}
for _bits in (8, 16, 32, 64):
    for _name in (f"u{_bits}", f"__u{_bits}", f"uint{_bits}_t"):
        NAMED_TYPES[_name] = (_bits // 8, False)
    for _name in (f"s{_bits}", f"__s{_bits}", f"int{_bits}_t"):
        NAMED_TYPES[_name] = (_bits // 8, True)

_QUALIFIERS = frozenset(("const", "volatile", "restrict", "__user", "__rcu"))
_BASIC_WORDS = frozenset(("char", "short", "int", "long", "signed", "unsigned", "_Bool"))
_TAGS = {kind.value: kind for kind in (TypeKind.STRUCT, TypeKind.UNION, TypeKind.ENUM)}
_FLOATS = frozenset(("float", "double"))
_MAX_ARGUMENTS = 512  # tokens of the arguments of a template

# Keywords and qualifiers that can only begin a type.
TYPE_WORDS = _BASIC_WORDS | _QUALIFIERS | _FLOATS | frozenset(("void", *_TAGS))

# The token after "(name)": a kind of the first set or an operator of the second makes it a cast.
# An operator of the third may also be binary; it makes a cast only if the name is a known type.
_OPERAND_KINDS = frozenset(("name", "number", "string", "character"))
_SURELY_OPERAND = frozenset(("(", "!", "~"))
_MAYBE_OPERAND = frozenset(("-", "+", "*", "&"))


def read_cast(tokens: list[Token], index: int, text: str) -> tuple[TypeName, int] | None:
    """Read the cast whose ``(`` is ``tokens[index]``.

    The parser does not know every type. It takes ``(name)`` with an unknown name for a cast if
    the next token begins an operand and cannot be a binary operator.

    Returns:
        The type, and the index of the token after ``)``. None if the parenthesis is not a cast.

    Raises:
        LanguageError: the type is incomplete, or nothing can be cast to it.
    """
    first = tokens[index + 1]
    if first.kind != "name":
        return None
    if first.text in TYPE_WORDS:
        return _closed(tokens, *_read_type(tokens, index + 1, text), text)
    # "class" is also the name of parameters in C.
    of_class = first.text == "class" and tokens[index + 2].kind == "name"
    name, behind = read_path(tokens, index + 2 if of_class else index + 1)
    pointers, after = _stars(tokens, behind)
    if tokens[after].text != ")" or tokens[after].kind != "operator":
        return None
    if of_class and not pointers:
        raise LanguageError(text, tokens[after].start, _no_object(f"class {name}"))
    if not pointers and "::" not in name:
        known = name in NAMED_TYPES
        if "<" in name or not _operand_follows(tokens[after + 1], known=known):
            return None
    return _named(name, pointers), after + 1


def read_path(tokens: list[Token], index: int) -> tuple[str, int]:
    """Read a name of C++ or Rust, ``a::b<c, d*>::e``; return it, and the index after it."""
    name = tokens[index].text
    index += 1
    while True:
        if tokens[index].text == "::" and tokens[index + 1].kind == "name":
            name, index = f"{name}::{tokens[index + 1].text}", index + 2
            continue
        arguments = _read_arguments(tokens, index) if tokens[index].text == "<" else None
        if arguments is None:
            return name, index
        name, index = name + arguments[0], arguments[1]


def _read_arguments(tokens: list[Token], index: int) -> tuple[str, int] | None:
    # Read <int, std::allocator<int> >, as compilers write it in debug information; None if it does
    # not end before the parenthesis does.
    pieces: list[str] = []
    depth = 0
    for token in tokens[index : index + _MAX_ARGUMENTS]:
        if token.kind not in ("name", "number", "operator") or token.text in ("", ")", ";"):
            return None
        depth += {"<": 1, ">": -1, ">>": -2}.get(token.text, 0)
        before = pieces[-1][-1] if pieces else ""
        if (token.text in (">", ">>") and before == ">") or (
            token.text[0].isalnum() and (before.isalnum() or before == "_")
        ):
            pieces.append(" ")
        pieces.append({",": ", ", ">>": "> >"}.get(token.text, token.text))
        index += 1
        if depth <= 0:
            return None if depth else ("".join(pieces), index)
    return None


def _no_object(shown: str) -> str:
    return f"nothing can be cast to {shown} itself: expected '*' before ')'"


def _operand_follows(token: Token, *, known: bool) -> bool:
    if token.kind == "operator":
        return token.text in _SURELY_OPERAND or (known and token.text in _MAYBE_OPERAND)
    return token.kind in _OPERAND_KINDS


def _named(name: str, pointers: int) -> TypeName:
    if name in NAMED_TYPES:
        return TypeName(TypeKind.INTEGER, name, *NAMED_TYPES[name], pointers)
    return TypeName(TypeKind.TYPEDEF, name, 0, signed=False, pointers=pointers)


def _stars(tokens: list[Token], index: int) -> tuple[int, int]:
    # Return the number of "*", and the index after them and their qualifiers.
    count = 0
    while tokens[index].text == "*" or tokens[index].text in _QUALIFIERS:
        count += tokens[index].text == "*"
        index += 1
    return count, index


def _closed(tokens: list[Token], kind: TypeName, index: int, text: str) -> tuple[TypeName, int]:
    found = tokens[index]
    if found.kind != "operator" or found.text != ")":
        reason = f"expected ')' after the type {kind.tagged_name}, found {found}"
        raise LanguageError(text, found.start, reason)
    if not kind.castable:
        raise LanguageError(text, found.start, _no_object(kind.tagged_name))
    return kind, index + 1


def _read_type(tokens: list[Token], index: int, text: str) -> tuple[TypeName, int]:
    begin = index
    words: list[Token] = []
    while tokens[index].text in TYPE_WORDS:
        if tokens[index].text not in _QUALIFIERS:
            words.append(tokens[index])
        index += 1
    if words and words[-1].text in _TAGS:
        return _read_tagged(tokens, words, index, text)
    if not words and tokens[index].kind == "name":  # (const foo_t *)
        name, behind = read_path(tokens, index)
        pointers, after = _stars(tokens, behind)
        return _named(name, pointers), after
    if not words:
        reason = f"expected a type's name after {tokens[index - 1]}, found {tokens[index]}"
        raise LanguageError(text, tokens[index].start, reason)
    pointers, after = _stars(tokens, index)
    if [word.text for word in words] == ["void"]:
        return TypeName(TypeKind.VOID, "void", 0, signed=False, pointers=pointers), after
    name, size, signed = _basic(words, tokens[begin], text)
    return TypeName(TypeKind.INTEGER, name, size, signed, pointers), after


def _read_tagged(
    tokens: list[Token], words: list[Token], index: int, text: str
) -> tuple[TypeName, int]:
    tag, name = words[-1], tokens[index]
    if len(words) > 1:
        reason = f"{tag} does not go with '{words[0].text}' in one type"
        raise LanguageError(text, tag.start, reason)
    if name.kind != "name":
        raise LanguageError(text, name.start, f"expected a name after {tag}, found {name}")
    path, behind = read_path(tokens, index)
    pointers, after = _stars(tokens, behind)
    size = 4 if tag.text == "enum" else 0
    return TypeName(_TAGS[tag.text], path, size, signed=False, pointers=pointers), after


def _basic(words: list[Token], first: Token, text: str) -> tuple[str, int, bool]:
    names = sorted(word.text for word in words)
    if not _FLOATS.isdisjoint(names):
        reason = "casts go to integer types and pointers, not to floating point"
        raise LanguageError(text, words[0].start, reason)
    spelled = " ".join(word.text for word in words)
    if "char" not in names and names.count("signed") == 1 and "unsigned" not in names:
        names.remove("signed")
        names = names or ["int"]
    if names == ["unsigned"]:
        names = ["int", "unsigned"]
    if names.count("int") == 1 and ("short" in names or "long" in names):
        names.remove("int")
    basic = _BASIC.get(" ".join(sorted(names, key=_ORDER.index)))
    if basic is None:
        raise LanguageError(text, first.start, f"'{spelled}' is not a type of C")
    return basic


_ORDER = ("signed", "char", "short", "int", "long", "_Bool", "unsigned", "void", *_TAGS)
