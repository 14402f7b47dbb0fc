"""The syntax tree of the probe language: what a probe's text says, before anything is looked up.

Every node carries ``start`` and ``end``, columns into the text that was parsed, so that whoever
finds a fault later can point at it. Two nodes are equal if they say the same, wherever they stand.
No tree is higher than :data:`MAX_HEIGHT`, so that whoever walks one may recurse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from usdt.base.frozen import field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = (
    "BUILTINS",
    "FUNCTIONS",
    "MAX_HEIGHT",
    "PRECEDENCE",
    "Binary",
    "Call",
    "Cast",
    "Expression",
    "Index",
    "Integer",
    "Item",
    "Member",
    "Name",
    "ProbeKind",
    "ProbeText",
    "Text",
    "TypeName",
    "Unary",
    "children",
    "names_in",
    "walk",
)

ProbeKind = Literal["usdt", "uprobe", "kprobe", "tracepoint", "rawtp", "syscall", "fentry"]

MAX_HEIGHT = 100

BUILTINS = frozenset(
    ("comm", "cgroup", "cpu", "func", "gid", "kstack", "pid", "tid", "ts", "uid", "ustack")
)

# The least and the largest number of arguments.
FUNCTIONS = {"buf": (2, 2), "hex": (1, 1), "ksym": (1, 1), "str": (1, 2), "usym": (1, 1)}

# Binary operators, C17 6.5.5 to 6.5.14: the larger number binds closer; all group to the left.
PRECEDENCE = {
    op: level
    for level, ops in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %"), 1
    )
    for op in ops.split()
}

_PREDICATES = frozenset(("==", "!=", "<", "<=", ">", ">=", "&&", "||"))


@frozen
class TypeName:
    """A type in a cast.

    Attributes:
        kind: ``void`` comes with pointers only.
        name: of an integer type its shortest C spelling (``unsigned long``, ``u8``), of the
            others the name alone, without ``struct``.
        size: bytes of an integer (LP64: ``long`` is 8) or an enum; 0 where only type
            information can tell.
        signed: whether an integer is signed; ``char`` is.
        pointers: how many ``*`` follow.
    """

    kind: Literal["integer", "struct", "union", "enum", "typedef", "void"]
    name: str
    size: int
    signed: bool
    pointers: int


@frozen
class Name:
    """An argument, a built-in, or ``return``."""

    name: str
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Integer:
    """An integer or character constant, 0…2^64-1, with the type C17 6.4.4.1 gives it.

    Attributes:
        unsigned: by a suffix ``u``, or because only an unsigned type holds the value
            (``0xffffffff`` is unsigned, ``4294967295`` is a signed long).
        size: 4, or 8 by a suffix ``l`` or by the value.
    """

    value: int
    unsigned: bool
    size: int
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Text:
    r"""A string constant.

    Attributes:
        value: its bytes, without a NUL at the end and without the star of a prefix.
        prefix: whether it ends in a star written as such: any string that begins like this is
            meant. (``"\x2a"`` is a star and nothing else.)
    """

    value: bytes
    prefix: bool
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Unary:
    """``op`` is one of ``! ~ - + *``."""

    op: str
    operand: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Binary:
    """``op`` is one of :data:`PRECEDENCE`."""

    op: str
    left: Expression
    right: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Cast:
    """``(type)operand``."""

    type: TypeName
    operand: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Member:
    """``object->name`` if ``arrow``, else ``object.name``."""

    object: Expression
    name: str
    arrow: bool
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Index:
    """``object[index]``."""

    object: Expression
    index: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Call:
    """A call of one of :data:`FUNCTIONS`, with as many arguments as it takes."""

    function: str
    arguments: tuple[Expression, ...]
    start: int = field(compare=False)
    end: int = field(compare=False)


Expression = Name | Integer | Text | Unary | Binary | Cast | Member | Index | Call


@frozen
class Item:
    """One item of a probe.

    Attributes:
        text: as written, less the blanks outside quotes that separate nothing.
        expression: its tree.
    """

    text: str
    expression: Expression

    @property
    def is_predicate(self) -> bool:
        """Whether it must hold, instead of being shown: a comparison, ``&&``, ``||`` or ``!``."""
        tree = self.expression
        if isinstance(tree, Binary):
            return tree.op in _PREDICATES
        return isinstance(tree, Unary) and tree.op == "!"


@frozen
class ProbeText:
    """A probe as the user wrote it.

    ``provider`` and ``name`` are patterns as :func:`fnmatch.fnmatchcase` takes them; what stood in
    quotes is escaped in them, so it stands for itself.

    Attributes:
        text: all of it; the items' columns count from its beginning.
        kind: ``usdt`` unless the text begins with another kind's word and a colon.
        pattern: what stands between the kind's word and the items, as written.
        items: empty if none, or only ``()``, was written.
        path: the file, library or program (``usdt``, ``uprobe``), or None.
        provider: ``usdt``: the provider; ``tracepoint``: the category; ``kprobe``, ``fentry``: the
            module. ``*`` where none was written, "" where a kind has none.
        name: the probe, function (``uprobe`` and ``kprobe``: with its ``+OFFSET``), tracepoint
            or system call.
    """

    text: str
    kind: ProbeKind
    pattern: str
    items: tuple[Item, ...]
    path: str | None
    provider: str
    name: str

    @property
    def name_forms(self) -> tuple[str, ...]:
        """``name``, and for a USDT probe written as DTrace does, ``a-b``, also ``a__b``."""
        if self.kind != "usdt" or "-" not in self.name:
            return (self.name,)
        return (self.name, _dashes_to_underscores(self.name))


def _dashes_to_underscores(pattern: str) -> str:
    # The dash of a set, [a-z], is not a name's.
    pieces = pattern.split("[")
    changed = [pieces[0].replace("-", "__")]
    for piece in pieces[1:]:
        inside, bracket, outside = piece.partition("]")
        changed.append(inside + bracket + outside.replace("-", "__"))
    return "[".join(changed)


def children(tree: Expression) -> tuple[Expression, ...]:
    """The operands of a node, from left to right."""
    match tree:
        case Binary():
            return (tree.left, tree.right)
        case Unary() | Cast():
            return (tree.operand,)
        case Member():
            return (tree.object,)
        case Index():
            return (tree.object, tree.index)
        case Call():
            return tree.arguments
    return ()


def walk(tree: Expression) -> Iterator[Expression]:
    """Every node, a node before its operands, from left to right."""
    ahead = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        ahead.extend(reversed(children(node)))


def names_in(tree: Expression) -> Iterator[str]:
    """The names of arguments and built-ins used, from left to right, repeated if used again."""
    return (node.name for node in walk(tree) if isinstance(node, Name))
