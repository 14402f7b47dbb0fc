"""What a BPF program must know of one process to find its Python frames: an entry of a map.

The key is the process ID (u32), the value these numbers (u64 each), at :func:`field_offset`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from usdt.cpython.layouts import Layout

__all__ = ("ENTRY_SIZE", "FIELDS", "field_offset", "runtime_entry")

FIELDS = (
    "interpreters",  # address of the pointer to the first interpreter
    "interpreter_next",
    "threads",
    "thread_next",
    "thread_id",
    "frame",
    "inner_frame",  # NO_FIELD if a thread has its innermost frame itself
    "code",
    "previous",
    "instruction",
    "owner",
    "is_entry",  # or NO_FIELD
    "filename",
    "qualname",
    "line",
    "line_table",
    "bytecode",
    "string_hash",
    "namespace_device",
    "namespace_inode",  # of the process's own PID namespace
    "zero",  # 0
)
_NUMBERS = struct.Struct(f"={len(FIELDS)}Q")
ENTRY_SIZE = _NUMBERS.size


def field_offset(name: str) -> int:
    """Return where an entry has a number."""
    return 8 * FIELDS.index(name)


def runtime_entry(layout: Layout, runtime: int, namespace: tuple[int, int]) -> bytes:
    """Return the entry of a process.

    Args:
        layout: the offsets of its version.
        runtime: the address of ``_PyRuntime``.
        namespace: device and inode of its PID namespace, in which CPython numbers threads.
    """
    device, inode = namespace
    given = {
        "interpreters": runtime + layout.interpreters & (1 << 64) - 1,
        "namespace_device": device,
        "namespace_inode": inode,
        "zero": 0,
    }
    return _NUMBERS.pack(
        *(given[name] if name in given else getattr(layout, name) for name in FIELDS)
    )
