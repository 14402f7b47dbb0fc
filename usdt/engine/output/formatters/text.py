"""Formatters of records as human-readable lines and as folded stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.durations import duration_text
from usdt.base.terminal.look import PLAIN
from usdt.engine.compiler.record.columns import (
    AnyStack,
    BytesColumn,
    FloatColumn,
    IntColumn,
    StructColumn,
    StructForm,
    StructListColumn,
)
from usdt.engine.compiler.record.length_prefix import NULL, USERS, reason_of
from usdt.engine.language.tree import StackKind
from usdt.engine.output.formatters.formatter import (
    FieldSource,
    constant,
    decode_text,
    escape,
    is_cut,
    numbers,
    piece,
    text_capacity,
)
from usdt.engine.output.output_file import Lines
from usdt.engine.output.stacks import StackResolver
from usdt.engine.output.wall_clock import WallClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.base.terminal.look import Look
    from usdt.cgroups.labels import CgroupName
    from usdt.engine.compiler.record.columns import (
        ArrayColumn,
        BufferColumn,
        StringColumn,
        SymbolKind,
    )
    from usdt.engine.compiler.record.layout import RecordField, RecordLayout, SpanLayout
    from usdt.engine.compiler.value_names import ValueNames

__all__ = ("FoldedFormatter", "TextFormatter", "stack_sources", "titled")

_NAME = 35  # columns before the name of a value that has lines of its own
_END = 31  # columns before the closing parenthesis of a hit
PAD = 36  # columns before a value
_HEADER = f"{'TIME':>16} {'CPU':>4} {'PID':>8} FUNCTION/ARGS"
_REALTIME_HEADER = f"{'TIME':>35} {'CPU':>4} {'PID':>8} FUNCTION/ARGS"


class TextFormatter:
    """A formatter of human-readable lines: time of day, CPU, process, command, probe, arguments.

    Args:
        look: the colours of the lines, which are as long as they are.
        offset: nanoseconds from CLOCK_MONOTONIC to CLOCK_REALTIME on the recording machine; None
            uses the current offset of this machine.
        stacks: resolves stacks and addresses; by default user addresses have no symbols.
        realtime: whether to write dates and times as ISO 8601 instead of the time of day.
        marks: texts to write behind the duration of a span, and before its name.

    Attributes:
        header: a line to write before the next record, None once written; see :func:`titled`.
    """

    def __init__(
        self,
        *,
        look: Look = PLAIN,
        offset: int | None = None,
        stacks: StackResolver | None = None,
        realtime: bool = False,
        marks: tuple[str, str] = ("", ""),
    ) -> None:
        self._marks = marks
        self.stacks = stacks or StackResolver()
        self._look = look
        clock = WallClock(offset)
        self._realtime = realtime
        self.header: str | None = ""
        self._wide = False
        self._span: SpanLayout | None = None
        self._result: int | None = None
        self._result_key: str | None = None
        self.return_names: dict[str, Any] = {}
        self.names: dict[str, Any] = {
            "text": _quoted_text,
            "array": _array_text,
            "clock": clock.iso if realtime else clock.time_of_day,
            "stacks": self.stacks,
        }

    def begin(self, layout: RecordLayout) -> None:
        self.stacks.expect(layout, structures=True)
        self._wide = layout.span is None and any(map(_is_wide, layout.fields))
        self._span = layout.span
        self._result = None if self._wide else layout.result
        self._result_key = None if self._result is None else layout.fields[self._result].key
        if self._wide and self.header is not None:
            header = _REALTIME_HEADER if self._realtime else _HEADER
            self.header = f"{self._look.title}{header}{self._look.end}\n"

    def half(self) -> None:
        pass

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> tuple[Any, ...]:
        who = str(pid) if pid == tid else f"{pid}/{tid}"
        name = escape(comm)
        before, after = self._look.probe, self._look.end
        head = f"{cpu:3}  {who:>9}  {name:<15}  {self._marks[1]}{before}{escape(probe)}"
        line = f"{head}{' ' * (24 - len(escape(probe)))}{after}"
        function = escape(probe.removeprefix("kprobe:").removeprefix("fentry:"))
        wide = f"{cpu:4} {pid:8} {before}{function}{after}("
        return line, _quoted(comm), pid, wide, f"{head}{after}"

    def as_return(self, context: Any) -> Any:
        return f"{context[0]}  returned", *context[1:]

    def record(self, values: Sequence[FieldSource]) -> str:
        if self._span is not None:
            return self._ended(values)
        values = _stacks_last(values)
        if self._wide:
            return self._lines(values)
        if self._result is not None:
            return self._call(values, self._result)
        return f"f'''{{clock(time)}}  {{contexts[key][0]}}  {_named_values(values, '  ')}\\n'''"

    def _ended(self, values: Sequence[FieldSource]) -> str:
        # A span: its duration, or its age, comes after its time.
        self.names["lasted"] = duration_text
        shown = f"  {_named_values(_stacks_last(values[1:]), '  ')}" if len(values) > 1 else ""
        self.names["behind"] = self._marks[0]
        when = f"{{clock(time)}}  {{lasted({values[0].source}):>8}}{{behind}}"
        is_open = "" if self._span is not None and self._span.end_probe else "  (open)"
        head = 0 if shown else 4
        return f"f'''{when}  {{contexts[key][{head}]}}{shown}{is_open}\\n'''"

    def _call(self, values: Sequence[FieldSource], result: int) -> str:
        # A system call as strace shows it: name(arguments) = result.
        call = f"{{contexts[key][4]}}({_named_values(values[:result], ', ')})"
        more = "".join(f"  {one}" for one in (_named_values(values[result + 1 :], "  "),) if one)
        return f"f'''{{clock(time)}}  {call} = {{{values[result].source}}}{more}\\n'''"

    def _lines(self, values: Sequence[FieldSource]) -> str:
        # As in ksnoop, a value begins on a line of its own below its name.
        texts = []
        for one in values:
            field, value = one.field, one.source
            column = field.column
            start = f"{' ' * _NAME}{piece(escape(field.key))} = "
            cast = ""
            if isinstance(column, IntColumn | FloatColumn | BytesColumn):
                cast = piece(escape(column.cast))
            structure = isinstance(column, StructColumn | StructListColumn)
            begin = "" if structure else f"\\n{' ' * PAD}"
            texts.append(f"{start}{begin}{f'({cast})' if cast else ''}{{{value}}}")
        args = ",\\n".join(texts)
        when = "{clock(time)}" if self._realtime else "{time:16}"
        return f"f'''{when} {{contexts[key][3]}}\\n{args}\\n{' ' * _END});\\n\\n'''"

    def integer(self, value: str) -> str:
        return value

    def hexadecimal(self, value: str) -> str:
        return f"hex({value})"

    def low_part(self, key: str, value: str, column: IntColumn) -> str:
        del key
        return f"(str({value}) + ' /* {column.type.size} bytes of {column.part_of} */')"

    def floating(self, value: str) -> str:
        return f"repr({value})"

    def raw_bytes(self, value: str) -> str:
        return f"{value}.hex()"

    def text(self, value: str, length: str, key: str, column: StringColumn | BufferColumn) -> str:
        del key
        return f"text({value}, {length}, {text_capacity(column)})"

    def socket_address(self, value: str, length: str, order: str) -> str:
        self.names["socket_address"] = _socket_address_text
        return f"socket_address({value}, {length}, {order!r})"

    def struct(
        self, value: str, length: str, key: str, column: StructColumn | StructListColumn, order: str
    ) -> str:
        from usdt.engine.output.formatters.structures import StructTextFormatter  # noqa: PLC0415 - rarely needed

        made = StructTextFormatter(key, column, self.stacks, order, wide=self._wide)
        return f"{constant(self.names, made)}({length}, {value}, contexts[key][2])"

    def boolean(self, value: str) -> str:
        return f"('true' if {value} else 'false')"

    def array(self, value: str, length: str, key: str, column: ArrayColumn, order: str) -> str:
        del key
        return f"array({value}, {length}, {order + column.element_code!r})"

    def named(self, key: str, value: str, names: ValueNames) -> str:
        show = names.show_result if key == self._result_key else names.show
        return f"{constant(self.names, show)}({value})"

    def comm(self) -> str:
        return "contexts[key][1]"

    def constant(self, text: str) -> str:
        return constant(self.names, _quoted(text))

    def unreadable(self, reason: str) -> str:
        return constant(self.names, f"?({escape(reason)})")

    def stack(self, column: AnyStack, value: str, length: str) -> str:
        return f"stacks.text({constant(self.names, column)}, contexts[key][2], {value}, {length})"

    def symbol(self, kind: SymbolKind, value: str) -> str:
        return f"stacks.symbol_text({constant(self.names, kind)}, contexts[key][2], {value})"

    def cgroup(self, kind: CgroupName, value: str) -> str:
        from usdt.engine.output import cgroup_names  # noqa: PLC0415 - few runs show them

        show, which = constant(self.names, cgroup_names.quoted_text), constant(self.names, kind)
        return f"{show}(stacks.cgroups(), {which}, {value})"


def _stacks_last(values: Sequence[FieldSource]) -> list[FieldSource]:
    # Frames have lines of their own.
    return sorted(values, key=lambda value: isinstance(value.field.column, AnyStack))


def _named_values(values: Sequence[FieldSource], separator: str) -> str:
    # The part of an f-string that shows values with their names.
    return separator.join(f"{piece(escape(one.field.key))}={{{one.source}}}" for one in values)


def _quoted_text(value: bytes, length: int, capacity: int) -> str:
    if 0 < length < capacity:  # most strings are whole, and nothing in them needs an escape
        text = value[: length - 1].decode("utf-8", "surrogateescape")
        if text.isprintable() and '"' not in text and "\\" not in text:
            return f'"{text}"'
    if length < 0:
        return f"?({reason_of(length)})"
    users = " /* user */" if length >= USERS else ""
    cut = "..." if is_cut(length, len(value), capacity) else ""
    return _quoted(decode_text(value, length, capacity)) + cut + users


def _socket_address_text(value: bytes, length: int, order: str) -> str:
    if length == NULL:
        return "NULL"
    if length < 0:
        return f"?({reason_of(length)})"
    from usdt.engine.output.socket_addresses import (  # noqa: PLC0415 - few runs show them
        socket_address,
        socket_address_text,
    )

    return f"{{{escape(socket_address_text(socket_address(value[:length], order)))}}}"


def _array_text(value: bytes, length: int, code: str) -> str:
    if length < 0:
        return f"?({reason_of(length)})"
    shown = [*map(str, numbers(value, length, code)), *(["..."] if length > len(value) else [])]
    return f"[{', '.join(shown)}]"


def _quoted(text: str) -> str:
    body = escape(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{body}"'


def _is_wide(field: RecordField) -> bool:
    # Whether a value needs lines of its own.
    column = field.column
    if not isinstance(column, StructColumn) or column.form is not StructForm.WHOLE:
        return False
    from usdt.engine.output.formatters.structures import is_small  # noqa: PLC0415 - rarely needed

    return not is_small(column.shape)


def titled(form: object, batch: list[str] | Lines) -> list[str] | Lines:
    """Return a batch of lines, preceded by the formatter's header if it has yet to be written."""
    header = getattr(form, "header", None)
    if not header or not batch or not isinstance(form, TextFormatter):
        return batch
    form.header = None
    if isinstance(batch, Lines):
        return batch.below(header)
    return [header, *batch]


def stack_sources(values: Sequence[FieldSource]) -> list[tuple[StackKind, str]]:
    """Return the kinds of a record's stacks and their sources, the outermost frames first.

    The kernel was entered from user mode. Frames of Python functions are among those of user mode.
    """
    found = [
        (one.field.column.kind, one.source)
        for one in values
        if isinstance(one.field.column, AnyStack)
    ]
    given = {kind for kind, _ in found}
    kinds = [k for k in StackKind if k is not StackKind.PYTHON or StackKind.USER not in given]
    return [(kind, source) for wanted in kinds for kind, source in found if kind is wanted]


class FoldedFormatter(TextFormatter):
    """A formatter of folded stacks, for flame graphs: ``comm;outer;…;inner 1``.

    A hit is one line; values are omitted.
    """

    def __init__(self, stacks: StackResolver | None = None) -> None:
        super().__init__(stacks=stacks)

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> tuple[Any, ...]:
        del tid, cpu, probe
        return escape(comm).replace(";", ":"), "", pid

    def as_return(self, context: Any) -> Any:
        return context

    def record(self, values: Sequence[FieldSource]) -> str:
        stacks = "".join(f";{{{value}}}" for _, value in stack_sources(values))
        return f"f'''{{contexts[key][0]}}{stacks} 1\\n'''"

    def stack(self, column: AnyStack, value: str, length: str) -> str:
        return f"stacks.fold({constant(self.names, column)}, contexts[key][2], {value}, {length})"
