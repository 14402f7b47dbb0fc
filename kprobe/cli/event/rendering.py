"""Hits of watched events as text and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usdt.base.terminal.look import PLAIN
from usdt.base.text import printable
from usdt.engine.output.frames import Frame, frame_json, frame_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.base.terminal.look import Look
    from usdt.engine.output.kernel_symbols import KernelSymbols
    from usdt.tracefs.format import EventFormat
    from usdt.tracefs.session import TraceRecord

__all__ = ("COMM", "EventRenderer")

COMM = "usdt_comm"  # an added argument, because the thread may have ended when its hit is shown

_HEX = re.compile(r"(\w+)=\{?0x%")
_SYMBOL = re.compile(r"(\w+)=%pS")
# The address of a probe; of a return, that of the caller, and that of the function
_ADDRESS, _CALLER, _FUNCTION = "__probe_ip", "__probe_ret_ip", "__probe_func"


class EventRenderer:
    """Renders the hits of one event.

    Args:
        name: the event as the user named it.
        form: its format.
        in_kernel: whether it probes the kernel, so that its addresses have symbols.
        symbols: returns the kernel's symbols.
        look: the colours of text.
    """

    def __init__(
        self,
        name: str,
        form: EventFormat,
        *,
        in_kernel: bool,
        symbols: Callable[[], KernelSymbols],
        look: Look = PLAIN,
    ) -> None:
        self._look = look
        self._name = name
        self._in_kernel = in_kernel
        self._symbols = symbols
        self._hexadecimal = frozenset(_HEX.findall(form.print_fmt))
        self._named = frozenset(_SYMBOL.findall(form.print_fmt))  # shown by symbol
        self._processes: dict[int, int] = {}

    def text(self, hit: TraceRecord) -> str:
        """Return a line of text; the place of the probe is shown as the kernel's tracer does."""
        values = dict(hit.values)
        comm = values.pop(COMM, None) or "?"
        seconds, nanoseconds = divmod(hit.time, 1_000_000_000)
        head = f"{seconds:>6}.{nanoseconds // 1000:06} {hit.cpu:>3} {hit.tid:>8}  {comm:<16}"
        place = self._place(values)
        shown = [f"{key}={self._value(key, value)}" for key, value in values.items()]
        name = f"{self._look.probe}{printable(self._name)}{self._look.end}"
        return " ".join([printable(head), name, *map(printable, (*place, *shown))]) + "\n"

    def json(self, hit: TraceRecord) -> str:
        """Return a line of JSON."""
        values = dict(hit.values)
        comm = values.pop(COMM, None)
        addresses = {*self._named, *((_ADDRESS, _CALLER, _FUNCTION) if self._in_kernel else ())}
        shown: dict[str, Any] = {
            "time": hit.time,
            "pid": self._process(hit.tid),
            "tid": hit.tid,
            "cpu": hit.cpu,
            "comm": comm,
            "probe": self._name,
            "args": {
                key: json.loads(frame_json(self._frame(value)))
                if key in addresses and isinstance(value, int)
                else _json_value(value)
                for key, value in values.items()
            },
        }
        return json.dumps(shown) + "\n"

    def _place(self, values: dict[str, Any]) -> list[str]:
        # Takes the addresses of the probe out of the values: (FUNCTION+OFFSET) at an entry,
        # (CALLER+OFFSET <- FUNCTION) at a return.
        found = {key: values.pop(key, None) for key in (_ADDRESS, _CALLER, _FUNCTION)}
        shown = [
            self._address(address, whole=key == _FUNCTION)
            for key, address in found.items()
            if isinstance(address, int)
        ]
        return [f"({' <- '.join(shown)})"] if shown else []

    def _address(self, address: int, *, whole: bool) -> str:
        frame = self._frame(address) if self._in_kernel else Frame(address)
        if not frame.symbol:
            return hex(address)
        if whole and not frame.offset:
            return frame.symbol
        return frame_text(frame).removesuffix(" [kernel]")

    def _frame(self, address: int) -> Frame:
        return self._symbols().frame(address)

    def _value(self, key: str, value: object) -> str:
        if key in self._named and isinstance(value, int):
            return frame_text(self._frame(value))
        return _value_text(value, hexadecimal=key in self._hexadecimal)

    def _process(self, tid: int) -> int:
        # The process ID of a thread; the thread ID itself if the thread has ended.
        if tid not in self._processes:
            self._processes[tid] = _tgid(tid)
        return self._processes[tid]


def _tgid(tid: int) -> int:
    try:
        for line in Path(f"/proc/{tid}/status").read_text(errors="replace").splitlines():
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    except OSError:
        pass
    return tid


def _json_value(value: object) -> object:
    if value is None:
        return {"error": "memory not readable"}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def _value_text(value: object, *, hexadecimal: bool) -> str:
    if value is None:
        return "?(memory not readable)"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "{" + ", ".join(_value_text(item, hexadecimal=hexadecimal) for item in value) + "}"
    if isinstance(value, int) and hexadecimal:
        return hex(value)
    return value.hex() if isinstance(value, bytes) else str(value)
