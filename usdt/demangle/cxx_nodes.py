"""What a mangled C++ name means: nodes that write themselves as c++filt does.

A declarator stands around its name, ``int (*f)(char)``, so a type writes itself in two parts,
``left`` and ``right``. Nodes are shared (substitutions, template parameters): the writer's limits
bound what a small graph can unfold to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.demangle.bounded import Malformed, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = (
    "Array",
    "Cast",
    "Encoding",
    "Expansion",
    "Function",
    "Lambda",
    "Literal",
    "MemberPointer",
    "Name",
    "Node",
    "Out",
    "Pack",
    "Param",
    "Pointer",
    "Qualified",
    "Seq",
    "Template",
    "comma",
)


Scopes = tuple["Sequence[Node]", ...]


class Out(Writer):
    """A writer that knows what template parameters mean where it is.

    Attributes:
        scopes: the arguments of the templates around, the innermost last.
        lambdas: how many parameter lists of lambdas are being written; T_ is ``auto`` there.
        index: which element of parameter packs is being written, inside an expansion.
        length: of the first pack that was met in an expansion.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scopes: Scopes = ()
        self.lambdas = 0
        self.index: int | None = None
        self.length: int | None = None

    def node(self, node: Node) -> None:
        """Both parts of a node."""
        with self:
            node.left(self)
            node.right(self)


class Node:
    """Something that can be written."""

    def left(self, out: Out) -> None:
        """What stands before a declared name."""
        raise NotImplementedError

    def right(self, out: Out) -> None:
        """What stands behind it."""

    def resolved(self, out: Out) -> Node:
        """The node that is meant, behind template parameters and packs."""
        return self.resolve(out, out.scopes)[0]

    def resolve(self, out: Out, scopes: Scopes) -> tuple[Node, Scopes]:
        """The same, and the scopes in which it is to be written."""
        del out
        return self, scopes

    @property
    def last_name(self) -> str:
        """What a constructor of it would be called."""
        raise Malformed

    def text(self) -> str:
        """The node written alone."""
        out = Out()
        out.node(self)
        return out.text()


class Name(Node):
    """Fixed text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def left(self, out: Out) -> None:
        out.put(self._text)

    @property
    def last_name(self) -> str:
        return self._text.partition("<")[0].rpartition("::")[2]


class Literal(Name):
    """A number: as an operand it stands in parentheses, which names do not."""


class Seq(Node):
    """Pieces of text and nodes, one after another; ``last`` of them names the whole."""

    def __init__(self, *parts: str | Node) -> None:
        self._parts = parts

    def left(self, out: Out) -> None:
        for part in self._parts:
            if isinstance(part, str):
                out.put(part)
            else:
                out.node(part)

    @property
    def last_name(self) -> str:
        for part in reversed(self._parts):
            if isinstance(part, Node):
                return part.last_name
        raise Malformed


class Template(Node):
    """``name<args>``."""

    def __init__(self, name: Node, args: Sequence[Node]) -> None:
        self._name = name
        self._args = args

    def left(self, out: Out) -> None:
        out.node(self._name)
        if out.last == "<":
            out.put(" ")  # operator< <int>
        out.put("<")
        comma(out, self._args)
        out.put(" >" if out.last == ">" else ">")

    @property
    def last_name(self) -> str:
        return self._name.last_name


class Qualified(Node):
    """A type with ``const``, ``volatile``, ``restrict``, or a vendor's qualifier behind it."""

    def __init__(self, inner: Node, words: str) -> None:
        self._inner = inner
        self._words = words

    def left(self, out: Out) -> None:
        with out:
            self._inner.left(out)
        out.put(self._words)

    def right(self, out: Out) -> None:
        with out:
            self._inner.right(out)


class Pointer(Node):
    """``*``, ``&`` or ``&&``; references to references collapse."""

    def __init__(self, inner: Node, sign: str) -> None:
        self._inner = inner
        self._sign = sign

    def _collapsed(self, out: Out) -> tuple[Node, str, Scopes, int | None]:
        # What is pointed to, how, and where and in which expansion that is to be written.
        inner, sign, scopes, index = self._inner, self._sign, out.scopes, out.index
        for _ in range(16):
            target, behind = inner.resolve(out, scopes)
            if sign == "*" or not isinstance(target, Pointer) or target._sign == "*":  # noqa: SLF001
                break
            sign = "&" if "&" in (sign, target._sign) else "&&"  # noqa: SLF001
            inner, scopes, index = target._inner, behind, None  # noqa: SLF001
        return inner, sign, scopes, index

    def left(self, out: Out) -> None:
        inner, sign, scopes, index = self._collapsed(out)
        outer = out.scopes, out.index
        out.scopes, out.index = scopes, index
        with out:
            inner.left(out)
        target = inner.resolved(out)
        out.scopes, out.index = outer
        if isinstance(target, Array):
            out.put(" (")
        elif isinstance(target, Function):
            out.put("(")
        out.put(sign)

    def right(self, out: Out) -> None:
        inner, _, scopes, index = self._collapsed(out)
        outer = out.scopes, out.index
        out.scopes, out.index = scopes, index
        if isinstance(inner.resolved(out), (Array, Function)):
            out.put(")")
        with out:
            inner.right(out)
        out.scopes, out.index = outer


class MemberPointer(Node):
    """``type class::*``."""

    def __init__(self, owner: Node, member: Node) -> None:
        self._owner = owner
        self._member = member

    def left(self, out: Out) -> None:
        with out:
            self._member.left(out)
        target = self._member.resolved(out)
        if isinstance(target, Function):
            out.put("(")
        else:
            out.put(" (" if isinstance(target, Array) else " ")
        out.node(self._owner)
        out.put("::*")

    def right(self, out: Out) -> None:
        if isinstance(self._member.resolved(out), (Array, Function)):
            out.put(")")
        with out:
            self._member.right(out)


class Array(Node):
    """``element [dimension]``."""

    def __init__(self, element: Node, dimension: Node | None) -> None:
        self._element = element
        self._dimension = dimension

    def left(self, out: Out) -> None:
        with out:
            self._element.left(out)

    def right(self, out: Out) -> None:
        out.put("[" if out.last == "]" else " [")
        if self._dimension is not None:
            out.node(self._dimension)
        out.put("]")
        with out:
            self._element.right(out)


class Function(Node):
    """A function's type: ``result (parameters) qualifiers``."""

    def __init__(
        self, result: Node, parameters: Sequence[Node], tail: Sequence[str | Node]
    ) -> None:
        self._result = result
        self._parameters = parameters
        self._tail = tail

    def with_qualifiers(self, words: str) -> Function:
        """The same function with ``const`` and the like."""
        return Function(self._result, self._parameters, (words, *self._tail))

    def left(self, out: Out) -> None:
        with out:
            self._result.left(out)
        out.put(" ")

    def right(self, out: Out) -> None:
        out.put("(")
        comma(out, self._parameters)
        out.put(")")
        out.node(Seq(*self._tail))
        with out:
            self._result.right(out)


class Encoding(Node):
    """A function's name with its parameters, and its result where it is a template's; or a name.

    Args:
        name: with its own template arguments.
        result: None where it is not written.
        parameters: None for what is no function.
        tail: qualifiers behind the parameters.
        arguments: what template parameters mean in all of these.
    """

    def __init__(
        self,
        name: Node,
        result: Node | None,
        parameters: Sequence[Node] | None,
        tail: Sequence[str | Node],
        arguments: Sequence[Node],
    ) -> None:
        self.name = name
        self._result = result
        self._parameters = parameters
        self._tail = tail
        self._arguments = arguments

    def local(self) -> Encoding:
        """As the scope of a local name: without the result."""
        return Encoding(self.name, None, self._parameters, self._tail, self._arguments)

    @property
    def bare(self) -> bool:
        """Whether its address is written without parentheses: all but functions outside scopes."""
        return isinstance(self.name, Seq) or self._parameters is None

    def alone(self) -> Encoding:
        """The name alone."""
        return Encoding(self.name, None, None, (), self._arguments)

    def left(self, out: Out) -> None:
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
            comma(out, self._parameters)
            out.put(")")
            out.node(Seq(*self._tail))
        if self._result is not None:
            with out:
                self._result.right(out)
        out.scopes, out.lambdas = outer


class Lambda(Node):
    """``{lambda(parameters)#1}``."""

    def __init__(self, parameters: Sequence[Node], number: int) -> None:
        self._parameters = parameters
        self._number = number

    def left(self, out: Out) -> None:
        out.lambdas += 1
        out.put("{lambda(")
        comma(out, self._parameters)
        out.put(f")#{self._number}}}")
        out.lambdas -= 1

    @property
    def last_name(self) -> str:
        return f"{{lambda#{self._number}}}"


class Pack(Node):
    """The arguments of a parameter pack: one of them inside an expansion, else all."""

    def __init__(self, items: Sequence[Node]) -> None:
        self.items = items

    def _current(self, out: Out) -> Node | None:
        out.length = len(self.items) if out.length is None else out.length
        if out.index is None:
            return None
        return self.items[out.index] if out.index < len(self.items) else Name("")

    def resolve(self, out: Out, scopes: Scopes) -> tuple[Node, Scopes]:
        out.length = len(self.items) if out.length is None else out.length
        if out.index is None or out.index >= len(self.items):
            return self, scopes
        with out:
            return self.items[out.index].resolve(out, scopes)

    def left(self, out: Out) -> None:
        current = self._current(out)
        if current is None:
            comma(out, self.items)
        else:
            index, out.index = out.index, None
            with out:
                current.left(out)
            out.index = index

    def right(self, out: Out) -> None:
        current = self._current(out)
        if current is not None:
            index, out.index = out.index, None
            with out:
                current.right(out)
            out.index = index


class Expansion(Node):
    """``pattern...``: once for each argument of the packs in it."""

    def __init__(self, pattern: Node) -> None:
        self._pattern = pattern

    def left(self, out: Out) -> None:
        mark = out.mark()
        index, length = out.index, out.length
        out.index, out.length = 0, None
        out.node(self._pattern)
        count, out.length = out.length, length
        if count is None:  # no pack in it
            out.put("...")
        else:
            out.undo(mark)
            for number in range(count):
                if number:
                    out.put(", ")
                out.index = number
                out.node(self._pattern)
        out.index = index


class Param(Node):
    """A template's parameter; what it means depends on where it is written.

    An argument may itself be written with parameters: those of the scope further out.
    """

    def __init__(self, index: int) -> None:
        self._index = index

    def _argument(self, scopes: Scopes) -> Node:
        if not scopes or self._index >= len(scopes[-1]):
            raise Malformed
        return scopes[-1][self._index]

    def resolve(self, out: Out, scopes: Scopes) -> tuple[Node, Scopes]:
        if out.lambdas:
            return self, scopes
        with out:
            return self._argument(scopes).resolve(out, scopes[:-1])

    def left(self, out: Out) -> None:
        if out.lambdas:
            out.put(f"auto:{self._index + 1}")
        else:
            self._part(out, "left")

    def right(self, out: Out) -> None:
        if not out.lambdas:
            self._part(out, "right")

    def _part(self, out: Out, side: str) -> None:
        outer = out.scopes
        argument = self._argument(outer)
        out.scopes = outer[:-1]
        with out:
            getattr(argument, side)(out)
        out.scopes = outer


class Cast(Node):
    """``operator type``: its name holds a type."""

    def __init__(self, target: Node) -> None:
        self._target = target

    def left(self, out: Out) -> None:
        out.put("operator ")
        out.node(self._target)


def comma(out: Out, nodes: Sequence[Node]) -> None:
    """Nodes with ", " between them; one that writes nothing (an empty pack) gets none."""
    first = True
    for node in nodes:
        before = out.mark()
        if not first:
            out.put(", ")
        inner = out.mark()
        out.node(node)
        if out.written_since(inner):
            first = False
        else:
            out.undo(before)
