"""Names and types: from a syntax tree to typed expressions, by C's rules.

Integer promotion and the usual arithmetic conversions are C's (C17 6.3.1): what is smaller than
``int`` becomes ``int``; of two types the larger wins, at equal size the unsigned one. Constants
are folded on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import AtReturn, Kind, RecordBytes, Register, Unreadable, ValueType
from usdt.base.errors import BtfError, LanguageError
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    U64,
    Arithmetic,
    Compare,
    Deref,
    Fetched,
    Gathered,
    Logic,
    Node,
    Not,
    Number,
    Opaque,
    Place,
    Pointer,
)
from usdt.engine.compiler.resolve.casts import bound_closer
from usdt.engine.compiler.resolve.conversions import (
    common,
    convert,
    moved,
    no_pointers,
    pointer_arithmetic,
    promote,
)
from usdt.engine.compiler.resolve.names import KINDS, near, resolve_integer, resolve_name
from usdt.engine.compiler.scope import MAX_READ, Scope, Shown, Types
from usdt.engine.language.c_type_names import NAMED_TYPES
from usdt.engine.language.tree import (
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.language.tree import Expression

__all__ = (
    "address_of",
    "begin_of",
    "contents_of",
    "given_limit",
    "is_text",
    "resolve",
    "room_of",
    "scalar",
    "text_of",
)

_ORDER = ("==", "!=", "<", "<=", ">", ">=")


def resolve(tree: Expression, scope: Scope) -> Node:
    """The typed expression of ``tree``.

    Raises:
        LanguageError: an unknown name, or operands that do not go together.
    """
    match tree:
        case Integer():
            return resolve_integer(tree)
        case Name():
            return resolve_name(tree, scope)
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
        held = contents_of(tree, scope)
        if held is not None and held.begin is not None and held.form != "chosen":
            return held.begin
        if isinstance(node, Place):
            return begin_of(node)
        if isinstance(node, Fetched) and isinstance(node.fetch, RecordBytes):
            return node
    return scalar(tree, scope)


def contents_of(tree: Expression, scope: Scope) -> Shown | None:
    """What a text or a list of C++ or Rust holds; None of every other expression."""
    if scope.types is None or not isinstance(tree, (Name, Member, Index, Unary, Cast)):
        return None
    node = resolve(tree, scope)
    shown = scope.types.shown(node) if isinstance(node, (Place, Pointer)) else None
    return shown if shown is not None and shown.begin is not None else None


def text_of(tree: Expression, scope: Scope) -> Node | None:
    """Where the text is that an expression is, without str(); None if it is none."""
    if isinstance(tree, Name) and tree.name in scope.arguments:
        argument = scope.arguments[tree.name]
        if argument.form == "string":
            return resolve(tree, scope)
    if scope.types is None or not isinstance(tree, (Name, Member, Index, Unary, Cast)):
        return None
    node = resolve(tree, scope)
    if isinstance(node, Place):
        return begin_of(node) if node.type.kind is Kind.STRING else None
    if isinstance(node, Pointer):
        shown = scope.types.shown(node)
        return node if shown is not None and shown.form == "string" else None
    return None


def room_of(tree: Expression, scope: Scope) -> int:
    """The most bytes that a text has, of which text_of() says where it is."""
    node = resolve(tree, scope)
    return node.type.size if isinstance(node, Place) else MAX_READ


def begin_of(place: Place) -> Node:
    """The address at which something lies."""
    if isinstance(place.address, Gathered):
        return Opaque("it lies in registers and has no address")
    if isinstance(place.address, Opaque) or not place.kernel:
        return place.address
    return Pointer(place.address, place.type, handle=place.handle, kernel=True)


def _unary(tree: Unary, scope: Scope) -> Node:
    if tree.op == "*":
        target = resolve(tree.operand, scope)
        if scope.types is not None:
            found = _known(tree, scope, lambda types: types.deref(tree, target))
            if found is not None:
                return found
        if not isinstance(target, Pointer):
            raise scope.error(tree, "only a cast pointer can be followed, as in *(int *)arg0")
        return _at(tree, target, scope)
    operand = scalar(tree.operand, scope)
    if tree.op == "!":
        return fold(Not(operand))
    if isinstance(operand, Pointer):
        raise scope.error(tree, no_pointers(tree.op))
    operand = promote(operand)
    if tree.op == "+":
        return operand
    return fold(Arithmetic(tree.op, operand, None, operand.type))


def _binary(tree: Binary, scope: Scope) -> Node:
    if tree.op in _ORDER and (is_text(tree.left) or is_text(tree.right)):
        from usdt.engine.compiler.resolve.strings import compare_with_text  # noqa: PLC0415 - each calls the other

        return compare_with_text(tree, scope)
    left, right = scalar(tree.left, scope), scalar(tree.right, scope)
    if tree.op in ("&&", "||"):
        return fold(Logic(tree.op, left, right))
    if tree.op not in _ORDER and (isinstance(left, Pointer) or isinstance(right, Pointer)):
        return pointer_arithmetic(tree, left, right, scope)
    left, right = promote(left), promote(right)
    if tree.op in ("<<", ">>"):
        return fold(Arithmetic(tree.op, left, right, left.type))
    kind = common(left.type, right.type)
    left, right = convert(left, kind), convert(right, kind)
    if tree.op in _ORDER:
        return fold(Compare(tree.op, left, right, kind))
    return fold(Arithmetic(tree.op, left, right, kind))


def is_text(tree: Expression) -> bool:
    """Whether an expression is text whatever the types are: a constant, ``comm``, str()."""
    if isinstance(tree, Name):
        return tree.name in ("comm", "func")
    return isinstance(tree, Text) or (isinstance(tree, Call) and tree.function == "str")


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
        if _is_lost(target):
            return target
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
        operand = operand.address if isinstance(operand, Pointer) else convert(operand, U64)
        return operand if kind.pointers == 1 else Pointer(operand, U64)
    if kind.kind != "integer":
        return _cast_named(tree, scope)
    operand = scalar(tree.operand, scope)
    if kind.name in ("bool", "_Bool") and not kind.pointers:
        return fold(Not(fold(Not(operand))))  # C17 6.3.1.2: 1 for everything but 0
    target = ValueType(KINDS[kind.signed], kind.size)
    if kind.pointers == 1:
        return Pointer(convert(operand, U64), target)
    if kind.pointers:
        return Pointer(convert(operand, U64), U64)
    return convert(operand, target)


def _cast_named(tree: Cast, scope: Scope) -> Node:
    meant = bound_closer(tree, lambda inner: _untyped(inner, scope))
    if meant is not None and scope.types is not None:
        return resolve(meant, scope)
    if scope.types is not None:
        operand = resolve(tree.operand, scope)
        node = _known(tree, scope, lambda types: types.cast(tree, operand))
        if node is not None:
            return node
    kind = tree.type
    name = kind.name if kind.kind == "typedef" else f"{kind.kind} {kind.name}"
    close = near(kind.name, NAMED_TYPES, 0.85) if kind.kind == "typedef" else ""
    if close:
        raise scope.error(tree, f"the type {name} is not known here; did you mean {close}?")
    reason = f"{name} is not known here: no types come with this probe; integer types, and "
    raise scope.error(tree, reason + "pointers to them, as in *(int *)(arg0 + 8), always work")


def _is_lost(node: Node) -> bool:
    # What cannot be read has no parts that could.
    fetch = node.fetch if isinstance(node, Fetched) else None
    unread = isinstance(fetch, AtReturn) and isinstance(fetch.register, Unreadable)
    return isinstance(node, Opaque) or unread


def _untyped(tree: Expression, scope: Scope) -> bool:
    return not isinstance(resolve(tree, scope), (Place, Pointer))


def _index(tree: Index, scope: Scope) -> Node:
    target = resolve(tree.object, scope)
    element = _element(tree, target, scope)
    if element is not None:
        return element
    if not isinstance(target, Pointer):
        raise scope.error(tree, "only a cast pointer has elements, as in ((int *)arg0)[2]")
    return _at(tree, moved(target, scalar(tree.index, scope), "+"), scope)


def _at(tree: Index | Unary, target: Pointer, scope: Scope) -> Node:
    # What a pointer points at, by its own type alone.
    if target.handle is not None or target.target.kind is Kind.BYTES:
        raise scope.error(tree, "what it points at is of no known size: cast it, as in *(int *)p")
    return fold(Deref(target.address, target.target, None, target.kernel))


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
