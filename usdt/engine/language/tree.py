"""The syntax tree of the probe language, before any name is looked up.

Every node has ``start`` and ``end``, columns of the text that was parsed, so that a later error
can point at it. They do not count when nodes are compared. No tree is higher than
:data:`MAX_HEIGHT`, so that code may walk it recursively.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, assert_never

from usdt.base.frozen import Names, field, frozen, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = (
    "ALL_ARGUMENTS",
    "BUILTINS",
    "FUNCTIONS",
    "MAX_FRAMES",
    "MAX_HEIGHT",
    "PRECEDENCE",
    "RESULT_OF_BPFTRACE",
    "STACKS",
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
    "StackKind",
    "Text",
    "TypeKind",
    "TypeName",
    "Unary",
    "children",
    "names_in",
    "read_at_return",
    "stack_of",
    "walk",
    "with_result",
    "without_args",
)

ProbeKind = Literal[
    "usdt",
    "uprobe",
    "kprobe",
    "tracepoint",
    "rawtp",
    "syscall",
    "fentry",
    "interval",
    "profile",
    "software",
    "hardware",
    "watchpoint",
]

MAX_HEIGHT = 100  # levels of a tree
MAX_FRAMES = 127  # of a stack: PERF_MAX_STACK_DEPTH, include/uapi/linux/perf_event.h


BUILTINS = frozenset(
    (
        *("caller", "cgroup", "cgroup_path", "comm", "container", "cpu", "duration", "func", "gid"),
        *("kstack", "pcomm", "pid", "pod", "ppid", "pystack", "tid", "ts", "uid", "unit", "ustack"),
    )
)

#: The item that stands for all arguments; an argument of this name hides it.
ALL_ARGUMENTS = "args"

#: bpftrace's name of ``return``, for probes that have one.
RESULT_OF_BPFTRACE = "retval"

# Functions of the language → the minimum and the maximum number of arguments. The parser replaces
# out(): see :func:`read_at_return`.
FUNCTIONS = {
    "buf": (2, 2),
    "contains": (2, 2),
    "hex": (1, 1),
    "kstack": (1, 1),
    "ksym": (1, 1),
    "out": (1, 1),
    "pystack": (1, 1),
    "reg": (1, 1),
    "str": (1, 2),
    "ustack": (1, 1),
    "usym": (1, 1),
}

# Binary operators → precedence, C17 6.5.5 to 6.5.14: a larger number binds tighter. All are
# left-associative.
PRECEDENCE = {
    op: level
    for level, ops in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %"), 1
    )
    for op in ops.split()
}

_PREDICATES = frozenset(("==", "!=", "<", "<=", ">", ">=", "&&", "||"))


class StackKind(Names):
    """Whose stack it is; the values are the names in the language and in recordings."""

    PYTHON = "pystack"  # the Python functions of the process
    USER = "ustack"
    KERNEL = "kstack"


#: The names of stacks in the language.
STACKS = tuple(kind.value for kind in StackKind)


class TypeKind(Names):
    """What a type in a cast is, as far as its name says."""

    INTEGER = "integer"
    VOID = "void"
    STRUCT = "struct"
    UNION = "union"
    ENUM = "enum"
    TYPEDEF = "typedef"


@frozen
class TypeName:
    """A type in a cast.

    Attributes:
        kind: what it is; ``void`` has at least one pointer.
        name: for an integer its shortest C spelling (``unsigned long``, ``u8``), else the name
            without ``struct``, ``union`` or ``enum``.
        size: bytes of an integer (LP64: ``long`` is 8) or an enum; 0 if only type information
            gives it.
        signed: whether an integer is signed; ``char`` is.
        pointers: the number of ``*``.
    """

    kind: TypeKind
    name: str
    size: int
    signed: bool
    pointers: int

    @property
    def tagged_name(self) -> str:
        """The type without its pointers, as in C: ``struct file``, ``int``."""
        match self.kind:
            case TypeKind.STRUCT | TypeKind.UNION | TypeKind.ENUM:
                return f"{self.kind.value} {self.name}"
            case TypeKind.INTEGER | TypeKind.VOID | TypeKind.TYPEDEF:
                return self.name
            case _:
                assert_never(self.kind)

    @property
    def built_in(self) -> bool:
        """Whether the language knows the type; all others need type information."""
        match self.kind:
            case TypeKind.INTEGER | TypeKind.VOID:
                return True
            case TypeKind.STRUCT | TypeKind.UNION | TypeKind.ENUM | TypeKind.TYPEDEF:
                return False
            case _:
                assert_never(self.kind)

    @property
    def castable(self) -> bool:
        """Whether values can be cast to it: it is a pointer, a number, or may be one."""
        match self.kind:
            case TypeKind.STRUCT | TypeKind.UNION | TypeKind.VOID:
                return self.pointers > 0
            case TypeKind.INTEGER | TypeKind.ENUM | TypeKind.TYPEDEF:
                return True
            case _:
                assert_never(self.kind)


@frozen
class Name:
    """An argument, a variable (C++ and Rust: its path), a built-in, or ``return``.

    Attributes:
        at_return: whether the memory that the argument leads to is read when the function returns,
            as in ``out(*(int *)arg0)``; else at its entry.
    """

    name: str
    start: int = field(compare=False)
    end: int = field(compare=False)
    at_return: bool = False


@frozen
class Integer:
    """An integer or character constant, 0…2^64-1, with its type by C17 6.4.4.1.

    Attributes:
        value: its value.
        unsigned: whether its type is unsigned: because of a suffix ``u``, or because only an
            unsigned type can represent the value (``0xffffffff`` is unsigned, ``4294967295`` is
            a signed long).
        size: bytes: 8 with a suffix ``l`` or for a large value, else 4.
    """

    value: int
    unsigned: bool
    size: int
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Text:
    r"""A string constant, or a pattern.

    Attributes:
        parts: its bytes, without a NUL at the end, split at its unescaped stars: a single part is a
            constant; between two parts a pattern has any bytes. (``"\*"`` is a literal star.)
    """

    parts: tuple[bytes, ...]
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Unary:
    """A unary operator; ``op`` is one of ``! ~ - + * &``."""

    op: str
    operand: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Binary:
    """A binary operator; ``op`` is a key of :data:`PRECEDENCE`."""

    op: str
    left: Expression
    right: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Cast:
    """A cast: ``(type)operand``."""

    type: TypeName
    operand: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Member:
    """A member access: ``object->name`` if ``arrow``, else ``object.name``."""

    object: Expression
    name: str
    arrow: bool
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Index:
    """An element: ``object[index]``."""

    object: Expression
    index: Expression
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Call:
    """A call of one of :data:`FUNCTIONS` but out(); the number of arguments has been checked."""

    function: str
    arguments: tuple[Expression, ...]
    start: int = field(compare=False)
    end: int = field(compare=False)


Expression = Name | Integer | Text | Unary | Binary | Cast | Member | Index | Call


@frozen
class Item:
    """One item of a probe.

    Attributes:
        text: the item as written, without the blanks that are not needed to separate tokens.
        expression: its tree.
        implied: whether it was not written: the ``return`` of ``kretprobe:`` and the like.
    """

    text: str
    expression: Expression
    implied: bool = False

    @property
    def is_predicate(self) -> bool:
        """True for a comparison, ``&&``, ``||`` or ``!``, which decides whether a hit counts."""
        tree = self.expression
        if isinstance(tree, Binary):
            return tree.op in _PREDICATES
        return isinstance(tree, Unary) and tree.op == "!"


@frozen
class ProbeText:
    """A probe as the user wrote it.

    ``provider`` and ``name`` are patterns for :func:`fnmatch.fnmatchcase`; text that was quoted
    is escaped in them, so that it matches literally.

    Attributes:
        text: the complete text; columns of nodes are offsets in it.
        kind: the kind that the text begins with, else the default of :func:`.parser.parse_probe`.
        pattern: the text between the kind and the items, as written.
        items: empty if the text has no items, or only ``()``.
        path: the file, library or program (``usdt``, ``uprobe``), or None.
        provider: ``usdt``: the provider; ``tracepoint``: the category; ``kprobe``, ``fentry``: the
            module, ``rawtp`` of a program too; ``interval``, ``profile``: the unit; ``software``,
            ``hardware``: the event, if a count follows; ``watchpoint``: the length, and the address
            is the path. If none was written, ``*`` for ``usdt`` and ``tracepoint``, else "".
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
        """``name``; for a USDT probe written as DTrace does, ``a-b``, also ``a__b``."""
        if self.kind != "usdt" or "-" not in self.name:
            return (self.name,)
        return (self.name, _dashes_to_underscores(self.name))


def _dashes_to_underscores(pattern: str) -> str:
    # A dash in a set, as in [a-z], is not part of the name.
    pieces = pattern.split("[")
    changed = [pieces[0].replace("-", "__")]
    for piece in pieces[1:]:
        inside, bracket, outside = piece.partition("]")
        changed.append(inside + bracket + outside.replace("-", "__"))
    return "[".join(changed)


def children(tree: Expression) -> tuple[Expression, ...]:
    """Return the operands of a node, from left to right."""
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
    """Yield every node of ``tree``: a node before its operands, operands from left to right."""
    ahead = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        ahead.extend(reversed(children(node)))


def names_in(tree: Expression) -> Iterator[str]:
    """Yield the names of arguments and built-ins from left to right, once for each use.

    An argument in ``out()`` also yields ``return``, because the return is the hit; so does
    ``retval``.
    """
    for node in walk(tree):
        if isinstance(node, Name):
            yield node.name
            if node.at_return or node.name == RESULT_OF_BPFTRACE:
                yield "return"


def stack_of(tree: Expression) -> tuple[StackKind, int] | None:
    """Return the kind of a stack and its greatest number of frames; None for other expressions.

    ``ustack`` has :data:`MAX_FRAMES`, ``ustack(5)`` has 5.
    """
    for kind in StackKind:
        if isinstance(tree, Name) and tree.name == kind.value:
            return kind, MAX_FRAMES
        if isinstance(tree, Call) and tree.function == kind.value:
            (frames,) = tree.arguments
            return kind, frames.value if isinstance(frames, Integer) else MAX_FRAMES
    return None


def read_at_return(tree: Expression) -> Expression:
    """Return ``out(tree)``: a copy whose arguments are marked :attr:`Name.at_return`."""

    def marked(node: Expression) -> Expression | None:
        if isinstance(node, Name):
            return replace(node, at_return=node.name != "return")
        return None

    return _replaced(tree, marked)


def with_result(tree: Expression) -> Expression:
    """Return a copy in which ``retval`` is ``return``, as it is for probes that have a return."""

    def renamed(node: Expression) -> Expression | None:
        if isinstance(node, Name) and node.name == RESULT_OF_BPFTRACE:
            return Name("return", node.start, node.end)
        return None

    return _replaced(tree, renamed)


def without_args(tree: Expression) -> Expression:
    """Return a copy in which the arguments ``args.x`` and ``args->x`` are ``x``."""

    def named(node: Expression) -> Expression | None:
        if not isinstance(node, Member) or not isinstance(node.object, Name):
            return None
        whole = node.object
        if whole.name != ALL_ARGUMENTS:
            return None
        return Name(node.name, node.end - len(node.name), node.end, whole.at_return)

    return _replaced(tree, named)


def _replaced(tree: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    # A copy of tree in which nodes are what ``change`` returns for them, if that is not None.
    made = change(tree)
    if made is not None:
        return made
    match tree:
        case Unary() | Cast():
            return replace(tree, operand=_replaced(tree.operand, change))
        case Binary():
            left, right = _replaced(tree.left, change), _replaced(tree.right, change)
            return replace(tree, left=left, right=right)
        case Member():
            return replace(tree, object=_replaced(tree.object, change))
        case Index():
            target, index = _replaced(tree.object, change), _replaced(tree.index, change)
            return replace(tree, object=target, index=index)
        case Call():
            return replace(tree, arguments=tuple(_replaced(one, change) for one in tree.arguments))
    return tree
