"""Find types by their C names: ``struct sk_buff``, ``unsigned long``, ``u32 *``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.format import Kind
from usdt.btf.types import FunctionProto, Pointer, Void

if TYPE_CHECKING:
    from usdt.btf.reader import Btf

__all__ = ("closest_type", "find_type", "has_code_pointers")

_TAGGED = {
    "struct": (Kind.STRUCT,),
    "union": (Kind.UNION,),
    "enum": (Kind.ENUM, Kind.ENUM64),
}
_PLAIN = (Kind.INT, Kind.FLOAT, Kind.TYPEDEF)
_OTHER = (Kind.STRUCT, Kind.UNION, Kind.ENUM, Kind.ENUM64, Kind.VAR, Kind.DATASEC)
_WORDS = {"unsigned", "signed", "int", "long", "short", "char"}


def find_type(btf: Btf, text: str) -> int:
    """Return the ID of a type, given by its name in C (with ``*`` for pointers) or by its ID.

    If several types have the name, return the first.

    Raises:
        BtfError: no type has the name; the message names the closest one.
    """
    text = " ".join(text.split())
    if text.isascii() and text.isdigit() and len(text) < 11:
        btf.type(int(text))
        return int(text)
    name = text.rstrip("* ")
    stars = text.count("*", len(name))
    type_id = _named(btf, name)
    if type_id is None:
        near = closest_type(btf, name)
        hint = f"; nearest is {near}" if near else ""
        raise BtfError(f"{btf.name}: no type {name!r}{hint}")
    for _ in range(stars):
        type_id = _pointer_to(btf, type_id, text)
    return type_id


def _named(btf: Btf, name: str) -> int | None:
    tag, _, rest = name.partition(" ")
    if tag in _TAGGED and rest:
        return _best(btf, btf.find(rest, *_TAGGED[tag]))
    if name == "void":
        return 0
    for kinds in (_PLAIN, _OTHER):
        found = btf.find(name, *kinds)
        if found:
            return _best(btf, found)
    words = name.split()
    if words and set(words) <= _WORDS:
        for spelling in _spellings(words):
            found = btf.find(spelling, Kind.INT)
            if found:
                return found[0]
    return None


def _best(btf: Btf, found: list[int]) -> int | None:
    # Prefer definitions: an enumeration without values is a forward declaration.
    whole = [type_id for type_id in found if getattr(btf.type(type_id), "values", True)]
    every = [*whole, *found]
    return every[0] if every else None


def _spellings(words: list[str]) -> list[str]:
    # gcc writes "long unsigned int", clang "unsigned long".
    signs = [word for word in words if word in ("unsigned", "signed")]
    longs = [word for word in words if word in ("long", "short")]
    if "char" in words:
        return [" ".join([*signs, "char"])]
    unsigned = ["unsigned"] if signs == ["unsigned"] else []
    return [
        " ".join([*longs, *unsigned, "int"]),
        " ".join([*unsigned, *longs]) or "int",
        " ".join([*unsigned, *longs, "int"]),
    ]


def _pointer_to(btf: Btf, target: int, text: str) -> int:
    for type_id in btf.ids(Kind.PTR):
        found = btf.type(type_id)
        if isinstance(found, Pointer) and found.type_id == target:
            return type_id
    raise BtfError(f"{btf.name}: no type {text!r} (it has no pointer to that type)")


def closest_type(btf: Btf, name: str) -> str | None:
    """Return the type name that is most like ``name``, with its tag; None if none is."""
    import difflib  # noqa: PLC0415 - only for a message

    tag, _, rest = name.partition(" ")
    kinds = _TAGGED.get(tag) or (*_PLAIN, *_OTHER)
    wanted = rest if tag in _TAGGED else name
    names = btf.similar(wanted, *kinds)
    nearest = f"{wanted}_t"  # what was meant by int32, though int is as near
    if nearest not in names:
        found = difflib.get_close_matches(wanted, names, 1)
        if not found:
            return None
        nearest = found[0]
    kind = btf.kind(names[nearest])
    tags = [word for word, some in _TAGGED.items() if kind in some]
    return " ".join([*tags, nearest])


def has_code_pointers(btf: Btf) -> bool:
    """Return True if any pointer points to a function or to ``void``."""
    for type_id in btf.ids(Kind.PTR):
        pointer = btf.type(type_id)
        if isinstance(pointer, Pointer):
            target = btf.resolve(pointer.type_id)
            if isinstance(target, FunctionProto | Void):
                return True
    return False
