"""Records as lines for eyes, and folded stacks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from usdt.engine.compiler.record.length_prefix import USERS, reason_of
from usdt.engine.output.formatters.formatter import constant, decode_text, escape, numbers, piece
from usdt.engine.output.stacks import StackResolver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.record.layout import RecordField, RecordLayout
    from usdt.engine.compiler.value_names import ValueNames

__all__ = ("FoldedFormatter", "TextFormatter")


_NAME = 35  # columns before a value's name, where values have lines
_END = 31  # and before what closes them
PAD = 36  # and before a value
_HEADER = f"{'TIME':>16} {'CPU':>4} {'PID':>8} FUNCTION/ARGS\n"


class TextFormatter:
    """Lines for eyes: time of day, CPU, process, command, probe, arguments.

    Args:
        colour: with the escape sequences of a terminal.
        offset: nanoseconds from CLOCK_MONOTONIC to CLOCK_REALTIME where the records were made;
            None: this machine's, now.
        stacks: names for stacks and addresses; by default user addresses have none.

    Attributes:
        header: a line to be written before the next record; see :func:`titled`.
    """

    def __init__(
        self,
        *,
        colour: bool = False,
        offset: int | None = None,
        stacks: StackResolver | None = None,
    ) -> None:
        self._stacks = stacks or StackResolver()
        self._probe = "\x1b[36m", "\x1b[0m"
        if not colour:
            self._probe = "", ""
        self._offset = time.time_ns() - time.monotonic_ns() if offset is None else offset
        self._second = (-1, "")
        self.header: str | None = ""
        self._wide = False
        self._casts: dict[str, str] = {}
        self._structures: set[str] = set()
        self.return_names: dict[str, Any] = {}
        self.names: dict[str, Any] = {
            "text": _eye_text,
            "array": _eye_array,
            "clock": self.clock,
            "stacks": self._stacks,
        }

    def clock(self, nanoseconds: int) -> str:
        """Time of day with microseconds."""
        second, rest = divmod(nanoseconds + self._offset, 1_000_000_000)
        if second != self._second[0]:
            self._second = second, time.strftime("%H:%M:%S", time.localtime(second))
        return f"{self._second[1]}.{rest // 1000:06}"

    def begin(self, layout: RecordLayout) -> None:
        self._wide = any(map(_is_wide, layout.fields))
        self._casts = {field.key: field.cast for field in layout.fields}
        if self._wide and self.header is not None:
            self.header = _HEADER

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> tuple[Any, ...]:
        who = str(pid) if pid == tid else f"{pid}/{tid}"
        name = escape(comm)
        before, after = self._probe
        shown = f"{before}{escape(probe):<24}{after}"
        line = f"{cpu:3}  {who:>9}  {name:<15}  {shown}"
        function = escape(probe.removeprefix("kprobe:").removeprefix("fentry:"))
        return line, _quoted(comm), pid, f"{cpu:4} {pid:8} {before}{function}{after}("

    def returned(self, context: Any) -> Any:
        return f"{context[0]}  returned", *context[1:]

    def record(self, values: Sequence[tuple[str, str]]) -> str:
        # Frames have lines of their own, so stacks come last.
        values = sorted(values, key=lambda pair: pair[1].startswith("stacks.text("))
        if self._wide:
            return self._lines(values)
        args = "  ".join(f"{piece(escape(key))}={{{value}}}" for key, value in values)
        return f"f'''{{clock(t)}}  {{contexts[c][0]}}  {args}\\n'''"

    def _lines(self, values: Sequence[tuple[str, str]]) -> str:
        # As ksnoop has it: a value begins on a line of its own, under its name.
        texts = []
        for key, value in values:
            start = f"{' ' * _NAME}{piece(escape(key))} = "
            cast = piece(escape(self._casts.get(key, "")))
            begin = "" if value in self._structures else f"\\n{' ' * PAD}"
            texts.append(f"{start}{begin}{f'({cast})' if cast else ''}{{{value}}}")
        args = ",\\n".join(texts)
        return f"f'''{{t:16}} {{contexts[c][3]}}\\n{args}\\n{' ' * _END});\\n\\n'''"

    def integer(self, value: str) -> str:
        return value

    def hexadecimal(self, value: str) -> str:
        return f"hex({value})"

    def real(self, value: str) -> str:
        return f"repr({value})"

    def raw(self, value: str) -> str:
        return f"{value}.hex()"

    def text(self, value: str, length: str, room: int, key: str = "") -> str:
        del key
        return f"text({value}, {length}, {room})"

    def typed(self, value: str, length: str, field: RecordField, order: str) -> str:
        from usdt.engine.output.formatters.structures import StructTextFormatter  # noqa: PLC0415 - seldom needed

        made = StructTextFormatter(field, self._stacks, order, wide=self._wide)
        self._stacks.wanted = self._stacks.wanted or not made.kernel
        source = f"{constant(self.names, made)}({length}, {value}, contexts[c][2])"
        self._structures.add(source)
        return source

    def truth(self, value: str) -> str:
        return f"('true' if {value} else 'false')"

    def array(self, value: str, length: str, code: str) -> str:
        return f"array({value}, {length}, {code!r})"

    def named(self, key: str, value: str, names: ValueNames) -> str:
        del key
        return f"{constant(self.names, names.show)}({value})"

    def comm(self) -> str:
        return "contexts[c][1]"

    def constant(self, text: str) -> str:
        return constant(self.names, _quoted(text))

    def unreadable(self, reason: str) -> str:
        return constant(self.names, f"?({escape(reason)})")

    def stack(self, kind: str, value: str, length: str) -> str:
        return self._stacks.source("text", kind, "contexts[c][2]", value, length)

    def symbol(self, kind: str, value: str) -> str:
        return self._stacks.source("symbol_text", kind, "contexts[c][2]", value)


def _eye_text(value: bytes, length: int, room: int) -> str:
    if length < 0:
        return f"?({reason_of(length)})"
    users = " /* user */" if length >= USERS else ""
    cut = "..." if room and length & (USERS - 1) == room else ""
    return _quoted(decode_text(value, length, room)) + cut + users


def _eye_array(value: bytes, length: int, code: str) -> str:
    if length < 0:
        return f"?({reason_of(length)})"
    return f"[{', '.join(map(str, numbers(value, length, code)))}]"


def _quoted(text: str) -> str:
    body = escape(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{body}"'


def _is_wide(field: RecordField) -> bool:
    # Whether a value needs lines of its own.
    if field.shape is None or "v" in field.reason:
        return False
    from usdt.engine.output.formatters.structures import is_small  # noqa: PLC0415 - seldom needed

    return not is_small(field.shape)


def titled(form: object, batch: list[str]) -> list[str]:
    """A batch of lines with what stands above the first of them."""
    header = getattr(form, "header", None)
    if not header or not batch or not isinstance(form, TextFormatter):
        return batch
    form.header = None
    return [header, *batch]


class FoldedFormatter(TextFormatter):
    """``comm;outer;…;inner 1``: what makes flame graphs, a line a hit; values are left out."""

    def __init__(self, stacks: StackResolver | None = None) -> None:
        super().__init__(stacks=stacks)

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> tuple[Any, ...]:
        del tid, cpu, probe
        return escape(comm).replace(";", ":"), "", pid

    def returned(self, context: Any) -> Any:
        return context

    def record(self, values: Sequence[tuple[str, str]]) -> str:
        # The user's part is further out than the kernel's.
        stacks = sorted((v for _, v in values if v.startswith("stacks.fold(")), reverse=True)
        return f"f'''{{contexts[c][0]}}{''.join(f';{{{value}}}' for value in stacks)} 1\\n'''"

    def stack(self, kind: str, value: str, length: str) -> str:
        return self._stacks.source("fold", kind, "contexts[c][2]", value, length)
