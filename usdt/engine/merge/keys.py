"""The keys of results: what makes two of them one, and how they are shown.

Numbers and texts are equal by type and value. Frames are equal by build ID and link-time address;
those of no file by symbol, offset and module, because addresses differ; those of kernels by build
ID as well.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, Any

from usdt.engine.aggregate.results import Part, frames_part
from usdt.engine.language.tree import StackKind
from usdt.engine.merge.numbers import BadResultError, integer
from usdt.engine.output.formatters.formatter import escape
from usdt.engine.output.frames import Frame, Stack, frame_json, frame_text, identity
from usdt.engine.output.stacks import incomplete, no_frames_folded

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ("key_identity", "part_of", "preferred")

_KINDS = {"ustack": StackKind.USER, "kstack": StackKind.KERNEL, "pystack": StackKind.PYTHON}


def key_identity(key: dict[str, Any]) -> tuple[Hashable, ...]:
    """Return what equal keys have in common.

    Raises:
        BadResultError: a frame is invalid.
    """
    return tuple(map(_identity, key.values()))


def _identity(value: Any) -> Hashable:
    if type(value) is list and value and type(value[0]) is dict:
        frames = _stack(value)
        return (*map(_frame_identity, frames), incomplete(frames))
    if type(value) is dict and "module" in value:
        return _frame_identity(_frame(value))
    # A text is itself, and shares its memory; the others are bytes, which equal no text.
    return value if type(value) is str else repr(value).encode(errors="surrogatepass")


def _frame_identity(frame: Frame) -> Hashable:
    if frame.symbol and not frame.file_id and not frame.python:
        source = frame.inlined, frame.file, frame.line
        return frame.symbol, frame.offset, frame.module, frame.kernel_id, *source
    if frame.file_id and (frame.inlined or frame.file):
        return identity(frame), frame.symbol, frame.inlined, frame.file, frame.line
    return identity(frame)


def preferred(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of one of two equal keys: that with more symbols, in every order."""
    if one == other:
        return one
    return min(one, other, key=_preference)


def _preference(key: tuple[Any, ...]) -> tuple[int, str]:
    text = json.dumps(key)
    return text.count('"symbol": null'), text


def part_of(name: str, value: Any, named: str = "") -> Part:
    """Return a part of a key as it is shown."""
    kind = _KINDS.get(name.partition("(")[0])
    if type(value) is list and value and type(value[0]) is dict:
        return frames_part(name, _stack(value), kind or StackKind.USER)
    if type(value) is dict and "module" in value:
        frame = _frame(value)
        return Part(name, frame_text(frame, shared=True), frame_json(frame, shared=True))
    if type(value) is dict and kind is not None and "error" in value:
        reason = f"({escape(str(value['error']))})"
        return Part(name, "", json.dumps(value), (reason,), no_frames_folded(kind))
    if isinstance(value, str):
        return Part(name, escape(value), quote(value))
    shown = value if isinstance(value, int | float) else json.dumps(value)
    number = value if isinstance(value, int | float) else None
    return Part(name, escape(str(shown)), json.dumps(value), named=named, number=number)


def _stack(found: list[Any]) -> Stack:
    last = found[-1]
    if type(last) is dict and "symbol" not in last and isinstance(last.get("error"), str):
        return Stack(map(_frame, found[:-1]), last["error"])
    return Stack(map(_frame, found))


def _frame(found: Any) -> Frame:
    if type(found) is not dict:
        raise BadResultError("a frame of a stack is no object")
    texts = [found.get(name) or "" for name in ("symbol", "module", "file")]
    file_id = found.get("build_id") or found.get("file_id") or ""
    if not all(isinstance(text, str) for text in (*texts, file_id)):
        raise BadResultError("a frame of a stack has a name that is no text")
    numbers = [
        integer(found.get(name) or 0) for name in ("address", "offset", "line", "link_address")
    ]
    address, offset, line, link_address = numbers
    symbol, module, file = texts
    kernel_id = "" if "link_address" in found else file_id  # it tells files from the kernel
    return Frame(
        *(address, symbol, offset, module, file, line, found.get("inlined") is True),
        *("" if kernel_id else file_id, link_address, found.get("python") is True, kernel_id),
    )
