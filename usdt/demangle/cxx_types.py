"""The types of the C++ ABI's grammar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.demangle.bounded import Malformed, Reader
from usdt.demangle.cxx_nodes import (
    Array,
    Expansion,
    Function,
    MemberPointer,
    Name,
    Node,
    Pointer,
    Qualified,
    Seq,
    Template,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("BUILTINS", "NameState", "Types")

BUILTINS = {
    "v": "void",
    "w": "wchar_t",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "n": "__int128",
    "o": "unsigned __int128",
    "f": "float",
    "d": "double",
    "e": "long double",
    "g": "__float128",
    "z": "...",
}
_D_BUILTINS = {
    "a": "auto",
    "c": "decltype(auto)",
    "d": "decimal64",
    "e": "decimal128",
    "f": "decimal32",
    "h": "_Float16",
    "i": "char32_t",
    "n": "decltype(nullptr)",
    "s": "char16_t",
    "u": "char8_t",
}
_POINTERS = {"P": "*", "R": "&", "O": "&&"}
_SUFFIXES = {"C": " _Complex", "G": " _Imaginary"}
_ELABORATED = {"Ts": "struct ", "Tu": "union ", "Te": "enum "}


class NameState:
    """What the name of a function says about its type.

    Attributes:
        template: it ends in template arguments: the result's type is part of the mangled name.
        special: constructor, destructor or conversion, which have no result.
        qualifiers: ``const`` and ``&`` of a member function, as they stand behind it.
    """

    def __init__(self) -> None:
        self.template = False
        self.special = False
        self.qualifiers = ""


class Types(Reader):
    """<type> and what it is made of; names and expressions are its subclasses'."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.subs: list[Node] = []
        self.params: list[Node] = []
        self.args_allowed = True

    def encoding(self) -> Node:
        """<encoding>."""
        raise NotImplementedError

    def expression(self) -> Node:
        """<expression>."""
        raise NotImplementedError

    def substitution(self) -> Node:
        """<substitution>."""
        raise NotImplementedError

    def template_param(self) -> Node:
        """<template-param>."""
        raise NotImplementedError

    def template_args(self, *, tag: bool = False) -> Sequence[Node]:
        """<template-args>."""
        raise NotImplementedError

    def source_name(self) -> str:
        """<source-name>."""
        raise NotImplementedError

    def qualifiers(self) -> str:
        """<CV-qualifiers>."""
        raise NotImplementedError

    def type_name(self) -> Node:
        """<name>, of a class or an enumeration."""
        raise NotImplementedError

    def type(self) -> Node:
        """<type>; everything but a builtin can be substituted for later."""
        with self:
            peek = self.peek()
            if peek in BUILTINS and peek:
                self.next()
                return Name(BUILTINS[peek])
            if peek == "D" and (found := self._d_builtin()) is not None:
                return found
            if peek == "S" and self.peek(2) != "St":
                found = self.substitution()
                if self.peek() != "I" or not self.args_allowed:
                    return found
                found = Template(found, self.template_args())
            else:
                found = self._compound(peek)
            self.subs.append(found)
            return found

    def _compound(self, peek: str) -> Node:
        if peek and peek in "rVK":
            words = self.qualifiers()
            inner = self.type()
            if isinstance(inner, Function):
                # Its qualifiers belong to the member function, not to a type of its own.
                self.subs.pop()
                return inner.with_qualifiers(words)
            return Qualified(inner, words)
        if peek in _POINTERS:
            self.next()
            return Pointer(self.type(), _POINTERS[peek])
        if peek in _SUFFIXES:
            self.next()
            return Qualified(self.type(), _SUFFIXES[peek])
        match peek:
            case "F":
                return self._function("")
            case "A":
                return self._array()
            case "M":
                self.next()
                owner = self.type()
                return MemberPointer(owner, self.type())
            case "T":
                return self._parameter()
            case "D":
                return self._d_compound()
            case "u":
                self.next()
                return Name(self.source_name())
            case "U":
                return self._vendor()
        return self.type_name()

    def _parameter(self) -> Node:
        word = _ELABORATED.get(self.peek(2))
        if word is not None:
            self.next(2)
            return self.type_name()
        found = self.template_param()
        if self.peek() == "I" and self.args_allowed:
            self.subs.append(found)
            return Template(found, self.template_args())
        return found

    def _vendor(self) -> Node:
        # U <source-name> [<template-args>] <type>
        self.expect("U")
        word = f" {self.source_name()}"
        if self.peek() == "I":
            word += Template(Name(""), self.template_args()).text()
        return Qualified(self.type(), word)

    def _array(self) -> Node:
        self.expect("A")
        dimension: Node | None = None
        if self.peek().isdigit():
            dimension = Name(self.digits())
        elif self.peek() != "_":
            dimension = self.expression()
        self.expect("_")
        return Array(self.type(), dimension)

    def _function(self, words: str | Node) -> Node:
        # F [Y] <type>+ [<ref-qualifier>] E
        self.expect("F")
        self.take("Y")
        result = self.type()
        parameters: list[Node] = []
        tail = ""
        self.take("v")
        while not self.take("E"):
            if self.peek(2) in ("RE", "OE"):
                tail = " &" if self.next() == "R" else " &&"
                continue
            parameters.append(self.type())
        return Function(result, parameters, (tail, words))

    def _d_builtin(self) -> Node | None:
        letter = self.peek(2)[1:]
        if letter in _D_BUILTINS and letter:
            self.next(2)
            return Name(_D_BUILTINS[letter])
        if self.take("DF"):
            bits = self.number()
            if self.take("b"):
                return Name("std::bfloat16_t")
            wider = self.take("x")
            self.take("_")
            return Name(f"_Float{bits}{'x' if wider else ''}")
        if letter in ("B", "U") and letter:
            self.next(2)
            size = Name(self.digits()) if self.peek().isdigit() else self.expression()
            self.expect("_")
            return Seq("unsigned " if letter == "U" else "", "_BitInt(", size, ")")
        return None

    def _d_compound(self) -> Node:
        match self.peek(2):
            case "Dt" | "DT":
                return self.decltype()
            case "Dp":
                self.next(2)
                return Expansion(self.type())
            case "Dv":
                return self._vector()
            case "Do":
                self.next(2)
                return self._function(" noexcept")
            case "DO":
                self.next(2)
                condition = self.expression()
                self.expect("E")
                return self._function(Seq(" noexcept(", condition, ")"))
            case "Dw":
                self.next(2)
                thrown: list[str | Node] = []
                while not self.take("E"):
                    thrown += [", " if thrown else "", self.type()]
                return self._function(Seq(" throw(", *thrown, ")"))
            case "Dx":
                self.next(2)
                return self._function(" transaction_safe")
            case "Dk" | "DK":
                word = "auto" if self.next(2) == "Dk" else "decltype(auto)"
                return Seq(self.type_name(), f" {word}")
        raise Malformed

    def decltype(self) -> Node:
        """Dt and DT, up to E."""
        self.next(2)
        inner = self.expression()
        self.expect("E")
        return Seq("decltype (", inner, ")")

    def _vector(self) -> Node:
        # Dv <number> _ <type>, Dv _ <expression> _ <type>
        self.next(2)
        if self.peek().isdigit():
            size: Node = Name(self.digits())
        else:
            self.expect("_")
            size = self.expression()
        self.expect("_")
        return Seq(self.type(), " __vector(", size, ")")
