"""The syntax tree of a mangled C++ name; its nodes print the text of c++filt.

A C++ declarator surrounds its name, ``int (*f)(char)``, so a type is printed in two parts, ``left``
and ``right``. Nodes are shared (substitutions, template parameters), so a small graph can expand to
a huge text: the limits of the printer bound it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.demangle.bounded import BoundedPrinter, MalformedName

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = (
    "CxxArray",
    "CxxCast",
    "CxxEncoding",
    "CxxFunctionType",
    "CxxLambda",
    "CxxLiteral",
    "CxxMemberPointer",
    "CxxName",
    "CxxNode",
    "CxxPack",
    "CxxPackExpansion",
    "CxxPointer",
    "CxxPrinter",
    "CxxQualified",
    "CxxSequence",
    "CxxTemplate",
    "CxxTemplateParam",
    "print_list",
)


Scopes = tuple["Sequence[CxxNode]", ...]


class CxxPrinter(BoundedPrinter):
    """A printer that knows the meaning of template parameters at its position.

    Attributes:
        scopes: the arguments of the enclosing templates, the innermost last.
        lambdas: nesting depth in parameter lists of lambdas, where T_ is printed as ``auto``.
        index: inside a pack expansion, the element of parameter packs being printed; else None.
        length: number of elements of the first pack in an expansion; None before it is reached.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scopes: Scopes = ()
        self.lambdas = 0
        self.index: int | None = None
        self.length: int | None = None

    def node(self, node: CxxNode) -> None:
        """Print both parts of a node."""
        with self:
            node.left(self)
            node.right(self)


class CxxNode:
    """A node of the syntax tree."""

    def left(self, out: CxxPrinter) -> None:
        """Print the part before a declared name."""
        raise NotImplementedError

    def right(self, out: CxxPrinter) -> None:
        """Print the part after it."""

    def resolved(self, out: CxxPrinter) -> CxxNode:
        """Return the node that this stands for, after template parameters and packs."""
        return self.resolve(out, out.scopes)[0]

    def resolve(self, out: CxxPrinter, scopes: Scopes) -> tuple[CxxNode, Scopes]:
        """Return the node that this stands for, and the scopes in which to print it."""
        del out
        return self, scopes

    @property
    def last_name(self) -> str:
        """The name of this class's constructors."""
        raise MalformedName

    def text(self) -> str:
        """Return the node as text."""
        out = CxxPrinter()
        out.node(self)
        return out.text()


class CxxName(CxxNode):
    """Fixed text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def left(self, out: CxxPrinter) -> None:
        out.put(self._text)

    @property
    def last_name(self) -> str:
        return self._text.partition("<")[0].rpartition("::")[2]


class CxxLiteral(CxxName):
    """A number or an operator; unlike a name, it is printed in parentheses as an operand."""


class CxxSequence(CxxNode):
    """A sequence of texts and nodes; the last node determines :attr:`last_name`."""

    def __init__(self, *parts: str | CxxNode) -> None:
        self._parts = parts

    def left(self, out: CxxPrinter) -> None:
        for part in self._parts:
            if isinstance(part, str):
                out.put(part)
            else:
                out.node(part)

    @property
    def last_name(self) -> str:
        for part in reversed(self._parts):
            if isinstance(part, CxxNode):
                return part.last_name
        raise MalformedName


class CxxTemplate(CxxNode):
    """``name<args>``."""

    def __init__(self, name: CxxNode, args: Sequence[CxxNode]) -> None:
        self._name = name
        self._args = args

    def left(self, out: CxxPrinter) -> None:
        out.node(self._name)
        if out.last == "<":
            out.put(" ")  # operator< <int>
        out.put("<")
        print_list(out, self._args)
        out.put(" >" if out.last == ">" else ">")

    @property
    def last_name(self) -> str:
        return self._name.last_name


class CxxQualified(CxxNode):
    """A type followed by ``const``, ``volatile``, ``restrict``, or a vendor's qualifier."""

    def __init__(self, inner: CxxNode, words: str) -> None:
        self._inner = inner
        self._words = words

    def resolve(self, out: CxxPrinter, scopes: Scopes) -> tuple[CxxNode, Scopes]:
        # Qualifiers of an array are those of its elements: a pointer to it needs parentheses.
        with out:
            target, inner_scopes = self._inner.resolve(out, scopes)
        return (target, inner_scopes) if isinstance(target, CxxArray) else (self, scopes)

    def left(self, out: CxxPrinter) -> None:
        with out:
            self._inner.left(out)
        # A template argument brings qualifiers along: T const is T if T has const.
        printed = out.last_part.split()
        out.put("".join(f" {word}" for word in self._words.split() if word not in printed))

    def right(self, out: CxxPrinter) -> None:
        with out:
            self._inner.right(out)


class CxxPointer(CxxNode):
    """``*``, ``&`` or ``&&``; references to references collapse."""

    def __init__(self, inner: CxxNode, sign: str) -> None:
        self._inner = inner
        self._sign = sign

    def _collapsed(self, out: CxxPrinter) -> tuple[CxxNode, str, Scopes, int | None]:
        # The target, the sign, and the scopes and the pack index in which to print the target.
        inner, sign, scopes, index = self._inner, self._sign, out.scopes, out.index
        for _ in range(16):
            target, target_scopes = inner.resolve(out, scopes)
            if sign == "*" or not isinstance(target, CxxPointer) or target._sign == "*":  # noqa: SLF001
                break
            sign = "&" if "&" in (sign, target._sign) else "&&"  # noqa: SLF001
            inner, scopes, index = target._inner, target_scopes, None  # noqa: SLF001
        return inner, sign, scopes, index

    def left(self, out: CxxPrinter) -> None:
        inner, sign, scopes, index = self._collapsed(out)
        outer = out.scopes, out.index
        out.scopes, out.index = scopes, index
        with out:
            inner.left(out)
        target = inner.resolved(out)
        out.scopes, out.index = outer
        if isinstance(target, CxxArray):
            out.put(" (")
        elif isinstance(target, CxxFunctionType):
            out.put("(")
        out.put(sign)

    def right(self, out: CxxPrinter) -> None:
        inner, _, scopes, index = self._collapsed(out)
        outer = out.scopes, out.index
        out.scopes, out.index = scopes, index
        if isinstance(inner.resolved(out), (CxxArray, CxxFunctionType)):
            out.put(")")
        with out:
            inner.right(out)
        out.scopes, out.index = outer


class CxxMemberPointer(CxxNode):
    """``type class::*``."""

    def __init__(self, owner: CxxNode, member: CxxNode) -> None:
        self._owner = owner
        self._member = member

    def left(self, out: CxxPrinter) -> None:
        with out:
            self._member.left(out)
        target = self._member.resolved(out)
        if isinstance(target, CxxFunctionType):
            out.put("(")
        else:
            out.put(" (" if isinstance(target, CxxArray) else " ")
        out.node(self._owner)
        out.put("::*")

    def right(self, out: CxxPrinter) -> None:
        if isinstance(self._member.resolved(out), (CxxArray, CxxFunctionType)):
            out.put(")")
        with out:
            self._member.right(out)


class CxxArray(CxxNode):
    """``element [dimension]``."""

    def __init__(self, element: CxxNode, dimension: CxxNode | None) -> None:
        self._element = element
        self._dimension = dimension

    def left(self, out: CxxPrinter) -> None:
        with out:
            self._element.left(out)

    def right(self, out: CxxPrinter) -> None:
        out.put("[" if out.last == "]" else " [")
        if self._dimension is not None:
            out.node(self._dimension)
        out.put("]")
        with out:
            self._element.right(out)


class CxxFunctionType(CxxNode):
    """A function's type: ``result (parameters) qualifiers``."""

    def __init__(
        self, result: CxxNode, parameters: Sequence[CxxNode], tail: Sequence[str | CxxNode]
    ) -> None:
        self._result = result
        self._parameters = parameters
        self._tail = tail

    def with_qualifiers(self, words: str) -> CxxFunctionType:
        """Return the function type with qualifiers such as ``const`` added."""
        return CxxFunctionType(self._result, self._parameters, (words, *self._tail))

    def left(self, out: CxxPrinter) -> None:
        with out:
            self._result.left(out)
        out.put(" ")

    def right(self, out: CxxPrinter) -> None:
        out.put("(")
        print_list(out, self._parameters)
        out.put(")")
        out.node(CxxSequence(*self._tail))
        with out:
            self._result.right(out)


class CxxEncoding(CxxNode):
    """An <encoding>: a function with its parameters, and the result of a template; or a name.

    Args:
        name: the name, with its own template arguments.
        result: the result type; None if it is not printed.
        parameters: the parameter types; None if this is not a function.
        tail: qualifiers after the parameters.
        arguments: the template arguments that template parameters in all of these refer to.
    """

    def __init__(
        self,
        name: CxxNode,
        result: CxxNode | None,
        parameters: Sequence[CxxNode] | None,
        tail: Sequence[str | CxxNode],
        arguments: Sequence[CxxNode],
    ) -> None:
        self.name = name
        self._result = result
        self._parameters = parameters
        self._tail = tail
        self._arguments = arguments

    def local(self) -> CxxEncoding:
        """Return this without the result, as the scope of a local name."""
        return CxxEncoding(self.name, None, self._parameters, self._tail, self._arguments)

    @property
    def bare(self) -> bool:
        """True if its address is printed without parentheses: members, and plain names."""
        plain = self._parameters is None and not isinstance(self.name, CxxLiteral)
        return plain or isinstance(self.name, CxxSequence)

    def alone(self) -> CxxEncoding:
        """Return the name without parameters and result."""
        return CxxEncoding(self.name, None, None, (), self._arguments)

    def left(self, out: CxxPrinter) -> None:
        outer = out.scopes, out.lambdas
        out.scopes, out.lambdas = (*out.scopes, self._arguments), 0
        if self._result is not None:
            with out:
                self._result.left(out)
            if out.last != " ":
                out.put(" ")
        out.node(self.name)
        if self._parameters is not None:
            out.put("(")
            print_list(out, self._parameters)
            out.put(")")
            out.node(CxxSequence(*self._tail))
        if self._result is not None:
            with out:
                self._result.right(out)
        out.scopes, out.lambdas = outer


class CxxLambda(CxxNode):
    """``{lambda(parameters)#1}``."""

    def __init__(self, parameters: Sequence[CxxNode], number: int) -> None:
        self._parameters = parameters
        self._number = number

    def left(self, out: CxxPrinter) -> None:
        out.lambdas += 1
        out.put("{lambda(")
        print_list(out, self._parameters)
        out.put(f")#{self._number}}}")
        out.lambdas -= 1

    @property
    def last_name(self) -> str:
        return f"{{lambda#{self._number}}}"


class CxxPack(CxxNode):
    """The arguments of a parameter pack; inside an expansion, one of them is printed, else all."""

    def __init__(self, items: Sequence[CxxNode]) -> None:
        self.items = items

    def _current(self, out: CxxPrinter) -> CxxNode | None:
        out.length = len(self.items) if out.length is None else out.length
        if out.index is None:
            return None
        return self.items[out.index] if out.index < len(self.items) else CxxName("")

    def resolve(self, out: CxxPrinter, scopes: Scopes) -> tuple[CxxNode, Scopes]:
        out.length = len(self.items) if out.length is None else out.length
        if out.index is None or out.index >= len(self.items):
            return self, scopes
        with out:
            return self.items[out.index].resolve(out, scopes)

    def left(self, out: CxxPrinter) -> None:
        current = self._current(out)
        if current is None:
            print_list(out, self.items)
        else:
            index, out.index = out.index, None
            with out:
                current.left(out)
            out.index = index

    def right(self, out: CxxPrinter) -> None:
        current = self._current(out)
        if current is not None:
            index, out.index = out.index, None
            with out:
                current.right(out)
            out.index = index


class CxxPackExpansion(CxxNode):
    """``pattern...``: the pattern is printed once for each argument of its packs."""

    def __init__(self, pattern: CxxNode) -> None:
        self._pattern = pattern

    def left(self, out: CxxPrinter) -> None:
        mark = out.mark()
        index, length = out.index, out.length
        out.index, out.length = 0, None
        out.node(self._pattern)
        count, out.length = out.length, length
        if count is None:  # the pattern has no pack
            out.put("...")
        else:
            out.undo(mark)
            for number in range(count):
                if number:
                    out.put(", ")
                out.index = number
                out.node(self._pattern)
        out.index = index


class CxxTemplateParam(CxxNode):
    """A template parameter; its meaning depends on the scope in which it is printed.

    An argument may itself contain parameters, which belong to the next outer scope.
    """

    def __init__(self, index: int) -> None:
        self._index = index

    def _argument(self, scopes: Scopes) -> CxxNode:
        if not scopes or self._index >= len(scopes[-1]):
            raise MalformedName
        return scopes[-1][self._index]

    def resolve(self, out: CxxPrinter, scopes: Scopes) -> tuple[CxxNode, Scopes]:
        if out.lambdas:
            return self, scopes
        with out:
            return self._argument(scopes).resolve(out, scopes[:-1])

    def left(self, out: CxxPrinter) -> None:
        if out.lambdas:
            out.put(f"auto:{self._index + 1}")
        else:
            self._part(out, "left")

    def right(self, out: CxxPrinter) -> None:
        if not out.lambdas:
            self._part(out, "right")

    def _part(self, out: CxxPrinter, side: str) -> None:
        outer = out.scopes
        argument = self._argument(outer)
        out.scopes = outer[:-1]
        with out:
            getattr(argument, side)(out)
        out.scopes = outer


class CxxCast(CxxNode):
    """``operator type``: a conversion, whose name contains a type."""

    def __init__(self, target: CxxNode) -> None:
        self._target = target

    def left(self, out: CxxPrinter) -> None:
        out.put("operator ")
        out.node(self._target)


def print_list(out: CxxPrinter, nodes: Sequence[CxxNode]) -> None:
    """Print nodes separated by ", ", without a separator for nodes that print nothing."""
    separator = ""
    for node in nodes:
        before = out.mark()
        out.put(separator)
        inner = out.mark()
        out.node(node)
        if out.written_since(inner):
            separator = ", "
        else:
            out.undo(before)
            out.last = separator[-1:] or out.last  # c++filt forgets the ">" before: A<B<int>>
