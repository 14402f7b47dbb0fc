"""The stream of one machine: bytes → lines → objects, and how it ended.

The far end is hostile: lines are bounded, what is not JSON is counted, and its words are escaped.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import TYPE_CHECKING, Any

from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Lines", "Machine", "State")

_LONGEST_LINE = 1 << 20  # bytes; a stack of 127 frames has some 30,000
_GREETING = 1 << 16  # bytes that a login may print before our program speaks
_KEPT_MESSAGES = 100  # the latest lines on standard error
_LONGEST_MESSAGE = 1000  # characters
_LONGEST_REASON = 200
_PROCESS = re.compile(r"\bprocess [0-9]+")
# What clush, kubectl and srun add behind the reason.
_NO_REASON = re.compile(r"(exited|terminated) with exit code [0-9]+$", re.IGNORECASE)


class State(Enum):
    """How far a machine has come."""

    ASKED = "asked"  # nothing has come from it
    RUNNING = "running"
    ANSWERED = "answered"  # all of its results have come
    FAILED = "failed"
    LATE = "late"  # given up


class Lines:
    """Bytes as they come, cut into lines; a line that is too long is dropped."""

    def __init__(self, take: Callable[[bytes], object]) -> None:
        self._take = take
        self._rest = b""
        self._dropping = False
        self.dropped = 0  # lines

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        *whole, rest = (self._rest + data).split(b"\n")
        for line in whole:
            if self._dropping:
                self._dropping = False
            elif len(line) > _LONGEST_LINE:
                self.dropped += 1
            else:
                self._take(line)
        if len(rest) > _LONGEST_LINE:
            self.dropped += not self._dropping
            self._dropping = True
        self._rest = b"" if self._dropping else rest

    def end(self) -> None:
        """Take the last line, if it has no newline."""
        rest, self._rest = self._rest, b""
        if rest:
            self._take(rest)


class Machine:
    """One machine of a fleet.

    Args:
        name: its name in the node set.
        word: begins the lines of the far end's program.
        on_object: takes each object of its stream.
        on_text: takes each line, if they are no objects.

    Attributes:
        on_need: called once if the machine has no copy of the toolkit.
        state: how far it has come.
        reason: why it failed, on one line that other machines may share.
        objects: the number of objects that have come.
        damaged: the number of lines that were no objects.
        received: whether it had no copy of the toolkit.
        messages: the latest lines on its standard error.
    """

    def __init__(
        self,
        name: str,
        word: str,
        on_object: Callable[[str, dict[str, Any]], object],
        on_text: Callable[[str, bytes], object] | None = None,
    ) -> None:
        self.name = name
        self.on_need: Callable[[], object] = lambda: None
        self.state = State.ASKED
        self.reason = ""
        self.objects = 0
        self.received = False
        self.messages: list[str] = []
        self.cleaned = 0
        self._mark = f"usdt-fleet {word} ".encode()
        self._on_object = on_object
        self._on_text = on_text
        self._greeting = 0
        self._bad = 0
        self._said = ""  # the reason that the far end's program gave
        self._status: int | None = None
        self._out = Lines(self._line)
        self._err = Lines(self._message)

    @property
    def ended(self) -> bool:
        """Whether nothing more is expected."""
        return self.state not in (State.ASKED, State.RUNNING)

    @property
    def damaged(self) -> int:
        """The number of lines that were no objects."""
        return self._bad + self._out.dropped

    def output(self, data: bytes) -> None:
        """Take bytes of standard output."""
        self._out.feed(data)

    def errors(self, data: bytes) -> None:
        """Take bytes of standard error."""
        self._err.feed(data)

    def close(self, status: int | None) -> None:
        """Note the end of the connection, with the status of the transport's command."""
        if self.ended:
            return
        self._out.end()
        self._err.end()
        if self._status == 0 and not self._said:
            self.state = State.ANSWERED
            return
        self.reason = self._shared(self._why(status))
        self.state = State.FAILED

    def give_up(self, reason: str, state: State = State.LATE) -> None:
        """Note that nothing more is waited for; what has come stays."""
        if not self.ended:
            self.state = state
            self.reason = reason

    def _why(self, status: int | None) -> str:
        errors = [text for text in self.messages if text.startswith("Error: ")]
        error = errors[-1].removeprefix("Error: ") if errors else ""
        if self._said:
            return self._said
        if self._status is not None:
            return error or f"the command exited with status {self._status}"
        if self.state is State.RUNNING:
            return "the connection was lost before the command had ended"
        reasons = [text for text in self.messages if not _NO_REASON.search(text)]
        last = (reasons or self.messages or [""])[-1]
        return last or f"no answer; the transport exited with status {status}"

    def _shared(self, reason: str) -> str:
        # Returns a reason without what is the machine's own, so that machines can be grouped by it.
        own = rf"(?<![\w.-]){re.escape(self.name)}(?![\w-])"
        text = _PROCESS.sub("process PID", re.sub(own, "NODE", reason))
        return text[:_LONGEST_REASON]

    # ------------------------------------------------------------ lines

    def _line(self, line: bytes) -> None:
        if line.startswith(self._mark):
            self._control(line[len(self._mark) :].decode(errors="backslashreplace"))
        elif self.state is State.ASKED:
            self._greeting += len(line) + 1
            if self._greeting > _GREETING:
                self.give_up("it prints other things than the toolkit's output", State.FAILED)
        elif self._on_text is not None:
            self._on_text(self.name, line)
        elif line:
            self._object(line)

    def _control(self, text: str) -> None:
        what, _, rest = text.partition(" ")
        if what == "need" and self.state is State.ASKED and not self.received:
            self.received = True
            self.on_need()
        elif what == "run" and self.state is State.ASKED:
            self.state = State.RUNNING
        elif what == "alive" and self.state is State.RUNNING:
            pass
        elif what == "fail":
            self._said = printable(rest)
        elif what == "exit" and rest.isdecimal() and len(rest) < 4:
            self._status = int(rest)
        elif what == "clean" and rest.isdecimal() and len(rest) < 10:
            self.cleaned = int(rest)
        else:
            self._bad += 1

    def _object(self, line: bytes) -> None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._bad += 1
            return
        self.objects += 1
        self._on_object(self.name, found)

    def _message(self, line: bytes) -> None:
        text = printable(line.decode(errors="backslashreplace").strip())[:_LONGEST_MESSAGE]
        if text:
            self.messages.append(text)
            del self.messages[:-_KEPT_MESSAGES]
