"""Parsing of C's definitions of types: structures, unions, enumerations, typedefs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.programs.syntax.grammar.statements import StatementParser
from usdt.engine.programs.syntax.grammar.types import TAGS
from usdt.engine.programs.syntax.program import (
    EnumDefinition,
    Enumerator,
    StructDefinition,
    StructMember,
    Typedef,
)
from usdt.engine.programs.syntax.tree import ArrayType, NamedType, PointerType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from usdt.engine.programs.syntax.defines import Define
    from usdt.engine.programs.syntax.program import Definition
    from usdt.engine.programs.syntax.source import Source
    from usdt.engine.programs.syntax.tokens import Token
    from usdt.engine.programs.syntax.tree import Expression, Type

__all__ = ("DEFINING", "DefinitionParser")

#: The words that begin a definition.
DEFINING = frozenset((*TAGS, "typedef"))

_ATTRIBUTES = frozenset(("__attribute__", "__attribute"))
_PACKED = frozenset(("packed", "__packed__"))


class _Array:
    # A size of an array in a declarator, with its height.
    def __init__(self, length: Expression | None, height: int) -> None:
        self.length = length
        self.height = height


# What a declarator makes of a type, in this order: a pointer, an array, a function.
_Derivation = _Array | str
_POINTER, _FUNCTION = "*", "()"


class DefinitionParser(StatementParser):
    """Reads definitions of types."""

    def __init__(self, source: Source, text: str, defines: Mapping[str, Define]) -> None:
        super().__init__(source, text, defines)
        self.definitions: list[Definition] = []

    def definition(self) -> None:
        """Read a definition, and the semicolon after it; those in it come first in the list.

        Raises:
            ProgramError: it is not valid.
        """
        start = self.token.start
        if self.accept("typedef"):
            base = self._defined_type()
            while True:
                name, kind = self._declarator(base)
                if name is None:
                    self.fail("the new name of the type")
                self.typedefs.add(name.text)
                self.definitions.append(Typedef(name.text, kind, start, self.at))
                if not self.accept(","):
                    break
            self.expect(";", "after the typedef")
            return
        kind = self._defined_type()
        if self.token.kind in ("name", "operator", "bad") and self.token.text != ";":
            if not isinstance(kind, NamedType) or self.previous.text != "}":
                self.fail("'{' and the members of the type")
            self.fail("';' or the next part: programs define types, no variables")
        self.accept(";")

    def _defined_type(self) -> Type:
        # A type that may be defined where it is named.
        self.skip_qualifiers()
        token = self.token
        self.height = 1
        tag = TAGS.get(token.text) if token.kind == "name" else None
        if tag is None:
            return self.base_type()
        self.enter(self.advance())
        packed = self._attributes()
        name = self.advance().text if self.token.kind == "name" else ""
        if self.token.text == "{":
            name = name or f"(anonymous {token.start})"
            if tag == "enum":
                self._enumerators(name, token)
            else:
                self._members(tag, name, token, packed=packed)
        elif not name:
            self.fail(f"the name of the {tag}, or '{{'")
        self.leave()
        self.skip_qualifiers()
        self.height = 1
        return NamedType(tag, name, token.start, self.at)

    def _members(
        self, tag: Literal["struct", "union"], name: str, token: Token, *, packed: bool
    ) -> None:
        self.advance()
        members: list[StructMember] = []
        names: set[str] = set()
        while self.token.text != "}":
            if self.token.kind == "end":
                reason = (
                    f"the {tag} that begins here is not closed: expected '}}' after its members"
                )
                raise self.source.error(token.start, reason)
            if self.accept(";"):
                continue
            members += self._member_line(names)
        self.advance()
        packed |= self._attributes()
        made = StructDefinition(tag, name, tuple(members), packed, token.start, self.at)
        self.definitions.append(made)

    def _member_line(self, names: set[str]) -> list[StructMember]:
        base = self._defined_type()
        members: list[StructMember] = []
        while True:
            name, kind = self._declarator(base)
            bits = None
            if self.accept(":"):
                bits = self.expression()
            elif name is None and not (isinstance(base, NamedType) and base.tag):
                self.fail("the name of a member")
            self._attributes()
            named = name.text if name else ""
            if name is not None:
                if named in names:
                    raise self.source.error(name.start, f"found a second member {name}")
                names.add(named)
            members.append(StructMember(named, kind, bits, base.start, self.at))
            if not self.accept(","):
                break
        if self.token.text != "}":  # as in bpftrace, but not in C
            self.expect(";", "after the member")
        return members

    def _declarator(self, base: Type) -> tuple[Token | None, Type]:
        height = self.height
        name, derivations = self._derivations()
        kind = base
        self.height = height
        is_function = False
        for one in derivations:
            if isinstance(one, _Array):
                kind = ArrayType(kind, one.length, base.start, self.at)
                self.grow(base.start, self.height, one.height)
            elif one == _POINTER:
                kind = PointerType(kind, base.start, self.at)
                self.grow(base.start, self.height)
            else:
                kind = NamedType("", "void", base.start, self.at)
            is_function = one == _FUNCTION
        if is_function:
            start = name.start if name else base.start
            raise self.source.error(start, "a function is no type of a member: expected a pointer")
        return name, kind

    def _derivations(self) -> tuple[Token | None, list[_Derivation]]:
        # The name in a declarator, and what it makes of the type, the nearest to the type first.
        self._attributes()
        found: list[_Derivation] = []
        while self.accept("*"):
            self.skip_qualifiers()
            found.append(_POINTER)
        name: Token | None = None
        inner: list[_Derivation] = []
        if self.token.text == "(":
            self.enter(self.advance())
            name, inner = self._derivations()
            self.leave()
            self.expect(")", "in the declaration")
        elif self.token.kind == "name" and self.token.text not in _ATTRIBUTES:
            name = self.advance()
        return name, found + self._suffixes() + inner

    def _suffixes(self) -> list[_Derivation]:
        found: list[_Derivation] = []
        while True:
            if self.accept("["):
                self.height = 1
                length = None if self.token.text == "]" else self.expression()
                self.expect("]", "after the length of the array")
                found.append(_Array(length, self.height))
            elif self.token.text == "(":
                self._skip_parenthesis()
                found.append(_FUNCTION)
            else:
                self._attributes()
                return found[::-1]

    def _enumerators(self, name: str, token: Token) -> None:
        self.advance()
        found: list[Enumerator] = []
        while self.token.text != "}":
            constant = self.name("the name of a constant, or '}'")
            value = self.expression() if self.accept("=") else None
            found.append(Enumerator(constant.text, value, constant.start, self.at))
            if not self.accept(",") and self.token.text != "}":
                self.fail("',' or '}' after the constant")
        self.advance()
        self._attributes()
        self.definitions.append(EnumDefinition(name, tuple(found), token.start, self.at))

    def _attributes(self) -> bool:
        # Take attributes; return whether one is "packed". The others change no place of a member,
        # or are refused.
        packed = False
        while self.token.kind == "name" and self.token.text in _ATTRIBUTES:
            attribute = self.advance()
            words = self._skip_parenthesis()
            packed |= bool(words & _PACKED)
            wrong = words & {"aligned", "__aligned__"}
            if wrong:
                reason = "the attribute 'aligned' is not supported: add members that fill up"
                raise self.source.error(attribute.start, reason)
        return packed

    def _skip_parenthesis(self) -> set[str]:
        # Take a parenthesis with all in it; return its words.
        opening = self.expect("(", "after the attribute")
        words: set[str] = set()
        depth = 1
        while depth:
            token = self.advance()
            if token.kind == "end":
                raise self.source.error(opening.start, "this parenthesis is not closed")
            words.add(token.text)
            depth += (token.text == "(") - (token.text == ")")
        return words
