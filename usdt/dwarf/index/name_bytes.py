"""Where the bytes of a name are: in strings, and in the entries that refer to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import Tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from usdt.dwarf.index.abbrev_skim import AbbrevDecl
    from usdt.dwarf.units.sections import SectionBytes

__all__ = ("PIECE", "NamesAt", "in_piece", "strings")

PIECE = 1 << 20  # bytes that are searched at once
_MAX_STRING = 256  # bytes of a string before its end that are compared


class NamesAt:
    """Where the names of types or variables are in the entries of a unit.

    Args:
        declarations: the abbreviations of such entries, with their codes.
    """

    # For each kind, the codes of its abbreviations and the bytes between code and name.

    def __init__(self, declarations: Iterable[tuple[bytes, AbbrevDecl]]) -> None:
        self._places: dict[str, list[tuple[bytes, int]]] = {}
        self._unknown: set[str] = set()  # kinds with names elsewhere
        self._longest = 0  # bytes before a name, with the code
        for code, decl in declarations:
            if decl.name is None and decl.tag == Tag.VARIABLE:
                continue  # the declaration that it completes has the name
            if decl.has_specification or decl.name is None or decl.name[0]:
                self._unknown.add(decl.kind)
            else:
                fixed = decl.name[1]
                self._places.setdefault(decl.kind, []).append((code, fixed))
                self._longest = max(self._longest, fixed + len(code))

    def may_define(self, data: SectionBytes, at: int, kinds: frozenset[str]) -> bool:
        """Return True if what refers to a name at a position may be of one of the kinds."""
        if kinds & self._unknown:
            return True
        before = bytes(data[max(0, at - self._longest) : at])
        return any(
            fixed <= len(before) and before.endswith(code, 0, len(before) - fixed)
            for kind in kinds
            for code, fixed in self._places.get(kind, ())
        )


def in_piece(data: bytes, wanted: bytes) -> Iterator[int]:
    """Yield the positions of some bytes in others."""
    # bytes.find() compares last bytes first, and most bytes of entries are 0, as the last one of
    # nearly every offset is: without it the search takes half as long.
    quick = wanted.rstrip(b"\0") or wanted
    at = data.find(quick)
    while at >= 0:
        if data.startswith(wanted, at):
            yield at
        at = data.find(quick, at + 1)


def strings(data: SectionBytes, wanted: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the positions of a string, and what precedes it where it is the end of a longer one."""
    for start in range(0, len(data), PIECE):
        first = max(0, start - _MAX_STRING)
        piece = bytes(data[first : start + PIECE + len(wanted) - 1])
        for at in in_piece(piece, wanted):
            if first + at >= start:
                before = piece[max(0, at - _MAX_STRING) : at]
                yield first + at, before[before.rfind(b"\0") + 1 :]
