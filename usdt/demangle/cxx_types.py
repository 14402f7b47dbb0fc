"""Parse the types of the C++ ABI's grammar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.demangle.bounded import MalformedName, NameReader
from usdt.demangle.cxx_nodes import (
    CxxArray,
    CxxFunctionType,
    CxxMemberPointer,
    CxxName,
    CxxNode,
    CxxPackExpansion,
    CxxPointer,
    CxxQualified,
    CxxSequence,
    CxxTemplate,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("BUILTINS", "NameState", "TypeParser")

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
    """Properties of a function's name that affect its type.

    Attributes:
        template: True if the name ends in template arguments: the mangled name then includes the
            result type.
        special: True for a constructor, destructor or conversion, which have no result type.
        qualifiers: ``const`` and ``&`` of a member function, as printed after it.
    """

    def __init__(self) -> None:
        self.template = False
        self.special = False
        self.qualifiers = ""


class TypeParser(NameReader):
    """A parser of <type>; subclasses parse names and expressions.

    Attributes:
        subs: nodes that substitutions refer to.
        params: arguments that template parameters refer to.
        args_allowed: True if template arguments may follow a template parameter here. Those behind
            the type of a conversion belong to the conversion.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.subs: list[CxxNode] = []
        self.params: list[CxxNode] = []
        self.args_allowed = True

    def encoding(self) -> CxxNode:
        """Parse <encoding>."""
        raise NotImplementedError

    def expression(self) -> CxxNode:
        """Parse <expression>."""
        raise NotImplementedError

    def substitution(self) -> CxxNode:
        """Parse <substitution>."""
        raise NotImplementedError

    def template_param(self) -> CxxNode:
        """Parse <template-param>."""
        raise NotImplementedError

    def template_args(self, *, tag: bool = False) -> Sequence[CxxNode]:
        """Parse <template-args>."""
        raise NotImplementedError

    def source_name(self) -> str:
        """Parse <source-name>."""
        raise NotImplementedError

    def qualifiers(self) -> str:
        """Parse <CV-qualifiers>."""
        raise NotImplementedError

    def type_name(self) -> CxxNode:
        """Parse <name> of a class or an enumeration."""
        raise NotImplementedError

    def type(self) -> CxxNode:
        """Parse <type>; later substitutions may refer to it, unless it is a built-in type."""
        with self:
            peek = self.peek()
            if peek in BUILTINS and peek:
                self.next()
                return CxxName(BUILTINS[peek])
            if peek == "D" and (found := self._d_builtin()) is not None:
                return found
            if peek == "S" and self.peek(2) != "St":
                found = self.substitution()
                if self.peek() != "I":
                    return found
                found = CxxTemplate(found, self.template_args())
            else:
                found = self._compound(peek)
            self.subs.append(found)
            return found

    def _compound(self, peek: str) -> CxxNode:
        if peek and peek in "rVK":
            words = self.qualifiers()
            inner = self.type()
            if isinstance(inner, CxxFunctionType):
                # The qualifiers belong to the member function and do not form a separate type.
                self.subs.pop()
                return inner.with_qualifiers(words)
            return CxxQualified(inner, words)
        if peek in _POINTERS:
            self.next()
            return CxxPointer(self.type(), _POINTERS[peek])
        if peek in _SUFFIXES:
            self.next()
            return CxxQualified(self.type(), _SUFFIXES[peek])
        match peek:
            case "F":
                return self._function("")
            case "A":
                return self._array()
            case "M":
                self.next()
                owner = self.type()
                return CxxMemberPointer(owner, self.type())
            case "T":
                return self._parameter()
            case "D":
                return self._d_compound()
            case "u":
                self.next()
                return CxxName(self.source_name())
            case "U":
                return self._vendor()
        return self.type_name()

    def _parameter(self) -> CxxNode:
        word = _ELABORATED.get(self.peek(2))
        if word is not None:
            self.next(2)
            return self.type_name()
        found = self.template_param()
        if self.peek() == "I" and self.args_allowed:
            self.subs.append(found)
            return CxxTemplate(found, self.template_args())
        return found

    def _vendor(self) -> CxxNode:
        # U <source-name> [<template-args>] <type>
        self.expect("U")
        word = f" {self.source_name()}"
        if self.peek() == "I":
            word += CxxTemplate(CxxName(""), self.template_args()).text()
        return CxxQualified(self.type(), word)

    def _array(self) -> CxxNode:
        self.expect("A")
        dimension: CxxNode | None = None
        if self.peek().isdigit():
            dimension = CxxName(self.digits())
        elif self.peek() != "_":
            dimension = self.expression()
        self.expect("_")
        return CxxArray(self.type(), dimension)

    def _function(self, words: str | CxxNode) -> CxxNode:
        # F [Y] <type>+ [<ref-qualifier>] E
        self.expect("F")
        self.take("Y")
        result = self.type()
        parameters: list[CxxNode] = []
        tail = ""
        self.take("v")
        while not self.take("E"):
            if self.peek(2) in ("RE", "OE"):
                tail = " &" if self.next() == "R" else " &&"
                continue
            parameters.append(self.type())
        return CxxFunctionType(result, parameters, (tail, words))

    def _d_builtin(self) -> CxxNode | None:
        letter = self.peek(2)[1:]
        if letter in _D_BUILTINS and letter:
            self.next(2)
            return CxxName(_D_BUILTINS[letter])
        if self.take("DF"):
            bits = self.number()
            if self.take("b"):
                return CxxName("std::bfloat16_t")
            wider = self.take("x")
            self.take("_")
            return CxxName(f"_Float{bits}{'x' if wider else ''}")
        if letter in ("B", "U") and letter:
            self.next(2)
            size = CxxName(self.digits()) if self.peek().isdigit() else self.expression()
            self.expect("_")
            return CxxSequence("unsigned " if letter == "U" else "", "_BitInt(", size, ")")
        return None

    def _d_compound(self) -> CxxNode:
        match self.peek(2):
            case "Dt" | "DT":
                return self.decltype()
            case "Dp":
                self.next(2)
                return CxxPackExpansion(self.type())
            case "Dv":
                return self._vector()
            case "Do":
                self.next(2)
                return self._function(" noexcept")
            case "DO":
                self.next(2)
                condition = self.expression()
                self.expect("E")
                return self._function(CxxSequence(" noexcept(", condition, ")"))
            case "Dw":
                self.next(2)
                thrown: list[str | CxxNode] = []
                while not self.take("E"):
                    thrown += [", " if thrown else "", self.type()]
                return self._function(CxxSequence(" throw(", *thrown, ")"))
            case "Dx":
                self.next(2)
                return self._function(" transaction_safe")
            case "Dk" | "DK":
                word = "auto" if self.next(2) == "Dk" else "decltype(auto)"
                return CxxSequence(self.type_name(), f" {word}")
        raise MalformedName

    def decltype(self) -> CxxNode:
        """Parse Dt or DT, up to E."""
        self.next(2)
        inner = self.expression()
        self.expect("E")
        return CxxSequence("decltype (", inner, ")")

    def _vector(self) -> CxxNode:
        # Dv <number> _ <type>, Dv _ <expression> _ <type>
        self.next(2)
        if self.peek().isdigit():
            size: CxxNode = CxxName(self.digits())
        else:
            self.expect("_")
            size = self.expression()
        self.expect("_")
        return CxxSequence(self.type(), " __vector(", size, ")")
