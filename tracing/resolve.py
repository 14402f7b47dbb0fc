"""Names and types: from a syntax tree to typed expressions, by C's rules.

Integer promotion and the usual arithmetic conversions are C's (C17 6.3.1): what is smaller than
``int`` becomes ``int``; of two types the larger wins, at equal size the unsigned one. Constants
are folded on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpf.errors import BtfError, LanguageError
from tracing.fold import fold
from tracing.ir import (
    S32,
    S64,
    U64,
    Arithmetic,
    Builtin,
    Compare,
    CompareText,
    CompareTexts,
    Convert,
    Deref,
    Fetched,
    Logic,
    Node,
    Not,
    Number,
    Opaque,
    Place,
    Pointer,
    wrap,
)
from tracing.language.ctypenames import NAMED_TYPES
from tracing.language.tree import (
    Binary,
    Call,
    Cast,
    Index,
    Integer,
    Member,
    Name,
    Text,
    Unary,
)
from tracing.scope import DEFAULT_STRING, INTEGER_BUILTINS, MAX_READ, Scope, Types
from tracing.values import Constant, Kind, RecordBytes, Register, Unreadable, ValueType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tracing.language.tree import Expression

__all__ = (
    "DEFAULT_STRING",
    "INTEGER_BUILTINS",
    "MAX_READ",
    "Scope",
    "Types",
    "address_of",
    "given_limit",
    "resolve",
    "scalar",
)

MAX_TEXT = 255  # bytes of a string in a comparison: it has to fit the BPF stack
_STACKS = ("ustack", "kstack")
_COMM_SIZE = 16
_KINDS = {True: Kind.SIGNED, False: Kind.UNSIGNED}  # by "is signed"
_ORDER = ("==", "!=", "<", "<=", ">", ">=")


def resolve(tree: Expression, scope: Scope) -> Node:
    """The typed expression of ``tree``.

    Raises:
        LanguageError: an unknown name, or operands that do not go together.
    """
    match tree:
        case Integer():
            return _integer(tree)
        case Name():
            return _name(tree, scope)
        case Unary():
            return _unary(tree, scope)
        case Binary():
            return _binary(tree, scope)
        case Cast():
            return _cast(tree, scope)
        case Index():
            return _index(tree, scope)
        case Text():
            raise scope.error(tree, 'a string can only be compared, as in str(arg0) == "GET"')
        case Member():
            return _member(tree, scope)
        case Call():
            raise scope.error(tree, _MISPLACED[tree.function])


_MISPLACED = {
    "str": "str() stands alone as an item, or on a side of == or !=",
    "buf": "buf() stands alone as an item",
    "hex": "hex() stands alone as an item: it says how to show a value",
    "usym": "usym() stands alone as an item: it says how to show an address",
    "ksym": "ksym() stands alone as an item: it says how to show an address",
}


def _integer(tree: Integer) -> Node:
    return Number(tree.value, ValueType(_KINDS[not tree.unsigned], tree.size))


def _name(tree: Name, scope: Scope) -> Node:
    name = tree.name
    if name in scope.arguments:
        argument = scope.arguments[name]
        if isinstance(argument.fetch, Unreadable):
            return Opaque(argument.fetch.reason, argument.type)
        if isinstance(argument.fetch, Constant) and argument.type.kind in _KINDS.values():
            return Number(wrap(argument.fetch.value, argument.type), argument.type)
        node = Fetched(argument.fetch, argument.type)
        if scope.types is not None and argument.handle is not None:
            return scope.types.argument(argument, node)
        return node
    if name in INTEGER_BUILTINS:
        return Builtin(name, INTEGER_BUILTINS[name])
    if name.startswith("arg") and name[3:].isdigit():
        if int(name[3:]) < scope.declared:
            return Opaque(f"this call site has no {name}")
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
    if not scope.declared:
        return f"{scope.probe} has no arguments; {name} was asked for"
    last = f"arg0…arg{scope.declared - 1}" if scope.declared > 1 else "arg0"
    return f"{scope.probe} has {last}; {name} was asked for"


def _nearest(name: str, scope: Scope) -> str:
    known = [*scope.arguments, *INTEGER_BUILTINS, "comm", "func", *_STACKS]
    near = _near(name, known)
    return f"; did you mean {near}?" if near else f"; known here: {', '.join(known)}"


def _near(name: str, known: Iterable[str], alike: float = 0.6) -> str:
    import difflib  # noqa: PLC0415 - only for a message

    return next(iter(difflib.get_close_matches(name, known, 1, alike)), "")


def scalar(tree: Expression, scope: Scope) -> Node:
    """The typed expression of what has to be an integer: an operand, an address, a length.

    Raises:
        LanguageError: as :func:`resolve`; also a float or an aggregate.
    """
    node = resolve(tree, scope)
    if node.type.kind is Kind.FLOAT:
        raise scope.error(
            tree, "floating-point values can be shown, not calculated with or compared"
        )
    if node.type.kind is Kind.BYTES:
        raise scope.error(
            tree, f"a value of {node.type.size} bytes can be shown, not calculated with"
        )
    if node.type.kind is Kind.STRING:
        raise scope.error(tree, 'a string is compared with another, as in comm == "nginx"')
    return node


def address_of(tree: Expression, scope: Scope) -> Node:
    """The address that an expression is, or at which the text or the array lies that it is.

    Raises:
        LanguageError: as :func:`scalar`.
    """
    if isinstance(tree, (Name, Member, Index)):
        node = resolve(tree, scope)
        if isinstance(node, Place):
            return node.address
        if isinstance(node, Fetched) and isinstance(node.fetch, RecordBytes):
            return node
    return scalar(tree, scope)


def _text_of(tree: Expression, scope: Scope) -> Node | None:
    # Where the text is that an expression is, without str(); None if it is none.
    if isinstance(tree, Name) and tree.name in scope.arguments:
        argument = scope.arguments[tree.name]
        if argument.form == "string":
            return resolve(tree, scope)
    if scope.types is None or not isinstance(tree, (Name, Member, Index, Unary, Cast)):
        return None
    node = resolve(tree, scope)
    if isinstance(node, Place):
        return node.address if node.type.kind is Kind.STRING else None
    if isinstance(node, Pointer) and node.handle is not None and node.target.size == 1:
        return node
    return None


def _promote(node: Node) -> Node:
    if node.type.size < 4:
        return fold(Convert(node, S32))
    return node


def _convert(node: Node, kind: ValueType) -> Node:
    return node if node.type == kind else fold(Convert(node, kind))


def _common(left: ValueType, right: ValueType) -> ValueType:
    if left.size != right.size:
        return left if left.size > right.size else right
    return left if not left.signed else right


def _unary(tree: Unary, scope: Scope) -> Node:
    if tree.op == "*":
        target = resolve(tree.operand, scope)
        if scope.types is not None:
            found = _known(tree, scope, lambda types: types.deref(tree, target))
            if found is not None:
                return found
        if not isinstance(target, Pointer):
            raise scope.error(tree, "only a cast pointer can be followed, as in *(int *)arg0")
        return fold(Deref(target.address, target.target))
    operand = scalar(tree.operand, scope)
    if tree.op == "!":
        return fold(Not(operand))
    if isinstance(operand, Pointer):
        raise scope.error(tree, _no_pointers(tree.op))
    operand = _promote(operand)
    if tree.op == "+":
        return operand
    return fold(Arithmetic(tree.op, operand, None, operand.type))


def _binary(tree: Binary, scope: Scope) -> Node:
    if tree.op in _ORDER and (_is_text(tree.left) or _is_text(tree.right)):
        return _texts(tree, scope)
    left, right = scalar(tree.left, scope), scalar(tree.right, scope)
    if tree.op in ("&&", "||"):
        return fold(Logic(tree.op, left, right))
    if tree.op not in _ORDER and (isinstance(left, Pointer) or isinstance(right, Pointer)):
        return _pointers(tree, left, right, scope)
    left, right = _promote(left), _promote(right)
    if tree.op in ("<<", ">>"):
        return fold(Arithmetic(tree.op, left, right, left.type))
    kind = _common(left.type, right.type)
    left, right = _convert(left, kind), _convert(right, kind)
    if tree.op in _ORDER:
        return fold(Compare(tree.op, left, right, kind))
    return fold(Arithmetic(tree.op, left, right, kind))


def _pointers(tree: Binary, left: Node, right: Node, scope: Scope) -> Node:
    # C17 6.5.6: a pointer moves by whole elements, and two of a type differ by a number of them.
    if isinstance(left, Pointer) and isinstance(right, Pointer):
        if tree.op != "-" or left.target.size != right.target.size:
            raise scope.error(tree, _no_pointers(tree.op))
        bytes_apart = fold(Arithmetic("-", _number(left), _number(right), S64))
        return fold(Arithmetic("/", bytes_apart, Number(left.target.size, S64), S64))
    if isinstance(left, Pointer) and tree.op in ("+", "-"):
        return _moved(left, right, tree.op)
    if isinstance(right, Pointer) and tree.op == "+":
        return _moved(right, left, tree.op)
    raise scope.error(tree, _no_pointers(tree.op))


def _no_pointers(op: str) -> str:
    return f"{op} does not go with a pointer; for the address as a number write (long)(…)"


def _number(pointer: Pointer) -> Node:
    return fold(Convert(pointer.address, S64))


def _moved(pointer: Pointer, count: Node, op: str) -> Pointer:
    size = Number(pointer.target.size, S64)
    scaled = fold(Arithmetic("*", _convert(count, S64), size, S64))
    address = fold(Arithmetic(op, pointer.address, _convert(scaled, U64), U64))
    return Pointer(address, pointer.target, handle=pointer.handle)


def _is_text(tree: Expression) -> bool:
    if isinstance(tree, Name):
        return tree.name in ("comm", "func")
    return isinstance(tree, Text) or (isinstance(tree, Call) and tree.function == "str")


def _texts(tree: Binary, scope: Scope) -> Node:
    # A comparison with text on one side at least.
    named = _symbol(tree, scope)
    if named is not None:
        return named
    for side in (tree.left, tree.right):
        if not _is_text(side) and _text_of(side, scope) is None:
            name = side.name if isinstance(side, Name) else "…"
            hint = f"for the string at an address write str({name})"
            raise scope.error(side, f"this is no text, to be compared with one: {hint}")
    if tree.op not in ("==", "!="):
        raise scope.error(tree, "strings can be compared with == and != only")
    equal = tree.op == "=="
    if isinstance(tree.right, Text):
        return _compare_text(tree.left, tree.right, scope, equal=equal)
    if isinstance(tree.left, Text):
        return _compare_text(tree.right, tree.left, scope, equal=equal)
    if not isinstance(tree.left, Call) or not isinstance(tree.right, Call):
        side = tree.left if isinstance(tree.left, Name) else tree.right
        raise scope.error(side, 'comm and func are compared with constants, as in comm == "nginx"')
    return _compare_texts(tree.left, tree.right, scope, equal=equal)


def _symbol(tree: Binary, scope: Scope) -> Node | None:
    # A number against one of its names: reason == "NO_SOCKET".
    for value, text in ((tree.left, tree.right), (tree.right, tree.left)):
        if not isinstance(text, Text) or not isinstance(value, (Name, Member)):
            continue
        names = None
        if isinstance(value, Name) and value.name in scope.arguments:
            names = scope.arguments[value.name].names
        if names is None and scope.types is not None and not _is_text(value):
            names = scope.types.names(resolve(value, scope))
        if names is None:
            continue
        wanted = text.value.decode("utf-8", "replace")
        number = names.number_of(wanted)
        if number is None:
            near = _near(wanted, [name for _, name in names.table])
            hint = f"; did you mean {near}?" if near else ""
            raise scope.error(text, f"none of its values has the name {wanted!r}{hint}")
        node = resolve(value, scope)
        constant = Number(wrap(number, node.type), node.type)
        left, right = _promote(node), _promote(constant)
        return fold(Compare(tree.op, left, right, left.type))
    return None


def _compare_text(value: Expression, text: Text, scope: Scope, *, equal: bool) -> Node:
    wanted, prefix = text.value, text.prefix
    if len(wanted) > MAX_TEXT:
        raise scope.error(
            text, f"a string constant has at most {MAX_TEXT} bytes, this one {len(wanted)}"
        )
    if b"\0" in wanted:
        raise scope.error(text, "a string constant cannot hold a NUL: strings end there")
    if isinstance(value, Text):
        raise scope.error(text, "two constants: one side has to be str(…), comm or func")
    if isinstance(value, Call):
        address = scalar(value.arguments[0], scope)
        # What is shown is cut after MAX bytes, and it is what is shown that is compared.
        limit = given_limit(value, scope)
        if limit is not None and len(wanted) > limit:
            return Number(int(not equal), S32)
        return fold(CompareText(address, wanted, prefix or len(wanted) == limit, equal))
    inner = _text_of(value, scope)
    if inner is not None:
        return fold(CompareText(inner, wanted, prefix, equal))
    if isinstance(value, Name) and value.name == "func":
        name = scope.function.encode("utf-8", "surrogateescape")
        same = name.startswith(wanted) if prefix else name == wanted
        return Number(int(same is equal), S32)
    if len(wanted) >= _COMM_SIZE:
        return Number(int(not equal), S32)  # the kernel keeps 15 bytes of a name
    return CompareText(None, wanted, prefix, equal)


def _compare_texts(left: Call, right: Call, scope: Scope, *, equal: bool) -> Node:
    limit, other = (given_limit(side, scope) or scope.max_string for side in (left, right))
    if limit != other:
        raise scope.error(right, f"both sides need the same MAX, not {limit} and {other}")
    if limit > MAX_TEXT:
        reason = f"{limit} bytes are too many to compare: write str(…, {MAX_TEXT}) on both sides"
        raise scope.error(left, reason)
    one, two = (scalar(side.arguments[0], scope) for side in (left, right))
    return fold(CompareTexts(one, two, limit, equal))


def given_limit(call: Call, scope: Scope) -> int | None:
    """MAX of ``str(EXPR, MAX)``, None where none is given.

    Raises:
        LanguageError: it is no constant, or out of range.
    """
    if len(call.arguments) == 1:
        return None
    limit = scalar(call.arguments[1], scope)
    if isinstance(limit, Number) and 0 < limit.value < MAX_READ:
        return limit.value
    reason = f"the second argument of str() is a constant from 1 to {MAX_READ - 1}"
    raise scope.error(call.arguments[1], reason)


def _member(tree: Member, scope: Scope) -> Node:
    if scope.types is not None:
        target = resolve(tree.object, scope)
        node = _known(tree, scope, lambda types: types.member(tree, target))
        if node is not None:
            return node
    else:
        resolve(tree.object, scope)  # a wrong name in it is said first
    sign = "->" if tree.arrow else "."
    reason = (
        f"{sign}{tree.name} needs the type before it, and none is known here: give the member's "
        f"type and offset yourself, as in *(int *)(arg0 + 8)"
    )
    raise LanguageError(scope.text, tree.end - len(tree.name), reason)


def _cast(tree: Cast, scope: Scope) -> Node:
    kind = tree.type
    if kind.kind == "void":
        operand = scalar(tree.operand, scope)
        operand = operand.address if isinstance(operand, Pointer) else _convert(operand, U64)
        return operand if kind.pointers == 1 else Pointer(operand, U64)
    if kind.kind != "integer":
        return _cast_named(tree, scope)
    operand = scalar(tree.operand, scope)
    if kind.name in ("bool", "_Bool") and not kind.pointers:
        return fold(Not(fold(Not(operand))))  # C17 6.3.1.2: 1 for everything but 0
    target = ValueType(_KINDS[kind.signed], kind.size)
    if kind.pointers == 1:
        return Pointer(_convert(operand, U64), target)
    if kind.pointers:
        return Pointer(_convert(operand, U64), U64)
    return _convert(operand, target)


def _cast_named(tree: Cast, scope: Scope) -> Node:
    if scope.types is not None:
        operand = resolve(tree.operand, scope)
        node = _known(tree, scope, lambda types: types.cast(tree, operand))
        if node is not None:
            return node
    kind = tree.type
    name = kind.name if kind.kind == "typedef" else f"{kind.kind} {kind.name}"
    near = _near(kind.name, NAMED_TYPES, 0.85) if kind.kind == "typedef" else ""
    if near:
        raise scope.error(tree, f"the type {name} is not known here; did you mean {near}?")
    reason = f"{name} is not known here: no types come with this probe; integer types, and "
    raise scope.error(tree, reason + "pointers to them, as in *(int *)(arg0 + 8), always work")


def _index(tree: Index, scope: Scope) -> Node:
    target = resolve(tree.object, scope)
    element = _element(tree, target, scope)
    if element is not None:
        return element
    if not isinstance(target, Pointer):
        raise scope.error(tree, "only a cast pointer has elements, as in ((int *)arg0)[2]")
    moved = _moved(target, scalar(tree.index, scope), "+")
    return fold(Deref(moved.address, moved.target))


def _element(tree: Index, target: Node, scope: Scope) -> Node | None:
    # Of an array in the record, which has constant indices; or of one whose type is known.
    index = scalar(tree.index, scope)
    if isinstance(tree.object, Name) and tree.object.name in scope.arguments:
        argument = scope.arguments[tree.object.name]
        fetch, element = argument.fetch, argument.element
        if isinstance(fetch, RecordBytes) and element is not None:
            most = fetch.size // element.size if fetch.location == "here" else 0
            if not isinstance(index, Number) or not 0 <= index.value < most:
                wanted = f"a constant index, 0 to {most - 1}" if most else "no index: it varies"
                raise scope.error(tree.index, f"{argument.name} takes {wanted}")
            place = Register(fetch.offset + index.value * element.size, element.size)
            return Fetched(place, element)
    return _known(tree, scope, lambda types: types.index(tree, target, index))


def _known(
    tree: Cast | Index | Member | Unary, scope: Scope, ask: Callable[[Types], Node | None]
) -> Node | None:
    # What types from elsewhere know; None without any.
    if scope.types is None:
        return None
    try:
        return ask(scope.types)
    except BtfError as err:
        column = tree.end - len(tree.name) if isinstance(tree, Member) else tree.start
        raise LanguageError(scope.text, column, str(err)) from err
