"""Functions of strings and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import Number
from usdt.engine.programs.check.nodes import constant, wide
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    CompareBytes,
    Element,
    FindText,
    MakeTuple,
    Padded,
    Read,
    ReadText,
    Scalar,
    Text,
    TextLength,
    saved,
)
from usdt.engine.programs.types import (
    BOOLEAN,
    INT64,
    ArrayType,
    BufferType,
    IntegerType,
    PointerType,
    ShownAs,
    StringType,
    StructType,
    TupleType,
    bytes_of,
    size_of,
    spelled,
)

if TYPE_CHECKING:
    from usdt.engine.programs.typed import Bytes, Value
from usdt.engine.programs.check.functions.arguments import FunctionChecker

__all__ = ("TextFunctions",)


class TextFunctions(FunctionChecker):
    """A checker of the functions of strings and bytes."""

    def _call_str(self, node: tree.Call) -> Value:
        first, *rest = self.arguments(node, 1, 2)
        text = self.argument_text(first)
        value = self.value(first) if text is None else text
        limit, size = None, self.state.max_string
        if rest:  # of a constant; of what is read, with the NUL at the end
            given = self.number(rest[0], "the length of str()")
            if isinstance(given.node, Number):
                length = given.node.value + isinstance(value, Text)
                size = max(1, min(length, self.state.max_string))
            else:
                limit = given
        if text is not None and limit is None:
            return Text(text.text[: size - 1], StringType(min(len(text.text) + 1, size)))
        if isinstance(value.type, StringType):
            return self._cut(value, size) if rest and limit is None else value
        if isinstance(value, Read) and isinstance(value.type, ArrayType):
            return ReadText(value.address, StringType(min(size, value.type.count + 1)), limit)
        if not isinstance(value, Scalar):
            raise self.error(first, f"str() reads at an address, not {spelled(value.type)}")
        cut = size == self.state.max_string and limit is None
        return ReadText(value, StringType(size, self.state.trailer if cut else ""), limit)

    def _cut(self, value: Value, size: int) -> Value:
        # A string without the bytes behind a length, with which a NUL counts.
        if isinstance(value, Text):
            return Text(value.text[: size - 1], StringType(min(size, len(value.text) + 1)))
        if isinstance(value, Scalar) or bytes_of(value.type) <= size:
            return value
        whole = self.new_variable()
        address = Scalar(saved(whole), PointerType(kernel=True), ((whole, value),))
        return ReadText(address, StringType(size))

    def _call_buf(self, node: tree.Call) -> Value:
        first, *rest = self.arguments(node, 1, 2)
        value = self.value(first)
        if isinstance(first, tree.String):  # with what is behind a NUL
            value = Text(first.value, StringType(len(first.value) + 1))
        size, length = self.state.max_string, None
        if rest:
            length = self.number(rest[0], "the length of buf()")
            if isinstance(length.node, Number):
                size = max(0, min(length.node.value, size))
        if isinstance(value, Read) and isinstance(value.type, ArrayType | StructType):
            size = min(size, bytes_of(value.type)) if rest else bytes_of(value.type)
            return Read(value.address, BufferType(size), length)
        known = length is None or isinstance(length.node, Number)
        if isinstance(value.type, StringType | ArrayType | StructType) and known:
            whole_size = bytes_of(value.type) - isinstance(value.type, StringType)
            size = size if rest else whole_size
            if not isinstance(value, Scalar) and size > size_of(value.type):
                value = Padded(value, StringType(size))
            whole = MakeTuple((constant(size), value), TupleType((INT64, value.type)))
            return Element(whole, 0, BufferType(size))
        if not isinstance(value, Scalar) or not rest:
            raise self.error(first, "buf() takes an address and a length, or an array")
        return Read(value, BufferType(size), length)

    def _call_strncmp(self, node: tree.Call) -> Scalar:
        one, two, count = self.arguments(node, 3, 3)
        left, right = self.value(one), self.value(two)
        if isinstance(left, Scalar) or isinstance(right, Scalar):
            raise self.error(node, "strncmp() compares two strings")
        same = CompareBytes(left, right, self.integer(count, "the length of strncmp()"))
        return self._not(self.step(same, INT64))

    def _not(self, value: Scalar) -> Scalar:
        from usdt.engine.compiler.ir import Not  # noqa: PLC0415

        return Scalar(fold(Not(value.node)), INT64, value.before)

    def _call_strlen(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        return self.step(TextLength(self.text_at(first, "strlen()")), INT64)

    def _call_strcontains(self, node: tree.Call) -> Scalar:
        text, part = self.arguments(node, 2, 2)
        within, wanted = (self.text_at(one, "strcontains()") for one in (text, part))
        looked_for = wanted.text.split(b"\0")[0] if isinstance(wanted, Text) else wanted
        return self.step(FindText(within, looked_for), BOOLEAN)

    def _call_globmatch(self, node: tree.Call) -> Scalar:
        from usdt.engine.programs.codegen.globs import parse_glob  # noqa: PLC0415 - of few programs

        text, pattern = self.arguments(node, 2, 2)
        within = self.text_at(text, "globmatch()")
        wanted = self.text(pattern, "the pattern of globmatch()").split(b"\0")[0]
        try:
            parse_glob(wanted)
        except ValueError as err:
            raise self.error(pattern, f"the pattern of globmatch(): {err}") from err
        return self.step(FindText(within, wanted, glob=True), BOOLEAN)

    def _call_str_concat(self, node: tree.Call) -> Value:
        first, second = (self.text_at(one, "str_concat()") for one in self.arguments(node, 2, 2))
        if isinstance(first, Text) and isinstance(second, Text):
            text = first.text.split(b"\0")[0] + second.text
            return Text(text, StringType(len(text) + 1))
        # Strings are read by words, so that each may need seven bytes more.
        size = size_of(first.type) + size_of(second.type)
        return Padded(first, StringType(size), second)

    def _call_strstr(self, node: tree.Call) -> Scalar:
        text, part = self.arguments(node, 2, 2)
        within, wanted = (self.text_at(one, "strstr()") for one in (text, part))
        looked_for = wanted.text.split(b"\0")[0] if isinstance(wanted, Text) else wanted
        return self.step(FindText(within, looked_for, position=True), INT64)

    def _call_memcmp(self, node: tree.Call) -> Scalar:
        one, two, count = self.arguments(node, 3, 3)
        length = self.integer(count, "the length of memcmp()")
        if not 0 <= length < self.state.max_string:
            raise self.error(count, f"memcmp() compares 0 to {self.state.max_string - 1} bytes")
        left, right = (self._bytes_at(each, length) for each in (one, two))
        return self.step(CompareBytes(left, right, length, difference=True), INT64)

    def _bytes_at(self, node: tree.Expression, length: int) -> Bytes:
        # So many bytes of a value in memory, or at an address.
        value = self.value(node)
        kind = ArrayType(IntegerType(1, signed=False), length)
        if isinstance(value, Scalar):
            if not isinstance(value.type, PointerType):
                raise self.error(node, f"memcmp() compares bytes, not {spelled(value.type)}")
            return Read(value, kind)
        return value if size_of(value.type) >= length else Padded(value, kind)

    def _call_strftime(self, node: tree.Call) -> Value:
        form, value = self.arguments(node, 2, 2)
        text = self.text(form, "the format of strftime()").decode("utf-8", "surrogateescape")
        number = self.number(value, "the time of strftime()")
        kind = IntegerType(8, signed=False, shown=ShownAs.TIME, format=text)
        return Scalar(wide(number), kind, number.before)
