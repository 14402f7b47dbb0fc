"""Parse the expressions of the C++ ABI's grammar: template arguments, decltype, array bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.demangle.bounded import MalformedName
from usdt.demangle.cxx_nodes import (
    CxxCast,
    CxxEncoding,
    CxxLiteral,
    CxxName,
    CxxNode,
    CxxPackExpansion,
    CxxPrinter,
    CxxSequence,
    CxxTemplate,
)
from usdt.demangle.cxx_types import BUILTINS, TypeParser

if TYPE_CHECKING:
    from usdt.demangle.cxx_types import NameState

__all__ = ("OPERATORS", "ExpressionParser")

# Code → spelling, number of operands.
OPERATORS: dict[str, tuple[str, int]] = {
    code: (text, operands)
    for operands, row in (
        (1, "ad & co ~ de * ng - nt ! ps + pp ++ mm -- aw co_await"),
        (
            2,
            (
                "aN &= aS = aa && an & cm , dV /= dv / eO ^= eo ^ eq == ge >= gt > lS <<= le <="
                " ls << lt < mI -= mL *= mi - ml * ne != oR |= oo || or | pL += pl + pm ->* rM %="
                " rS >>= rm % rs >> ss <=> ds .* pt -> dt ."
            ),
        ),
        (2, "ix []"),
        (2, "cl ()"),
        (3, "qu ? nw new na new[]"),
        (1, "dl delete da delete[]"),
    )
    for code, text in zip(row.split()[::2], row.split()[1::2], strict=True)
}
_TYPED = {"st": "sizeof (", "at": "alignof (", "ti": "typeid ("}
_VALUED = {"sz": "sizeof (", "az": "alignof (", "te": "typeid (", "nx": "noexcept ("}
_CASTS = {
    "dc": "dynamic_cast",
    "sc": "static_cast",
    "cc": "const_cast",
    "rc": "reinterpret_cast",
}
_SUFFIXES = {"j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}


class ExpressionParser(TypeParser):
    """A parser of <expression> and <expr-primary>."""

    def name(self, state: NameState | None) -> CxxNode:
        """Parse <name>."""
        raise NotImplementedError

    def template_arg(self) -> CxxNode:
        """Parse <template-arg>."""
        raise NotImplementedError

    def type_name(self) -> CxxNode:
        return self.name(None)

    def expression(self) -> CxxNode:
        with self:
            peek = self.peek()
            if peek == "L":
                return self.literal()
            if peek == "T":
                return self.template_param()
            if self.peek(2) in ("fp", "fL"):
                return self._function_parameter()
            if peek.isdigit() or self.peek(2) in ("on", "sr", "gs"):
                return self._unresolved()
            if peek == "f" and self.peek(2)[1:] in tuple("lrLR"):
                return self._fold()
            code = self.next(2)
            found = self._special_form(code)
            if found is None:
                found = self._operation(code)
            return found

    def literal(self) -> CxxNode:
        """Parse <expr-primary>: L <type> <value> E, L <mangled-name> E."""
        self.expect("L")
        if self.take("_Z") or self.take("Z"):
            found = self.encoding()
            self.expect("E")
            return found
        if self.take("DnE") or self.take("Dn0E"):
            return CxxSequence("(decltype(nullptr))0")
        letter = self.peek()
        kind = self.type()
        start = self.at
        while self.peek() not in ("E", ""):
            self.next()
        value = self.text[start : self.at]
        self.expect("E")
        sign = "-" if value.startswith("n") else ""
        value = value[bool(sign) :]
        if letter == "b" and value in ("0", "1") and not sign:
            return CxxLiteral("true" if value == "1" else "false")
        if letter == "i":
            return CxxLiteral(sign + value)
        if letter in _SUFFIXES:
            return CxxLiteral(f"{sign}{value}{_SUFFIXES[letter]}")
        if letter in BUILTINS and letter in "fdeg":
            return CxxSequence("(", kind, f"){sign}[{value}]")
        return CxxSequence("(", kind, f"){sign}{value}")

    def _function_parameter(self) -> CxxNode:
        # fp <CV> [<number>] _, fL <number> p <CV> [<number>] _; fpT is "this"
        if self.take("fpT"):
            return CxxName("this")
        if self.next(2) == "fL":
            self.number()
            self.expect("p")
        self.qualifiers()
        found = self.digits()
        self.expect("_")
        return CxxName(f"{{parm#{int(found) + 2 if found else 1}}}")

    def _fold(self) -> CxxNode:
        kind = self.next(2)[1]
        word = OPERATORS.get(self.next(2), ("", 0))[0]
        if not word:
            raise MalformedName
        first = self.expression()
        if kind == "l":
            return CxxSequence("(...", word, _Paren(first), ")")
        if kind == "r":
            return CxxSequence("(", _Paren(first), word, "...)")
        second = self.expression()
        return CxxSequence("(", _Paren(first), word, "...", word, _Paren(second), ")")

    def _special_form(self, code: str) -> CxxNode | None:
        # An expression that is not a plain operator; None for an operator.
        if code in _TYPED:
            return CxxSequence(_TYPED[code], self.type(), ")")
        if code in _VALUED:
            return CxxSequence(_VALUED[code], self.expression(), ")")
        if code in _CASTS:
            target = self.type()
            return CxxSequence(_CASTS[code], "<", target, ">(", self.expression(), ")")
        match code:
            case "sZ":
                inner = self.template_param() if self.peek() == "T" else self._function_parameter()
                return _PackSize(inner)
            case "sP":
                args = []
                while not self.take("E"):
                    args.append(self.template_arg())
                return _ArgsSize(args)
            case "sp":
                return CxxPackExpansion(self.expression())
            case "tw":
                return CxxSequence("throw ", self.expression())
            case "tr":
                return CxxName("throw")
            case "cl" | "cp":
                return CxxSequence(_Callee(self.expression()), "(", self._list(), ")")
            case "cv":
                return self._conversion()
            case "tl":
                return CxxSequence(self.type(), "{", self._list(), "}")
            case "il":
                return _Bare("{", self._list(), "}")
            case "di":
                name = self.source_name()
                return CxxSequence(f".{name}=", self.expression())
            case "dx":
                index = self.expression()
                return CxxSequence("[", index, "]=", self.expression())
            case "nw" | "na":
                return self._new("new[] " if code == "na" else "new ")
            case "dt" | "pt":
                left = self.expression()
                return CxxSequence(_Paren(left), OPERATORS[code][0], self._unresolved())
            case "ix":
                left = self.expression()
                return CxxSequence(_Paren(left), "[", self.expression(), "]")
            case "qu":
                test, yes = self.expression(), self.expression()
                return CxxSequence(_Paren(test), "?", _Paren(yes), " : ", _Paren(self.expression()))
        return None

    def _operation(self, code: str) -> CxxNode:
        found = OPERATORS.get(code)
        if found is None or found[1] > 2:
            raise MalformedName
        word, operands = found
        if operands == 1:
            if code in ("pp", "mm") and not self.take("_"):
                return CxxSequence(_Paren(self.expression()), word)
            gap = " " if word[0].isalpha() else ""
            inner = self.expression()
            if code == "ad" and isinstance(inner, CxxEncoding) and inner.bare:
                return CxxSequence("&", inner.alone())
            return CxxSequence(word + gap, _Paren(inner))
        left = self.expression()
        right = self.expression()
        if code == "gt":  # a bare ">" would end the template arguments
            return CxxSequence("(", _Paren(left), word, _Paren(right), ")")
        return CxxSequence(_Paren(left), word, _Paren(right))

    def _conversion(self) -> CxxNode:
        # cv <type> <expression>, cv <type> _ <expression>* E
        target = self.type()
        if self.take("_"):
            return CxxSequence("(", target, ")(", self._list(), ")")
        return CxxSequence("(", target, ")", _Paren(self.expression()))

    def _new(self, word: str) -> CxxNode:
        placement: list[CxxNode] = []
        while not self.take("_"):
            placement.append(self.expression())
        kind = self.type()
        parts: list[str | CxxNode] = [word]
        if placement:
            parts += ["(", _List(placement), ") "]
        parts.append(kind)
        if self.take("pi"):
            parts += ["(", self._list(), ")"]
        elif self.take("il"):
            parts += ["{", self._list(), "}"]
        else:
            self.expect("E")
        return CxxSequence(*parts)

    def _list(self) -> CxxNode:
        found = []
        while not self.take("E"):
            found.append(self.expression())
        return _List(found)

    # ------------------------------------------------------------ unresolved names

    def _unresolved(self) -> CxxNode:
        # <unresolved-name>
        start = "::" if self.take("gs") else ""
        if not self.take("sr"):
            base = self._base()
            return _Bare(start, base) if start else base
        parts: list[str | CxxNode] = [start]
        if self.take("N"):
            parts += [self._scope_type(), "::"]
            while not self.take("E"):
                parts += [self._simple(), "::"]
        elif self.peek().isdigit():
            while not self.take("E"):
                parts += [self._simple(), "::"]
        else:
            parts += [self._scope_type(), "::"]
        base = self._base()
        return (CxxSequence if isinstance(base, CxxTemplate) else _Bare)(*parts, base)

    def _scope_type(self) -> CxxNode:
        # <unresolved-type>: a parameter, decltype or substitution, perhaps with arguments.
        return self.type()

    def _simple(self) -> CxxNode:
        found: CxxNode = CxxName(self.source_name())
        if self.peek() == "I":
            found = CxxTemplate(found, self.template_args())
        return found

    def _base(self) -> CxxNode:
        # <base-unresolved-name>
        if self.take("dn"):
            inner = self._simple() if self.peek().isdigit() else self.type()
            return CxxSequence("~", inner)
        if self.peek().isdigit():
            return self._simple()
        self.take("on")
        if self.take("cv"):
            return CxxCast(self.type())
        word = OPERATORS.get(self.next(2), ("", 0))[0]
        if not word:
            raise MalformedName
        found: CxxNode = CxxName(f"operator{' ' if word[0].isalpha() else ''}{word}")
        if self.peek() == "I":
            found = CxxTemplate(found, self.template_args())
        return found


class _Paren(CxxNode):
    # An operand: printed in parentheses, unless it is a name.
    def __init__(self, inner: CxxNode) -> None:
        self._inner = inner

    def left(self, out: CxxPrinter) -> None:
        bare = type(self._inner.resolved(out)) in (CxxName, _Bare)
        out.put("" if bare else "(")
        out.node(self._inner)
        out.put("" if bare else ")")


class _Bare(CxxSequence):
    # A sequence that needs no parentheses as an operand.
    pass


class _Callee(_Paren):
    # A called expression; for a function, only its name.
    def __init__(self, inner: CxxNode) -> None:
        super().__init__(_Bare(inner.alone()) if isinstance(inner, CxxEncoding) else inner)


class _List(CxxNode):
    def __init__(self, nodes: list[CxxNode]) -> None:
        self._nodes = nodes

    def left(self, out: CxxPrinter) -> None:
        for index, node in enumerate(self._nodes):
            out.put(", " if index else "")
            out.node(node)


class _PackSize(CxxNode):
    # sizeof...(T): the number of arguments, if it is known.
    def __init__(self, pack: CxxNode) -> None:
        self._pack = pack

    def left(self, out: CxxPrinter) -> None:
        items = getattr(self._pack.resolved(out), "items", None)
        if items is None:
            out.put("sizeof...(")
            out.node(self._pack)
            out.put(")")
        else:
            out.put(str(len(items)))


class _ArgsSize(CxxNode):
    def __init__(self, args: list[CxxNode]) -> None:
        self._args = args

    def left(self, out: CxxPrinter) -> None:
        out.put(str(len(self._args)))
