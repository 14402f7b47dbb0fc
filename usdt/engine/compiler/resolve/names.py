"""Resolution of names and constants, and errors for unknown names.

Names of errors (``ENOENT``) and of the values of arguments (``O_CREAT``) are constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import (
    AtFunctionReturn,
    Captured,
    Constant,
    ContextArea,
    ForReturn,
    Saved,
    Unreadable,
    ValueClass,
    ValueType,
)
from usdt.base.frozen import replace
from usdt.base.text import closest
from usdt.cgroups.labels import CgroupName
from usdt.engine.compiler.ir import (
    DURATION,
    S32,
    S64,
    U32,
    U64,
    ArgumentValue,
    Builtin,
    ByAddress,
    InRegisters,
    Node,
    NoValue,
    Number,
    PointerExpr,
    Unavailable,
    address_in,
    bounds,
    wrap,
)
from usdt.engine.compiler.scope import INTEGER_BUILTINS, Scope
from usdt.engine.language.error_numbers import ERROR_NUMBERS
from usdt.engine.language.tree import ALL_ARGUMENTS, BUILTINS, RESULT_OF_BPFTRACE, STACKS, Text

if TYPE_CHECKING:
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.language.tree import Call, Integer, Name

__all__ = (
    "KINDS",
    "address_of_untyped",
    "argument_of",
    "constant_of",
    "resolve_caller",
    "resolve_integer",
    "resolve_name",
    "resolve_register",
)

CGROUP_NAMES = frozenset(kind.value for kind in CgroupName)
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
        argument = argument_of(tree, scope)
        if isinstance(argument.fetch, Unreadable):
            return Unavailable(argument.fetch.reason, argument.type)
        is_number = argument.type.kind in KINDS.values() and not _is_address(argument)
        if isinstance(argument.fetch, Constant) and is_number:
            return Number(wrap(argument.fetch.value, argument.type), argument.type)
        node = ArgumentValue(argument.fetch, argument.type)
        if scope.types is not None and argument.type_ref is not None:
            return scope.types.argument(argument, node)
        return node
    if tree.at_return and name in BUILTINS:
        raise scope.error(tree, f"out() reads memory that an argument leads to; {name} is none")
    if name == "duration":
        return _duration(tree, scope)
    if name == "caller":
        return resolve_caller(tree, scope)
    if name in INTEGER_BUILTINS:
        return Builtin(name, INTEGER_BUILTINS[name])
    if name.startswith("arg") and name[3:].isdigit():
        if int(name[3:]) < scope.declared:
            return Unavailable(f"this call site has no {name}")
        raise scope.error(tree, _no_argument(name, scope))
    if name == "comm":
        raise scope.error(tree, 'comm is a string: compare it, as in comm == "nginx"')
    if name in CGROUP_NAMES:
        how = f"--{name} NAME" if name != "cgroup_path" else "--cgroup PATH"
        reason = f"{name} is looked up when a hit is shown, so it stands alone; select with {how}"
        raise scope.error(tree, reason)
    if name == "func":
        raise scope.error(tree, 'func is a string: compare it, as in func == "a name"')
    if name == ALL_ARGUMENTS:
        raise scope.error(tree, "args stands alone as an item: it stands for all arguments")
    if name in ("return", RESULT_OF_BPFTRACE):
        raise scope.error(tree, f"{scope.probe} is a place in the code: it has no return value")
    if name in STACKS:
        raise scope.error(tree, f"{name} stands alone as an item: a stack is no number")
    number = constant_of(name, scope)
    if number is not None:
        kinds = (S32, U32, S64, U64)
        kind = next(one for one in kinds if bounds(one)[0] <= number <= bounds(one)[1])
        return Number(number, kind)
    raise scope.error(tree, f"unknown name {name!r}{_nearest(name, scope)}")


def resolve_caller(tree: Name, scope: Scope) -> Node:
    """Return the return address of a function.

    Raises:
        LanguageError: it is unknown at this probe.
    """
    found = scope.registers.caller
    if not scope.registers.entry:
        reason = f"caller is the return address at a function's entry, which {scope.probe} is not"
        raise scope.error(tree, f"{reason}; ustack and kstack show the callers")
    if isinstance(found, Unreadable):
        raise scope.error(tree, f"caller: {found.reason}")
    return ArgumentValue(found, scope.registers.word)


def resolve_register(tree: Call, scope: Scope) -> Node:
    """Return the value of ``reg(NAME)``.

    Raises:
        LanguageError: the context does not have the register.
    """
    (name,) = tree.arguments
    text = b"".join(name.parts) if isinstance(name, Text) else b""
    word = text.decode("utf-8", "replace").removeprefix("%")
    found = scope.registers.register(word)
    if isinstance(found, Unreadable):
        close = closest(word, scope.registers.names)
        hint = f"; did you mean {close}?" if close else ""
        raise scope.error(name, f"reg(): {found.reason}{hint}")
    return ArgumentValue(found, ValueType(ValueClass.UNSIGNED, found.size))


def _duration(tree: Name, scope: Scope) -> Node:
    if scope.duration is not None:
        return scope.duration
    result = scope.arguments.get("return")
    if result is None:
        reason = "duration is the time from a start to an end: write it where a function is traced"
        raise scope.error(tree, f"{reason}; {scope.probe} is a place in the code and has no end")
    if isinstance(result.fetch, Unreadable):
        reason = f"duration needs the return of {scope.probe}: {result.fetch.reason}"
        raise scope.error(tree, reason)
    return Builtin(name=DURATION, type=U64)


def argument_of(tree: Name, scope: Scope) -> Argument:
    """Return the argument of this name; in ``out()``, as one for the function's return.

    Raises:
        LanguageError: it has no value, the probe has no return, or the argument leads to no memory.
    """
    argument = scope.arguments[tree.name]
    if isinstance(argument.type_ref, NoValue):
        raise scope.error(tree, argument.type_ref.reason)
    return _for_return(tree, argument, scope) if tree.at_return else argument


def address_of_untyped(tree: Name, scope: Scope) -> PointerExpr | None:
    """Return the address of a variable without a value, as a pointer to bytes; None for others.

    Raises:
        LanguageError: it has no address either, or as :func:`argument_of`.
    """
    argument = scope.arguments.get(tree.name)
    kind = None if argument is None else argument.type_ref
    if argument is None or not isinstance(kind, NoValue):
        return None
    if isinstance(argument.fetch, Unreadable):
        raise scope.error(tree, kind.reason)
    if tree.at_return:
        argument = _for_return(tree, argument, scope)
    target = ValueType(ValueClass.BYTES, 1)
    return PointerExpr(address_in(argument.fetch), target, kernel=kind.kernel)


def _for_return(tree: Name, argument: Argument, scope: Scope) -> Argument:
    result = scope.arguments.get("return")
    if result is None:
        reason = "out() reads memory when a function returns, and this probe is no function's entry"
        raise scope.error(tree, reason)
    if isinstance(result.fetch, Unreadable):
        raise scope.error(tree, f"out() needs the return of {scope.probe}: {result.fetch.reason}")
    fetch = argument.fetch
    if not isinstance(result.fetch, AtFunctionReturn):
        return argument  # the hit is the return; memory is read there
    if isinstance(fetch, (AtFunctionReturn, Captured, ForReturn, Saved, Unreadable)):
        return argument
    if isinstance(fetch, Constant) and not _is_address(argument):
        return argument
    kept, where = argument.type_ref, ForReturn(fetch)
    if isinstance(kept, InRegisters):
        return replace(argument, fetch=where, type_ref=replace(kept, for_return=True))
    if isinstance(fetch, ContextArea):
        return replace(argument, fetch=Unreadable("out() of a structure that is passed by value"))
    if argument.type_ref is None and argument.type.kind not in KINDS.values():
        raise scope.error(tree, f"out() reads memory; {tree.name} leads to none: write {tree.name}")
    return replace(argument, fetch=where)


def _is_address(argument: Argument) -> bool:
    # True if the location holds the address of the value.
    return isinstance(argument.type_ref, ByAddress | NoValue)


def constant_of(name: str, scope: Scope) -> int | None:
    """Return the number of an error, or of a value of an argument; None for other names."""
    for argument in scope.arguments.values():
        number = None if argument.names is None else argument.names.number_of(name)
        if number is not None and name.isidentifier():
            return number
    return ERROR_NUMBERS.get(name)


def _no_argument(name: str, scope: Scope) -> str:
    if not scope.declared and scope.arguments:
        return f"{scope.probe} has no {name}; known here: {', '.join(scope.arguments)}"
    if not scope.declared:
        return f"{scope.probe} has no arguments; {name} was asked for"
    last = f"arg0…arg{scope.declared - 1}" if scope.declared > 1 else "arg0"
    return f"{scope.probe} has {last}; {name} was asked for"


def _nearest(name: str, scope: Scope) -> str:
    from usdt.engine.compiler.resolve.tasks import TASK_BUILTINS  # noqa: PLC0415 - for a message

    known = [
        *scope.arguments,
        *INTEGER_BUILTINS,
        DURATION,
        "caller",
        *TASK_BUILTINS,
        *CGROUP_NAMES,
        "comm",
        "func",
        *STACKS,
    ]
    constants = [
        text for one in scope.arguments.values() if one.names for _, text in one.names.every
    ]
    close = closest(name, [*known, *constants, *ERROR_NUMBERS])
    hint = "" if scope.types is None else scope.types.variable_hint(name)
    if hint.endswith("?") and closest(name, [close, hint[:-1].rpartition(" ")[2]]) != close:
        return hint
    if close:
        return f"; did you mean {close}?"
    return f"; known here: {', '.join(known)}{hint or '; a string stands in double quotes'}"
