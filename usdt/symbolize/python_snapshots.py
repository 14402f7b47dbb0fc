"""Code objects in recordings: what the frames of a process need, as JSON."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any

from usdt.cpython.code_objects import CodeObject
from usdt.cpython.stack_record import CodeKey

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("checked_snapshot", "snapshot_of")

_MAX_CODES = 1 << 16  # code objects of a snapshot
_MAX_NUMBER = 1 << 64


def snapshot_of(codes: Mapping[CodeKey, CodeObject], reason: str = "") -> dict[str, Any]:
    """Return what a recording must have of a process, as a JSON object.

    Args:
        codes: code objects of its frames.
        reason: why it has no Python stacks.
    """
    rows = [
        [key.address, key.content, key.first_line, one.name, one.file, one.table.hex()]
        for key, one in codes.items()
    ]
    return {"reason": reason, "codes": rows}


def checked_snapshot(snapshot: object) -> tuple[str, dict[CodeKey, CodeObject]]:
    """Return the reason and the code objects of a result of :func:`snapshot_of`.

    Raises:
        ValueError: it cannot be such a result.
    """
    members = snapshot if isinstance(snapshot, dict) else {}
    reason, rows = members.get("reason"), members.get("codes")
    known = isinstance(reason, str) and isinstance(rows, list) and len(rows) <= _MAX_CODES
    if not known or not isinstance(rows, list):
        raise ValueError("a snapshot of a Python process has a reason and a list of code objects")
    return str(reason), dict(map(_code, rows))


def _code(row: object) -> tuple[CodeKey, CodeObject]:
    if isinstance(row, list) and len(row) == 6:
        numbers, texts = row[:3], row[3:]
        known = all(type(one) is int and 0 <= one < _MAX_NUMBER for one in numbers)
        if known and all(isinstance(one, str) for one in texts):
            name, file, table = texts
            try:
                lines = binascii.unhexlify(table)
            except ValueError:
                lines = b""
            return CodeKey(*numbers), CodeObject(name, file, numbers[2], lines)
    raise ValueError(
        f"a code object is [address, number, line, name, file, line table], not {row!r}"
    )
