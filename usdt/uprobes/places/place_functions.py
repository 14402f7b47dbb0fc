"""Source lines and inlined copies of functions → places to attach to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError, ProbeNotFound
from usdt.uprobes.debug_info import debug_of, required_debug
from usdt.uprobes.name_patterns import name_matcher, shown_name
from usdt.uprobes.places.probe_function import INLINED, ProbeFunction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usdt.dwarf.places.scopes import CodePlace
    from usdt.elf.file import ElfFile
    from usdt.uprobes.debug_info import Debug

__all__ = ("PlaceFunctions",)


class PlaceFunctions:
    """The places of a file that only debug information knows.

    Args:
        elf: the file.
        open_path: the path to open.
        roots: root directories in which debug files are searched.
        is_go: whether it is a Go program.

    Attributes:
        debug: its debug information, once it was needed; None if there is none.
    """

    def __init__(
        self, elf: ElfFile, open_path: str, roots: Sequence[str], *, is_go: bool = False
    ) -> None:
        self.debug: Debug | None = None
        self._elf = elf
        self._open_path = open_path
        self._roots = roots
        self._is_go = is_go

    def at_line(self, source: str, line: int, written: str) -> list[ProbeFunction]:
        """Return the places at which a source line begins.

        Raises:
            ProbeNotFound: there is none; the message says why.
            TracingError: the debug information is damaged.
        """
        debug = self._required()
        try:
            places = debug.line_places(source, line)
        except ProbeNotFound as err:
            raise ProbeNotFound(f"{self._elf.path}: {err}") from err
        return self._placed(places, written)

    def inlined(self, pattern: str) -> list[ProbeFunction]:
        """Return the inlined copies of the functions that match a pattern.

        Raises:
            ProbeNotFound: there is no debug information.
            TracingError: it is damaged.
        """
        return self._placed(self._required().inlined_places(name_matcher(pattern)))

    def inlined_counts(self, pattern: str) -> dict[str, int]:
        """Return the number of inlined copies of the functions that match, by function.

        Raises:
            TracingError: the debug information is damaged.
        """
        self.debug = debug_of(self._elf.path, self._open_path, self._roots)
        if self.debug is None:
            return {}
        counts = self.debug.inlined_counts(name_matcher(pattern))
        return {shown_name(name): count for name, count in counts.items()}

    def _required(self) -> Debug:
        try:
            self.debug = required_debug(self._elf.path, self._open_path, self._roots)
        except BtfError as err:
            raise ProbeNotFound(str(err)) from err
        return self.debug

    def _placed(self, places: Iterable[CodePlace], written: str = "") -> list[ProbeFunction]:
        found = []
        for place in places:
            offset = self._elf.offset_of(place.address, executable=True)
            if offset is None:  # in no code of the file: the debug information is that of another
                continue
            name = shown_name(place.function)
            made = ProbeFunction(
                name,
                "" if place.inlined else place.function,
                self._elf.path,
                self._elf.machine_name,
                place.start,
                0,
                place.address - place.start,
                offset,
                (),
                self._is_go,
                f"it is a place inside {name}, which does not return there",
                written or f"{name}{INLINED}",
                place,
            )
            found.append(made)
        return found
