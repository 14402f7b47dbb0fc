"""Fuzzing of CPython's memory: offsets, copies of code objects, slots of stacks."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness import Capture

__all__ = ("cpython_seeds", "run_cpython")

_TABLE = 680  # bytes of the start of _PyRuntime; the copy and the slots follow
_STATE = 1 << 2 | 8 << 2 | 16 << 2  # of a compact string of ASCII characters


def cpython_seeds() -> list[bytes]:
    """Return a table of offsets, the copy of a code object and a stack."""
    from usdt.cpython.code_objects import FILENAME_SIZE, QUALNAME_SIZE, TABLE_SIZE

    seeds = []
    for version in (0x030D00F0, 0x030E00F0):
        table = b"xdebugpy" + struct.pack("<QQ80Q", version, 0, *[40] * 80)
        name, file = (
            struct.pack("<QQqqQ", 3, 0, len(text), -1, _STATE) + text for text in (b"f.g", b"a.py")
        )
        lines = bytes((0xE8, 2, 0x80, 0xF0, 0x41, 1, 1, 1, 1, 0xF8, 0xD8, 3, 4))
        table_object = struct.pack("<QQqq", 3, 0, len(lines), -1) + lines
        copy = struct.pack("<Q", 1)
        for data, size in (
            (name, QUALNAME_SIZE),
            (file, FILENAME_SIZE),
            (table_object, TABLE_SIZE),
        ):
            copy += data.ljust(size, b"\0")
        slots = struct.pack("=QQII", 4096, 77, 6, 1) + struct.pack("=QQII", 8192, 5, 0xFFFFFF, 9)
        seeds.append(table.ljust(_TABLE, b"\0") + copy + slots)
    return seeds


def run_cpython(_: Capture, data: bytes) -> None:
    """Decode a mutant as the memory of each version."""
    from usdt.cpython.code_objects import COPY_SIZE
    from usdt.cpython.layouts import Layout, Unsupported, layout_of
    from usdt.cpython.stack_record import slots_in

    layouts: list[Layout] = [layout_of(0x030B00F0, b""), layout_of(0x030C00F0, b"")]
    try:
        layouts.append(layout_of(0, data[:_TABLE]))
    except Unsupported as err:
        _check_message(err)
    copy, slots = data[_TABLE : _TABLE + COPY_SIZE], data[_TABLE + COPY_SIZE :]
    found = list(slots_in(slots))
    assert len(found) <= len(slots) // 24
    for layout in layouts:
        _run_copy(copy, layout)


def _check_message(error: Exception) -> None:
    assert str(error).isprintable(), repr(str(error))


def _run_copy(copy: bytes, layout) -> None:
    from usdt.cpython.code_objects import TABLE_AT, decode_copy, wanted_size
    from usdt.cpython.location_table import line_ranges
    from usdt.cpython.stack_record import CodeKey

    for text in (True, False):
        assert wanted_size(copy[:64], layout, text=text) <= (1 << 25)
    code = decode_copy(copy, CodeKey(4096, 5, 7), layout)
    if code is not None:
        assert len(code.name) + len(code.file) + len(code.table) <= len(copy)
        for offset in (-1, 0, 2, 1 << 20):
            code.line(offset)
    assert len(line_ranges(copy[TABLE_AT:], 1)) <= len(copy)
