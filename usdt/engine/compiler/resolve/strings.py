"""Comparisons with text: strings, names of numbers, ``comm`` and ``func``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    S32,
    U64,
    Compare,
    CompareText,
    CompareTexts,
    Logic,
    Node,
    Not,
    Number,
    wrap,
)
from usdt.engine.compiler.resolve.conversions import convert, promote
from usdt.engine.compiler.resolve.expressions import (
    address_of,
    contents_of,
    given_limit,
    is_text,
    resolve,
    room_of,
    text_of,
)
from usdt.engine.compiler.resolve.names import near
from usdt.engine.language.tree import Call, Member, Name, Text

if TYPE_CHECKING:
    from usdt.engine.compiler.scope import Scope
    from usdt.engine.language.tree import Binary, Expression

__all__ = ("compare_with_text",)

MAX_TEXT = 255  # bytes of a string in a comparison: it has to fit the BPF stack
_COMM_SIZE = 16


def compare_with_text(tree: Binary, scope: Scope) -> Node:
    """A comparison with text on one side at least.

    Raises:
        LanguageError: the other side is none, or they cannot be compared so.
    """
    named = _symbol(tree, scope)
    if named is not None:
        return named
    for side in (tree.left, tree.right):
        if not is_text(side) and text_of(side, scope) is None and _held(side, scope) is None:
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
        node = None
        if names is None and scope.types is not None and not is_text(value):
            held = contents_of(value, scope)
            chosen = held is not None and held.form == "chosen"
            node = held.begin if held is not None and chosen else resolve(value, scope)
            names = None if node is None else scope.types.names(node)
        if names is None:
            continue
        wanted = text.value.decode("utf-8", "replace")
        number = names.number_of(wanted)
        if number is None:
            close = near(wanted, [name for _, name in names.table])
            hint = f"; did you mean {close}?" if close else ""
            raise scope.error(text, f"none of its values has the name {wanted!r}{hint}")
        node = node or resolve(value, scope)
        constant = Number(wrap(number, node.type), node.type)
        left, right = promote(node), promote(constant)
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
        address = address_of(value.arguments[0], scope)
        # What is shown is cut after MAX bytes, and it is what is shown that is compared.
        limit = given_limit(value, scope)
        if limit is not None and len(wanted) > limit:
            return Number(int(not equal), S32)
        return fold(CompareText(address, wanted, prefix or len(wanted) == limit, equal))
    held = _held(value, scope)
    if held is not None:
        return _compare_held(*held, wanted, prefix=prefix, equal=equal)
    inner = text_of(value, scope)
    if inner is not None:
        room = room_of(value, scope)  # an array that is full has no NUL
        if len(wanted) > room:
            return Number(int(not equal), S32)
        return fold(CompareText(inner, wanted, prefix or len(wanted) == room, equal))
    if isinstance(value, Name) and value.name == "func":
        name = scope.function.encode("utf-8", "surrogateescape")
        same = name.startswith(wanted) if prefix else name == wanted
        return Number(int(same is equal), S32)
    if len(wanted) >= _COMM_SIZE:
        return Number(int(not equal), S32)  # the kernel keeps 15 bytes of a name
    return CompareText(None, wanted, prefix, equal)


def _held(tree: Expression, scope: Scope) -> tuple[Node, Node] | None:
    # Where the text of a string of C++ or Rust is, and its length.
    shown = contents_of(tree, scope)
    if shown is None or shown.form != "buffer" or shown.begin is None or shown.length is None:
        return None
    return shown.begin, shown.length


def _compare_held(begin: Node, length: Node, wanted: bytes, *, prefix: bool, equal: bool) -> Node:
    # No NUL ends it: its length decides first.
    size = Number(len(wanted), U64)
    same: Node = fold(Compare(">=" if prefix else "==", convert(length, U64), size, U64))
    if wanted:
        beginning = CompareText(begin, wanted, prefix=True, equal=True)
        same = fold(Logic("&&", same, beginning))
    return same if equal else fold(Not(same))


def _compare_texts(left: Call, right: Call, scope: Scope, *, equal: bool) -> Node:
    limit, other = (given_limit(side, scope) or scope.max_string for side in (left, right))
    if limit != other:
        raise scope.error(right, f"both sides need the same MAX, not {limit} and {other}")
    if limit > MAX_TEXT:
        reason = f"{limit} bytes are too many to compare: write str(…, {MAX_TEXT}) on both sides"
        raise scope.error(left, reason)
    one, two = (address_of(side.arguments[0], scope) for side in (left, right))
    return fold(CompareTexts(one, two, limit, equal))
