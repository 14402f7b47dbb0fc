"""What a program prints, as objects of Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.engine.programs.members import members_of
from usdt.engine.programs.output.histograms import buckets
from usdt.engine.programs.output.maps import read_rows
from usdt.engine.programs.output.series import intervals
from usdt.engine.programs.output.values import shown
from usdt.engine.programs.output.writer import TextWriter
from usdt.engine.programs.types import (
    Aggregate,
    AggregateType,
    ArrayType,
    BufferType,
    IntegerType,
    PointerType,
    ShownAs,
    StackType,
    StructType,
    TupleType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.programs.check.state import MapState
    from usdt.engine.programs.output.maps import Row
    from usdt.engine.programs.output.values import Symbols
    from usdt.engine.programs.session import ProgramSession
    from usdt.engine.programs.syntax.source import Source
    from usdt.engine.programs.types import Type

__all__ = ("ObjectWriter", "ProgramEvent", "map_values")


@frozen
class ProgramEvent:
    """What one call of printf(), print() and the like has sent.

    Attributes:
        kind: the function: ``printf``, ``value`` (print() of a value), ``map`` (print() of a map),
            ``time``, ``join``, ``cat``, ``syscall`` (system()), or ``message``: of errorf(),
            warnf() and of the toolkit itself.
        text: what ``usdt run`` prints for it.
        values: the values of printf() or print(), as Python objects; for a map, its entries as in
            :attr:`usdt.RunningProgram.maps`.
        map: the name of the map, or "".
    """

    kind: str
    text: str
    values: tuple[Any, ...] = ()
    map: str = ""

    @property
    def value(self) -> Any:
        """The first value; None if there is none."""
        return self.values[0] if self.values else None


class ObjectWriter:
    """Collects what a program prints; see :class:`usdt.engine.programs.output.writer.Writer`.

    Attributes:
        events: what was printed and not yet taken.
    """

    def __init__(self, symbols: Symbols) -> None:
        self.events: list[ProgramEvent] = []
        self._symbols = symbols
        self._lines: list[str] = []
        self._text = TextWriter(self._lines.append, symbols, quiet=True)

    def take(self) -> list[ProgramEvent]:
        """Return what was printed since the last call."""
        found, self.events = self.events, []
        return found

    def message(self, text: str) -> None:
        """Take a message for the user."""
        self.events.append(ProgramEvent("message", text))

    def attached(self, number: int) -> None:
        """Nothing: run() returns when the probes are attached."""

    def end(self) -> None:
        """Nothing: maps are not printed at the end."""

    def helper_error(self, source: Source, start: int, helper: str, code: int) -> bool:
        """Take nothing: programs are not run so from Python."""
        del source, start, helper, code
        return False

    def gap(self) -> None:
        """Nothing: an event is no part of a page."""

    def text(
        self, kind: str, text: str, types: Sequence[Type] = (), values: Sequence[Any] = ()
    ) -> None:
        """Take what printf() and the like have printed."""
        parts = zip(types, values, strict=True)
        found = tuple(python_value(type_, value, self._symbols) for type_, value in parts)
        self.events.append(ProgramEvent(kind, text, found))

    def value(self, type_: Type, value: Any) -> None:
        """Take a value of print()."""
        self._text.value(type_, value)
        found = (python_value(type_, value, self._symbols),)
        self.events.append(ProgramEvent("value", self._written(), found))

    def map(self, found: MapState, rows: Sequence[Row]) -> None:
        """Take a map of print()."""
        self._text.map(found, rows)
        values = (_entries(found, rows, self._symbols),)
        self.events.append(ProgramEvent("map", self._written(), values, found.variable.name))

    def _written(self) -> str:
        text = "".join(self._lines)
        self._lines.clear()
        return text


def map_values(session: ProgramSession, symbols: Symbols) -> dict[str, Any]:
    """Return the maps of a program by name: of keyed ones a dictionary, else the value or None."""
    return {
        name: _entries(found, read_rows(found, session.map_of(found)), symbols)
        for name, found in sorted(session.state.maps.items())
    }


def _entries(found: MapState, rows: Sequence[Row], symbols: Symbols) -> Any:
    kind = found.value
    if not found.keyed:
        return _map_value(kind, rows[0].value, symbols) if rows else None
    return {
        python_value(found.key, row.key, symbols): _map_value(kind, row.value, symbols)
        for row in rows
    }


def _map_value(kind: Type | None, value: Any, symbols: Symbols) -> Any:
    if not isinstance(kind, AggregateType):
        return python_value(kind, value, symbols)
    match kind.function:
        case Aggregate.AVG:
            return _average(value)
        case Aggregate.STATS:
            return {"count": value[0], "average": _average(value), "total": value[1]}
        case Aggregate.HIST | Aggregate.LHIST:
            return [(one.low, one.high, one.hits) for one in buckets(kind, value)]
        case Aggregate.TSERIES:
            return [*intervals(kind, value)]
    return value


def _average(value: tuple[int, int]) -> float:
    count, total = value
    return total / count if count else 0.0


def python_value(type_: Type | None, value: Any, symbols: Symbols) -> Any:
    """Return a decoded value as an object of Python.

    Integers and addresses are int; what stands for a name (a symbol, a user, an enumerator) is the
    name; a tuple, a record, an array and a structure are tuples; a stack is a tuple of frames, the
    innermost first; a buffer is bytes.
    """
    match type_:
        case IntegerType(shown=ShownAs.BOOLEAN):
            return bool(value)
        case IntegerType(shown=ShownAs.NUMBER, names=None) | PointerType():
            return value
        case IntegerType(shown=ShownAs.NUMBER, names=names):
            return (names and names.find(value)) or value
        case TupleType(elements=elements):
            parts = zip(elements, value, strict=True)
            return tuple(python_value(one, part, symbols) for one, part in parts)
        case ArrayType(element=element):
            return tuple(python_value(element, one, symbols) for one in value)
        case StructType():
            members = zip(members_of(type_), value, strict=True)
            return tuple(python_value(one.type, part, symbols) for one, part in members)
        case BufferType(address=False, hardware=False):
            return bytes(value)
        case StackType(frames=frames) if frames:
            return tuple(symbols.stack(type_, *value))
    return None if type_ is None else shown(type_, value, symbols)
