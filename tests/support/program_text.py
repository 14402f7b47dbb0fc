"""The text of a program's tree, with all parentheses; and random trees.

What is parsed from the text of a tree is that tree again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.programs.syntax import program as p
from usdt.engine.programs.syntax import tree as t

if TYPE_CHECKING:
    from collections.abc import Iterable


def program_text(program: p.Program) -> str:
    """A program, one part in each line; blocks in one line."""
    parts: list[str] = []
    if program.config:
        values = "; ".join(f"{one.name} = {text(one.value)}" for one in program.config.values)
        parts.append(f"config = {{ {values} }}")
    parts += [f"{text(one)};" for one in program.imports]
    parts += [definition_text(one) for one in program.definitions]
    for one in program.maps:
        parts.append(f"let {one.map.name} = {one.kind}({_list(one.arguments)});")
    for macro in program.macros:
        parts.append(f"macro {macro.name}({_list(macro.parameters)}) {text(macro.body)}")
    for function in program.functions:
        parameters = ", ".join(
            f"{each.variable.name} : {type_text(each.type)}" for each in function.parameters
        )
        head = f"fn {function.name}({parameters}) : {type_text(function.result)}"
        parts.append(f"{head} {text(function.block)}")
    parts += [probe_text(one) for one in program.probes]
    return "\n".join(parts)


def probe_text(probe: p.Probe) -> str:
    """A probe with its attach points and its predicate."""
    points = ",".join((f"{a.name}=" if a.name else "") + a.text for a in probe.attach_points)
    predicate = f" /{text(probe.predicate)}/" if probe.predicate is not None else ""
    return f"{points}{predicate} {text(probe.block)}"


def definition_text(one: p.Definition) -> str:
    """A definition; types have their names in it as casts have them."""
    match one:
        case p.Typedef():
            return f"typedef {declaration_text(one.type, one.name)};"
        case p.EnumDefinition():
            constants = (
                each.name + (f" = {text(each.value)}" if each.value is not None else "")
                for each in one.enumerators
            )
            return f"enum {one.name} {{ {', '.join(constants)} }};"
    members = "".join(
        declaration_text(each.type, each.name)
        + (f" : {text(each.bits)}" if each.bits is not None else "")
        + "; "
        for each in one.members
    )
    packed = " __attribute__((packed))" if one.packed else ""
    return f"{one.tag} {one.name} {{ {members}}}{packed};"


def declaration_text(kind: t.Type, name: str) -> str:
    """A declarator of C: what is nearest to the name is read first."""
    match kind:
        case t.PointerType():
            inner = f"(*{name})" if isinstance(kind.target, t.ArrayType) else f"*{name}"
            return declaration_text(kind.target, inner)
        case t.ArrayType():
            length = text(kind.length) if kind.length is not None else ""
            return declaration_text(kind.element, f"{name}[{length}]")
    return f"{type_text(kind)} {name}".rstrip()


def type_text(kind: t.Type) -> str:
    """A type as in a cast."""
    match kind:
        case t.NamedType():
            return f"{kind.tag} {kind.name}".strip()
        case t.PointerType():
            return f"{type_text(kind.target)} *"
        case t.TypeOf():
            return f"typeof({_operand(kind.operand)})"
    lengths = ""
    element: t.Type = kind
    while isinstance(element, t.ArrayType):
        lengths += f"[{text(element.length) if element.length is not None else ''}]"
        element = element.element
    return type_text(element) + lengths


def _operand(one: t.Expression | t.Type) -> str:
    return type_text(one) if isinstance(one, t.Type) else text(one)


def _list(items: Iterable[t.Expression | t.Type]) -> str:
    return ", ".join(_operand(one) for one in items)


def _string(value: bytes) -> str:
    plain = set(range(32, 127)) - set(b'"\\')
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in value) + '"'


def text(one: t.Expression | t.Statement | t.Range) -> str:
    """An expression or a statement."""
    match one:
        case t.Block():
            inside = "".join(f"{text(each)}; " for each in one.statements)
            return f"{{ {inside}{text(one.value) + ' ' if one.value is not None else ''}}}"
        case t.If():
            otherwise = f" else {text(one.otherwise)}" if one.otherwise is not None else ""
            condition = text(one.condition)
            if not isinstance(one.condition, t.Comptime):
                condition = f"({condition})"
            return f"if {condition} {text(one.then)}{otherwise}"
    return _statement(one) or _expression(one)  # type: ignore[arg-type]


def _statement(one: t.Expression | t.Statement | t.Range) -> str:
    match one:
        case t.Assignment():
            target = "_" if isinstance(one.target, t.Discard) else text(one.target)
            return f"{target} {one.op} {text(one.value)}"
        case t.Declaration():
            kind = f" : {type_text(one.type)}" if one.type is not None else ""
            value = f" = {text(one.value)}" if one.value is not None else ""
            return f"let {one.variable.name}{kind}{value}"
        case t.ExpressionStatement():
            return text(one.expression)
        case t.While():
            return f"while ({text(one.condition)}) {text(one.block)}"
        case t.Range():
            return f"{text(one.first)}..{text(one.last)}"
        case t.For():
            return f"for ({one.variable.name} : {text(one.iterable)}) {text(one.block)}"
        case t.Unroll():
            return f"unroll ({text(one.count)}) {text(one.block)}"
        case t.Break():
            return "break"
        case t.Continue():
            return "continue"
        case t.Return():
            return f"return {text(one.value)}" if one.value is not None else "return"
        case t.Import():
            return f"import {_string(one.path.encode('utf-8', 'surrogateescape'))}"
    return ""


def _expression(one: t.Expression) -> str:
    match one:
        case t.Integer():
            return str(one.value)
        case t.String():
            return _string(one.value)
        case t.Boolean():
            return str(one.value).lower()
        case t.Identifier() | t.Variable() | t.Map():
            return one.name
        case t.PositionalParameter():
            return f"${one.number}"
        case t.ParameterCount():
            return "$#"
        case t.MapAccess():
            return f"{one.map.name}[{text(one.key)}]"
        case t.Call():
            return f"{one.function}({_list(one.arguments)})"
        case t.Unary():
            return f"({one.op} {text(one.operand)})"
        case t.Increment():
            target = text(one.target)
            return f"({one.op}{target})" if one.prefix else f"({target}{one.op})"
        case t.Binary():
            return f"({text(one.left)} {one.op} {text(one.right)})"
        case t.Ternary():
            return f"({text(one.condition)} ? {text(one.then)} : {text(one.otherwise)})"
        case t.Cast():
            return f"(({type_text(one.type)}) {text(one.operand)})"
    return _composite(one)


def _composite(one: t.Expression) -> str:
    match one:
        case t.Member():
            return f"{text(one.object)}{'->' if one.arrow else '.'}{one.name}"
        case t.TupleAccess():
            return f"{text(one.object)}.{one.index}"
        case t.Index():
            return f"{text(one.object)}[{text(one.index)}]"
        case t.Tuple():
            return f"({_list(one.elements)}{',' if len(one.elements) == 1 else ''})"
        case t.Record():
            return f"({', '.join(f'{each.name}={text(each.value)}' for each in one.fields)})"
        case t.SizeOf():
            return f"sizeof({_operand(one.operand)})"
        case t.TypeInfo():
            return f"typeinfo({_operand(one.operand)})"
        case t.OffsetOf():
            return f"offsetof({_operand(one.operand)}, {'.'.join(one.path)})"
        case t.Comptime():
            return f"(comptime {text(one.operand)})"
    raise AssertionError(one)
