"""What every form has in common: what a record becomes, and how its source is written."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from usdt.engine.compiler.record.length_prefix import USERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.record.columns import StackKind, StructColumn, StructListColumn
    from usdt.engine.compiler.record.layout import RecordField, RecordLayout
    from usdt.engine.compiler.value_names import ValueNames

__all__ = (
    "Event",
    "FieldSource",
    "Formatter",
    "constant",
    "decode_text",
    "escape",
    "numbers",
    "piece",
)


class Event(NamedTuple):
    """One hit of a probe.

    Attributes:
        time: CLOCK_MONOTONIC, nanoseconds.
        pid, tid: process and thread.
        cpu: number of the processor.
        comm: name of the thread, at most 15 bytes.
        probe: ``provider:name``.
        args: item as written → int, float, str (bytes that are not UTF-8 as surrogates) or
            :class:`usdt.arch.locations.Unreadable`; a stack a list of
            :class:`usdt.engine.output.frames.Frame`.
        event: "return" if it is a function's return, else "hit".
    """

    time: int
    pid: int
    tid: int
    cpu: int
    comm: str
    probe: str
    args: dict[str, Any]
    event: str = "hit"


class FieldSource(NamedTuple):
    """A field of a record, and the source of the expression that shows it."""

    field: RecordField
    source: str


class Formatter(Protocol):
    """How one kind of output is written; every method but the first three returns source.

    Attributes:
        names: what the source refers to.
        return_names: what stands instead of some of them where records are of returns.
    """

    names: dict[str, Any]
    return_names: dict[str, Any]

    def begin(self, layout: RecordLayout) -> None:
        """What follows are the values of records of this layout."""

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> Any:
        """What is shown for a distinct context, computed once."""

    def as_return(self, context: Any) -> Any:
        """The same of a function's return."""

    def record(self, values: Sequence[FieldSource]) -> str:
        """The expression of a whole record."""

    def integer(self, value: str) -> str:
        """An integer."""

    def hexadecimal(self, value: str) -> str:
        """An unsigned integer in hexadecimal."""

    def floating(self, value: str) -> str:
        """A float."""

    def raw_bytes(self, value: str) -> str:
        """An aggregate's bytes."""

    def text(self, value: str, length: str, room: int, key: str = "") -> str:
        """A string of ``room`` bytes with its NUL, or a buffer (0); ``length`` is a lead.

        With a ``key``, it may be a process's although the kernel's types led there.
        """

    def struct(
        self, value: str, length: str, key: str, column: StructColumn | StructListColumn, order: str
    ) -> str:
        """A structure or a list of values with its address; ``length`` is its prefix."""

    def boolean(self, value: str) -> str:
        """A number that is true or false."""

    def array(self, value: str, length: str, code: str) -> str:
        """Integers, as :mod:`struct` names them; ``length`` counts bytes, or is an errno."""

    def named(self, key: str, value: str, names: ValueNames) -> str:
        """An integer whose values have names; None where it could not be read."""

    def comm(self) -> str:
        """The thread's name."""

    def constant(self, text: str) -> str:
        """A text that is the same at every hit."""

    def unreadable(self, reason: str) -> str:
        """A value that could not be read."""

    def stack(self, kind: StackKind, value: str, length: str) -> str:
        """A stack, ``ustack`` or ``kstack``; ``length`` counts its bytes, or is an errno."""

    def symbol(self, kind: StackKind, value: str) -> str:
        """What is at an address of the process (``ustack``) or of the kernel (``kstack``)."""


def escape(text: str) -> str:
    r"""``text`` made safe for a terminal.

    Control characters and bytes that are not UTF-8 become ``\xNN``, other characters that do not
    show (or turn the direction of writing) ``\uNNNN``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape_one(c) for c in text)


def _escape_one(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{number - 0xDC00:02x}"
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if named:
        return named
    if number < 128:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def piece(text: str) -> str:
    """Literal text inside an f-string that is delimited by three apostrophes."""
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("{", "{{").replace("}", "}}")


def constant(names: dict[str, Any], value: Any) -> str:
    """The name of a constant for compiled source; each distinct one is kept once."""
    for name, known in names.items():
        if known == value:
            return name
    name = f"constant{len(names)}"
    names[name] = value
    return name


def decode_text(value: bytes, length: int, room: int) -> str:
    """A recorded string, of ``room`` bytes with its NUL; or a buffer (0)."""
    length &= USERS - 1
    return value[: length - 1 if room else length].decode("utf-8", "surrogateescape")


def numbers(value: bytes, length: int, code: str) -> list[int]:
    """The elements of a recorded array, which :mod:`struct` calls ``code``."""
    size = struct.calcsize(code)
    return [item for (item,) in struct.iter_unpack(code, value[: length // size * size])]
