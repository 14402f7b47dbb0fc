"""The type that a misspelled name probably means, without the index.

The strings of ``.debug_str`` have its name among those of functions, variables and members. Those
that are most like the misspelled name are searched as types.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from usdt.base.text import encoded
from usdt.dwarf.index.type_search import NotSearchable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.dwarf.index.files import DiePosition
    from usdt.dwarf.index.type_search import TypeSearch
    from usdt.dwarf.units.constants import TypeKind
    from usdt.dwarf.units.sections import SectionBytes

__all__ = ("similar_type",)

_PIECE = 1 << 20  # bytes that are searched at once
_MAX_LENGTH = 128  # bytes of a name
_FURTHER = 8  # bytes by which a name may be longer or shorter, less 1
_MAX_STRINGS = 1 << 14  # that are compared
_MAX_NEAR = 8  # strings of which symbols are asked
_MAX_SEARCHED = 384 << 20  # bytes of all searches, but one is always made
_DIGITS = frozenset(b"%d" % one for one in range(10))


def similar_type(
    search: TypeSearch, strings: SectionBytes, kinds: Sequence[TypeKind], name: str
) -> tuple[TypeKind, str, DiePosition] | None:
    """Return kind, qualified name and position of the type that a name probably means.

    Args:
        search: the types of the file.
        strings: its ``.debug_str``.
        kinds: the kinds of types that are meant.
        name: a qualified name that no type has.

    Raises:
        NotSearchable: only the index tells.
    """
    if "<" in name.rpartition("::")[0]:
        raise NotSearchable("arguments of a template")
    near = list(dict.fromkeys(_candidates(strings, name)))
    owner = name.rpartition("::")[0]
    few = min(max(1, _MAX_SEARCHED // search.size), _MAX_NEAR)
    # Symbols tell at once what a search of all entries tells later.
    tries = [(one, True) for one in near[:_MAX_NEAR]] + [(one, False) for one in near[:few]]
    for one, hints_only in [*tries, (owner, True)] if owner else tries:
        try:
            found = search.find_any(kinds, one, hints_only=hints_only)
        except NotSearchable:
            continue
        for kind, position in found.items():
            if position is not None:
                return kind, one, position
    return None


def _candidates(strings: SectionBytes, name: str) -> Iterator[str]:
    # Qualified names with one part replaced by a similar string, the most similar ones first.
    owner, separator, last = name.rpartition("::")
    outer, outer_separator, inner = owner.rpartition("::")
    if not owner or _is_string(strings, inner):
        for one in _near(strings, last):
            yield f"{owner}{separator}{one}"
    if owner and _is_string(strings, last):
        for one in _near(strings, inner):
            yield f"{outer}{outer_separator}{one}{separator}{last}"


def _near(strings: SectionBytes, word: str) -> list[str]:
    known = _alike(strings, word)
    near = difflib.get_close_matches(word, sorted(known), _MAX_NEAR)
    first = [one for one in near if one.lower() == word.lower()]
    if f"{word}_t" in known:
        first.insert(0, f"{word}_t")
    return list(dict.fromkeys((*first, *near)))


def _alike(strings: SectionBytes, word: str) -> set[str]:
    # The strings that begin as a word and have about its length, also where they end longer ones.
    start, size = encoded(word[:2] if len(word) > 2 else word[:1]), len(encoded(word))
    if not start or size > _MAX_LENGTH:
        return set()
    least, most = (max(0, one - len(start)) for one in (size + 1 - _FURTHER, size + _FURTHER - 1))
    rest = b"(?=([^\\0]{%d,%d})\\0)" % (least, most)
    pattern = re.compile(re.escape(start) + rest, re.DOTALL)
    found: set[bytes] = set()
    for at in range(0, len(strings), _PIECE):
        piece = strings[max(0, at - 1) : at + _PIECE + _MAX_LENGTH + _FURTHER]
        for one in pattern.finditer(piece):
            if piece[one.start() - 1 : one.start()] not in _DIGITS:  # as in symbols of C++
                found.add(start + one[1])
        if len(found) > _MAX_STRINGS:
            return set()
    found.discard(encoded(word))
    return {one.decode("utf-8", "surrogateescape") for one in found}


def _is_string(strings: SectionBytes, word: str) -> bool:
    # gcc writes names that are no longer than an offset into their entries.
    text = encoded(word) + b"\0"
    return len(text) <= 4 or any(
        text in bytes(strings[at : at + _PIECE + len(text) - 1])
        for at in range(0, len(strings), _PIECE)
    )
