"""Comparisons of strings, ``comm`` and ``func``, and comparisons of numbers with their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.text import closest, matches_parts
from usdt.engine.compiler.arguments import Display
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    S32,
    U64,
    Compare,
    Node,
    Not,
    Number,
    ShortCircuit,
    StringEquals,
    StringEqualsConst,
    StringMatches,
    wrap,
)
from usdt.engine.compiler.resolve.conversions import convert, promote
from usdt.engine.compiler.resolve.operands import OperandResolver, is_string
from usdt.engine.language.tree import Call, Member, Name, Text

if TYPE_CHECKING:
    from usdt.engine.compiler.value_names import ValueNames
    from usdt.engine.language.tree import Binary, Expression

__all__ = ("StringComparisons",)

MAX_TEXT = 255  # bytes of a string in a comparison: it must fit on the BPF stack
_MAX_SEARCHED = 254  # bytes of a string that are compared with a pattern; one more is read
_MAX_SEARCH = 16000  # instructions of the search of one pattern: BPF jumps reach 32767
_COMM_SIZE = 16


class StringComparisons(OperandResolver):
    """Resolves comparisons with strings."""

    def compare_strings(self, tree: Binary) -> Node:
        """Resolve a comparison with a string on at least one side.

        Raises:
            LanguageError: the other side is not a string, a string is too long, or the operator is
                not ``==`` or ``!=``.
        """
        named = self._compare_named(tree)
        if named is not None:
            return named
        for side in (tree.left, tree.right):
            if (
                not is_string(side)
                and self.string_address(side) is None
                and self._container_string(side) is None
            ):
                name = side.name if isinstance(side, Name) else "…"
                raise self.scope.error(side, f"not a string; compare str({name})")
        if tree.op not in ("==", "!="):
            raise self.scope.error(tree, "strings can be compared with == and != only")
        equal = tree.op == "=="
        if isinstance(tree.right, Text):
            return self._compare_constant(tree.left, tree.right, equal=equal)
        if isinstance(tree.left, Text):
            return self._compare_constant(tree.right, tree.left, equal=equal)
        if not isinstance(tree.left, Call) or not isinstance(tree.right, Call):
            side = tree.left if isinstance(tree.left, Name) else tree.right
            raise self.scope.error(
                side, 'comm and func are compared with constants, as in comm == "nginx"'
            )
        return self._compare_two(tree.left, tree.right, equal=equal)

    def _compare_named(self, tree: Binary) -> Node | None:
        # Resolve the comparison of a number with one of its names: reason == "NO_SOCKET".
        for value, text in ((tree.left, tree.right), (tree.right, tree.left)):
            if not isinstance(text, Text) or not isinstance(value, (Name, Member)):
                continue
            names = None
            if isinstance(value, Name) and value.name in self.scope.arguments:
                names = self.scope.arguments[value.name].names
            node = None
            if names is None and self.scope.types is not None and not is_string(value):
                contents = self.container_contents(value)
                chosen = contents is not None and contents.display is Display.TAGGED_UNION
                node = contents.begin if contents is not None and chosen else self.resolve(value)
                names = None if node is None else self.scope.types.names(node)
            if names is None:
                continue
            wanted = text.value.decode("utf-8", "replace")
            if text.is_pattern:
                reason = f'names of values are compared as a whole: found "{wanted}", without stars'
                raise self.scope.error(text, f"{reason} it would be one of {_some(names)}")
            number = names.number_of(wanted)
            if number is None:
                close = closest(wanted, [name for _, name in names.every])
                hint = f"; did you mean {close}?" if close else ""
                raise self.scope.error(text, f"none of its values has the name {wanted!r}{hint}")
            node = node or self.resolve(value)
            constant = Number(wrap(number, node.type), node.type)
            left, right = promote(node), promote(constant)
            return fold(Compare(tree.op, left, right, left.type))
        return None

    def _compare_constant(self, value: Expression, text: Text, *, equal: bool) -> Node:
        parts = text.parts
        wanted, prefix = b"".join(parts), text.is_pattern
        if len(wanted) > MAX_TEXT:
            raise self.scope.error(
                text, f"a string constant has at most {MAX_TEXT} bytes, this one {len(wanted)}"
            )
        if b"\0" in wanted:
            raise self.scope.error(text, "a string constant cannot hold a NUL: strings end there")
        if isinstance(value, Text):
            raise self.scope.error(text, "two constants: one side has to be str(…), comm or func")
        if prefix and (len(parts) > 2 or parts[1]):
            return self._compare_pattern(value, text, equal=equal)
        if isinstance(value, Call):
            address = self.address_of(value.arguments[0])
            # Compare as many bytes as would be shown: str() cuts the string after MAX bytes.
            limit = self.given_limit(value)
            if limit is not None and len(wanted) > limit:
                return Number(int(not equal), S32)
            return fold(StringEqualsConst(address, wanted, prefix or len(wanted) == limit, equal))
        contents = self._container_string(value)
        if contents is not None:
            return _compare_contents(*contents, wanted, prefix=prefix, equal=equal)
        inner = self.string_address(value)
        if inner is not None:
            capacity = self.string_capacity(value)  # an array without a free byte has no NUL
            if len(wanted) > capacity:
                return Number(int(not equal), S32)
            return fold(StringEqualsConst(inner, wanted, prefix or len(wanted) == capacity, equal))
        if isinstance(value, Name) and value.name == "func":
            return self._compare_func(parts, equal=equal)
        if len(wanted) >= _COMM_SIZE:
            return Number(int(not equal), S32)  # comm has at most 15 bytes and a NUL
        return StringEqualsConst(None, wanted, prefix, equal)

    def _compare_pattern(self, value: Expression, text: Text, *, equal: bool) -> Node:
        # Resolve the comparison with a pattern that is more than a beginning.
        limit, cut, length, address = _MAX_SEARCHED, False, None, None
        contents = None if isinstance(value, Call) else self._container_string(value)
        if isinstance(value, Call):
            address, given = self.address_of(value.arguments[0]), self.given_limit(value)
            if given is not None and given > _MAX_SEARCHED:
                reason = f"a pattern is compared with at most {_MAX_SEARCHED} bytes, not {given}"
                raise self.scope.error(value.arguments[1], reason)
            limit, cut = given or limit, given is not None
        elif contents is not None:
            address, length = contents
        elif (address := self.string_address(value)) is not None:
            capacity = self.string_capacity(value)
            limit, cut = min(limit, capacity), capacity <= limit
        elif isinstance(value, Name) and value.name == "func":
            return self._compare_func(text.parts, equal=equal)
        else:
            limit = _COMM_SIZE - 1
        if sum(map(len, text.parts)) > limit:
            return Number(int(not equal), S32)
        self._check_search(text, limit)
        return fold(StringMatches(address, text.parts, limit, cut, length, equal))

    def _compare_func(self, parts: tuple[bytes, ...], *, equal: bool) -> Node:
        name = self.scope.function.encode("utf-8", "surrogateescape")
        return Number(int(matches_parts(name, parts) is equal), S32)

    def _check_search(self, text: Text, limit: int) -> None:
        # The program has the search for each part at each position: bound its size.
        searched = [len(part) for part in text.parts[1:] if part]
        found, most = sum(searched), (_MAX_SEARCH // limit - 5 * len(searched)) // 2
        if found > most:
            reason = (
                f"{found} bytes after the first star are too many to search for in {limit} bytes: "
                f"expected at most {max(most, 0)}, fewer stars, or str(…, MAX) with a smaller MAX"
            )
            raise self.scope.error(text, reason)

    def _container_string(self, tree: Expression) -> tuple[Node, Node] | None:
        # The address and the length of the bytes of a C++ or Rust string.
        shown = self.container_contents(tree)
        if (
            shown is None
            or shown.display is not Display.BUFFER
            or shown.begin is None
            or shown.length is None
        ):
            return None
        return shown.begin, shown.length

    def _compare_two(self, left: Call, right: Call, *, equal: bool) -> Node:
        limit, other = (self.given_limit(side) or self.scope.max_string for side in (left, right))
        if limit != other:
            raise self.scope.error(right, f"both sides need the same MAX, not {limit} and {other}")
        if limit > MAX_TEXT:
            reason = (
                f"{limit} bytes are too many to compare: write str(…, {MAX_TEXT}) on both sides"
            )
            raise self.scope.error(left, reason)
        one, two = (self.address_of(side.arguments[0]) for side in (left, right))
        return fold(StringEquals(one, two, limit, equal))


def _some(names: ValueNames) -> str:
    shown = [name for _, name in names.every[:4]]
    return ", ".join(shown) + (", …" if len(names.every) > len(shown) else "")


def _compare_contents(
    begin: Node, length: Node, wanted: bytes, *, prefix: bool, equal: bool
) -> Node:
    # No NUL ends the string, so compare the lengths first.
    size = Number(len(wanted), U64)
    same: Node = fold(Compare(">=" if prefix else "==", convert(length, U64), size, U64))
    if wanted:
        beginning = StringEqualsConst(begin, wanted, prefix=True, equal=True)
        same = fold(ShortCircuit("&&", same, beginning))
    return same if equal else fold(Not(same))
