"""Recordings as tables: one line of comma-separated values for each record.

Quoting follows RFC 4180; lines end in a newline only, as usual in Unix. All probes share one table,
whose columns are the union of their items.

Traced programs choose the text of cells, and spreadsheets run text that begins like a formula. As
OWASP recommends ("CSV Injection"), such a cell gets an apostrophe in front. So does text that
begins with apostrophes and then like a formula, so that a reader can undo it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from usdt.arch.locations import Unreadable
from usdt.engine.compiler.record.columns import IntColumn, IntFormat
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.formatter import constant
from usdt.engine.output.truncated import TruncatedDict, TruncatedList, mark_of
from usdt.engine.recording.blocks import RecordingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usdt.engine.compiler.record.columns import AnyStack, SymbolKind
    from usdt.engine.compiler.record.layout import RecordLayout
    from usdt.engine.output.formatters.formatter import FieldSource
    from usdt.engine.output.stacks import StackResolver

__all__ = ("CsvFormatter", "columns_of")

_FIXED = ("time", "pid", "tid", "cpu", "comm", "probe")
_SPECIAL = frozenset(',;"\r\n\t ')  # a semicolon divides cells where commas divide digits
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def columns_of(layouts: Iterable[RecordLayout]) -> list[str]:
    """Return the items of all layouts, without duplicates, in order of first occurrence."""
    return list(dict.fromkeys(name for layout in layouts for name in _names(layout)))


def _names(layout: RecordLayout) -> list[str]:
    # The columns of a layout. Items of the end of a span have names of their own.
    keys = [field.key for field in layout.fields]
    if layout.span is None:
        return keys
    starts, ends = keys[: 1 + layout.span.starts], keys[1 + layout.span.starts :]
    return [*starts, "end_probe", *(f"end {key}" for key in ends)]


class CsvFormatter(EventFormatter):
    """A formatter of comma-separated values: time, pid, tid, cpu, comm, probe, and the items.

    Args:
        columns: the items that have a column; a record's cells are empty for items of other probes.
        stacks: resolves stacks and addresses.
    """

    def __init__(self, columns: Sequence[str], stacks: StackResolver | None = None) -> None:
        super().__init__(stacks)
        self.names["cell"] = _cell
        self._columns = columns
        self._keys: list[str] = []

    def begin(self, layout: RecordLayout) -> None:
        """Take the columns; the resolver of a recording needs no announcement of layouts."""
        self._keys = [name for name in _names(layout) if layout.span is None or name != "end_probe"]
        self._span = layout.span

    def title(self) -> str:
        """Return the header line."""
        return ",".join(map(_cell, (*_FIXED, *self._columns))) + "\n"

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> Any:
        """Return the cells that every record has, except the time; also the command and the pid."""
        return f"{pid},{tid},{cpu},{_cell(comm)},{_cell(probe)}", comm, pid

    def comm(self) -> str:
        """Return the expression of the thread's name, which is quoted like any other text."""
        return "contexts[key][1]"

    def stack(self, column: AnyStack, value: str, length: str) -> str:
        """Return the expression of a stack in one cell, outermost frame first."""
        return f"stacks.fold({constant(self.names, column)}, contexts[key][2], {value}, {length})"

    def symbol(self, kind: SymbolKind, value: str) -> str:
        """Return the expression of the symbol at an address, as text."""
        return f"stacks.symbol_text({constant(self.names, kind)}, contexts[key][2], {value})"

    def record(self, values: Sequence[FieldSource]) -> str:
        """Return the expression of a complete line."""
        own = {key: self._cell(value) for key, value in zip(self._keys, values, strict=True)}
        if self._span is not None:
            own["end_probe"] = f"{{{constant(self.names, _cell(self._span.end_probe))}}}"
        if not own.keys() <= set(self._columns):
            raise RecordingError("the recording has grown since its columns were looked up")
        cells = (own.get(key, "") for key in self._columns)
        return "f'''" + ",".join(("{time}", "{contexts[key][0]}", *cells)) + "\\n'''"

    def _cell(self, value: FieldSource) -> str:
        match value.field.column:
            case IntColumn(format=IntFormat.DECIMAL, names=None, part_of=0) if (
                not value.field.may_fault
            ):
                return f"{{{value.source}}}"  # an integer never needs quotes
        return f"{{cell({value.source})}}"


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if value is None:
        return "NULL"
    if isinstance(value, Unreadable):
        value = f"?({value.reason})"
    text = _marked(value)
    if isinstance(value, str) and _FORMULA.match(text):
        text = f"'{text}"
    if _SPECIAL.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _marked(value: Any) -> str:
    # The text of a value; what was cut ends in a mark.
    match value:
        case TruncatedList():
            return f"{repr(value)[:-1]}, ...]" if value else "[...]"
        case TruncatedDict():
            return f"{json.dumps(value)[:-1]}, ...}}" if value else "{...}"
        case dict():
            return json.dumps(value)
        case str():
            return value + mark_of(value)
    return repr(value) + mark_of(value)
