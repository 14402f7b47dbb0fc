"""Values as one short line without types, which hides what is zero.

Structures are formatted by generated code, one function per structure; data that ends too early by
closures, several times slower.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, TypeAlias

from usdt.btf.types import Array, Composite, Enum, FunctionProto, Pointer, Void, flag_names, is_char
from usdt.btf.values.batched_reads import BatchedReads
from usdt.btf.values.read_plan import (
    ArrayPlan,
    BitFieldPlan,
    NumberPlan,
    Plan,
    ReadPlans,
    StructPlan,
    TaggedUnionPlan,
    Variant,
)
from usdt.btf.values.scalars import EnumTable, flags_text, literal, sign_extended

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

    #: (data, offset of the value) → text; None if the value is zero.
    Writer: TypeAlias = Callable[[bytes, int], str | None]
    Lookup: TypeAlias = Callable[[int], str | None]

__all__ = ("CompactFormatter",)

_MAX_COMPARED = 4096  # bytes; longer members are not compared with zeroes first


class CompactFormatter:
    """Formats values as one line: ``{len=84, dev="lo", flags=A|B, fn=tcp_v4_rcv}``.

    Args:
        btf: the types.
        symbol: returns the name of an address, or None; called for pointers that are not NULL.
        string: returns the text at an address, or None; called for pointers to ``char``.
        most: how many elements of an array are shown.
        code: call ``symbol`` for pointers to functions and ``void`` only.
        once: do not generate code: few values will be formatted.
    """

    def __init__(
        self,
        btf: Btf,
        *,
        symbol: Lookup | None = None,
        string: Lookup | None = None,
        most: int = 16,
        code: bool = False,
        once: bool = False,
    ) -> None:
        self._btf = btf
        self._symbol = symbol
        self._string = string
        self._most = most
        self._code = code
        self._once = once
        self._plans = ReadPlans(btf)
        self._made: dict[int, Writer] = {}

    def line(self, type_id: int, data: bytes) -> str:
        """Return a value as text without line ends.

        Raises:
            BtfError: the type is nested too deeply, too large, or has no values.
        """
        made = self._made.get(type_id)
        if made is None:
            made = self._made[type_id] = self._make(self._plans.readable(type_id))
        text = made(data, 0)
        if text is None:
            found = self._btf.resolve(type_id)
            return (
                "{}" if isinstance(found, Composite) else "[]" if isinstance(found, Array) else "0"
            )
        return text

    def writer(self, plan: Plan) -> Writer:
        """Return the function that formats values of a type."""
        made = self._made.get(plan.type.id)
        if made is None:
            made = self._made[plan.type.id] = self._make(plan)
        return made

    def _make(self, plan: Plan) -> Writer:
        if isinstance(plan, TaggedUnionPlan):
            return self._tagged_union(plan)
        if isinstance(plan, StructPlan):
            return self._composite(plan)
        if isinstance(plan, ArrayPlan) and not plan.is_text:
            return self._array(plan)
        if isinstance(plan, NumberPlan):
            return self._number(plan)

        def write(data: bytes, at: int) -> str | None:
            value = plan.read(data, at)
            if isinstance(plan, ArrayPlan):
                return json.dumps(value, ensure_ascii=False) if value else None
            return "?" if value is None else str(value) if value else None

        return write

    def _number(self, plan: NumberPlan) -> Writer:
        found, number = plan.type, plan.number
        shown: Callable[[int], str | None] = str
        if isinstance(found, Pointer):
            shown = self.address_text(found) or hex
        elif isinstance(found, Enum):
            shown = _enum_table(found).__getitem__
        elif plan.is_truth:
            shown = "true".format

        def write(data: bytes, at: int) -> str | None:
            value = number(data, at)
            if not value:
                return "?" if value is None else None
            return shown(value) or None

        return write

    def address_text(self, found: Pointer) -> Callable[[int], str] | None:
        """Return the function that formats pointers other than NULL; None if they are numbers."""
        target = self._btf.resolve(found.type_id)
        string = self._string if is_char(target) else None
        code = isinstance(target, FunctionProto)
        named = self._symbol if code or not self._code or isinstance(target, Void) else None
        if string is None and named is None:
            return None

        def show(address: int) -> str:
            if string is not None and (text := string(address)) is not None:
                return json.dumps(text, ensure_ascii=False)
            name = named(address) if named else None
            if name:
                return name if code else f"&{name}"
            return f"{address:#x}"

        return show

    def _array(self, plan: ArrayPlan) -> Writer:
        element, size, count = self.writer(plan.element), plan.element.size, plan.count
        shown, end = min(count, self._most), plan.size
        empty = "{}" if isinstance(plan.element, StructPlan) else "0"
        more = ", …" if count > shown else ""

        def write(data: bytes, at: int) -> str | None:
            if not data[at : at + end].strip(b"\0"):
                return None if at < len(data) or not end else "?"
            texts = [element(data, at + size * index) for index in range(shown)]
            return f"[{', '.join(text or empty for text in texts)}{more}]"

        return write

    def _composite(self, plan: StructPlan) -> Writer:
        parts = [(field.name, field.byte, self._field(field.plan)) for field in plan.fields]

        def write(data: bytes, at: int) -> str | None:
            texts = []
            for name, byte, part in parts:
                text = part(data, at + byte)
                if text is not None:
                    texts.append(f"{name}={text}" if name else _within(text))
            return f"{{{', '.join(texts)}}}" if texts else None

        size = plan.size
        if self._once or plan.extent > size:  # damaged: members behind the end
            return write
        # Generated code does not check bounds: ``write`` formats data that ends too early.
        whole = _Codegen(self._btf, self).function(plan)
        return lambda data, at: (whole if len(data) - at >= size else write)(data, at)

    def _field(self, plan: Plan) -> Writer:
        return self._number(plan) if isinstance(plan, BitFieldPlan) else self.writer(plan)

    def _tagged_union(self, plan: TaggedUnionPlan) -> Writer:
        # ``None``, ``Some(7)``, ``Square{side=-8}``
        forms = {one.name: self._variant(one) for one in plan.all_variants}

        def write(data: bytes, at: int) -> str:
            one = plan.variant(data, at)
            if not isinstance(one, Variant):
                return "?" if one is None else str(one)
            return f"{one.name}{forms[one.name](data, at + one.byte)}"

        return write

    def _variant(self, one: Variant) -> Callable[[bytes, int], str]:
        if one.plan is None:
            return lambda _, __: ""
        if not _is_tuple(one.plan):
            whole = self.writer(one.plan)
            return lambda data, at: whole(data, at) or "{}"
        fields = sorted(one.plan.fields, key=lambda field: int(field.name[2:]))  # not as they lie
        parts = [(field.byte, self.writer(field.plan), field.plan.read) for field in fields]

        def row(data: bytes, at: int) -> str:
            texts = (
                write(data, at + byte) or _zero(read(data, at + byte))
                for byte, write, read in parts
            )
            return f"({', '.join(texts)})"

        return row


def _is_tuple(plan: StructPlan) -> bool:
    # True if the fields are numbered (a tuple in Rust) and none is a bit field.
    names = {f"__{index}" for index in range(len(plan.fields))}
    return {field.name for field in plan.fields} == names and not any(
        isinstance(field.plan, BitFieldPlan) for field in plan.fields
    )


def _zero(value: Any) -> str:
    # The text of a zero, which other lines hide.
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[]"
    return str(value) if isinstance(value, str) and value else json.dumps(value)


def _within(text: str) -> str:
    # The contents of an anonymous structure; bit fields without a name come here, too.
    return text[1:-1] if text.startswith("{") else text


def _enum_table(found: Enum) -> EnumTable:
    # None: what has the name of zero is hidden.
    flags = flag_names(found)
    table = EnumTable(found, functools.partial(flags_text, flags) if flags else str)
    zeroes = {one.name for one in found.values if not one.value}
    table.update({value: None for value, name in table.items() if name in zeroes})
    return table


class _Codegen:
    # Writes the function of one structure, which reads all its numbers at once.

    def __init__(self, btf: Btf, formatter: CompactFormatter) -> None:
        self._formatter = formatter
        self._space: dict[str, Any] = {"SIGNED": sign_extended}
        self._reads = BatchedReads(btf, self._space)
        self._lines: list[str] = []

    def function(self, plan: StructPlan) -> Callable[[bytes, int], str | None]:
        self._fields(plan, 0)
        lines = ["def line(d, at):", " t = []", " e = t.append"]
        lines += [*self._reads.lines(), *self._lines]
        lines.append(" return f\"{{{', '.join(t)}}}\" if t else None")
        code = compile("\n".join(lines) + "\n", f"<line of type {plan.type.id}>", "exec")
        exec(code, self._space)  # noqa: S102 - our own code; texts are literals in it
        made: Callable[[bytes, int], str | None] = self._space["line"]
        return made

    def _fields(self, plan: StructPlan, start: int) -> None:
        for field in plan.fields:
            inner, byte = field.plan, start + field.byte
            prefix = literal(f"{field.name}=" if field.name else "")
            if isinstance(inner, StructPlan) and not field.name:
                self._fields(inner, byte)
            elif isinstance(inner, BitFieldPlan):
                name = self._reads.bitfield(8 * byte + inner.bit, inner.bits)
                self._number(prefix, inner, name, f"SIGNED({name}, {inner.bits})")
            elif isinstance(inner, NumberPlan) and inner.code:
                name = self._reads.number(byte, inner.code)
                self._number(prefix, inner, name, name)
            else:
                self._other(prefix, inner, byte)

    def _number(self, prefix: str, plan: NumberPlan, name: str, signed: str) -> None:
        found, value = plan.type, signed if plan.signed else name
        if isinstance(found, Enum):
            table = self._constant(f"E{found.id}", _enum_table(found))
            self._lines.append(f' if {name} and (s := {table}[{value}]): e(f"{prefix}{{s}}")')
            return
        if isinstance(found, Pointer):
            shown = self._formatter.address_text(found)
            value = f"{value}:#x"
            if shown is not None:
                value = f"{self._constant(f'P{found.id}', shown)}({name})"
        elif plan.is_truth:
            value = "'true'"
        self._lines.append(f' if {name}: e(f"{prefix}{{{value}}}")')

    def _other(self, prefix: str, plan: Plan, byte: int) -> None:
        # Texts, lists, structures within, numbers of other sizes: not asked while they are zero.
        write = self._constant(f"W{plan.type.id}", self._formatter.writer(plan))
        position = f"at + {byte}" if byte else "at"
        test = "True"
        aggregate = isinstance(plan, ArrayPlan | StructPlan)
        if aggregate and plan.size <= _MAX_COMPARED and not isinstance(plan, TaggedUnionPlan):
            zeroes = self._constant(f"Z{plan.size}", bytes(plan.size))
            test = f"d[{position}:at + {byte + plan.size}] != {zeroes}"
        text = f"{write}(d, {position})"
        self._lines.append(f' if {test} and (s := {text}) is not None: e(f"{prefix}{{s}}")')

    def _constant(self, name: str, value: object) -> str:
        self._space[name] = value
        return name
