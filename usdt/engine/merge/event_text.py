"""Events of several machines as text, in the columns of the live commands and one for the host."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from usdt.base.terminal.look import PLAIN
from usdt.engine.aggregate.output.text import duration
from usdt.engine.merge.keys import part_of
from usdt.engine.merge.numbers import BadResultError
from usdt.engine.output.formatters.formatter import escape
from usdt.engine.output.wall_clock import WallClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.base.terminal.look import Look

__all__ = ("EventText", "words_of")

_INDENT = " " * 8  # of the frames of a stack


class EventText:
    """A formatter of events.

    Args:
        width: characters of the column of hosts.
        realtime: whether to show dates.
        look: the colours.
    """

    def __init__(self, width: int, *, realtime: bool, look: Look = PLAIN) -> None:
        clock = WallClock(0)
        self._width = width
        self._look = look
        self._when = clock.iso if realtime else clock.time_of_day

    def lines(self, time: int, host: str, found: dict[str, Any]) -> str:
        """Return the line of an event, and those of its stacks.

        Args:
            time: CLOCK_REALTIME, nanoseconds.
            host: the machine.
            found: the object of a JSON stream.
        """
        words: list[str] = []
        frames: list[str] = []
        for text, more in _items(found):
            words.append(text)
            frames += more
        head = (
            f"{self._when(time)}  {escape(host):<{self._width}}{_lasted(found)}  "
            f"{escape(str(found.get('cpu', ''))):>3}  {_who(found):>9}  "
            f"{escape(str(found.get('comm', ''))):<15}  "
            f"{self._look.probe}{escape(found['probe']):<24}{self._look.end}"
        )
        line = "  ".join([head, *(word for word in words if word)]).rstrip()
        return line + "".join(f"\n{_INDENT}{frame}" for frame in frames) + "\n"


def words_of(found: dict[str, Any]) -> list[str]:
    """Return each item of an event as text, without its stacks."""
    return [word for word, _ in _items(found) if word]


def _lasted(found: dict[str, Any]) -> str:
    number = found.get("duration", found.get("age"))
    if type(number) is not int:
        return ""
    return f"  {duration(number):>8}"


def _who(found: dict[str, Any]) -> str:
    pid, tid = found["pid"], found.get("tid", found["pid"])
    return escape(str(pid) if pid == tid else f"{pid}/{tid}")


def _items(found: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    # Yields each item as text, and the frames of its stack.
    if found.get("event") == "return":
        yield "returned", ()
    for items, names in (("args", "names"), ("end_args", "end_names")):
        values, known = found.get(items), found.get(names)
        if isinstance(values, dict):
            for name, value in values.items():
                yield _item(name, value, known.get(name) if isinstance(known, dict) else None)
    if "age" in found:
        yield "(open)", ()


def _item(name: str, value: Any, named: Any) -> tuple[str, tuple[str, ...]]:
    if isinstance(named, str):
        return f"{escape(name)}={escape(named)}", ()
    if isinstance(value, str):
        return f"{escape(name)}={escape(json.dumps(value, ensure_ascii=False))}", ()
    try:
        part = part_of(name, value)
    except BadResultError:
        return f"{escape(name)}={escape(json.dumps(value))}", ()
    return ("" if part.frames else f"{escape(name)}={part.text}"), part.frames
