"""The check of calls: which function is meant, and those that print or change something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.frozen import replace
from usdt.base.text import closest
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import U64, Arithmetic, Convert, Deref, Number
from usdt.engine.programs.check.builtins import BUILTINS
from usdt.engine.programs.check.formats import check_format, check_kernel_format
from usdt.engine.programs.check.functions.addresses import AddressFunctions
from usdt.engine.programs.check.functions.aggregates import AGGREGATES, AggregateFunctions
from usdt.engine.programs.check.functions.kernel_objects import KernelObjectFunctions
from usdt.engine.programs.check.functions.maps import MapFunctions
from usdt.engine.programs.check.functions.questions import QuestionFunctions
from usdt.engine.programs.check.functions.tasks import TaskFunctions
from usdt.engine.programs.check.functions.text import TextFunctions
from usdt.engine.programs.check.nodes import constant, wide
from usdt.engine.programs.events import EventKind
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    Emit,
    Evaluate,
    ReadText,
    Scalar,
    SetVariable,
    Statement,
    saved,
)
from usdt.engine.programs.types import (
    BOOLEAN,
    INT64,
    Aggregate,
    AggregateType,
    IntegerType,
    ShownAs,
    StringType,
    is_number,
    spelled,
)
from usdt.engine.programs.walk import parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.compiler.ir import Node
    from usdt.engine.programs.events import Event
    from usdt.engine.programs.typed import Value
    from usdt.engine.programs.types import Type

__all__ = ("CallChecker",)

_PRINTED_AS_ENTRIES = (Aggregate.HIST, Aggregate.LHIST, Aggregate.TSERIES, Aggregate.STATS)
_SYMBOLS = {
    "ksym": ShownAs.KERNEL_SYMBOL,
    "username": ShownAs.USER_NAME,
    "cgroup_path": ShownAs.CGROUP_PATH,
    "strerror": ShownAs.ERROR,
    "signal_name": ShownAs.SIGNAL,
    "syscall_name": ShownAs.SYSTEM_CALL,
}
_PRINTING = {
    "printf": EventKind.PRINTF,
    "errorf": EventKind.ERRORF,
    "warnf": EventKind.WARNF,
    "system": EventKind.SYSTEM,
    "cat": EventKind.CAT,
    "debugf": EventKind.DEBUG,
}
_BESIDE = (EventKind.WARNING, EventKind.HELPER_ERROR)  # not part of what is printed
_SAID = {"errorf": "ERROR", "warnf": "WARNING"}
_UNSAFE = frozenset(("system", "signal", "signal_thread", "override", "write_user"))
# What is known of bpftrace and not there, and why
_REFUSED = {
    "override": "not written: few kernels have it (CONFIG_BPF_KPROBE_OVERRIDE)",
    "unwatch": "watchpoints here end with the program: guard the probe by a predicate",
}
_JOINED, _JOINED_SIZE = 16, 256  # strings of join(), bytes of each


class CallChecker(
    TextFunctions,
    AddressFunctions,
    KernelObjectFunctions,
    MapFunctions,
    AggregateFunctions,
    TaskFunctions,
    QuestionFunctions,
):
    """A checker of calls."""

    def _call(self, node: tree.Call) -> Value:
        name = node.function
        self._check_safe(node)
        if name in AGGREGATES:
            reason = f"{name}() stands alone on the right of a map: @x = {name}(…)"
            raise self.error(node, reason)
        method: Callable[[tree.Call], Value] | None = getattr(self, f"_call_{name}", None)
        if method is not None:
            return method(node)
        if name in _SYMBOLS and (node.arguments or name not in BUILTINS):
            return self._shown_as(node, _SYMBOLS[name])
        if name in _REFUSED:
            raise self.error(node, f"{name}(): {_REFUSED[name]}")
        if not node.arguments:
            return self.builtin(name, node)
        if name in STATEMENTS:
            raise self.error(node, f"{name}() has no value: it is a statement")
        raise self.unknown(node)

    def _identifier(self, node: tree.Identifier) -> Value:
        if node.name in WITHOUT_PARENTHESES or node.name in _REFUSED:
            return self._call(tree.Call(node.name, (), node.start, node.end))
        return self.builtin(node.name, node)

    def unknown(self, node: tree.Call) -> Exception:
        """Return the error of a call of an unknown function."""
        known = [one.removeprefix("_call_") for one in dir(self) if one.startswith("_call_")]
        near = closest(node.function, [*known, *_SYMBOLS, *STATEMENTS, *AGGREGATES])
        hint = f"; did you mean {near}?" if near else ""
        return self.error(node, f"unknown function {node.function!r}{hint}")

    # ------------------------------------------------------------ numbers

    def _call_bswap(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        value = self.number(first, "bswap()")
        if not isinstance(value.type, IntegerType):
            raise self.error(first, f"bswap() takes an integer, not {spelled(value.type)}")
        size = value.type.size
        kept = self.new_variable()
        swapped: Node = Number(0, U64)
        for index in range(size):
            byte = Arithmetic(">>", saved(kept), Number(8 * index, U64), U64)
            byte = Arithmetic("&", byte, Number(0xFF, U64), U64)
            byte = Arithmetic("<<", byte, Number(8 * (size - 1 - index), U64), U64)
            swapped = Arithmetic("|", swapped, byte, U64)
        made = fold(Convert(fold(swapped), ValueType(ValueClass.UNSIGNED, size)))
        return Scalar(made, IntegerType(size, signed=False), ((kept, value),))

    def _call_getopt(self, node: tree.Call) -> Value:
        first, *rest = self.arguments(node, 1, 3)
        name = self.text(first, "getopt()").decode("utf-8", "surrogateescape")
        default = self.value(rest[0]) if rest else replace(constant(0), type=BOOLEAN)
        about = self.text(rest[1], "the description of getopt()") if rest[1:] else b""
        return self.option(node, name, default, about.decode("utf-8", "replace"))

    def _shown_as(self, node: tree.Call, shown: ShownAs) -> Scalar:
        (first,) = self.arguments(node, 1, 2)[:1]
        value = self.number(first, f"{node.function}()")
        return Scalar(value.node, IntegerType(8, signed=False, shown=shown), value.before)

    def _call_nsecs(self, node: tree.Call) -> Value:
        given = self.arguments(node, 0, 1)
        if not given:
            return self.clock("")
        mode = given[0]
        name = mode.name if isinstance(mode, tree.Identifier) else ""
        if name not in ("monotonic", "boot", "tai", "sw_tai"):
            raise self.error(mode, "a clock is monotonic, boot, tai or sw_tai")
        return self.clock(name)

    # ------------------------------------------------------------ statements

    def statement_of(self, node: tree.Call) -> tuple[Statement, ...] | None:
        """Return the statements of a call that is one by itself; None for other calls."""
        name = node.function
        self._check_safe(node)
        if name in _PRINTING:
            return self._printf(node, _PRINTING[name])
        method: Callable[[tree.Call], tuple[Statement, ...]] | None
        method = getattr(self, f"_do_{name}", None) if name in STATEMENTS else None
        return None if method is None else method(node)

    def _check_safe(self, node: tree.Call) -> None:
        name = node.function
        if name in _UNSAFE and not self.state.unsafe:
            raise self.error(node, f"{name}() changes the system: allow it with --unsafe")

    def _printf(self, node: tree.Call, kind: EventKind) -> tuple[Statement, ...]:
        first, *rest = self.arguments(node, 1, 64)
        form = self.text(first, f"the format of {node.function}()")
        text = form.decode("utf-8", "surrogateescape")
        values = tuple(self.value(one) for one in rest)
        for one, value in zip(rest, values, strict=True):
            self.key_type(value, one)
        types = tuple(value.type for value in values)
        check_format(text, types, lambda why: self.error(first, f"{node.function}(): {why}"))
        if kind is EventKind.DEBUG:
            self._check_debug(node, text, types)
        if node.function in _SAID:
            text = self.message(node, _SAID[node.function], text)
        return self._send(self.state.event(kind, types, text), *values)

    def _check_debug(self, node: tree.Call, text: str, types: Sequence[Type]) -> None:
        check_kernel_format(text, lambda why: self.error(node, f"debugf(): {why}"))
        for kind in types:
            if not is_number(kind) and not isinstance(kind, StringType):
                raise self.error(node, f"debugf() prints numbers and strings, not {spelled(kind)}")

    def _send(self, event: Event, *values: Value) -> tuple[Statement, ...]:
        within = [one.event.kind for one in parts(values) if isinstance(one, Emit)]
        if all(kind in _BESIDE for kind in within):
            return (Emit(event, values),)
        # What the values print comes before.
        made: list[Statement] = []
        kept: list[Value] = []
        for value in values:
            variable = self.new_variable(value.type)
            made.append(SetVariable(variable, value))
            kept.append(self.value_of_variable(variable))
        return (*made, Emit(event, tuple(kept)))

    def _do_print(self, node: tree.Call) -> tuple[Statement, ...]:
        first, *rest = self.arguments(node, 1, 3)
        limits = [self.integer(one, "the limit of print()") for one in rest]
        if isinstance(first, tree.Map):
            found = self.state.map(first.name, first.start)
            text = ",".join(map(str, limits))
            return (Emit(self.state.event(EventKind.PRINT_MAP, (), text, found.variable)),)
        if isinstance(first, tree.MapAccess) and self._has_no_value(first):
            found, key = self.place(first)
            made = self.state.event(
                EventKind.PRINT_MAP, (key.type,), "", found.variable, keyed=True
            )
            return (Emit(made, (key,)),)
        value = self.value(first)
        self.key_type(value, first)
        return self._send(self.state.event(EventKind.PRINT, (value.type,)), value)

    def _has_no_value(self, node: tree.MapAccess) -> bool:
        # A histogram and the like: print() shows the entry.
        kind = self.state.map(node.map.name, node.start).value
        return isinstance(kind, AggregateType) and kind.function in _PRINTED_AS_ENTRIES

    def _do_exit(self, node: tree.Call) -> tuple[Statement, ...]:
        from usdt.engine.programs.typed import Leave  # noqa: PLC0415

        given = self.arguments(node, 0, 1)
        code = self.number(given[0], "the code of exit()") if given else constant(0)
        made = self.state.event(EventKind.EXIT, (INT64,))
        return Emit(made, (code,)), Leave("return")

    def _do_join(self, node: tree.Call) -> tuple[Statement, ...]:
        # Strings at the addresses in an array that ends with 0.
        first, *rest = self.arguments(node, 1, 2)
        array = self.number(first, "join()")
        between = self.text(rest[0], "the separator of join()") if rest else b" "
        start = wide(array)
        values = []
        for number in range(_JOINED):
            at = fold(Arithmetic("+", start, Number(8 * number, U64), U64))
            values.append(ReadText(Scalar(Deref(at, U64), INT64), StringType(_JOINED_SIZE)))
        types = [value.type for value in values]
        text = between.decode("utf-8", "surrogateescape")
        made = Emit(self.state.event(EventKind.JOIN, types, text), tuple(values))
        return (Evaluate(array), made) if array.before else (made,)

    def _do_time(self, node: tree.Call) -> tuple[Statement, ...]:
        given = self.arguments(node, 0, 1)
        text = "%H:%M:%S\n"
        if given:
            text = self.text(given[0], "the format of time()").decode("utf-8", "surrogateescape")
        return (Emit(self.state.event(EventKind.TIME, (), text)),)


#: Functions that may be called without parentheses, besides the built-ins.
WITHOUT_PARENTHESES = frozenset(("default_str_length", "dw_ustack", "leader_comm", "leader_tid"))
STATEMENTS = frozenset(
    (
        *("assert", "assert_str", "clear", "delete", "exit", "fail", "join", "print", "signal"),
        *("signal_thread", "static_assert", "time", "zero"),
        *_PRINTING,
    )
)
