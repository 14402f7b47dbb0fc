"""Structures of records, for each formatter: compiled once per type, called once per record.

A record has a length prefix (:mod:`usdt.engine.compiler.record.length_prefix`), the address of the
structure, and its bytes, which may be cut.
"""

from __future__ import annotations

import functools
import json
import sys
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, Any, Literal

from usdt.arch.locations import Unreadable
from usdt.btf.format import parse_header
from usdt.btf.reader import Btf
from usdt.btf.types import Array
from usdt.btf.values.compact import CompactFormatter
from usdt.btf.values.json_codegen import JsonCodegen
from usdt.btf.values.options import Options
from usdt.btf.values.read_plan import ReadPlans, max_text
from usdt.btf.values.renderer import Renderer
from usdt.engine.compiler.record.columns import (
    StructColumn,
    StructForm,
    StructListColumn,
    SymbolKind,
)
from usdt.engine.compiler.record.length_prefix import NULL, USERS, reason_of
from usdt.engine.output.formatters.formatter import escape
from usdt.engine.output.truncated import TruncatedDict, TruncatedList

if TYPE_CHECKING:
    from usdt.btf.values.type_snapshot import TypeSnapshot
    from usdt.engine.output.stacks import StackResolver

__all__ = ("PAD", "StructJsonFormatter", "StructTextFormatter", "StructValueFormatter", "is_small")

PAD = 36  # columns before a structure that has lines of its own
_SMALL = 12  # maximum values, including the structure itself, that are shown on one line
_LISTED = 16  # maximum elements of a list that a line shows
_FARTHEST = 1 << 16  # maximum offset in bytes from a symbol that is still shown as part of it


@functools.lru_cache(maxsize=256)
def _types(blob: bytes) -> Btf:
    return Btf(blob, name="types of a structure")


@functools.lru_cache(maxsize=256)
def is_small(shape: TypeSnapshot) -> bool:
    """Return whether the values of a type fit on one line."""
    return ReadPlans(_types(shape.types)).of(shape.type_id).values <= _SMALL


class _Structure:
    # The parts of a structure field that all formatters need.
    def __init__(self, key: str, column: StructColumn | StructListColumn, order: str) -> None:
        self.key = key
        self.shape = column.shape
        self.btf = _types(column.shape.types)
        self.pointer = isinstance(column, StructColumn) and column.by_pointer
        self.kernel = isinstance(column, StructColumn) and column.kernel
        self.short = isinstance(column, StructColumn) and column.form is StructForm.SHORT
        # For a list: the type of its elements, and their size.
        row = self.btf.resolve(self.shape.type_id) if isinstance(column, StructListColumn) else None
        self.element = row.type_id if isinstance(row, Array) else 0
        self.step = self.btf.size_of(self.element) if self.element else 0
        self._characters = ReadPlans(self.btf).of(self.shape.type_id).text
        self._order: Literal["little", "big"] = "big" if _is_big(order) else "little"

    def address(self, value: bytes) -> int:
        return int.from_bytes(value[:8], self._order)

    def data(self, prefix: int, value: bytes) -> bytes:
        return value[8 : 8 + (prefix & (USERS - 1))]

    def cut_list(self, prefix: int, data: bytes) -> bool:
        """Return whether a list has more elements than were recorded."""
        return bool(self.step) and (prefix & (USERS - 1)) > len(data)

    def left_out(self, data: bytes) -> str:
        """Return why cut data are not shown; "" if they are.

        Types of a hostile recording may describe a few bytes as a megabyte of text.
        """
        if self.step or len(data) >= self.shape.size or self._characters <= max_text(len(data)):
            return ""
        return f"left out: {self.shape.size} bytes as {self._characters} characters"


def _is_big(order: str) -> bool:
    return order == ">" or (order == "=" and sys.byteorder == "big")


class StructTextFormatter(_Structure):
    """A formatter of structures as human-readable text, on one line or several.

    Args:
        key: the item as written.
        column: the column to format.
        stacks: resolves addresses of code.
        order: byte order of the record.
        wide: whether the structure has lines of its own.
    """

    def __init__(
        self,
        key: str,
        column: StructColumn | StructListColumn,
        stacks: StackResolver,
        order: str,
        *,
        wide: bool,
    ) -> None:
        super().__init__(key, column, order)
        self._stacks = stacks
        self._pid = 0
        self._more = False  # whether a list has more elements than were recorded
        self._wide = wide
        tree = wide and not self.step
        self._safe = tree and _is_printable(self.shape.types)  # compact text may have any character
        self._wild = False  # whether a symbol is not printable
        if tree:
            options = Options(indent_str=" ", indent_level=PAD, emit_strings=True, symbolic=True)
            renderer = Renderer(self.btf, options, symbol=self._symbol)
            self._render = renderer.text_of(self.shape.type_id)
        else:
            self._line = CompactFormatter(self.btf, symbol=self._symbol, code=True).line
            whole = functools.partial(self._line, self.shape.type_id)
            self._render = self._listed if self.step else whole

    def __call__(self, prefix: int, value: bytes, pid: int) -> str:
        """Return the text for one record."""
        if prefix == NULL:
            return "NULL"
        start = f"*({self.address(value):#x})" if self.pointer else ""
        if prefix < 0:
            return f"{start} ?({reason_of(prefix)})".lstrip() if self.pointer else _unread(prefix)
        self._pid = pid
        users = " /* user */" if prefix >= USERS else ""
        data = self.data(prefix, value)
        left_out = "" if self._wide else self.left_out(data)
        self._more = self.cut_list(prefix, data)
        text = f"?({left_out})" if left_out else self._render(data)
        if not self._safe or self._wild:
            text = escape_lines(text)
            self._wild = False
        size = self.shape.size
        if self.step:
            return f"\n{' ' * PAD}{text}" if self._wide else text
        cut = f" /* {len(data)} bytes of {size} */" if len(data) < size else ""
        if self.short and text.endswith("}"):  # larger structures within it are left out
            text = f"{text[:-1]}{', ' * (len(text) > 2)}…}}"
        if not self._wide:
            return f"{start} {text}{cut}{users}".lstrip()
        pad = f"\n{' ' * PAD}..." if cut else ""
        return f"{start}{users}\n{text.rstrip() if cut else text}{pad}{cut}"

    def _listed(self, data: bytes) -> str:
        # The number of elements of a list follows from its number of bytes.
        parts = [data[at : at + self.step] for at in range(0, len(data), self.step)]
        shown = [self._line(self.element, part) for part in parts[:_LISTED]]
        more = ", ..." if len(parts) > _LISTED or self._more else ""
        return f"[{', '.join(shown)}{more}]"

    def _symbol(self, address: int) -> str | None:
        kind = SymbolKind.KERNEL if self.kernel else SymbolKind.USER
        frame = self._stacks.frame(kind, self._pid, address)
        if not frame.symbol or frame.offset > _FARTHEST:
            return None
        self._wild = self._wild or not frame.symbol.isascii() or not frame.symbol.isprintable()
        return f"{frame.symbol}+{frame.offset:#x}" if frame.offset else frame.symbol


def _is_printable(types: bytes) -> bool:
    # Whether every name of the types is printable ASCII; those that compilers write are.
    names = types[slice(*parse_header(types, "types of a structure").strings)].replace(b"\0", b"")
    return names.isascii() and names.decode("ascii").isprintable()


def _unread(prefix: int) -> str:
    return f"?({reason_of(prefix)})"


def escape_lines(text: str) -> str:
    """Escape text of several lines so that it is safe for a terminal."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "\n".join(map(escape, text.split("\n")))


def _cut(value: Any) -> Any:
    # The first elements of an array; other values are recorded whole.
    return TruncatedList(value) if isinstance(value, list) else value


class StructValueFormatter(_Structure):
    """A formatter of structures as dicts, lists, strings and numbers."""

    text = False  # whether the result is JSON text

    def __init__(self, key: str, column: StructColumn | StructListColumn, order: str) -> None:
        super().__init__(key, column, order)
        number = self.shape.type_id
        plans = ReadPlans(self.btf)
        plan = plans.readable(number)
        self._extent, self._part = plan.extent, plan.read
        self._element = plans.readable(self.element or number).read
        self._whole = JsonCodegen(self.btf, text=self.text).function(number)

    def __call__(self, prefix: int, value: bytes) -> Any:
        """Return the value for one record."""
        if prefix < 0:
            return Unreadable(reason_of(prefix))
        data = self.data(prefix, value)
        if self.step:
            found = self._list(data)
            return TruncatedList(found) if self.cut_list(prefix, data) else found
        left_out = self.left_out(data)
        if left_out:
            return Unreadable(left_out)
        found = self._whole(data, 0) if len(data) >= self._extent else self._part(data, 0)
        if len(data) >= self.shape.size:
            return found
        return TruncatedDict(found) if isinstance(found, dict) else _cut(found)

    def _list(self, data: bytes) -> list[Any]:
        # The number of elements of a list follows from its number of bytes.
        last = len(data) - self.step
        return [self._element(data, at) for at in range(0, last + 1, self.step)]


class StructJsonFormatter(StructValueFormatter):
    """A formatter of structures as JSON, with their address."""

    text = True
    pure = True  # the same text for the same bytes, on one line

    def __call__(self, prefix: int, value: bytes) -> str:
        """Return the JSON text for one record."""
        if prefix < 0:
            return f'{{"error": {quote(reason_of(prefix))}}}'
        data = self.data(prefix, value)
        if self.step:
            return json.dumps(self._list(data))
        left_out = self.left_out(data)
        if left_out:
            return f'{{"error": {quote(left_out)}}}'
        if len(data) >= self._extent:
            return str(self._whole(data, 0))
        return json.dumps(self._part(data, 0))

    def memory(self, prefix: int, value: bytes) -> str:
        """Return a JSON member: address, address space, and the recorded bytes if cut."""
        address = self.address(value)
        parts = [f'"address": "{address:#x}"'] if address or prefix == NULL else []
        if self.kernel and prefix >= 0:
            parts.append(f'"space": "{"user" if prefix >= USERS else "kernel"}"')
        kept = len(self.data(prefix, value)) if prefix >= 0 else 0
        size = prefix & (USERS - 1) if self.step else self.shape.size
        if prefix >= 0 and kept < size:
            parts.append(f'"bytes": {kept}, "size": {size}')
        if self.short and prefix >= 0:
            parts.append('"short": true')
        return f"{quote(self.key)}: {{{', '.join(parts)}}}" if parts else ""
