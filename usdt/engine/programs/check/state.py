"""What the checker knows of a whole program: its maps, its events, the stacks it records."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.frozen import replace
from usdt.engine.programs.events import Event, EventKind
from usdt.engine.programs.syntax.program import nodes_of
from usdt.engine.programs.syntax.tree import Call, Integer, Map
from usdt.engine.programs.types import (
    INT64,
    UINT64,
    AggregateType,
    BufferType,
    IntegerType,
    PointerType,
    StringType,
    TupleType,
    Type,
    spelled,
)
from usdt.engine.programs.variables import MapVariable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from usdt.base.errors import LanguageError
    from usdt.engine.programs.definitions import Definitions
    from usdt.engine.programs.syntax.program import MapDeclaration, Probe
    from usdt.engine.programs.syntax.source import Source

__all__ = ("MapState", "ProgramState", "TypeNotKnownError", "joined")

_MOST_ENTRIES = 1 << 26
_OF_WHOLE_MAPS = ("delete", "len")
_OPTION = r"(?s)--([A-Za-z_][\w.-]*)(?:=(.*))?"

#: Kinds of maps that can be declared.
MAP_KINDS = ("hash", "lruhash", "percpuhash", "percpulruhash")

DEFAULT_STRING = 1025  # bytes of a string with its NUL, as in bpftrace 0.26


def joined(known: Type, other: Type) -> Type | None:
    """Return the type that holds values of two types; None if there is none."""
    match known, other:
        case IntegerType(), IntegerType():
            names = known.names if known.names == other.names else None
            if replace(known, names=None) == replace(other, names=None):
                return replace(known, names=names)
            if known.shown == other.shown and known.signed == other.signed:
                return replace(known, size=max(known.size, other.size), names=names)
            return replace(INT64 if known.signed or other.signed else UINT64, names=names)
        case (PointerType(), PointerType()) | (PointerType(), IntegerType()):
            return known
        case IntegerType(), PointerType():
            return known
        case StringType(size=one), StringType(size=two):
            return known if one >= two else other
        case BufferType(size=one), BufferType(size=two):
            wider = known if one >= two else other
            return wider if replace(known, size=two) == other else None
        case AggregateType(), AggregateType():  # of a variable that turned out to be wider
            both = replace(known, signed=known.signed or other.signed)
            return both if replace(other, signed=both.signed) == both else None
        case TupleType(elements=one), TupleType(elements=two):
            if sorted(known.names) != sorted(other.names) or len(one) != len(two):
                return None
            two = tuple(two[other.names.index(name)] for name in known.names) or two
            parts = [joined(left, right) for left, right in zip(one, two, strict=True)]
            found = tuple(part for part in parts if part is not None)
            return replace(known, elements=found) if len(found) == len(one) else None
    return known if known == other else None


def _difference(known: Type, other: Type) -> str:
    # Of two types that one map or variable cannot have at once.
    names = [spelled(known), spelled(other)]
    if (
        names[0] == names[1]
        and isinstance(known, AggregateType)
        and isinstance(other, AggregateType)
    ):
        for index, one in enumerate((known, other)):
            numbers = ", ".join(str(number) for number in one.parameters)
            names[index] = f"{one.function.value}() with the numbers {numbers}"
    return f"{names[0]} elsewhere, here {names[1]}"


class TypeNotKnownError(Exception):
    """A map is read whose type is not known yet: another pass may know it."""


class MapState:
    """A map of the program.

    Attributes:
        variable: it, in typed programs.
        key: the type of its keys; None until it is known. A map without keys has the key 0.
        value: the type of its values; None until it is known.
        keyed: whether it is used with keys; None until it is known.
        entries: the most entries, if it is declared; else 0.
        kind: the kind that it is declared with, or "".
        start: where it is first used.
        whole: whether the program deletes it as a whole, or asks whether it is empty:
            ``delete(@x)``, ``len(@x)``.
    """

    def __init__(self, variable: MapVariable, start: int) -> None:
        self.variable = variable
        self.key: Type | None = None
        self.value: Type | None = None
        self.keyed: bool | None = None
        self.entries = 0
        self.kind = ""
        self.start = start
        self.whole = False

    @property
    def in_array(self) -> bool:
        """Whether it is an array: what is computed without keys, which is found faster there.

        An entry of an array is always there.
        """
        aggregate = isinstance(self.value, AggregateType)
        return aggregate and not (self.keyed or self.kind or self.whole)


class ProgramState:
    """The state of a check.

    Args:
        source: the program, for errors.
        arguments: the arguments of the script: ``$1`` and the following.
        options: those that are written ``--name=value`` or ``--name``, for getopt().
        asked: the names that the program passes to getopt(), each with its use and description.
        max_string: bytes that str() reads if it is not told, with the NUL.
        began: nanoseconds of CLOCK_MONOTONIC at the start, for ``elapsed``.
        command: the process ID of the command that is traced; 0 without one.
        unsafe: whether functions that change the system are allowed.
        stack_mode: how stacks are shown that do not say it.
        trailer: what is shown behind a string that is longer than ``max_string``.
        settings: all settings by name, for config().
        helper_errors: whether helpers of the kernel that fail are reported.

    Attributes:
        maps: the maps by name.
        events: the events by number.
        defined: the types that the program defines.
        stacks: the numbers of frames of the stacks that are recorded.
        walked: those of the stacks that are walked by unwind tables.
        user_symbols: whether symbols of processes are shown.
        outlive: by probe and name, where the variables are first assigned that are used behind
            the block in which they are made.
        changes: how often a type has become known, or wider.
        asked_for: what the check of a probe has asked for since this was cleared: the names of
            maps. Its own variables change under the index of the probe.
        waiting: whether a statement of the probe was left out for a type that is not known yet.
        guessing: whether such types are taken for int64, because no pass finds more.
        at_end: whether the probe ``end`` is checked.
        system_calls: returns the numbers of system calls by name.
        ahead: nanoseconds by which the time since 1970 is ahead of CLOCK_MONOTONIC; 0: not asked.
        final: whether types that are not known yet are errors.
    """

    def __init__(
        self,
        source: Source,
        arguments: Sequence[str] = (),
        *,
        max_string: int = DEFAULT_STRING,
        began: int = 0,
        command: int = 0,
        unsafe: bool = False,
        stack_mode: str = "",
        trailer: str = "",
        settings: Sequence[tuple[str, int | bool | str]] = (),
        helper_errors: bool = False,
    ) -> None:
        self.began = began
        self.helper_errors = helper_errors
        self.command = command
        self.unsafe = unsafe
        self.stack_mode = stack_mode
        self.trailer = trailer
        self.settings = settings
        self.source = source
        self.text = source.text
        self.arguments = tuple(word for word in arguments if not re.fullmatch(_OPTION, word))
        found = [match for word in arguments if (match := re.fullmatch(_OPTION, word))]
        self.options: dict[str, str | None] = {match[1]: match[2] for match in found}
        self.asked: dict[str, tuple[str, str]] = {}
        self.max_string = max_string
        self.maps: dict[str, MapState] = {}
        self.events: list[Event] = []
        self.defined: Definitions | None = None
        self.stacks: set[int] = set()
        self.walked: set[int] = set()
        self.user_symbols = False
        self.variables: dict[tuple[int, int], Type] = {}
        self.outlive: dict[tuple[int, str], int] = {}
        self.changes = 0
        self.asked_for: set[str | int] = set()
        self._changed: dict[str | int, int] = {}  # to the number of the last change
        self.waiting = False
        self.guessing = False
        self.final = False
        self.at_end = False
        self.system_calls: Callable[[], Mapping[str, int]] = dict
        self.ahead = 0
        self._numbers: dict[Event, int] = {}
        self._used: set[str] = set()  # maps
        self._whole: set[str] = set()  # maps that are deleted as a whole, or asked for their length

    def error(self, start: int, reason: str) -> LanguageError:
        """Return an error that points at a place of the text."""
        return self.source.error(start, reason)

    def declare(self, declarations: Sequence[MapDeclaration]) -> None:
        """Take the kinds and sizes of maps that the program declares.

        Raises:
            ProgramError: a kind is unknown, or a size is no positive number.
        """
        for one in declarations:
            if one.kind not in MAP_KINDS:
                reason = f"{one.kind} is no kind of map; there are {', '.join(MAP_KINDS)}"
                raise self.error(one.start, reason)
            found = self.map(one.map.name, one.start)
            self._used.discard(one.map.name)
            found.kind = one.kind
            size = one.arguments[0] if len(one.arguments) == 1 else None
            if not isinstance(size, Integer) or not 0 < size.value <= _MOST_ENTRIES:
                raise self.error(one.start, f"{one.kind}() takes the number of entries")
            found.entries = size.value

    def look_at_calls(self, probes: Sequence[Probe]) -> None:
        """Learn from the calls in a program how its maps are used, before their types are known.

        Probes that are found later cannot change what the maps are.
        """
        texts = (self.text, *(one.text for _, one in self.source.imported))
        if not any(name in text for text in texts for name in _OF_WHOLE_MAPS):
            return
        for call in nodes_of(Call, *probes):
            if call.function in _OF_WHOLE_MAPS:
                self._whole |= {one.name for one in call.arguments if isinstance(one, Map)}

    def map(self, name: str, start: int) -> MapState:
        """Return a map by its name."""
        self._used.add(name)
        self.asked_for.add(name)
        if name not in self.maps:
            self.maps[name] = MapState(MapVariable(len(self.maps), name), start)
            self.maps[name].whole = name in self._whole
        return self.maps[name]

    def unused_maps(self) -> list[str]:
        """Return warnings about maps that are declared and not used."""
        unused = [(one.start, name) for name, one in self.maps.items() if name not in self._used]
        return [str(self.error(start, f"WARNING: Unused map: {name}")) for start, name in unused]

    def widen_key(self, found: MapState, key: Type, start: int, *, keyed: bool) -> Type:
        """Add a type to those of a map's keys; return the type of all."""
        name = found.variable.name
        if found.keyed is not None and found.keyed != keyed:
            how = "with keys" if found.keyed else "without keys"
            raise self.error(start, f"{name} is used {how} elsewhere in the program")
        found.keyed = keyed
        found.key = self._widened(found.key, key, start, f"the keys of {name}", name)
        return found.key

    def widen_value(self, found: MapState, value: Type, start: int) -> Type:
        """Add a type to those of a map's values; return the type of all."""
        name = found.variable.name
        found.value = self._widened(found.value, value, start, f"the values of {name}", name)
        return found.value

    def widen_variable(self, where: tuple[int, int], name: str, value: Type, start: int) -> Type:
        """Add a type to those of a variable; return the type of all."""
        known = self._widened(self.variables.get(where), value, start, name, where[0])
        self.variables[where] = known
        return known

    def changed(self, what: str | int) -> None:
        """Note that something else is known now of a map, or of the variables of a probe."""
        self.changes += 1
        self._changed[what] = self.changes

    def changed_since(self, changes: int, names: Iterable[str | int]) -> bool:
        """Return whether a map, or the variables of a probe, changed after so many changes."""
        return any(self._changed.get(name, 0) > changes for name in names)

    def _widened(
        self, known: Type | None, type_: Type, start: int, what: str, key: str | int
    ) -> Type:
        if known is None:
            self.changed(key)
            return type_
        both = joined(known, type_)
        if both is None:
            raise self.error(start, f"{what}: {_difference(known, type_)}")
        if both != known:
            self.changed(key)
        return both

    def common(self, one: Type, two: Type) -> Type | None:
        """Return the type that holds values of two types; None if there is none."""
        return joined(one, two)

    def event(
        self,
        kind: EventKind,
        types: Sequence[Type] = (),
        text: str = "",
        map_: MapVariable | None = None,
        *,
        keyed: bool = False,
        start: int = -1,
    ) -> Event:
        """Return the event of a call; equal calls share one."""
        made = Event(-1, kind, tuple(types), text, map_, keyed, self.at_end, start)
        number = self._numbers.setdefault(made, len(self.events))
        if number == len(self.events):
            self.events.append(replace(made, number=number))
        return self.events[number]
