"""Expansion of macros: a call of a macro becomes a block with its body.

Macros are hygienic, as bpftrace's documentation says: a body sees only the maps that are passed to
it, and the variables that it makes are its own. A parameter ``@m`` stands for a map, and a name for
an expression, which is evaluated wherever the name is. ``$x`` stands for a variable of the caller;
bpftrace 0.24 also takes an expression, which is evaluated wherever ``$x`` is and cannot be changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from usdt.base.frozen import fields_of, replace
from usdt.engine.programs.syntax.grammar.cursor import MAX_HEIGHT
from usdt.engine.programs.syntax.tree import (
    Assignment,
    Block,
    Call,
    Declaration,
    ExpressionStatement,
    For,
    Identifier,
    If,
    Increment,
    Map,
    Member,
    OffsetOf,
    Variable,
)

if TYPE_CHECKING:
    from typing import Any

    from usdt.engine.programs.syntax.program import Macro, Program
    from usdt.engine.programs.syntax.source import Source
    from usdt.engine.programs.syntax.tree import Expression

__all__ = ("expand_macros",)

_MAX_NODES = 500_000  # of a program after expansion
_KINDS = {Variable: "a variable as $x", Map: "a map as @m", Identifier: "an expression"}


def expand_macros(source: Source, program: Program) -> Program:
    """Return the program with the bodies of macros in place of their calls, and without macros.

    A call is the :class:`Block` of its body; its place is that of the call. Names that are no
    macros are left as they are.

    Raises:
        ProgramError: a macro calls itself, gets arguments that fit no macro of its name, changes an
            expression, or uses a map that is not passed to it; or the program grows too large.
    """
    if not program.macros:
        return program
    expansion = _Expansion(source, program.macros)
    functions = tuple(expansion.node(one, _Scope(None, {}, "", ())) for one in program.functions)
    probes = tuple(expansion.node(one, _Scope(None, {}, "", ())) for one in program.probes)
    return replace(program, macros=(), functions=functions, probes=probes)


class _Scope:
    """Where a node is: in the program, or in the body of a macro that is being expanded.

    ``arguments`` has what stands for the parameters, already expanded where the call is.
    ``suffix`` makes the names of the body's own variables, which no program can write. ``calls``
    are the macros around it.
    """

    def __init__(
        self,
        macro: Macro | None,
        arguments: dict[str, Expression],
        suffix: str,
        calls: tuple[Macro, ...],
    ) -> None:
        self.macro = macro
        self.arguments = arguments
        self.suffix = suffix
        self.calls = calls


class _Expansion:
    def __init__(self, source: Source, macros: tuple[Macro, ...]) -> None:
        self.source = source
        self.macros: dict[str, list[Macro]] = {}
        for macro in macros:
            self.macros.setdefault(macro.name, []).append(macro)
        self.count = 0
        self.expansions = 0
        self.depth = 0
        # Node → its number of nodes and its height. Arguments are shared, so that a tree can be
        # much larger than what was made. The nodes are kept, so that no other gets their id.
        self.measures: dict[int, tuple[int, int]] = {}
        self.kept: list[Any] = []

    def node(self, one: Any, scope: _Scope) -> Any:
        """Return a node with all calls of macros in it expanded."""
        self.depth += 1
        if self.depth > MAX_HEIGHT:
            self._too_large(one, scope)
        made = self._node(one, scope)
        self.depth -= 1
        return made

    def _node(self, one: Any, scope: _Scope) -> Any:
        match one:
            case Identifier():
                if one.name in scope.arguments:
                    return scope.arguments[one.name]
                if any(not macro.parameters for macro in self.macros.get(one.name, ())):
                    return self._call(one, one.name, (), scope)
            case Variable() if scope.macro is not None:
                argument = scope.arguments.get(one.name)
                return argument or Variable(f"{one.name}{scope.suffix}", one.start, one.end)
            case Map() if scope.macro is not None:
                return scope.arguments.get(one.name) or self._foreign_map(one, scope.macro)
            case Call() if one.function in self.macros:
                arguments = tuple(self.node(each, scope) for each in one.arguments)
                return self._call(one, one.function, arguments, scope)
            case Assignment(target=Variable() as changed) | Increment(target=Variable() as changed):
                self._check_changed(changed, scope)
            case Declaration(variable=changed) | For(variable=changed):
                self._check_changed(changed, scope)
            case OffsetOf(path=(name,)) if name in scope.arguments:
                named = replace(one, path=self._path(scope.arguments[name]))
                return self._rebuilt(named, scope)
            case ExpressionStatement():
                made = self._rebuilt(one, scope)
                inner = made.expression
                return inner if isinstance(inner, Block | If) else made
        return self._rebuilt(one, scope)

    def _call(
        self, call: Any, name: str, arguments: tuple[Expression, ...], scope: _Scope
    ) -> Block:
        macro = self._chosen(call, name, arguments)
        if macro in scope.calls:
            self._refuse(call.start, f"the macro {name} calls itself")
        self.expansions += 1
        bound = {
            parameter.name: argument
            for parameter, argument in zip(macro.parameters, arguments, strict=True)
        }
        inside = _Scope(macro, bound, f"#{self.expansions}", (*scope.calls, macro))
        body: Block = self.node(macro.body, inside)
        made = replace(body, start=call.start, end=call.end)
        self._keep(made, self._measure(body), call.start)
        return made

    def _chosen(self, call: Any, name: str, arguments: tuple[Expression, ...]) -> Macro:
        # The macro whose parameters fit: of several the one that takes most variables and maps.
        macros = self.macros[name]
        right = [macro for macro in macros if len(macro.parameters) == len(arguments)]
        if not right:
            counts = sorted({len(macro.parameters) for macro in macros})
            wanted = " or ".join(map(str, counts))
            plural = "" if counts == [1] else "s"
            reason = f"the macro {name} takes {wanted} argument{plural}, found {len(arguments)}"
            self._refuse(call.start, reason)
        fitting = [macro for macro in right if not _misfits(macro, arguments)]
        if not fitting:
            parameter, argument = _misfits(right[0], arguments)[0]
            reason = f"the macro {name} expects {_KINDS[type(parameter)]} for {parameter.name}"
            self._refuse(argument.start, reason)
        return max(fitting, key=lambda macro: _exactness(macro, arguments))

    def _rebuilt(self, one: Any, scope: _Scope) -> Any:
        fields = fields_of(one)
        size, height = 1, 0
        changed: dict[str, Any] = {}
        made: Any
        for name, value in fields.items():
            if isinstance(value, tuple):
                made = tuple(self.node(each, scope) if _is_node(each) else each for each in value)
                parts = made
            elif _is_node(value):
                made = self.node(value, scope)
                parts = (made,)
            else:
                continue
            changed[name] = made
            for part in parts:
                inner = self._measure(part)
                size += inner[0]
                height = max(height, inner[1])
        if not changed:
            return one
        made = replace(one, **changed)
        self._keep(made, (size, height + 1), one.start)
        return made

    def _keep(self, made: Any, measure: tuple[int, int], start: int) -> None:
        self.count += 1
        if self.count > _MAX_NODES or measure[0] > _MAX_NODES or measure[1] > MAX_HEIGHT:
            self._refuse(start, "with its macros, this part of the program grows too large")
        self.measures[id(made)] = measure
        self.kept.append(made)

    def _measure(self, one: Any) -> tuple[int, int]:
        return self.measures.get(id(one), (1, 1))

    def _path(self, members: Expression) -> tuple[str, ...]:
        # The names of "a.b.c", which is an argument in place of a member.
        if isinstance(members, Identifier):
            return (members.name,)
        if not isinstance(members, Member):
            self._refuse(members.start, "expected the name of a member, as in offsetof(…, a.b)")
        return (*self._path(members.object), members.name)

    def _check_changed(self, variable: Variable, scope: _Scope) -> None:
        argument = scope.arguments.get(variable.name, variable)
        if scope.macro and not isinstance(argument, Variable):
            reason = f"the macro {scope.macro.name} changes {variable.name}: pass a variable to it"
            self._refuse(argument.start, reason)

    def _foreign_map(self, one: Map, macro: Macro) -> NoReturn:
        reason = f"the macro {macro.name} uses {one.name}: pass maps to it by a parameter"
        self._refuse(one.start, reason)

    def _too_large(self, one: Any, scope: _Scope) -> NoReturn:
        name = f"the macro {scope.macro.name}" if scope.macro else "this part of the program"
        self._refuse(one.start, f"with its macros, {name} grows too large")

    def _refuse(self, start: int, reason: str) -> NoReturn:
        raise self.source.error(start, reason)


def _is_node(value: object) -> bool:
    return hasattr(type(value), "__match_args__")


def _misfits(macro: Macro, arguments: tuple[Expression, ...]) -> list[tuple[Any, Any]]:
    # The parameters that need a value or a map, with the arguments that are none.
    return [
        (parameter, argument)
        for parameter, argument in zip(macro.parameters, arguments, strict=True)
        if (isinstance(parameter, Map) and not isinstance(argument, Map))
        or (isinstance(parameter, Variable) and isinstance(argument, Map))
    ]


def _exactness(macro: Macro, arguments: tuple[Expression, ...]) -> int:
    # An expression is rather that of a parameter without $ than that of a variable.
    pairs = list(zip(macro.parameters, arguments, strict=True))
    return sum(
        type(parameter) is type(argument) and not isinstance(parameter, Identifier)
        for parameter, argument in pairs
    ) - sum(
        isinstance(parameter, Variable) and not isinstance(argument, Variable)
        for parameter, argument in pairs
    )
