"""Warnings about what a program says: statements that never run, values that nobody takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.programs.syntax import tree
from usdt.engine.programs.syntax.program import nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.programs.syntax.program import Probe
    from usdt.engine.programs.syntax.source import Source

__all__ = ("warnings_of",)

_UNREACHABLE = "Unreachable statement."
_DISCARDED = "Return value discarded."
_DEPRECATED = (
    "While loops are deprecated and may be removed in the future: most can be a for over a range,"
    " as in for ($i : 0..10)"
)
# Expressions that do nothing but have a value. Calls are those of the functions below.
_VALUES = (
    *(tree.Binary, tree.Boolean, tree.Cast, tree.Identifier, tree.Index, tree.Integer, tree.Map),
    *(tree.MapAccess, tree.Member, tree.OffsetOf, tree.Record, tree.SizeOf, tree.String),
    *(tree.Tuple, tree.TupleAccess, tree.Unary, tree.Variable),
)
_FUNCTIONS = frozenset(
    (
        *("bswap", "buf", "cgroup_path", "cgroupid", "globmatch", "has_key", "kaddr", "kptr"),
        *(
            "ksym",
            "kstack",
            "len",
            "macaddr",
            "memcmp",
            "nsecs",
            "ntop",
            "pton",
            "reg",
            "str",
            "strcontains",
        ),
        *("strerror", "strftime", "strlen", "strncmp", "strstr", "uaddr", "uptr", "ustack"),
        *("username", "usym"),
    )
)


def warnings_of(probes: Sequence[Probe], source: Source) -> list[str]:
    """Return the warnings about the probes of a program, in the order of the text."""
    found: dict[int, str] = {}  # those of a macro that is called twice once
    for probe in probes:
        unset: list[tree.Declaration] = []
        for node in nodes_of(object, probe.block):
            match node:
                case tree.Block():
                    found.update(_of_block(node))
                case tree.While():
                    found[node.start] = _DEPRECATED
                case tree.Declaration(value=None):
                    unset.append(node)
        if unset:
            found.update(_never_assigned(probe, unset))
    return [str(source.error(at, f"WARNING: {text}")) for at, text in sorted(found.items())]


def _of_block(block: tree.Block) -> Iterator[tuple[int, str]]:
    left = False
    for statement in block.statements:
        if left:
            yield statement.start, _UNREACHABLE
            return
        if isinstance(statement, tree.ExpressionStatement) and _is_value(statement.expression):
            yield statement.start, _DISCARDED
        left = _leaves(statement)
    if left and block.value is not None:
        yield block.value.start, _UNREACHABLE


def _is_value(node: tree.Expression) -> bool:
    if isinstance(node, tree.Call):
        return node.function in _FUNCTIONS
    return isinstance(node, _VALUES)


def _leaves(node: tree.Statement | None) -> bool:
    # Whether what follows a statement never runs.
    match node:
        case tree.Return() | tree.Break() | tree.Continue():
            return True
        case tree.ExpressionStatement(expression=tree.Call(function="exit")):
            return True
        case tree.If(condition=condition, then=then, otherwise=otherwise):
            comptime = isinstance(condition, tree.Comptime)
            return not comptime and _leaves(then) and _leaves(otherwise)
        case tree.Block():
            return any(map(_leaves, node.body))
    return False


def _never_assigned(probe: Probe, unset: Sequence[tree.Declaration]) -> Iterator[tuple[int, str]]:
    assigned = {
        one.target.name
        for one in nodes_of(tree.Assignment, probe.block)
        if isinstance(one.target, tree.Variable)
    }
    changing = [
        *nodes_of(tree.Increment, probe.block),
        *(one for one in nodes_of(tree.Call, probe.block) if one.function == "find"),
        # What has the address of a variable may change it.
        *(one for one in nodes_of(tree.Unary, probe.block) if one.op == "&"),
    ]
    assigned |= {one.name for one in nodes_of(tree.Variable, *changing)}
    for one in unset:
        if one.variable.name not in assigned:
            yield one.start, f"Variable {one.variable.name} was never assigned to."
