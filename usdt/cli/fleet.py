"""``usdt fleet``: run the same command on many machines, and show one answer."""

from __future__ import annotations

import json
import math
import secrets
import time
from typing import TYPE_CHECKING, Any

import click

from usdt.base.durations import nanoseconds
from usdt.base.frozen import frozen
from usdt.engine.cli.click_group import Seconds, say
from usdt.engine.cli.options import output_options

if TYPE_CHECKING:
    from usdt.engine.output.output_file import OutputFile
    from usdt.fleet.machine import Machine
    from usdt.fleet.merged import Merged

__all__ = ("fleet",)

_EVENTS = ("trace", "spans")
_AGGREGATIONS = ("count", "hist", "stats", "latency")
_REDRAW_SECONDS = 1.0
_BEATS = 6  # in the time of --silence
_DIGITS = 7  # of --top, at most

# \b keeps click from filling the paragraphs below it.
_HELP = """Run a command on many machines, and add up their results.

The machines need Python 3.11 and nothing else: they receive the toolkit, and keep it in a cache.

\b
usdt fleet --nodes 'web[1-400]' -- count -a 'postgresql:query__start' -d 10
usdt fleet --nodes @db --by host -- latency -a mysql:query__start mysql:query__done -d 10
usdt fleet --nodes 'web[1-3]' -- kprobe count 'vfs_read' --by comm -d 5
usdt fleet --nodes 'web[1-400]' --clean
"""


@click.command("fleet", help=_HELP)
@click.option("--nodes", metavar="SET", required=True, help="Machines: web[1-400],db1 or @group.")
@click.option(
    "--via",
    default="ssh",
    show_default=True,
    metavar="TRANSPORT",
    help="ssh, clush, kubectl, srun, or a command with {node}.",
)
@click.option("--sudo", is_flag=True, help="Run as root on each machine, by sudo -n.")
@click.option(
    "--fanout", type=click.IntRange(1), default=512, show_default=True, help="Machines at a time."
)
@click.option(
    "--timeout",
    type=Seconds(0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="DURATION",
    help="Give up on machines that do not start, or end, in this time.",
)
@click.option(
    "--silence",
    type=Seconds(1),
    default=30.0,
    show_default=True,
    metavar="DURATION",
    help="Take a connection for lost if nothing comes through for this time, at both ends.",
)
@click.option(
    "--update",
    type=Seconds(0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="DURATION",
    help="How often machines send the results that they have.",
)
@click.option("--by", type=click.Choice(["host"]), help="Keep the machines apart.")
@click.option("--clean", is_flag=True, help="Remove the toolkit from the caches of the machines.")
@click.option("-v", "--verbose", is_flag=True, help="Show what each machine says.")
@output_options
@click.argument("command", nargs=-1, metavar="-- COMMAND...")
def fleet(command: tuple[str, ...], **values: Any) -> int:
    """Run a command on many machines."""
    from usdt.engine.output.output_file import OutputFile  # noqa: PLC0415 - not for --help
    from usdt.fleet.nodes import expanded  # noqa: PLC0415 - not for --help

    if values["clean"] and command:
        raise click.UsageError("--clean takes no command")
    parsed = _Command(()) if values["clean"] else _parsed(command, values["update"])
    names = expanded(values["nodes"])
    with OutputFile(values["output"]) as output:
        return _Run(values, parsed, names, output).run()


@frozen
class _Command:
    # What runs on each machine, and what is done with its results here.
    words: tuple[str, ...]
    events: bool = False
    duration: float = 0.0
    top: int | None = None
    whole: bool = False  # its intervals are only those of --update


def _parsed(given: tuple[str, ...], update: float) -> _Command:
    words = [*given]
    group = [words.pop(0)] if words[:1] in (["usdt"], ["kprobe"]) else []
    if not words or words[0] not in (*_EVENTS, *_AGGREGATIONS):
        known = ", ".join((*_EVENTS, *_AGGREGATIONS))
        what = f"cannot run {words[0]!r} on a fleet" if words else "no command"
        raise click.UsageError(f"{what}; give one of {known} after --")
    name, *rest = words
    if _value(rest, "-o", "--output") is not None:
        raise click.UsageError("-o would write on each machine; give it before --")
    duration = _seconds(_value(rest, "-d", "--duration"))
    rest, wait = _at(rest)
    if name in _EVENTS:
        return _Command((*group, name, "--json", *rest), events=True, duration=duration + wait)
    # The largest groups of all machines need not be the largest of any.
    top = _value(rest, "--top", remove=True)
    if top is not None and not (top.isdecimal() and 0 < len(top) < _DIGITS):
        raise click.UsageError(f"--top {top}: not a number of groups")
    alone = _value(rest, "-i", "--interval") is None and _value(rest, "-n", "--count") is None
    whole = alone and duration > update
    if whole:
        rest = ["--interval", f"{update:g}", *rest]
    return _Command(
        (*group, name, "--json", *rest),
        duration=duration + wait,
        top=None if top is None else int(top),
        whole=whole,
    )


def _at(words: list[str]) -> tuple[list[str], float]:
    # Returns the words with one moment for all machines, whatever their time zones are, and the
    # seconds until then.
    text = _value(words, "--at", remove=True)
    if text is None:
        return words, 0.0
    from usdt.base.moments import moment  # noqa: PLC0415 - few runs need it

    try:
        at = moment(text)
    except ValueError as err:
        raise click.UsageError(f"--at: {err}") from err
    return ["--at", f"@{at // 10**9}.{at % 10**9:09}", *words], (at - time.time_ns()) / 1e9


def _value(words: list[str], *names: str, remove: bool = False) -> str | None:
    # Returns the value of an option in a command; None if it is not there.
    for index, word in enumerate(words):
        for name in names:
            if word == name:
                found, size = "".join(words[index + 1 : index + 2]), 2
            elif name.startswith("--") and word.startswith(f"{name}="):
                found, size = word.partition("=")[2], 1
            elif not name.startswith("--") and word.startswith(name):
                found, size = word[len(name) :], 1
            else:
                continue
            if remove:
                del words[index : index + size]
            return found
    return None


def _seconds(text: str | None) -> float:
    # Returns a duration in seconds; infinite if there is none, or none that can be read.
    found = nanoseconds(text or "")
    try:
        return float(text or "inf") if found is None else found / 1e9
    except ValueError:
        return math.inf


class _Run:
    # One run: the machines, their results, and what is shown.
    def __init__(
        self, values: dict[str, Any], command: _Command, names: list[str], output: OutputFile
    ) -> None:
        from usdt.engine.merge.event_text import EventText  # noqa: PLC0415 - not for --help
        from usdt.fleet.machine import Machine  # noqa: PLC0415 - not for --help
        from usdt.fleet.merged import Merged  # noqa: PLC0415 - not for --help

        self.values = values
        self.command = command
        self.output = output
        self.word = secrets.token_hex(8)
        self.events = command.events
        self.merged: Merged = Merged(
            by_host=values["by"] == "host", top=command.top, whole=command.whole
        )
        self.machines: list[Machine] = [Machine(name, self.word, self._take) for name in names]
        self.text = EventText(max(map(len, names)), realtime="--realtime" in command.words)
        self.drawn = time.monotonic()
        self.live = output.terminal and not (values["as_json"] or values["output"] or self.events)

    def run(self) -> int:
        """Ask all machines; return the exit code."""
        from usdt.engine.cli.aggregates.live_display import (  # noqa: PLC0415 - not for --help
            LiveDisplay,
        )
        from usdt.engine.run.loop import StopSignals  # noqa: PLC0415 - not for --help
        from usdt.fleet.engine import reach  # noqa: PLC0415 - imports ClusterShell

        self.display = LiveDisplay(self.output)
        connection = self._connection()
        with StopSignals() as stop:
            reach(self.machines, connection, stop=lambda: stop.requested, tick=self._tick)
        if self.live:
            self.display.clear()
        return self._finish()

    def _connection(self) -> Any:
        from usdt.fleet.engine import Connection, most_at_once  # noqa: PLC0415 - imports ClusterShell
        from usdt.fleet.transport import far_command, template_words  # noqa: PLC0415
        from usdt.fleet.zipapp import build_app  # noqa: PLC0415 - not for --help

        self.app = build_app()
        request = {
            "word": self.word,
            "digest": self.app.digest,
            "size": len(self.app.content),
            "command": self.command.words,
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
        from usdt.engine.merge.events import is_event  # noqa: PLC0415 - not for --help

        event = self.merged.event(host, found) if is_event(found) else None
        if not is_event(found):
            self.merged.add(host, found)
        if self.values["as_json"]:
            # Its name comes first, whatever the machine calls itself.
            self.output.write([json.dumps({"host": "", **found} | {"host": host}) + "\n"])
        elif event is not None:
            self.output.write([self.text.lines(*event)])

    def _tick(self) -> None:
        self.output.check_reader()
        if not self.live or time.monotonic() < self.drawn + _REDRAW_SECONDS:
            return
        from usdt.base.terminal.columns import cut  # noqa: PLC0415

        self.drawn = time.monotonic()
        from usdt.fleet.attendance import attendance_lines  # noqa: PLC0415

        width, height = self.display.size()
        lines = [*self.merged.lines(), attendance_lines(self.machines)[0] + "\n"]
        if len(lines) > height:
            lines = lines[:1] + lines[len(lines) - height + 1 :]
        self.display.draw([cut(line.rstrip("\n"), width) + "\n" for line in lines])

    def _finish(self) -> int:
        from usdt.fleet.attendance import attendance, attendance_lines, message_lines  # noqa: PLC0415

        found = attendance(self.machines)
        if self.values["as_json"]:
            found |= {"lost": self.merged.lost, "unreadable": self.merged.unreadable}
            lines = [] if self.events or self.values["clean"] else self.merged.json()
            self.output.write([*lines, json.dumps({"fleet": found}) + "\n"])
        elif not self.events:
            self.output.write(self.merged.lines())
        for machine in self.machines if self.values["verbose"] else ():
            for line in machine.messages:
                say(f"{machine.name}: {line}")
        for line in [] if self.values["verbose"] else message_lines(self.machines):
            say(line)
        for line in self.merged.missing():
            say(line)
        self._say_copies()
        for line in attendance_lines(self.machines):
            say(line)
        return int(found["answered"] < found["asked"])

    def _say_copies(self) -> None:
        if self.values["clean"]:
            copies = sum(machine.cleaned for machine in self.machines)
            say(f"copies of the toolkit removed: {copies}")
            return
        sent = sum(machine.received for machine in self.machines)
        size = len(self.app.content) / 1e6
        say(f"toolkit {self.app.digest[:12]} ({size:.1f} MB) sent to {sent}")
