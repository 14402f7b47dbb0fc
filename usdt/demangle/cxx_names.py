"""Parse names of the C++ ABI: nested, local, unnamed, operators, template arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.demangle.bounded import MalformedName
from usdt.demangle.cxx_expressions import OPERATORS, ExpressionParser
from usdt.demangle.cxx_nodes import (
    CxxCast,
    CxxLambda,
    CxxLiteral,
    CxxName,
    CxxNode,
    CxxPack,
    CxxSequence,
    CxxTemplate,
    CxxTemplateParam,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.demangle.cxx_types import NameState

__all__ = ("NameParser",)

_BASE36 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_STRING = "std::basic_string<char, std::char_traits<char>, std::allocator<char> >"
_ABBREVIATIONS = {
    "a": "std::allocator",
    "b": "std::basic_string",
    "s": _STRING,
    "i": "std::basic_istream<char, std::char_traits<char> >",
    "o": "std::basic_ostream<char, std::char_traits<char> >",
    "d": "std::basic_iostream<char, std::char_traits<char> >",
}
_QUALIFIERS = {"r": " restrict", "V": " volatile", "K": " const"}


class NameParser(ExpressionParser):
    """A parser of <name>."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.state: NameState | None = None

    def name(self, state: NameState | None) -> CxxNode:
        """Parse <name>; for the name of an encoding, fill in ``state``."""
        before, self.state = self.state, state
        try:
            with self:
                return self._name(state)
        finally:
            self.state = before

    def _name(self, state: NameState | None) -> CxxNode:
        if self.peek() == "N":
            return self._nested(state)
        if self.peek() == "Z":
            return self.local_name()
        if self.peek() == "S" and self.peek(2) != "St":
            found = self.substitution()
            if self.peek() != "I":
                raise MalformedName
        else:
            scope = None
            if self.take("St"):
                scope = CxxName("std")
            found = self._unqualified(scope, state)
            if self.peek() != "I":
                return found
            self.subs.append(found)
        if state is not None:
            state.template = True
        return CxxTemplate(found, self.template_args(tag=state is not None))

    def local_name(self) -> CxxNode:
        """Parse <local-name>."""
        raise NotImplementedError

    def _nested(self, state: NameState | None) -> CxxNode:
        # N [<CV-qualifiers>] [<ref-qualifier>] <prefix> <unqualified-name> E
        self.expect("N")
        self.take("H")
        words = self.qualifiers()
        words += " &" if self.take("R") else " &&" if self.take("O") else ""
        if state is not None:
            state.qualifiers = words
        found: CxxNode | None = None
        while not self.take("E"):
            before = found
            found = self._component(before, state)
            if found is not before and not self._abbreviated:
                self.subs.append(found)
        if found is None or not self.subs:
            raise MalformedName
        if not self._abbreviated:
            self.subs.pop()
        return found

    _abbreviated = False

    def _component(self, scope: CxxNode | None, state: NameState | None) -> CxxNode:
        # One more component of a nested name.
        self._abbreviated = False
        if state is not None and self.peek() != "I":
            state.template = state.special = False
        peek = self.peek()
        if peek == "I" and scope is not None:
            if state is not None:
                state.template = True
            found: CxxNode = CxxTemplate(scope, self.template_args(tag=state is not None))
        elif scope is None and peek == "S":
            self._abbreviated = True
            found = CxxName("std") if self.take("St") else self.substitution()
        elif scope is None and peek == "T":
            found = self.template_param()
        elif scope is None and self.peek(2) in ("Dt", "DT"):
            found = self.decltype()
        elif peek == "M" and scope is not None:  # a lambda in the initializer of a member
            self.next()
            self._abbreviated = True
            return scope
        else:
            return self._unqualified(scope, state)
        return found

    def qualifiers(self) -> str:
        """Parse <CV-qualifiers>; return them as printed after a type."""
        words = ""
        while self.peek() in _QUALIFIERS and self.peek():
            words = _QUALIFIERS[self.next()] + words
        return words

    # ------------------------------------------------------------ unqualified names

    def _unqualified(self, scope: CxxNode | None, state: NameState | None) -> CxxNode:
        while self.take("W"):  # the name of a module
            self.take("P")
            self.source_name()
        self.take("F")  # a member-like friend
        self.take("L")  # internal linkage
        peek = self.peek()
        if peek.isdigit():
            found: CxxNode = CxxName(self.source_name())
        elif peek == "U":
            found = self._unnamed()
        elif self.take("DC"):
            names = []
            while not self.take("E"):
                names.append(self.source_name())
            found = CxxName(f"[{', '.join(names)}]")
        elif peek in ("C", "D") and scope is not None:
            found = self._structor(scope)
            if state is not None:
                state.special = True
        else:
            found = self._operator(state)
        while self.take("B"):
            found = CxxSequence(found, f"[abi:{self.source_name()}]")
        return found if scope is None else CxxSequence(scope, "::", found)

    def source_name(self) -> str:
        """Parse <source-name>: a length and that many characters."""
        size = self.number()
        name = self.next(size)
        if size >= 10 and name.startswith("_GLOBAL_") and name[8] in "_.$" and name[9] == "N":
            return "(anonymous namespace)"
        if not size:
            raise MalformedName
        return name

    def _structor(self, scope: CxxNode) -> CxxNode:
        if self.take("C"):
            inherited = self.take("I")
            if self.next() not in "12345":
                raise MalformedName
            return CxxName((self.type() if inherited else scope).last_name)
        self.expect("D")
        if self.next() not in "01245":
            raise MalformedName
        return CxxName(f"~{scope.last_name}")

    def _unnamed(self) -> CxxNode:
        # <unnamed-type-name> and <closure-type-name>
        self.expect("U")
        kind = self.next()
        if kind == "t":
            return CxxName(f"{{unnamed type#{self._ordinal()}}}")
        if kind != "l":
            raise MalformedName
        while self.peek() == "T" and self.peek(2)[1:] in tuple("ynptk"):
            self._parameter_declaration()
        parameters: list[CxxNode] = []
        if not self.take("v"):
            while self.peek() not in ("E", "Q"):
                parameters.append(self.type())
        if self.take("Q"):
            self.expression()
        self.expect("E")
        return CxxLambda(parameters, self._ordinal())

    def _ordinal(self) -> int:
        found = self.digits()
        self.expect("_")
        return int(found) + 2 if found else 1

    def _parameter_declaration(self) -> None:
        kind = self.next(2)
        if kind == "Tn":
            self.type()
        elif kind == "Tk":
            self.name(None)
        elif kind == "Tp":
            self._parameter_declaration()
        elif kind == "Tt":
            while not self.take("E"):
                self._parameter_declaration()
        elif kind != "Ty":
            raise MalformedName

    def _operator(self, state: NameState | None) -> CxxNode:
        if self.take("cv"):
            if state is not None:
                state.special = True
            args, self.args_allowed = self.args_allowed, False
            try:
                return CxxCast(self.type())
            finally:
                self.args_allowed = args
        if self.take("li"):
            return CxxName(f'operator"" {self.source_name()}')
        if self.peek() == "v" and self.peek(2)[1:].isdigit():
            self.next(2)
            return CxxName(f"operator {self.source_name()}")
        found = OPERATORS.get(self.next(2))
        if found is None or not found[0]:
            raise MalformedName
        word = found[0]
        return CxxLiteral(f"operator{' ' if word[0].isalpha() else ''}{word}")

    # ------------------------------------------------------------ templates, substitutions

    def template_args(self, *, tag: bool = False) -> Sequence[CxxNode]:
        """Parse <template-args>; with ``tag``, later template parameters refer to them."""
        self.expect("I")
        allowed, self.args_allowed = self.args_allowed, True
        if tag:
            self.params = []
        own = self.params
        found: list[CxxNode] = []
        with self:
            while not self.take("E"):
                if self.take("Q"):
                    self.expression()
                    continue
                found.append(self.template_arg())
                if tag:
                    own.append(found[-1])
                    self.params = own
        self.args_allowed = allowed
        return found

    def template_arg(self) -> CxxNode:
        """Parse <template-arg>."""
        with self:
            peek = self.peek()
            if peek == "X":
                self.next()
                found = self.expression()
                self.expect("E")
                return found
            if peek == "L":
                return self.literal()
            if self.take("J"):
                items = []
                while not self.take("E"):
                    items.append(self.template_arg())
                return CxxPack(items)
            if peek == "T" and self.peek(2)[1:] in tuple("ynptk"):
                self._parameter_declaration()
                return self.template_arg()
            return self.type()

    def template_param(self) -> CxxNode:
        """Parse <template-param>: T_, T0_, TL0__ and so on."""
        self.expect("T")
        if self.take("L"):
            self.number()
            self.expect("_")
        found = self.digits()
        self.expect("_")
        return CxxTemplateParam(int(found) + 1 if found else 0)

    def substitution(self) -> CxxNode:
        """Parse <substitution>, except St."""
        self.expect("S")
        letter = self.peek()
        if letter.islower():
            self.next()
            if letter not in _ABBREVIATIONS:
                raise MalformedName
            found: CxxNode = CxxName(_ABBREVIATIONS[letter])
            if self.peek() == "B":
                while self.take("B"):
                    found = CxxSequence(found, f"[abi:{self.source_name()}]")
                self.subs.append(found)
            return found
        index = self.base(_BASE36)
        if index >= len(self.subs):
            raise MalformedName
        return self.subs[index]
