"""What a run of a program does with the events that it sends."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from typing import TYPE_CHECKING, Any

from usdt.base.text import plural
from usdt.engine.programs.events import EventKind
from usdt.engine.programs.output.maps import Row, empty_row, read_rows, reset
from usdt.engine.programs.output.printf import Formatter
from usdt.engine.programs.output.symbols import time_text
from usdt.engine.programs.output.values import reader_of
from usdt.engine.programs.types import Aggregate, AggregateType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.programs.check.state import MapState
    from usdt.engine.programs.events import Event
    from usdt.engine.programs.output.packets import PacketFiles
    from usdt.engine.programs.output.values import Symbols
    from usdt.engine.programs.output.writer import Writer
    from usdt.engine.programs.session import ProgramSession
    from usdt.engine.runtime.session import BpfSession, Lost

__all__ = ("ProgramResults",)

_MOST_PROBES = 8  # that a message names
_PICTURES = (Aggregate.HIST, Aggregate.LHIST, Aggregate.TSERIES)


_ABSENT = {
    f"map_{word}_elem": f"Can't {word} map element because it does not exist."
    for word in ("lookup", "delete")
}


class ProgramResults:
    """The results of a run; see :class:`usdt.engine.run.loop.ResultOutput`.

    Args:
        session: the session that runs the program.
        writer: writes the output.
        symbols: looks up names.
        say: writes a message for the user.
        stop: ends the run.
        warn: writes a warning of the toolkit, such as that of a division by 0; by default ``say``.
        print_maps: whether maps are printed at the end.
        max_cat: bytes that cat() shows of a file.
        ending: whether a signal has ended the run: system() runs no further commands then.
        together: a context for what a batch of events prints; by default one that does nothing.

    Attributes:
        code: the exit code that the program asked for.
    """

    def __init__(
        self,
        session: ProgramSession,
        writer: Writer,
        symbols: Symbols,
        *,
        say: Callable[[str], object],
        stop: Callable[[], object],
        warn: Callable[[str], object] | None = None,
        print_maps: bool = True,
        max_cat: int,
        ending: Callable[[], bool] = lambda: False,
        together: Callable[[], AbstractContextManager[object]] | None = None,
    ) -> None:
        self.code = 0
        self._session = session
        self._writer = writer
        self._symbols = symbols
        self._say = say
        self._warn = warn or say
        self._stop = stop
        self._print_maps = print_maps
        self._max_cat = max_cat
        self._ending = ending
        self._together = together or contextlib.nullcontext
        self._not_run = 0  # commands of system()
        # By the number of the event, as most programs print many of few kinds.
        self._readers: dict[int, list[Callable[[bytes], Any]]] = {}
        self._formatters: dict[int, Formatter] = {}
        self._hits = 0
        self._exited = False
        self._packets: PacketFiles | None = None

    @property
    def exited(self) -> bool:
        """Whether the program has called exit()."""
        return self._exited

    def take(self, batch: Sequence[tuple[Event, bytes]]) -> bool:
        """Do what events ask for; the run goes on."""
        self._hits += len(batch)
        with self._together():
            for event, data in batch:
                if not self._exited or event.at_end:
                    self._take(event, data)
        if self._packets is not None:
            self._packets.flush()
        return False

    def _take(self, event: Event, data: bytes) -> None:
        readers = self._readers.get(event.number)
        if readers is None:
            found = zip(event.types, event.offsets, strict=False)
            readers = self._readers[event.number] = [reader_of(kind, at) for kind, at in found]
        self._handle(event, [read(data) for read in readers])

    def _handle(self, event: Event, values: list[Any]) -> None:
        match event.kind:
            case EventKind.PRINTF:
                text = self._formatted(event, values)
                self._writer.text("printf", text, event.types, values)
            case EventKind.ERRORF:
                self._say(self._formatted(event, values).rstrip("\n"))
            case EventKind.WARNF:
                self._warn(self._formatted(event, values).rstrip("\n"))
            case EventKind.WARNING:
                self._warn(event.text)
            case EventKind.HELPER_ERROR:
                self._helper_error(event, values[0])
            case EventKind.PRINT:
                self._writer.value(event.types[0], values[0])
            case EventKind.PRINT_MAP:
                self._print(event, values)
            case EventKind.CLEAR | EventKind.ZERO:
                self._clear(event)
            case EventKind.EXIT:
                if not self._exited:
                    self.code = values[0] & 0xFF
                self._exited = True
                self._stop()
            case EventKind.RETURN:
                self.code = self.code or int(values[0] != 0)
            case EventKind.TIME:
                self._writer.text("time", time_text(time.time_ns(), event.text))
            case EventKind.SYSTEM:
                if self._ending() and not event.at_end:
                    self._not_run += 1
                else:
                    self._system(self._formatted(event, values))
            case EventKind.CAT:
                self._cat(self._formatted(event, values))
            case EventKind.JOIN:
                words = [*itertools.takewhile(bool, values)]
                self._writer.text("join", event.text.join(words) + "\n")
            case EventKind.PACKET:
                self._packet(event.text, values)

    def _packet(self, path: str, values: list[Any]) -> None:
        if self._packets is None:
            from usdt.engine.programs.output.packets import PacketFiles  # noqa: PLC0415

            self._packets = PacketFiles(self._say)
        (data, length), moment = values
        self._packets.write(path, data, length, moment)

    def _helper_error(self, event: Event, code: int) -> None:
        source = self._session.state.source
        if self._writer.helper_error(source, event.start, event.text, code):
            return
        what = _ABSENT.get(event.text) or os.strerror(-code)
        self._warn(str(source.error(event.start, f"WARNING: {what}")))
        self._warn(f"Additional Info - helper: {event.text}, retcode: {code}")

    def _formatted(self, event: Event, values: list[Any]) -> str:
        formatter = self._formatters.get(event.number)
        if formatter is None:
            formatter = Formatter(event.text, event.types, self._symbols)
            self._formatters[event.number] = formatter
        return formatter(values)

    def _system(self, command: str) -> None:
        import subprocess  # noqa: PLC0415 - few programs run commands

        made = subprocess.run(  # noqa: S602 - the program asks for a shell, with --unsafe
            command,
            shell=True,
            capture_output=True,
            check=False,
            text=True,
            errors="backslashreplace",
        )
        self._writer.text("syscall", made.stdout + made.stderr)

    def _cat(self, path: str) -> None:
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs an import
                shown = file.read(self._max_cat).decode("utf-8", "backslashreplace")
                self._writer.text("cat", shown)
        except OSError as err:
            self._say(f"ERROR: failed to open file '{path}' ({err.strerror})")

    # ------------------------------------------------------------ maps

    def _map(self, event: Event) -> MapState:
        return next(one for one in self._session.state.maps.values() if one.variable == event.map)

    def _print(self, event: Event, values: list[Any]) -> None:
        found = self._map(event)
        rows = read_rows(found, self._session.map_of(found))
        if not rows and not found.keyed and (nothing := empty_row(found)) is not None:
            rows = [nothing]
        if event.keyed:
            rows = [row for row in rows if row.key == values[0]]
        top, _, divisor = event.text.partition(",")
        if top and int(top):
            rows = rows[-int(top) :]
        if divisor and int(divisor) > 1:
            rows = [Row(row.key, _divided(found, row.value, int(divisor))) for row in rows]
        self._writer.map(found, rows)
        if rows and found.keyed and not event.keyed and not _is_picture(found):
            self._writer.gap()

    def _clear(self, event: Event) -> None:
        found = self._map(event)
        made = self._session.map_of(found)
        if made is not None:
            reset(found, made, keep=event.kind is EventKind.ZERO)

    # ------------------------------------------------------------ the run

    def session(self, tasks: TaskFilter) -> BpfSession:
        """Return the session, which is made before."""
        del tasks
        return self._session

    def begin(self, output: OutputFile) -> None:
        """Nothing: the program prints what it wants."""

    def tick(self) -> bool:
        """Nothing is to be done from time to time."""
        return False

    def until_tick(self) -> float:
        """Return infinity: there is no periodic work."""
        return math.inf

    def hits(self) -> int:
        """Return the number of events so far."""
        return self._hits

    def finish(self, lost: list[Lost]) -> str:
        """Print the maps, in the order of their names; say what was lost."""
        self._writer.end()
        if self._packets is not None:
            self._packets.close()
        if self._not_run:
            self._say(f"commands of system() that the end of the run came before: {self._not_run}")
        if self._print_maps:
            for _, found in sorted(self._session.state.maps.items()):
                rows = read_rows(found, self._session.map_of(found))
                if rows:
                    self._writer.map(found, rows)
        total = sum(one.lost for one in lost)
        if total:
            what = (
                "1 event or map update was" if total == 1 else f"{total} events or map updates were"
            )
            self._say(f"{what} lost, a buffer or a map was full: {_most_lost(lost)}")
            for name, kind, entries in self._session.full_maps():
                what = f"Map full; can't update element: {name} has {entries} entries"
                self._say(f"WARNING: {what}, let {name} = {kind}({8 * entries}); gives it more")
        return ""


def _most_lost(lost: list[Lost]) -> str:
    # The probes that lost the most, as "begin (3), end (1)"; a pattern may have found thousands.
    every = [one for one in lost if one.lost]
    most = (
        sorted(every, key=lambda one: -one.lost)[:_MOST_PROBES] if every[_MOST_PROBES:] else every
    )
    named = ", ".join(f"{one.probe} ({one.lost})" for one in most)
    others = len(every) - len(most)
    return f"{named} and {plural(others, 'more probe')}" if others else named


def _is_picture(found: MapState) -> bool:
    kind = found.value
    return isinstance(kind, AggregateType) and kind.function in _PICTURES


def _divided(found: MapState, value: Any, divisor: int) -> Any:
    kind = found.value
    if isinstance(kind, AggregateType) and kind.function is Aggregate.TSERIES:
        return value  # as bpftrace does
    if isinstance(value, dict):
        return {bucket: hits // divisor for bucket, hits in value.items()}
    if isinstance(kind, AggregateType) and kind.function is Aggregate.AVG:
        count, total = value
        return count * divisor, total
    return value // divisor if isinstance(value, int) else value
