"""Resolution of names and constants, and errors for unknown names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import Constant, Unreadable, ValueClass, ValueType
from usdt.base.text import closest
from usdt.engine.compiler.ir import ArgumentValue, Builtin, Node, Number, Unavailable, wrap
from usdt.engine.compiler.scope import INTEGER_BUILTINS, Scope

if TYPE_CHECKING:
    from usdt.engine.language.tree import Integer, Name

__all__ = ("KINDS", "resolve_integer", "resolve_name")

_STACKS = ("ustack", "kstack")
KINDS = {True: ValueClass.SIGNED, False: ValueClass.UNSIGNED}  # whether signed → class


def resolve_integer(tree: Integer) -> Node:
    """Return the typed expression of a constant."""
    return Number(tree.value, ValueType(KINDS[not tree.unsigned], tree.size))


def resolve_name(tree: Name, scope: Scope) -> Node:
    """Return the typed expression of an argument or a built-in.

    Raises:
        LanguageError: the name is unknown, or it is a built-in that is not a number.
    """
    name = tree.name
    if name in scope.arguments:
        argument = scope.arguments[name]
        if isinstance(argument.fetch, Unreadable):
            return Unavailable(argument.fetch.reason, argument.type)
        if isinstance(argument.fetch, Constant) and argument.type.kind in KINDS.values():
            return Number(wrap(argument.fetch.value, argument.type), argument.type)
        node = ArgumentValue(argument.fetch, argument.type)
        if scope.types is not None and argument.type_ref is not None:
            return scope.types.argument(argument, node)
        return node
    if name in INTEGER_BUILTINS:
        return Builtin(name, INTEGER_BUILTINS[name])
    if name.startswith("arg") and name[3:].isdigit():
        if int(name[3:]) < scope.declared:
            return Unavailable(f"this call site has no {name}")
        raise scope.error(tree, _no_argument(name, scope))
    if name == "comm":
        raise scope.error(tree, 'comm is a string: compare it, as in comm == "nginx"')
    if name == "func":
        raise scope.error(tree, 'func is a string: compare it, as in func == "a name"')
    if name == "return":
        raise scope.error(tree, f"{scope.probe} is a place in the code: it has no return value")
    if name in _STACKS:
        raise scope.error(tree, f"{name} stands alone as an item: a stack is no number")
    raise scope.error(tree, f"unknown name {name!r}{_nearest(name, scope)}")


def _no_argument(name: str, scope: Scope) -> str:
    if not scope.declared and scope.arguments:
        return f"{scope.probe} has no {name}; known here: {', '.join(scope.arguments)}"
    if not scope.declared:
        return f"{scope.probe} has no arguments; {name} was asked for"
    last = f"arg0…arg{scope.declared - 1}" if scope.declared > 1 else "arg0"
    return f"{scope.probe} has {last}; {name} was asked for"


def _nearest(name: str, scope: Scope) -> str:
    known = [*scope.arguments, *INTEGER_BUILTINS, "comm", "func", *_STACKS]
    close = closest(name, known)
    return f"; did you mean {close}?" if close else f"; known here: {', '.join(known)}"
