"""Parsing of types: those of the language, of C, and of definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.language.c_type_names import NAMED_TYPES
from usdt.engine.programs.syntax.grammar.cursor import Cursor
from usdt.engine.programs.syntax.tree import ArrayType, NamedType, PointerType, TypeOf

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from usdt.engine.programs.syntax.defines import Define
    from usdt.engine.programs.syntax.source import Source
    from usdt.engine.programs.syntax.tokens import Token
    from usdt.engine.programs.syntax.tree import Expression, Type

__all__ = ("LANGUAGE_TYPES", "TAGS", "TypeParser")

TAGS: Mapping[str, Literal["struct", "union", "enum"]] = {
    "struct": "struct",
    "union": "union",
    "enum": "enum",
}

# The types of the language; the names of aggregations are those of 0.26.
LANGUAGE_TYPES = frozenset(
    (
        *(
            "bool",
            "buffer",
            "cgroup_path_t",
            "inet",
            "kstack_t",
            "ksym_t",
            "macaddr_t",
            "strerror_t",
        ),
        *("string", "timestamp", "username", "ustack_t", "usym_t", "void"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        *(f"{u}{kind}_t" for u in ("", "u") for kind in ("avg", "max", "min", "stats", "sum")),
        *("count_t", "hist_t", "lhist_t", "tseries_t", "ucount_t"),
    )
)

_QUALIFIERS = frozenset(("const", "volatile", "restrict", "__user", "__rcu", "__percpu"))
_C_WORDS = frozenset(
    ("char", "short", "int", "long", "signed", "unsigned", "float", "double", "_Bool")
)
_BEGINS = frozenset((*TAGS, *_QUALIFIERS, *_C_WORDS, "typeof"))

# Words of a C type without "int", sorted → its one spelling here.
_SPELLINGS = {
    "": "int",
    "signed": "int",
    "unsigned": "unsigned int",
    "char": "char",
    "char signed": "signed char",
    "char unsigned": "unsigned char",
    "short": "short",
    "short signed": "short",
    "short unsigned": "unsigned short",
    "long": "long",
    "long signed": "long",
    "long unsigned": "unsigned long",
    "long long": "long long",
    "long long signed": "long long",
    "long long unsigned": "unsigned long long",
    "float": "float",
    "double": "double",
    "double long": "long double",
    "_Bool": "bool",
}


class TypeParser(Cursor):
    """Reads types where a program names them; the types in definitions have declarators as well."""

    def __init__(self, source: Source, text: str, defines: Mapping[str, Define]) -> None:
        super().__init__(source, text, defines)
        self.typedefs: set[str] = set()  # the names that the program defined so far

    def expression(self) -> Expression:
        """Read an expression."""
        raise NotImplementedError

    def known_type(self, name: str) -> bool:
        """Whether ``name`` is a type without its ``struct``, as far as the parser knows."""
        return name in LANGUAGE_TYPES or name in NAMED_TYPES or name in self.typedefs

    def begins_type(self, ahead: int = 0) -> bool:
        """Whether the next token, or one behind it, can only begin a type, not an expression."""
        token = self.peek(ahead)
        return token.kind == "name" and token.text in _BEGINS

    def type_name(self) -> Type:
        """Read a type with its pointers and array sizes: ``struct file *``, ``uint8[4]``.

        Raises:
            ProgramError: there is no type.
        """
        kind = self.base_type()
        height = self.height
        while True:
            if self.accept("*"):
                self.skip_qualifiers()
                kind = PointerType(kind, kind.start, self.at)
                self.grow(kind.start, height)
                height = self.height
            elif self.token.text == "[":
                kind = self.array(kind)
                height = self.height
            else:
                self.height = height
                return kind

    def base_type(self) -> Type:
        """Read a type without pointers and array sizes.

        Raises:
            ProgramError: there is no type.
        """
        self.skip_qualifiers()
        token = self.token
        self.height = 1
        if token.text == "typeof" and token.kind == "name":
            return self._typeof()
        if token.kind != "name":
            self.fail("a type")
        if token.text in TAGS:
            self.advance()
            tag = TAGS[token.text]
            name = self.name(f"the name of the {tag}")
            kind = NamedType(tag, name.text, token.start, name.end)
        elif token.text in _C_WORDS:
            kind = self._c_type(token)
        else:
            self.advance()
            kind = NamedType("", token.text, token.start, token.end)
        self.skip_qualifiers()
        return kind

    def array(self, element: Type) -> Type:
        """Read the sizes of an array, of which the next token opens the first.

        Raises:
            ProgramError: a size is not closed.
        """
        base = self.height
        lengths: list[tuple[Expression | None, int]] = []
        highest = 0
        while self.accept("["):
            length = None if self.token.text == "]" else self.expression()
            highest = max(highest, self.height if length else 0)
            self.expect("]", "after the length of the array")
            lengths.append((length, self.at))
        kind = element
        self.height = base
        for length, end in reversed(lengths):
            kind = ArrayType(kind, length, element.start, end)
            self.grow(element.start, self.height, highest)
        return kind

    def skip_qualifiers(self) -> None:
        """Take ``const`` and the like, which change nothing."""
        while self.token.kind == "name" and self.token.text in _QUALIFIERS:
            self.advance()

    def type_or_expression(self) -> Expression | Type:
        """Read the operand of ``sizeof`` and the like.

        A name that is not known to be a type is an identifier, if no ``*`` or ``[]`` follows it.
        """
        token = self.token
        following = self.peek().text
        known = token.kind == "name" and self.known_type(token.text)
        pointer = token.kind == "name" and following == "*" and self.peek(2).text in ("*", ")", ",")
        if self.begins_type() or pointer or (known and following in ("*", "[", ")", ",")):
            return self.type_name()
        return self.expression()

    def _typeof(self) -> Type:
        start = self.advance().start
        self.expect("(", "after typeof")
        operand = self.type_or_expression()
        self.expect(")", "after the operand of typeof")
        self.grow(start, self.height)
        return TypeOf(operand, start, self.at)

    def _c_type(self, first: Token) -> NamedType:
        words = []
        while self.token.kind == "name" and self.token.text in _C_WORDS | _QUALIFIERS:
            word = self.advance()
            words += [word.text] if word.text in _C_WORDS else []
        end = self.at
        wanted = " ".join(sorted(word for word in words if word != "int"))
        name = _SPELLINGS.get(wanted)
        if name is None or words.count("int") > 1:
            raise self.source.error(first.start, f"'{' '.join(words)}' is no type of C")
        return NamedType("", name, first.start, end)
