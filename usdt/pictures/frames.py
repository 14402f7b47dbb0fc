"""Stacks of JSON streams as frames of profiles; any JSON may be in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from usdt.pictures.profile import Frame

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("frames_of", "is_stack_name", "joined")

_NAMES = ("ustack", "pystack", "kstack")  # the outermost first
_NO_FRAMES = {"ustack": "user", "pystack": "Python", "kstack": "kernel"}
_JIT = re.compile(r"perf-\d+\.map")


def is_stack_name(name: str) -> bool:
    """Return whether an item or a key is a stack: ``ustack``, ``kstack(5)``."""
    return name.partition("(")[0] in _NAMES


def frames_of(name: str, stack: Any) -> tuple[Frame, ...]:
    """Return the frames of a stack, the outermost first; none of one that has an error.

    Args:
        name: the item or key.
        stack: the JSON: frames, innermost first, of which the last may be an error.
    """
    kernel = name.startswith("kstack")
    listed: list[Any] = stack if isinstance(stack, list) else []
    frames = [
        _frame(one, kernel=kernel) for one in listed if isinstance(one, dict) and "error" not in one
    ]
    last = listed[-1] if listed else None
    if frames and isinstance(last, dict) and "error" in last:
        frames.append(Frame("[incomplete]", "note"))
    return (*frames[::-1],)


def joined(stacks: Iterable[tuple[str, tuple[Frame, ...]]]) -> tuple[Frame, ...]:
    """Return the stacks of one hit as one: the kernel was entered from user mode.

    Args:
        stacks: the items with their frames.
    """
    found = {name.partition("(")[0]: frames for name, frames in stacks}
    whole = tuple(frame for name in _NAMES for frame in found.get(name, ()))
    if whole or not found:
        return whole
    missing = next(name for name in _NAMES if name in found)
    return (Frame(f"[no {_NO_FRAMES[missing]} frames]", "note"),)


def _frame(found: dict[str, Any], *, kernel: bool) -> Frame:
    module = _text(found.get("module"))
    name = _text(found.get("symbol"))
    file = _text(found.get("file"))
    python = found.get("python") is True
    kind = "native"
    if python:
        kind = "python"
    elif found.get("inlined") is True:
        kind = "inlined"
    elif kernel:
        kind = "kernel"
    elif _JIT.fullmatch(module):
        kind = "jit"
    if not name:
        name = "[python]" if python else f"[{module.strip('[]') or 'unknown'}]"
    build_id = _text(found.get("build_id"))
    address = _number(found.get("link_address"))
    return Frame(name, kind, module, build_id, address, file, _number(found.get("line")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 64 else 0
