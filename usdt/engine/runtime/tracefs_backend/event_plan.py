"""Plans as events of the kernel's tracer: definitions, and conversion of records to rows.

A row has the form in which :mod:`usdt.engine.output.decode` unpacks a record of a BPF program: the
time, 32 bytes of context, the bitmap of unreadable values if there is one, then the values.
Therefore the same formatters serve both.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from usdt.arch.locations import Address, Constant, ValueClass, ValueType
from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.engine.compiler.ir import (
    ArgumentValue,
    Builtin,
    Number,
    StringEquals,
    wrap,
)
from usdt.engine.compiler.record.columns import (
    BufferColumn,
    BytesColumn,
    StringColumn,
)
from usdt.engine.runtime.tracefs_backend.evaluate import Rejected, evaluate, rejected
from usdt.engine.runtime.tracefs_backend.event_filter import kernel_filter
from usdt.engine.runtime.tracefs_backend.event_planner import COMM, HEADS, EventPlanner, collect

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.compiler.ir import Node
    from usdt.engine.compiler.outputs import Output
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.compiler.record.layout import RecordLayout
    from usdt.engine.runtime.tracefs_backend.fetch_args import FetchArg, FetchArgBuilder
    from usdt.tracefs.format import EventFormat

__all__ = ("TID", "VARIANT", "EventContext", "EventDecoder", "EventPlan", "plan_event")

_EFAULT, _EOVERFLOW = -14, -75
_NUMBER = "case"
# Positions in the unpacked values: thread, instruction, variant number, the first field, and the
# location of the thread's name. They are plain numbers, because they are used for every record.
TID, _POINTER, VARIANT, _FIRST, _NAME = 0, 1, 2, 3, -1


@frozen
class EventContext:
    """The context of a hit: time in nanoseconds, process ID, thread ID, CPU."""

    time: int
    pid: int
    tid: int
    cpu: int


@frozen
class EventPlan:
    """A plan as the definition of an event.

    Attributes:
        plan: the requested plan.
        fields: field name → fetch argument, in the order of the definition.
        numbers, texts, parts: as of :class:`EventPlanner`.
        layout: the plan's layout; items that no event can fetch are unreadable.
        problems: (item, reason why no event can fetch it).
        filter: filter in the kernel's language; it passes at least the hits for which the
            predicates are true.
    """

    plan: ProbePlan
    fields: dict[str, FetchArg]
    numbers: dict[Node, str]
    texts: dict[Node, str]
    parts: dict[tuple[Node, type], tuple[str, ...]]
    layout: RecordLayout
    problems: tuple[tuple[str, str], ...]
    filter: str

    def arguments(self, number: int) -> str:
        """Return the definition's arguments; the first is a constant, the variant number."""
        named = [f"{name}={field.text}" for name, field in self.fields.items()]
        return " ".join([f"{_NUMBER}=\\{number}:u32", *named, f"{COMM}=$comm:string"])

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the fields; they are equal for all sites of one event."""
        return tuple(field.text.rpartition(":")[2] for field in self.fields.values())


class _Planner(EventPlanner):
    # Names the fields a0, a1, …; equal fetch arguments are one field.
    def __init__(self, fetching: FetchArgBuilder) -> None:
        super().__init__(fetching)
        self._known: dict[str, str] = {}  # fetch argument → name

    def keep(self, key: str, field: FetchArg) -> str:  # noqa: ARG002 - fields are shared by items
        name = self._known.setdefault(field.text, f"a{len(self.fields)}")
        self.fields.setdefault(name, field)
        return name

    def leaf(self, leaf: Node) -> None:
        match leaf:
            case StringEquals(left=left, right=right):
                self.string("", left)
                self.string("", right)
            case Builtin(name=name) if name in HEADS:
                pass
            case ArgumentValue(fetch=Address(base=base)) if self.fetching.is_pointer(base):
                pass  # every record has the instruction's address
            case ArgumentValue(fetch=Address(base=base, address_size=size)):
                kind = ValueType(ValueClass.UNSIGNED, size)
                self.numbers[leaf] = self.keep("", self.fetching.saved(base, kind))
            case _:
                self.numbers[leaf] = self.keep("", self.fetching.number(leaf))

    def field_name(self, node: Node | None, *, text: bool) -> str | None:
        if isinstance(getattr(node, "fetch", None), Address):  # the field is the register
            return None
        return super().field_name(node, text=text)


def plan_event(plan: ProbePlan, fetching: FetchArgBuilder) -> EventPlan:
    """Return the event plan of a plan at one site.

    Raises:
        TracingError: a predicate needs a value that no event can fetch.
    """
    planner = _Planner(fetching)
    layout, problems = collect(planner, plan)
    return EventPlan(
        plan,
        planner.fields,
        planner.numbers,
        planner.texts,
        planner.parts,
        layout,
        problems,
        kernel_filter(plan.predicates, planner.field_name).text,
    )


def _text(record: bytes, location: int, capacity: int, name: int) -> tuple[int, bytes]:
    # Returns (length, bytes) as a program stores a string: the length includes the NUL, or is a
    # negative errno.
    if not name >> 16:
        return _EOVERFLOW, b""
    if (location & 0xFFFF) + (location >> 16) > name & 0xFFFF:
        return _EFAULT, b""  # older kernels reserve all the space for a string that cannot be read
    found = _located(record, location)
    if found is None:
        return _EFAULT, b""
    return (capacity, found[: capacity - 1]) if len(found) >= capacity else (len(found) + 1, found)


def _located(record: bytes, location: int) -> bytes | None:
    length, offset = location >> 16, location & 0xFFFF
    if not length or offset + length > len(record):
        return None
    return record[offset : offset + length - 1]


class EventDecoder:
    """A decoder of the records of one event to rows.

    Args:
        event: the event.
        form: the format of the event, as reported by the kernel.

    Raises:
        TracingError: the format does not match the definition.
    """

    def __init__(self, event: EventPlan, form: EventFormat) -> None:
        self._event = event
        self._unpack = _layout(event, form).unpack_from
        self.size = max(field.offset + field.size for field in form.fields)
        self._at = {name: _FIRST + number for number, name in enumerate(event.fields)}
        self._numbers = {node: self._at[name] for node, name in event.numbers.items()}
        self._texts = {node: self._at[name] for node, name in event.texts.items()}
        self._computed: list[tuple[int, Output]] = []
        self._make = self._compile()
        self.plain = not (self._computed or event.plan.predicates)

    def unpack(self, record: bytes) -> tuple[Any, ...]:
        """Return the thread, the instruction, the fields, and the location of the thread's name."""
        return self._unpack(record)

    def name(self, record: bytes, values: tuple[Any, ...]) -> bytes | None:
        """Return the thread's name; None if a string of 4096 bytes or more has displaced it.

        The kernel reserves no space for such a string. It then copies as much of it as fits into
        the space of the strings after it (fetch_store_strlen() and fetch_store_string(),
        kernel/trace/trace_uprobe.c). The name is the last string and always has some space; if it
        has none, no string can be trusted.
        """
        return _located(record, values[_NAME])

    def row(
        self, values: tuple[Any, ...], context: bytes, record: bytes, head: EventContext
    ) -> tuple[Any, ...] | Rejected:
        """Return the row of a record, or why it is not shown.

        Args:
            values: the values from unpack().
            context: bytes 8 to 40 of a BPF program's record.
            record: the bytes of the record.
            head: time, process, thread and CPU of the hit.
        """
        if self.plain:
            row: tuple[Any, ...] = self._make(head.time, context, values, record, 0, ())
            return row

        def leaf(node: Node) -> Node:
            return self._leaf(node, values, head)

        def text(address: Node | None) -> bytes | None:
            pointer = values[_NAME if address is None else self._texts[address]]
            if address is not None and _text(record, pointer, 1, values[_NAME])[0] < 0:
                return None
            return _located(record, pointer)

        why = rejected(self._event.plan.predicates, leaf, text)
        if why is not None:
            return why
        marks = 0
        computed: list[int] = []
        for index, output in self._computed:
            found = evaluate(output.node, leaf, text)
            marks |= 0 if isinstance(found, Number) else 1 << index
            computed.append(found.value if isinstance(found, Number) else 0)
        made: tuple[Any, ...] = self._make(head.time, context, values, record, marks, computed)
        return made

    def _leaf(self, node: Node, values: tuple[Any, ...], head: EventContext) -> Node:
        if isinstance(node, Builtin):
            number = {"pid": head.pid, "tid": head.tid, "cpu": head.cpu, "ts": head.time}[node.name]
            return Number(wrap(number, node.type), node.type)
        if isinstance(node, ArgumentValue) and isinstance(node.fetch, Address):
            base = values[self._numbers.get(node, _POINTER)]
            return Number(wrap(base + node.fetch.displacement, node.type), node.type)
        return Number(wrap(values[self._numbers[node]], node.type), node.type)

    def _compile(self) -> Callable[..., tuple[Any, ...]]:
        # The source consists of numbers only.
        parts = ["t", "c"] + (["m"] if self._event.layout.bitmap_offset is not None else [])
        names: dict[str, Any] = {"text": _text, "wrap": wrap}
        for index, output in enumerate(self._event.plan.outputs):
            if self._event.layout.fields[index].offset is not None:
                parts += self._parts(index, output, names)
        source = f"lambda t, c, u, d, m, x: ({', '.join(parts)},)"
        made: Callable[..., tuple[Any, ...]] = eval(source, names)  # noqa: S307 - see above
        return made

    def _parts(self, index: int, output: Output, names: dict[str, Any]) -> list[str]:
        event, node = self._event, output.node
        if isinstance(output.column, StringColumn):
            return [f"*text(d, u[{self._texts[node]}], {output.size}, u[{_NAME}])"]
        if isinstance(output.column, BufferColumn | BytesColumn):
            fields = event.parts[node, type(output.column)]
            value = " + ".join(f"u[{self._at[name]}]" for name in fields)
            size = sum(int(event.fields[name].code[:-1]) for name in fields)
            return [value] if isinstance(output.column, BytesColumn) else [str(size), value]
        if isinstance(node, ArgumentValue) and isinstance(node.fetch, Constant):
            names[f"k{index}"] = _constant(node.fetch.value, node.type)
            return [f"k{index}"]
        field = event.numbers.get(node)
        if field is None or isinstance(getattr(node, "fetch", None), Address):
            self._computed.append((index, output))
            return [f"x[{len(self._computed) - 1}]"]
        value = f"u[{self._at[field]}]"
        if node.type.signed and event.fields[field].code.isupper():  # a part of a register
            names[f"t{index}"] = node.type
            return [f"wrap({value}, t{index})"]
        return [value]


def _constant(value: int, kind: ValueType) -> int | float:
    if kind.kind is not ValueClass.FLOAT:
        return value
    bits = (value & (1 << 8 * kind.size) - 1).to_bytes(kind.size, "little")
    number: float = struct.unpack("<f" if kind.size == 4 else "<d", bits)[0]
    return number


def _layout(event: EventPlan, form: EventFormat) -> struct.Struct:
    known = {field.name: field for field in form.fields}
    wanted = [
        ("common_pid", "i"),
        ("__probe_ip", "L" if struct.calcsize("L") == 4 else "Q"),
        (_NUMBER, "I"),
    ]
    wanted += [(name, field.code) for name, field in event.fields.items()]
    parts, end = ["="], 0
    for name, code in (*wanted, (COMM, "I")):
        field = known.get(name)
        size = struct.calcsize(f"={code}")
        if field is None or field.size != size or field.offset < end:
            raise TracingError(
                f"the kernel's format of {form.name} is not as its definition: {name}"
            )
        parts.append(f"{field.offset - end}x{code}")
        end = field.offset + size
    return struct.Struct("".join(parts))
