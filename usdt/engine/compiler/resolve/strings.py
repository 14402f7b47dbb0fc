"""Comparisons of strings, ``comm`` and ``func``, and comparisons of numbers with their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.text import closest
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
from usdt.engine.compiler.resolve.arrays import ArrayComparisons
from usdt.engine.compiler.resolve.conversions import convert, promote
from usdt.engine.compiler.resolve.names import CGROUP_NAMES
from usdt.engine.compiler.resolve.operands import is_string
from usdt.engine.language.tree import BUILTINS, Call, Member, Name, Text

if TYPE_CHECKING:
    from usdt.engine.language.tree import Binary, Expression

__all__ = ("StringComparisons",)

MAX_TEXT = 255  # bytes of a string in a comparison: it must fit on the BPF stack
MAX_MATCHED = 511  # bytes that a pattern is compared with: the verifier follows each
MAX_PATTERN = 63  # bytes of a pattern without its stars: one bit each, and one before them
_COMM_SIZE = 16


class StringComparisons(ArrayComparisons):
    """Resolves comparisons with strings."""

    def compare_strings(self, tree: Binary) -> Node:
        """Resolve a comparison with a string on at least one side.

        Raises:
            LanguageError: the other side is not a string, a string is too long, or the operator is
                not ``==`` or ``!=``.
        """
        for side in (tree.left, tree.right):
            if isinstance(side, Name) and side.name in CGROUP_NAMES:
                self.resolve(side)  # an argument of this name, or an error
        found = self.compare_array(tree)
        if found is not None:
            return found
        named = self._compare_named(tree)
        if named is not None:
            return named
        for side in (tree.left, tree.right):
            if (
                not (is_string(side) or _is_buffer(side))
                and self.string_address(side) is None
                and self._container_string(side) is None
            ):
                name = side.name if isinstance(side, Name) else "…"
                hint = f"; compare str({name})"
                if name in BUILTINS and name not in self.scope.arguments:
                    hint = f": {name} is a number"
                raise self.scope.error(side, f"not a string{hint}")
        if tree.op not in ("==", "!="):
            raise self.scope.error(tree, "strings can be compared with == and != only")
        equal = tree.op == "=="
        if isinstance(tree.right, Text):
            return self._compare_constant(tree.left, tree.right, equal=equal)
        if isinstance(tree.left, Text):
            return self._compare_constant(tree.right, tree.left, equal=equal)
        if _is_buffer(tree.left) or _is_buffer(tree.right):
            raise self.scope.error(
                tree, 'bytes are compared with a constant, as in buf(arg0, 4) == "\\x7fELF"'
            )
        if not isinstance(tree.left, Call) or not isinstance(tree.right, Call):
            side = tree.left if isinstance(tree.left, Name) else tree.right
            raise self.scope.error(
                side, 'comm, func and pcomm are compared with constants, as in comm == "nginx"'
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
            if len(text.parts) > 1:
                reason = r"names of values are compared whole: a star has to be written \*"
                raise self.scope.error(text, reason)
            wanted = text.parts[0].decode("utf-8", "replace")
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
        wanted, prefix = text.parts[0], text.parts[1:] == (b"",)
        self._check_constant(value, text)
        if isinstance(value, Call) and value.function == "buf":
            return self._compare_bytes(value, text, equal=equal)
        if len(text.parts) > 1 and not prefix:
            return self._match(value, text, equal=equal)
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
            name = self.scope.function.encode("utf-8", "surrogateescape")
            same = name.startswith(wanted) if prefix else name == wanted
            return Number(int(same is equal), S32)
        if len(wanted) >= _COMM_SIZE:
            return Number(int(not equal), S32)  # comm has at most 15 bytes and a NUL
        return StringEqualsConst(None, wanted, prefix, equal)

    def _check_constant(self, value: Expression, text: Text) -> None:
        size = sum(map(len, text.parts))
        most, what = MAX_TEXT, "string constant"
        if len(text.parts) > 1 and text.parts[1:] != (b"",):
            most, what = MAX_PATTERN, "pattern, without its stars,"
        if size > most:
            raise self.scope.error(text, f"a {what} has at most {most} bytes, this one {size}")
        if isinstance(value, Text):
            raise self.scope.error(text, "two constants: one side has to be str(…), comm or func")
        if b"\0" in b"".join(text.parts) and not _is_buffer(value):
            reason = "a string constant cannot hold a NUL: strings end there; compare buf(…)"
            raise self.scope.error(text, reason)

    def _match(self, value: Expression, text: Text, *, equal: bool) -> Node:
        address: Node | None = None
        length, limit, cut = None, min(max(self.scope.max_string, MAX_TEXT), MAX_MATCHED), False
        if isinstance(value, Call):
            address, given = self.address_of(value.arguments[0]), self.given_limit(value)
            if given is not None and given > MAX_MATCHED:
                reason = f"a pattern is compared with at most {MAX_MATCHED} bytes, not {given}"
                raise self.scope.error(value.arguments[1], reason)
            limit, cut = given or limit, given is not None
        elif (contents := self._container_string(value)) is not None:
            address, length = contents
        elif (address := self.string_address(value)) is not None:
            capacity = self.string_capacity(value)  # an array without a free byte has no NUL
            limit, cut = min(limit, capacity), capacity <= limit
        elif isinstance(value, Name) and value.name == "func":
            name = self.scope.function.encode("utf-8", "surrogateescape")
            made = StringMatches(None, None, text.parts, len(name), cut=True, equal=True)
            return Number(int(made.matches(name) is equal), S32)
        else:
            limit, cut = _COMM_SIZE, True
        return fold(StringMatches(address, length, text.parts, limit, cut, equal))

    def _compare_bytes(self, value: Call, text: Text, *, equal: bool) -> Node:
        address, length = (self.address_of(value.arguments[0]), self.scalar(value.arguments[1]))
        if len(text.parts) > 1:
            size = length.value if isinstance(length, Number) else MAX_TEXT
            most = min(max(size, 1), MAX_TEXT)
            return fold(StringMatches(address, length, text.parts, most, cut=True, equal=equal))
        wanted = text.parts[0]
        if isinstance(length, Number) and length.value != len(wanted):
            reason = f"buf() has {length.value} bytes and the constant {len(wanted)}"
            raise self.scope.error(text, reason)
        return _compare_contents(address, length, wanted, prefix=False, equal=equal)

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


def _compare_contents(
    begin: Node, length: Node, wanted: bytes, *, prefix: bool, equal: bool
) -> Node:
    # No NUL ends the string, so compare the lengths first.
    size = Number(len(wanted), U64)
    same: Node = fold(Compare(">=" if prefix else "==", convert(length, U64), size, U64))
    if wanted:
        beginning = fold(StringEqualsConst(begin, wanted, prefix=True, equal=True, counted=True))
        same = fold(ShortCircuit("&&", same, beginning))
    return same if equal else fold(Not(same))


def _is_buffer(tree: Expression) -> bool:
    return isinstance(tree, Call) and tree.function == "buf"
