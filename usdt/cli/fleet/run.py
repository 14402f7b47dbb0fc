"""One run of ``usdt fleet``: the machines, their answers, and what is shown."""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING, Any

from usdt.base.terminal.columns import cut
from usdt.cli.fleet.far_command import Answer
from usdt.cli.fleet.kept_app import kept_app
from usdt.engine.cli.aggregates.live_display import LiveDisplay
from usdt.engine.cli.click_group import plural, say
from usdt.engine.merge.event_text import EventText
from usdt.engine.merge.events import is_event
from usdt.engine.merge.output import Choice
from usdt.engine.output.output_file import OutputFile
from usdt.engine.output.parquet import is_parquet
from usdt.engine.run.loop import StopSignals
from usdt.fleet.answers import Answers
from usdt.fleet.attendance import attendance, attendance_lines, message_lines
from usdt.fleet.machine import Machine
from usdt.fleet.merged import Merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.cli.fleet.far_command import FarCommand
    from usdt.fleet.engine import Connection

__all__ = ("Run", "output_file")

_REDRAW_SECONDS = 1.0
_BATCH = 1000  # lines of events that are written together, at the latest after a tenth of a second
_BEATS = 6  # in the time of --silence


def output_file(path: str | None) -> OutputFile:
    """Open the output: a file, a Parquet file by its name, or standard output."""
    if is_parquet(path):
        from usdt.engine.output.parquet.stream import ParquetStream  # noqa: PLC0415 - few runs

        return ParquetStream(path)
    return OutputFile(path)


class Run:
    """One run.

    Args:
        values: the options of the command, parsed by click.
        command: what each machine runs.
        names: the machines.
        output: takes the answer.
    """

    def __init__(
        self, values: dict[str, Any], command: FarCommand, names: list[str], output: OutputFile
    ) -> None:
        self.values = values
        self.command = command
        self.output = output
        self.as_json: bool = values["as_json"]
        self.word = secrets.token_hex(8)
        self.events = command.answer is Answer.EVENTS
        self.waiting: list[str] = []  # lines of events
        self.answers = Answers()
        choice = Choice(
            *(command.top, command.sort, command.hist, command.folded, output.look),
            realtime=command.realtime,
        )
        self.merged = Merged(by_host=values["by"] == "host", choice=choice, whole=command.whole)
        as_text = self.answers.add if command.answer is Answer.TEXT else None
        self.machines = [Machine(name, self.word, self._take, as_text) for name in names]
        width = max(map(len, names))
        self.text = EventText(width, realtime=command.realtime, look=output.look)
        self.drawn = time.monotonic()
        self.live = (
            output.terminal
            and command.answer is Answer.RESULTS
            and not (self.as_json or values["output"] or command.folded or values["clean"])
        )
        self.display = LiveDisplay(output)
        self.app = kept_app()

    def run(self) -> int:
        """Ask all machines; return the exit code."""
        from usdt.fleet.engine import reach  # noqa: PLC0415 - imports ClusterShell

        connection = self._connection()
        with StopSignals() as stop:
            reach(self.machines, connection, stop=lambda: stop.requested, tick=self._tick)
        if self.live:
            self.display.clear()
        return self._finish()

    def _connection(self) -> Connection:
        from usdt.fleet.engine import Connection, most_at_once  # noqa: PLC0415 - imports ClusterShell
        from usdt.fleet.transport import far_command, template_words  # noqa: PLC0415

        request = {
            "word": self.word,
            "digest": self.app.digest,
            "size": len(self.app.content),
            "command": self.command.words,
            "printed": self.command.answer is Answer.TEXT,
            "clean": self.values["clean"],
            "patience": self.values["silence"],
            "beat": self.values["silence"] / _BEATS,
        }
        fanout = min(self.values["fanout"], most_at_once())
        if fanout < len(self.machines):
            say(f"{fanout} machines at a time: others are traced later")
        return Connection(
            template_words(self.values["via"], self.values["timeout"]),
            far_command(request, sudo=self.values["sudo"]),
            self.app.content,
            fanout,
            self.values["timeout"],
            self.command.duration,
            self.values["silence"],
            self.values["silence"] / _BEATS,
        )

    def _take(self, host: str, found: dict[str, Any]) -> None:
        # Takes an object of a machine's stream.
        if self.events:
            self._event(host, found)
        else:
            self.merged.add(host, found)

    def _event(self, host: str, found: dict[str, Any]) -> None:
        event = self.merged.event(host, found) if is_event(found) else None
        if not is_event(found):
            self.merged.add(host, found)
        if self.as_json:
            # Its name comes first, whatever the machine calls itself.
            self.waiting.append(json.dumps({"host": "", **found} | {"host": host}) + "\n")
        elif event is not None:
            self.waiting.append(self.text.lines(*event))
        if len(self.waiting) >= _BATCH:
            self._write()

    def _write(self) -> None:
        lines, self.waiting = self.waiting, []
        if lines:
            self.output.write(lines)

    def _tick(self) -> None:
        self._write()
        self.output.check_reader()
        if not self.live or time.monotonic() < self.drawn + _REDRAW_SECONDS:
            return
        self.drawn = time.monotonic()
        width, height = self.display.size()
        lines = [*self.merged.lines(), attendance_lines(self.machines)[0] + "\n"]
        if len(lines) > height:
            lines = lines[:1] + lines[len(lines) - height + 1 :]
        self.display.draw([cut(line.rstrip("\n"), width) + "\n" for line in lines])

    def _finish(self) -> int:
        found = attendance(self.machines)
        self._write()
        if not self.values["clean"]:
            self.output.write_all(self._answer())
        if self.as_json and not is_parquet(self.values["output"]):
            found |= {"lost": self.merged.lost, "unreadable": self.merged.unreadable}
            self.output.write([json.dumps({"fleet": found}) + "\n"])
        for machine in self.machines if self.values["verbose"] else ():
            for line in machine.messages:
                say(f"{machine.name}: {line}")
        for line in [] if self.values["verbose"] else message_lines(self.machines):
            say(line)
        for line in self.merged.missing():
            say(line)
        if self.answers.left_out:
            say(f"left out {plural(self.answers.left_out, 'line')} of answers")
        self._say_copies()
        for line in attendance_lines(self.machines):
            say(line)
        return int(found["answered"] < found["asked"])

    def _answer(self) -> Iterable[str]:
        # Returns what is shown when all have ended.
        match self.command.answer:
            case Answer.EVENTS:
                return []
            case Answer.TEXT:
                self.answers.expect(self.machines)
                return self.answers.json() if self.as_json else self.answers.lines()
            case Answer.RESULTS:
                return self.merged.json() if self.as_json else self.merged.lines()

    def _say_copies(self) -> None:
        if self.values["clean"]:
            copies = sum(machine.cleaned for machine in self.machines)
            say(f"copies of the toolkit removed: {copies}")
            return
        sent = sum(machine.received for machine in self.machines)
        size = len(self.app.content) / 1e6
        say(f"toolkit {self.app.digest[:12]} ({size:.1f} MB) sent to {sent}")
