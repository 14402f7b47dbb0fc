"""The check of calls: the functions of the language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.frozen import replace
from usdt.base.text import closest
from usdt.bpf._uapi import Helper
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import U64, Arithmetic, Convert, Deref, Number
from usdt.engine.compiler.resolve.names import resolve_register
from usdt.engine.language import tree as language
from usdt.engine.language.tree import StackKind
from usdt.engine.programs.check.builtins import BUILTINS, BuiltinChecker
from usdt.engine.programs.check.formats import check_format
from usdt.engine.programs.check.nodes import constant, lvalue_of, wide
from usdt.engine.programs.constants import constants
from usdt.engine.programs.events import EventKind
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    CallHelper,
    CompareBytes,
    Delete,
    Element,
    Emit,
    Evaluate,
    FindText,
    HasKey,
    LowBytes,
    MakeTuple,
    MapLength,
    Padded,
    Read,
    ReadText,
    Scalar,
    SetVariable,
    Statement,
    Text,
    TextLength,
    UserSymbol,
    parts,
    saved,
)
from usdt.engine.programs.types import (
    BOOLEAN,
    INT64,
    Aggregate,
    AggregateType,
    ArrayType,
    BufferType,
    IntegerType,
    PointerType,
    ShownAs,
    StackType,
    StringType,
    StructType,
    TupleType,
    bytes_of,
    size_of,
    spelled,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.compiler.ir import Node
    from usdt.engine.programs.events import Event
    from usdt.engine.programs.typed import Bytes, Value

__all__ = ("AGGREGATES", "CallChecker")

_PRINTED_AS_ENTRIES = (Aggregate.HIST, Aggregate.LHIST, Aggregate.TSERIES, Aggregate.STATS)
AGGREGATES = {one.value: one for one in Aggregate}
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
}
_UNSAFE = frozenset(("system", "signal", "signal_thread", "override", "write_user"))
_MAC = 6
_IPV6 = 16
_JOINED, _JOINED_SIZE = 16, 256  # strings of join(), bytes of each


class CallChecker(BuiltinChecker):
    """A checker of calls."""

    def _call(self, node: tree.Call) -> Value:
        name = node.function
        if name in AGGREGATES:
            reason = f"{name}() stands alone on the right of a map: @x = {name}(…)"
            raise self.error(node, reason)
        method: Callable[[tree.Call], Value] | None = getattr(self, f"_call_{name}", None)
        if method is not None:
            return method(node)
        if name in _SYMBOLS and (node.arguments or name not in BUILTINS):
            return self._shown_as(node, _SYMBOLS[name])
        if not node.arguments:
            return self.builtin(name, node)
        if name in STATEMENTS:
            raise self.error(node, f"{name}() has no value: it is a statement")
        raise self.unknown(node)

    def unknown(self, node: tree.Call) -> Exception:
        """Return the error of a call of an unknown function."""
        known = [one.removeprefix("_call_") for one in dir(self) if one.startswith("_call_")]
        near = closest(node.function, [*known, *_SYMBOLS, *STATEMENTS, *AGGREGATES])
        hint = f"; did you mean {near}?" if near else ""
        return self.error(node, f"unknown function {node.function!r}{hint}")

    def arguments(self, node: tree.Call, least: int, most: int) -> tuple[tree.Expression, ...]:
        """Return the arguments of a call.

        Raises:
            LanguageError: there are too few or too many, or one is a type.
        """
        found = node.arguments
        if not least <= len(found) <= most:
            takes = str(least) if least == most else f"{least} to {most}"
            reason = f"{node.function}() takes {takes} arguments, {len(found)} given"
            raise self.error(node, reason)
        for one in found:
            if isinstance(one, tree.NamedType | tree.PointerType | tree.ArrayType):
                raise self.error(one, f"{node.function}() takes values, not types")
        return found  # type: ignore[return-value] # checked above

    # ------------------------------------------------------------ text and bytes

    def _call_str(self, node: tree.Call) -> Value:
        first, *rest = self.arguments(node, 1, 2)
        text = self.argument_text(first)
        value = self.value(first) if text is None else text
        limit, size = None, self.state.max_string
        if rest:
            given = self.number(rest[0], "the length of str()")
            if isinstance(given.node, Number):
                size = max(1, min(given.node.value + 1, self.state.max_string))
            else:
                limit = given
        if text is not None and limit is None:
            return Text(text.text[: size - 1], StringType(min(len(text.text) + 1, size)))
        if isinstance(value.type, StringType):
            return value
        if isinstance(value, Read) and isinstance(value.type, ArrayType):
            return ReadText(value.address, StringType(min(size, value.type.count + 1)), limit)
        if not isinstance(value, Scalar):
            raise self.error(first, f"str() reads at an address, not {spelled(value.type)}")
        return ReadText(value, StringType(size), limit)

    def _call_buf(self, node: tree.Call) -> Value:
        first, *rest = self.arguments(node, 1, 2)
        value = self.value(first)
        size, length = self.state.max_string, None
        if rest:
            length = self.number(rest[0], "the length of buf()")
            if isinstance(length.node, Number):
                size = max(0, min(length.node.value, size))
        if isinstance(value, Read) and isinstance(value.type, ArrayType | StructType):
            size = min(size, size_of(value.type)) if rest else size_of(value.type)
            return Read(value.address, BufferType(size), length)
        if isinstance(value.type, StringType) and (
            length is None or isinstance(length.node, Number)
        ):
            size = size if rest else value.type.size - 1
            if not isinstance(value, Scalar) and size > size_of(value.type):
                value = Padded(value, StringType(size))
            whole = MakeTuple((constant(size), value), TupleType((INT64, value.type)))
            return Element(whole, 0, BufferType(size))
        if not isinstance(value, Scalar) or not rest:
            raise self.error(first, "buf() takes an address and a length, or an array")
        return Read(value, BufferType(size), length)

    def _call_pton(self, node: tree.Call) -> Value:
        import ipaddress  # noqa: PLC0415 - few programs have addresses

        (first,) = self.arguments(node, 1, 1)
        text = self.text(first, "the address of pton()").decode("utf-8", "backslashreplace")
        try:
            data = ipaddress.ip_address(text).packed
        except ValueError:
            raise self.error(first, f"{text!r} is no address of IPv4 or IPv6") from None
        return Text(data, ArrayType(IntegerType(1, signed=False), len(data)))

    def _call_kptr(self, node: tree.Call) -> Scalar:
        return self._in_space(node, kernel=True)

    def _call_uptr(self, node: tree.Call) -> Scalar:
        return self._in_space(node, kernel=False)

    def _in_space(self, node: tree.Call, *, kernel: bool) -> Scalar:
        # The same address, of the kernel or of the process.
        (first,) = self.arguments(node, 1, 1)
        number = self.number(first, f"{node.function}()")
        kind = number.type
        if isinstance(kind, PointerType):
            return Scalar(number.node, replace(kind, kernel=kernel), number.before)
        return Scalar(wide(number), PointerType(kernel=kernel), number.before)

    def _call_kaddr(self, node: tree.Call) -> Scalar:
        from usdt.engine.output.kernel_symbols import address_of  # noqa: PLC0415 - few programs

        (first,) = self.arguments(node, 1, 1)
        name = self.text(first, "the symbol of kaddr()")
        address = address_of(name)
        if address is None:
            shown = name.decode("utf-8", "backslashreplace")
            reason = "/proc/kallsyms shows no address of it (see kernel.kptr_restrict)"
            raise self.error(first, f"Failed to resolve kernel symbol: {shown}: {reason}")
        return constant(address)

    def _call_macaddr(self, node: tree.Call) -> Value:
        (first,) = self.arguments(node, 1, 1)
        value = self.value(first)
        address = value.address if isinstance(value, Read | ReadText) else value
        if not isinstance(address, Scalar):
            raise self.error(first, "macaddr() takes an array of 6 bytes, or its address")
        return Read(address, BufferType(_MAC, hardware=True))

    def _call_ntop(self, node: tree.Call) -> Value:
        *_, last = self.arguments(node, 1, 2)
        value = self.value(last)
        # All have the size of the largest, so that a variable may hold addresses of both families.
        kind = BufferType(_IPV6, address=True)
        if isinstance(value, Scalar):
            return LowBytes(value, kind)
        found = lvalue_of(value, self.new_variable)
        if found is None or not isinstance(value.type, ArrayType):
            raise self.error(last, f"ntop() takes a number or an array, not {spelled(value.type)}")
        array, _, before = found
        address = Scalar(array.address, PointerType(kernel=array.kernel), before)
        return Read(address, kind, constant(min(bytes_of(value.type), _IPV6)))

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
        return self.option(node, name, default)

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

    # ------------------------------------------------------------ symbols and stacks

    def _shown_as(self, node: tree.Call, shown: ShownAs) -> Scalar:
        (first,) = self.arguments(node, 1, 2)[:1]
        value = self.number(first, f"{node.function}()")
        return Scalar(value.node, IntegerType(8, signed=False, shown=shown), value.before)

    def _call_usym(self, node: tree.Call) -> Value:
        (first,) = self.arguments(node, 1, 1)
        self.state.user_symbols = True
        return UserSymbol(self.number(first, "usym()"), StackType(StackKind.USER, 0))

    def _call_kstack(self, node: tree.Call) -> Value:
        return self._stack(node, StackKind.KERNEL)

    def _call_ustack(self, node: tree.Call) -> Value:
        return self._stack(node, StackKind.USER)

    def _stack(self, node: tree.Call, kind: StackKind) -> Value:
        frames = 127
        mode = ""
        for one in self.arguments(node, 0, 2):
            if isinstance(one, tree.Identifier):
                mode = one.name
            else:
                frames = max(1, min(self.integer(one, "the frames of a stack"), 127))
        if mode not in ("", "bpftrace", "perf", "raw", "build_id"):
            raise self.error(node, f"{mode} is no mode of stacks: bpftrace, perf, raw, build_id")
        made = self.stack(kind, frames)
        return made if not mode else type(made)(kind, StackType(kind, frames, mode))

    def _call_reg(self, node: tree.Call) -> Value:
        (first,) = self.arguments(node, 1, 1)
        name = language.Text((self.text(first, "reg()"),), first.start, first.end)
        call = language.Call("reg", (name,), node.start, node.end)
        return self.typed(resolve_register(call, self.site.scope))

    # ------------------------------------------------------------ numbers

    def _call_nsecs(self, node: tree.Call) -> Value:
        given = self.arguments(node, 0, 1)
        if not given:
            return self.clock("")
        mode = given[0]
        name = mode.name if isinstance(mode, tree.Identifier) else ""
        if name not in ("monotonic", "boot", "tai", "sw_tai"):
            raise self.error(mode, "a clock is monotonic, boot, tai or sw_tai")
        return self.clock(name)

    def _call_strftime(self, node: tree.Call) -> Value:
        form, value = self.arguments(node, 2, 2)
        text = self.text(form, "the format of strftime()").decode("utf-8", "surrogateescape")
        number = self.number(value, "the time of strftime()")
        kind = IntegerType(8, signed=False, shown=ShownAs.TIME, format=text)
        return Scalar(wide(number), kind, number.before)

    def _call_has_key(self, node: tree.Call) -> Scalar:
        whole, key = self.arguments(node, 2, 2)
        if not isinstance(whole, tree.Map):
            raise self.error(whole, "has_key() takes a map and a key")
        found = self.state.map(whole.name, whole.start)
        return self.step(HasKey(found.variable, self.key(found, key)), BOOLEAN)

    def _call_len(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        if not isinstance(first, tree.Map):
            raise self.error(first, "len() takes a map")
        found = self.state.map(first.name, first.start)
        return self.step(MapLength(found.variable), INT64)

    def _call_strlen(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        return self.step(TextLength(self._text_value(first, "strlen()")), INT64)

    def _call_strcontains(self, node: tree.Call) -> Scalar:
        text, part = self.arguments(node, 2, 2)
        within, wanted = (self._text_value(one, "strcontains()") for one in (text, part))
        looked_for = wanted.text.split(b"\0")[0] if isinstance(wanted, Text) else wanted
        return self.step(FindText(within, looked_for), BOOLEAN)

    def _text_value(self, node: tree.Expression, what: str) -> Bytes:
        value = self.value(node)
        if isinstance(value, Scalar) or not isinstance(value.type, StringType):
            raise self.error(node, f"{what} takes a string, not {spelled(value.type)}")
        return value

    # ------------------------------------------------------------ statements

    def statement_of(self, node: tree.Call) -> tuple[Statement, ...] | None:
        """Return the statements of a call that is one by itself; None for other calls."""
        name = node.function
        if name in _UNSAFE and not self.state.unsafe:
            raise self.error(node, f"{name}() changes the system: allow it with --unsafe")
        if name in _PRINTING:
            return self._printf(node, _PRINTING[name])
        method: Callable[[tree.Call], tuple[Statement, ...]] | None
        method = getattr(self, f"_do_{name}", None) if name in STATEMENTS else None
        return None if method is None else method(node)

    def _printf(self, node: tree.Call, kind: EventKind) -> tuple[Statement, ...]:
        first, *rest = self.arguments(node, 1, 64)
        form = self.text(first, f"the format of {node.function}()")
        text = form.decode("utf-8", "surrogateescape")
        values = tuple(self.value(one) for one in rest)
        for one, value in zip(rest, values, strict=True):
            self.key_type(value, one)
        types = tuple(value.type for value in values)
        check_format(text, types, lambda why: self.error(first, f"{node.function}(): {why}"))
        return self._send(self.state.event(kind, types, text), *values)

    def _send(self, event: Event, *values: Value) -> tuple[Statement, ...]:
        within = [one.event.kind for one in parts(values) if isinstance(one, Emit)]
        if all(kind is EventKind.WARNING for kind in within):
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

    def _of_map(self, node: tree.Call, kind: EventKind) -> tuple[Statement, ...]:
        (first,) = self.arguments(node, 1, 1)
        if not isinstance(first, tree.Map):
            raise self.error(first, f"{node.function}() takes a map")
        found = self.state.map(first.name, first.start)
        return (Emit(self.state.event(kind, (), "", found.variable)),)

    def _do_clear(self, node: tree.Call) -> tuple[Statement, ...]:
        return self._of_map(node, EventKind.CLEAR)

    def _do_zero(self, node: tree.Call) -> tuple[Statement, ...]:
        return self._of_map(node, EventKind.ZERO)

    def _do_delete(self, node: tree.Call) -> tuple[Statement, ...]:
        given = self.arguments(node, 1, 64)
        if len(given) == 2 and isinstance(given[0], tree.Map):
            whole = given[0]
            found = self.state.map(whole.name, whole.start)
            return (Delete(found.variable, self.key(found, given[1])),)
        made: list[Statement] = []
        for one in given:
            if not isinstance(one, tree.Map | tree.MapAccess):
                raise self.error(one, "delete() takes a map and a key")
            state, key = self.place(one)
            made.append(Delete(state.variable, key))
        return tuple(made)

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

    def _do_signal(self, node: tree.Call) -> tuple[Statement, ...]:
        (first,) = self.arguments(node, 1, 1)
        if isinstance(first, tree.String):
            name = first.value.decode("ascii", "replace").upper()
            number = constants().get(name if name.startswith("SIG") else f"SIG{name}")
            if number is None:
                raise self.error(first, f"no signal {name!r}")
            value = constant(number)
        else:
            value = self.number(first, "signal()")
        return (Evaluate(self.step(CallHelper(Helper.SEND_SIGNAL, (value,)), INT64)),)

    def _do_time(self, node: tree.Call) -> tuple[Statement, ...]:
        given = self.arguments(node, 0, 1)
        text = "%H:%M:%S\n"
        if given:
            text = self.text(given[0], "the format of time()").decode("utf-8", "surrogateescape")
        return (Emit(self.state.event(EventKind.TIME, (), text)),)


STATEMENTS = frozenset(
    ("clear", "delete", "exit", "join", "print", "signal", "time", "zero", *_PRINTING)
)
