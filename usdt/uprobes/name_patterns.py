"""Match patterns against symbol names, mangled and demangled."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from usdt.base.text import closest
from usdt.demangle.demangle import demangle

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = (
    "bare_name",
    "closest_path",
    "is_mangled",
    "literal_of",
    "name_matcher",
    "required_text",
    "shown_name",
)

_MANGLED = ("_Z", "__Z", "_R", "__R")
_ESCAPED = re.compile(r"\[([*?\[])\]")
_MAGIC = re.compile(r"[*?\[]")
_OPEN, _CLOSE = "(<[{", ")>]}"
_METHOD = re.compile(r"<([\w:]+(?:<.*>)?)>(::.*)")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]+")
# Identifiers that mangling abbreviates or encodes differently.
_ABBREVIATED = frozenset(
    (
        *(
            "std",
            "allocator",
            "basic_string",
            "string",
            "basic_istream",
            "basic_ostream",
            "basic_iostream",
        ),
        *("istream", "ostream", "iostream", "char_traits", "char", "traits", "operator"),
        *("const", "unsigned", "signed", "short", "int", "long", "float"),
        *("double", "bool", "void", "wchar_t", "anonymous", "namespace", "impl"),
        *("dyn", "mut", "str", "new", "delete", "closure", "self"),
        *("Self"),
    )
)


def is_mangled(name: str) -> bool:
    """Return True if a symbol looks like a mangled C++ or Rust name."""
    return name.startswith(_MANGLED)


def literal_of(pattern: str) -> str | None:
    """Return the only name that a pattern can match; None if it can match several."""
    plain = _ESCAPED.sub("", pattern)
    return None if _MAGIC.search(plain) else _ESCAPED.sub(r"\1", pattern)


def bare_name(demangled: str) -> str:
    """Strip parameters and result from a name: ``void ns::f<int>(int)`` → ``ns::f<int>``."""
    # Mask the angle brackets and parentheses of operators.
    text = demangled
    for operator in ("operator<<=", "operator>>=", "operator<=>", "operator<<", "operator>>"):
        text = text.replace(operator, "operator" + "_" * (len(operator) - 8))
    for operator in ("operator->*", "operator->", "operator<=", "operator>=", "operator<"):
        text = text.replace(operator, "operator" + "_" * (len(operator) - 8))
    text = text.replace("operator>", "operator_").replace("operator()", "operator__")
    depth, end, start = 0, len(text), 0
    for at, character in enumerate(text):
        if character == "(" and not depth and not text.startswith("(anonymous", at):
            end = at
            break
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == " " and not depth and "operator" not in text[start:at]:
            start = at + 1
    return demangled[start:end] or demangled


def shown_name(symbol: str) -> str:
    """Return the demangled name of a symbol, or the symbol."""
    return demangle(symbol) if is_mangled(symbol) else symbol


def closest_path(wanted: str, known: Iterable[str]) -> str:
    """Return the path among ``known`` whose last name is most like that of another, or ""."""
    last = {one.rpartition("::")[2]: one for one in known}
    name = wanted.rpartition("::")[2]
    found = closest(name, sorted(last, key=lambda one: one[:1] != name[:1]), 0.7)
    return last.get(found, "")


def _without_templates(name: str) -> str:
    # Strip template arguments at the end: std::sort also matches std::sort<int*>.
    if not name.endswith(">") or "operator" in name:
        return name
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] == ">") - (name[at] == "<")
        if not depth:
            return name[:at]
    return name


def _of_method(name: str) -> str:
    # In Rust's v0 mangling, shop::Toy::rename is <shop::Toy>::rename.
    match = _METHOD.match(name)
    return f"{match[1]}{match[2]}" if match and " as " not in match[1] else name


class name_matcher:  # noqa: N801 - used as a function
    """A predicate on symbols: True if a symbol matches the pattern, mangled or demangled."""

    def __init__(self, pattern: str) -> None:
        self._match = re.compile(fnmatch.translate(pattern)).match
        self._required = required_text(pattern)

    def __call__(self, symbol: str) -> bool:
        """Return True if a symbol of a symbol table matches."""
        if self._match(symbol):
            return True
        if not is_mangled(symbol) or self._required not in symbol:
            return False
        full = demangle(symbol)
        if full == symbol:
            return False
        bare = bare_name(full)
        return any(map(self._match, (full, bare, _without_templates(bare), _of_method(bare))))


def required_text(pattern: str) -> str:
    """Return text that every matching mangled name contains; "" if there is none.

    A mangled name contains its identifiers verbatim, unless the mangling abbreviates them.
    """
    head = _ESCAPED.sub(" ", pattern).partition("(")[0].partition("<")[0]
    if "operator" in head or "[" in head:
        return ""
    last = head.rpartition("::")[2]
    if len(last) == 1 and last.isalpha():
        return f"1{last}"  # mangled names contain the length before the identifier
    found = [word for word in _IDENTIFIER.findall(last) if word not in _ABBREVIATED]
    return max(found, key=len, default="")
