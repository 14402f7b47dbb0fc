"""What records become: JSON lines, text lines for eyes, or Python events.

A form gives the *source* of the expression that makes one record's result; see
:mod:`tracing.decode`, which compiles it. A line is one f-string around the values' expressions.
"""

from __future__ import annotations

import functools
import math
import struct
import time
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tracing.stacks import StackResolver
from tracing.values import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracing.names import Names

__all__ = ("Event", "EventForm", "FoldedForm", "Form", "JsonForm", "TextForm", "escape")

_ERRORS = {-14: "memory not readable", -75: "longer than a record has room for"}


class Event(NamedTuple):
    """One hit of a probe.

    Attributes:
        time: CLOCK_MONOTONIC, nanoseconds.
        pid, tid: process and thread.
        cpu: number of the processor.
        comm: name of the thread, at most 15 bytes.
        probe: ``provider:name``.
        args: item as written → int, float, str (bytes that are not UTF-8 as surrogates) or
            :class:`tracing.values.Unreadable`; a stack a list of :class:`tracing.stacks.Frame`.
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


class Form(Protocol):
    """How one kind of output is written; every method but the first two returns source.

    Attributes:
        names: what the source refers to.
        return_names: what stands instead of some of them where records are of returns.
    """

    names: dict[str, Any]
    return_names: dict[str, Any]

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> Any:
        """What is shown for a distinct context, computed once."""

    def returned(self, context: Any) -> Any:
        """The same of a function's return."""

    def record(self, values: Sequence[tuple[str, str]]) -> str:
        """The expression of a whole record from (key, expression of the value)."""

    def integer(self, value: str) -> str:
        """An integer."""

    def hexadecimal(self, value: str) -> str:
        """An unsigned integer in hexadecimal."""

    def real(self, value: str) -> str:
        """A float."""

    def raw(self, value: str) -> str:
        """An aggregate's bytes."""

    def text(self, value: str, length: str, room: int) -> str:
        """A string of ``room`` bytes with its NUL, or a buffer (0); ``length`` may be an errno."""

    def array(self, value: str, length: str, code: str) -> str:
        """Integers, as :mod:`struct` names them; ``length`` counts bytes, or is an errno."""

    def named(self, key: str, value: str, names: Names) -> str:
        """An integer whose values have names; None where it could not be read."""

    def comm(self) -> str:
        """The thread's name."""

    def constant(self, text: str) -> str:
        """A text that is the same at every hit."""

    def unreadable(self, reason: str) -> str:
        """A value that could not be read."""

    def stack(self, kind: str, value: str, length: str) -> str:
        """A stack, ``ustack`` or ``kstack``; ``length`` counts its bytes, or is an errno."""

    def symbol(self, kind: str, value: str) -> str:
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


def _piece(text: str) -> str:
    # Literal text inside an f-string that is delimited by three apostrophes.
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("{", "{{").replace("}", "}}")


def _constant(names: dict[str, Any], value: Any) -> str:
    # The name of a constant for compiled source; each distinct one is kept once.
    for name, known in names.items():
        if known == value:
            return name
    name = f"constant{len(names)}"
    names[name] = value
    return name


def _decode(value: bytes, length: int, room: int) -> str:
    return value[: length - 1 if room else length].decode("utf-8", "surrogateescape")


class JsonForm:
    """One JSON object per line, as docs/json.md fixes it. Output is ASCII.

    Args:
        stacks: names for stacks and addresses; by default user addresses have none.
    """

    def __init__(self, stacks: StackResolver | None = None) -> None:
        self._stacks = stacks or StackResolver()
        self._labels: list[str] = []
        self.return_names: dict[str, Any] = {}
        self.names: dict[str, Any] = {
            "stacks": self._stacks,
            "text": _json_text,
            "array": _json_array,
            "labels": _json_labels,
            "real": _json_real,
            "raw": _json_raw,
            "hexadecimal": _json_hexadecimal,
        }

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> tuple[str, str, int]:
        head = f'"pid": {pid}, "tid": {tid}, "cpu": {cpu}, "comm": {quote(comm)}'
        return f'{head}, "probe": {quote(probe)}', quote(comm), pid

    def returned(self, context: Any) -> Any:
        return f'{context[0]}, "event": "return"', *context[1:]

    def record(self, values: Sequence[tuple[str, str]]) -> str:
        head = '{{"time": {t}, {contexts[c][0]}, "args": '
        labels = ", ".join(self._labels)
        tail = f"{{labels(({labels},))}}" if labels else ""
        return f"f'''{head}{self.arguments(values)}{tail}}}}}\\n'''"

    def arguments(self, values: Sequence[tuple[str, str]]) -> str:
        """What stands in an f-string for the object of all values."""
        self._labels.clear()
        args = ", ".join(f"{_piece(quote(key))}: {{{value}}}" for key, value in values)
        return f"{{{{{args}}}}}"

    def integer(self, value: str) -> str:
        return value

    def hexadecimal(self, value: str) -> str:
        return f"hexadecimal({value})"

    def real(self, value: str) -> str:
        return f"real({value})"

    def raw(self, value: str) -> str:
        return f"raw({value})"

    def text(self, value: str, length: str, room: int) -> str:
        return f"text({value}, {length}, {room})"

    def array(self, value: str, length: str, code: str) -> str:
        return f"array({value}, {length}, {code!r})"

    def named(self, key: str, value: str, names: Names) -> str:
        both = _constant(self.names, (quote(key), names.find))
        self._labels.append(f"({both}, {value})")
        return value

    def comm(self) -> str:
        return "contexts[c][1]"

    def constant(self, text: str) -> str:
        return _constant(self.names, quote(text))

    def unreadable(self, reason: str) -> str:
        return _constant(self.names, _json_error(reason))

    def stack(self, kind: str, value: str, length: str) -> str:
        return self._stacks.source("json", kind, "contexts[c][2]", value, length)

    def symbol(self, kind: str, value: str) -> str:
        return self._stacks.source("symbol_json", kind, "contexts[c][2]", value)


def _json_error(reason: str) -> str:
    return f'{{"error": {quote(reason)}}}'


def _json_raw(value: bytes) -> str:
    return f'"{value.hex()}"'


def _json_hexadecimal(value: int) -> str:
    return f'"{value:#x}"'


def _json_text(value: bytes, length: int, room: int) -> str:
    if length < 0:
        return _json_error(_ERRORS.get(length, f"errno {-length}"))
    return quote(_decode(value, length, room))


def _json_array(value: bytes, length: int, code: str) -> str:
    if length < 0:
        return _json_error(_ERRORS.get(length, f"errno {-length}"))
    return str(_numbers(value, length, code))


def _json_labels(values: tuple[tuple[tuple[str, Callable[[int], str | None]], int], ...]) -> str:
    found = [(key, find(value)) for (key, find), value in values if value is not None]
    named = ", ".join(f"{key}: {quote(name)}" for key, name in found if name is not None)
    return f', "names": {{{named}}}' if named else ""


def _numbers(value: bytes, length: int, code: str) -> list[int]:
    size = struct.calcsize(code)
    return [item for (item,) in struct.iter_unpack(code, value[: length // size * size])]


def _json_real(value: float) -> str:
    # JSON has no word for these, and a line that no parser takes would be lost.
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


class TextForm:
    """Lines for eyes: time of day, CPU, process, command, probe, arguments.

    Args:
        colour: with the escape sequences of a terminal.
        offset: nanoseconds from CLOCK_MONOTONIC to CLOCK_REALTIME where the records were made;
            None: this machine's, now.
        stacks: names for stacks and addresses; by default user addresses have none.
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

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> tuple[str, str, int]:
        who = str(pid) if pid == tid else f"{pid}/{tid}"
        name = escape(comm)
        before, after = self._probe
        shown = f"{before}{escape(probe):<24}{after}"
        return f"{cpu:3}  {who:>9}  {name:<15}  {shown}", _quoted(comm), pid

    def returned(self, context: Any) -> Any:
        return f"{context[0]}  returned", *context[1:]

    def record(self, values: Sequence[tuple[str, str]]) -> str:
        # Frames have lines of their own, so stacks come last.
        values = sorted(values, key=lambda pair: pair[1].startswith("stacks.text("))
        args = "  ".join(f"{_piece(escape(key))}={{{value}}}" for key, value in values)
        return f"f'''{{clock(t)}}  {{contexts[c][0]}}  {args}\\n'''"

    def integer(self, value: str) -> str:
        return value

    def hexadecimal(self, value: str) -> str:
        return f"hex({value})"

    def real(self, value: str) -> str:
        return f"repr({value})"

    def raw(self, value: str) -> str:
        return f"{value}.hex()"

    def text(self, value: str, length: str, room: int) -> str:
        return f"text({value}, {length}, {room})"

    def array(self, value: str, length: str, code: str) -> str:
        return f"array({value}, {length}, {code!r})"

    def named(self, key: str, value: str, names: Names) -> str:
        del key
        return f"{_constant(self.names, names.show)}({value})"

    def comm(self) -> str:
        return "contexts[c][1]"

    def constant(self, text: str) -> str:
        return _constant(self.names, _quoted(text))

    def unreadable(self, reason: str) -> str:
        return _constant(self.names, f"?({escape(reason)})")

    def stack(self, kind: str, value: str, length: str) -> str:
        return self._stacks.source("text", kind, "contexts[c][2]", value, length)

    def symbol(self, kind: str, value: str) -> str:
        return self._stacks.source("symbol_text", kind, "contexts[c][2]", value)


def _eye_text(value: bytes, length: int, room: int) -> str:
    if length < 0:
        return f"?({_ERRORS.get(length, f'errno {-length}')})"
    cut = "..." if room and length == room else ""
    return _quoted(_decode(value, length, room)) + cut


def _eye_array(value: bytes, length: int, code: str) -> str:
    if length < 0:
        return f"?({_ERRORS.get(length, f'errno {-length}')})"
    return f"[{', '.join(map(str, _numbers(value, length, code)))}]"


def _quoted(text: str) -> str:
    body = escape(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{body}"'


class FoldedForm(TextForm):
    """``comm;outer;…;inner 1``: what makes flame graphs, a line a hit; values are left out."""

    def __init__(self, stacks: StackResolver | None = None) -> None:
        super().__init__(stacks=stacks)

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> tuple[str, str, int]:
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


class EventForm:
    """:class:`Event` objects for Python callers.

    Args:
        stacks: names for stacks and addresses; by default user addresses have none.
    """

    def __init__(self, stacks: StackResolver | None = None) -> None:
        self._stacks = stacks or StackResolver()
        self.names: dict[str, Any] = {
            "Event": Event,
            "stacks": self._stacks,
            "text": _event_text,
            "array": _event_array,
        }
        self.return_names: dict[str, Any] = {"Event": functools.partial(Event, event="return")}

    def context(
        self, pid: int, tid: int, cpu: int, comm: str, probe: str
    ) -> tuple[int, int, int, str, str]:
        return pid, tid, cpu, comm, probe

    def returned(self, context: Any) -> Any:
        return context

    def record(self, values: Sequence[tuple[str, str]]) -> str:
        args = ", ".join(f"{key!r}: {value}" for key, value in values)
        return f"Event(t, *contexts[c], {{{args}}})"

    def integer(self, value: str) -> str:
        return value

    def hexadecimal(self, value: str) -> str:
        return f"hex({value})"

    def real(self, value: str) -> str:
        return value

    def raw(self, value: str) -> str:
        return value

    def text(self, value: str, length: str, room: int) -> str:
        return f"text({value}, {length}, {room})"

    def array(self, value: str, length: str, code: str) -> str:
        return f"array({value}, {length}, {code!r})"

    def named(self, key: str, value: str, names: Names) -> str:
        del key
        return f"{_constant(self.names, names.number)}({value})"

    def comm(self) -> str:
        return "contexts[c][3]"

    def constant(self, text: str) -> str:
        return _constant(self.names, text)

    def unreadable(self, reason: str) -> str:
        return _constant(self.names, Unreadable(reason))

    def stack(self, kind: str, value: str, length: str) -> str:
        return self._stacks.source("value", kind, "contexts[c][0]", value, length)

    def symbol(self, kind: str, value: str) -> str:
        return self._stacks.source("frame", kind, "contexts[c][0]", value)


def _event_text(value: bytes, length: int, room: int) -> str | Unreadable:
    if length < 0:
        return Unreadable(_ERRORS.get(length, f"errno {-length}"))
    return _decode(value, length, room)


def _event_array(value: bytes, length: int, code: str) -> list[int] | Unreadable:
    if length < 0:
        return Unreadable(_ERRORS.get(length, f"errno {-length}"))
    return _numbers(value, length, code)
