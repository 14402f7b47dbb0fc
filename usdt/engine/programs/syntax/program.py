"""The nodes of a program's parts: definitions of types, macros, functions and probes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from usdt.base.frozen import field, fields_of, frozen, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.programs.syntax.tree import (
        Block,
        Boolean,
        Expression,
        Identifier,
        Import,
        Integer,
        Map,
        String,
        Type,
        Variable,
    )

__all__ = (
    "AttachPoint",
    "Config",
    "ConfigValue",
    "Definition",
    "EnumDefinition",
    "Enumerator",
    "Function",
    "Macro",
    "MapDeclaration",
    "Parameter",
    "Probe",
    "Program",
    "StructDefinition",
    "StructMember",
    "Typedef",
    "moved",
    "nodes_of",
)

T = TypeVar("T")


@frozen
class StructMember:
    """A member of a structure or union.

    Attributes:
        name: "" for the anonymous structures and unions whose members belong to the outer one,
            and for the bits that only fill up.
        bits: the width of a bit-field in bits; None for other members.
    """

    name: str
    type: Type
    bits: Expression | None
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class StructDefinition:
    """A structure or union with its members.

    One that is defined inside another stands before it in the program.

    Attributes:
        name: its tag; where it has none, ``(anonymous OFFSET)``, which no program can write.
        packed: whether it has ``__attribute__((packed))``.
    """

    tag: Literal["struct", "union"]
    name: str
    members: tuple[StructMember, ...]
    packed: bool
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Enumerator:
    """A constant of an enumeration; without a value it is one more than the constant before."""

    name: str
    value: Expression | None
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class EnumDefinition:
    """An enumeration; ``name`` as in :class:`StructDefinition`."""

    name: str
    enumerators: tuple[Enumerator, ...]
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Typedef:
    """A ``typedef``: another name of a type."""

    name: str
    type: Type
    start: int = field(compare=False)
    end: int = field(compare=False)


Definition = StructDefinition | EnumDefinition | Typedef


@frozen
class ConfigValue:
    """One line of the configuration: ``name = value``; a word as value is an identifier."""

    name: str
    value: Integer | String | Boolean | Identifier
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Config:
    """``config = { name = value; … }``."""

    values: tuple[ConfigValue, ...]
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class MapDeclaration:
    """A map declared before the probes: ``let @map = lruhash(100);``."""

    map: Map
    kind: str
    arguments: tuple[Expression, ...]
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Macro:
    """``macro name($variable, @map, expression) { … }``; there may be several of one name."""

    name: str
    parameters: tuple[Variable | Map | Identifier, ...]
    body: Block
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Parameter:
    """A parameter of a function: ``$name : type``."""

    variable: Variable
    type: Type
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Function:
    """``fn name($a : type, …) : type { … }``."""

    name: str
    parameters: tuple[Parameter, ...]
    result: Type
    block: Block
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class AttachPoint:
    """Where a probe attaches, as written: ``kprobe:vfs_read``, ``usdt:"./a b":p:n``, ``i:s:$1``.

    Attributes:
        text: without blanks between its parts; quotes and ``$1`` as written.
        name: of ``name=kprobe:f``; else "".
    """

    text: str
    name: str
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Probe:
    """``attach_points /predicate/ { … }``; at least one attach point."""

    attach_points: tuple[AttachPoint, ...]
    predicate: Expression | None
    block: Block
    start: int = field(compare=False)
    end: int = field(compare=False)


@frozen
class Program:
    """A program: what stands before the probes, and the probes in their order."""

    config: Config | None
    imports: tuple[Import, ...]
    definitions: tuple[Definition, ...]
    maps: tuple[MapDeclaration, ...]
    macros: tuple[Macro, ...]
    functions: tuple[Function, ...]
    probes: tuple[Probe, ...]


def moved(node: T, distance: int) -> T:
    """Return a node whose places, and those of all nodes in it, are moved in the text."""
    changed: dict[str, Any] = {}
    for name, value in fields_of(node).items():
        if name in ("start", "end"):
            changed[name] = value + distance
        elif isinstance(value, tuple):
            changed[name] = tuple(moved(one, distance) if _is_node(one) else one for one in value)
        elif _is_node(value):
            changed[name] = moved(value, distance)
    return replace(node, **changed)


def _is_node(value: object) -> bool:
    return hasattr(type(value), "__match_args__")


def nodes_of(kind: type[T], *within: object) -> Iterator[T]:
    """Yield the nodes of a kind in some nodes, in no particular order."""
    ahead = [*within]
    while ahead:
        node = ahead.pop()
        if isinstance(node, tuple):
            ahead += node
            continue
        if isinstance(node, kind):
            yield node
        names = getattr(type(node), "__match_args__", ())
        ahead += [getattr(node, name) for name in names if name not in ("start", "end")]
