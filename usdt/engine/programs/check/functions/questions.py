"""Functions that are answered before the program runs, and what follows from the answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.frozen import replace
from usdt.btf.format import Kind
from usdt.engine.programs.check.formats import check_format, conversions
from usdt.engine.programs.check.functions.arguments import FunctionChecker
from usdt.engine.programs.check.nodes import constant
from usdt.engine.programs.check.site import kernel_types
from usdt.engine.programs.events import EventKind
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import Emit, If, Leave, MakeTuple, Scalar, Statement, Text, Value
from usdt.engine.programs.types import (
    BOOLEAN,
    INT64,
    ArrayType,
    IntegerType,
    PointerType,
    ShownAs,
    StringType,
    TupleType,
)

if TYPE_CHECKING:
    from usdt.engine.programs.types import Type

__all__ = ("QuestionFunctions",)

_LITERALS = (tree.Integer, tree.String, tree.Boolean, tree.PositionalParameter)


class QuestionFunctions(FunctionChecker):
    """A checker of the functions about types, of assertions, and of what the system has."""

    # ------------------------------------------------------------ types

    def _call_is_array(self, node: tree.Call) -> Scalar:
        return _truth(isinstance(self._type(node), ArrayType))

    def _call_is_integer(self, node: tree.Call) -> Scalar:
        return _truth(_is_integer(self._type(node)))

    def _call_is_unsigned_integer(self, node: tree.Call) -> Scalar:
        kind = self._type(node)
        return _truth(isinstance(kind, IntegerType) and _is_integer(kind) and not kind.signed)

    def _call_is_ptr(self, node: tree.Call) -> Scalar:
        return _truth(isinstance(self._type(node), PointerType))

    def _call_is_str(self, node: tree.Call) -> Scalar:
        return _truth(isinstance(self._type(node), StringType))

    def _call_is_literal(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        return _truth(isinstance(first, _LITERALS))

    def _type(self, node: tree.Call) -> Type:
        (first,) = self.arguments(node, 1, 1)
        return self.value(first).type

    def _call_default_str_length(self, node: tree.Call) -> Scalar:
        self.arguments(node, 0, 0)
        return constant(self.state.max_string - 1)

    def _call_strcap(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        return constant(self.sizeof(self.text_at(first, "strcap()").type))

    # ------------------------------------------------------------ assertions

    def _do_assert_str(self, node: tree.Call) -> tuple[Statement, ...]:
        (first,) = self.arguments(node, 1, 1)
        self.text_at(first, "assert_str()")
        return ()

    def _do_assert(self, node: tree.Call) -> tuple[Statement, ...]:
        first, message = self.arguments(node, 2, 2)
        condition = self.condition(first)
        text = self.value(message)
        form = self.message(node, "ERROR", "assert failed: %s")
        said = Emit(self.state.event(EventKind.ERRORF, (text.type,), form), (text,))
        ended = Emit(self.state.event(EventKind.EXIT, (INT64,)), (constant(1),))
        return (If(condition, (), (said, ended, Leave("return"))),)

    def _do_static_assert(self, node: tree.Call) -> tuple[Statement, ...]:
        first, message = self.arguments(node, 2, 2)
        if not self.integer(first, "the condition of static_assert()"):
            self._fail(node, self.text(message, "the message of static_assert()").decode())
        return ()

    def _do_fail(self, node: tree.Call) -> tuple[Statement, ...]:
        first, *rest = self.arguments(node, 1, 64)
        form = self.text(first, "the format of fail()").decode("utf-8", "surrogateescape")
        values = [self.value(one) for one in rest]
        types = [value.type for value in values]
        check_format(form, types, lambda why: self.error(first, f"fail(): {why}"))
        *wanted, last = conversions(form)
        text = ""
        for conversion, one, value in zip(wanted, rest, values, strict=True):
            shown: int | str = (
                value.text.decode("utf-8", "backslashreplace")
                if isinstance(value, Text)
                else self.integer(one, "fail()")
            )
            text += f"{conversion.before}{shown}"
        self._fail(node, text + last.before)
        return ()

    def _fail(self, node: tree.Call, reason: str) -> None:
        # What a condition that is known before leaves out does not fail.
        if not self.left_out:
            raise self.error(node, reason)

    # ------------------------------------------------------------ the system

    def _call_config(self, node: tree.Call) -> Value:
        self.arguments(node, 0, 0)
        names = tuple(name for name, _ in self.state.settings)
        values = tuple(_setting(value) for _, value in self.state.settings)
        return MakeTuple(values, TupleType(tuple(value.type for value in values), names))

    def _call_cgroupid(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        path = self.text(first, "the path of cgroupid()")
        try:
            return constant(os.stat(path).st_ino)  # noqa: PTH116 - pathlib costs an import
        except OSError as err:
            shown = path.decode("utf-8", "backslashreplace")
            raise self.error(first, f"cgroupid(): {shown}: {err.strerror}") from err

    def _call_kfunc_exist(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        name = self.text(first, "the function of kfunc_exist()").decode("utf-8", "backslashreplace")
        types = kernel_types()
        return _truth(types is not None and bool(types.btf.find(name, Kind.FUNC)))

    def _call_kfunc_allowed(self, node: tree.Call) -> Scalar:
        # Programs here call no functions of the kernel: scripts that ask take another way.
        (first,) = self.arguments(node, 1, 1)
        self.text(first, "the function of kfunc_allowed()")
        return _truth(False)  # noqa: FBT003 - it is the value


def _setting(value: int | bool | str) -> Value:  # noqa: FBT001 - it is the value
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogateescape")
        return Text(text, StringType(len(text) + 1))
    return _truth(value) if isinstance(value, bool) else constant(value)


def _truth(value: bool) -> Scalar:  # noqa: FBT001 - it is the value
    return replace(constant(int(value)), type=BOOLEAN)


def _is_integer(kind: Type) -> bool:
    return isinstance(kind, IntegerType) and kind.shown is ShownAs.NUMBER
