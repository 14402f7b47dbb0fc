"""Fuzzing of unwind tables: mutants of ``.eh_frame`` and ``.eh_frame_hdr``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.elf.file import ElfFile

if TYPE_CHECKING:
    from harness import Capture

__all__ = ("frame_ranges", "run_unwind")


@functools.cache
def frame_ranges(data: bytes) -> list[tuple[int, int]]:
    """Return the parts of a seed that are mutated."""
    with ElfFile.from_bytes(data, "seed") as elf:
        return [
            (section.offset, section.offset + section.size)
            for section in elf.sections
            if section.name in (".eh_frame", ".eh_frame_hdr")
        ]


def run_unwind(capture: Capture, data: bytes) -> None:
    """Look up the rows of a mutant's code, and evaluate their expressions."""
    from usdt.symbolize.file_symbols import FileSymbols

    capture.input.write_bytes(data)
    try:
        with FileSymbols(str(capture.input), debug_root="/nonexistent") as file:
            for address in range(0x1000, 0x1600, 8):
                _run_row(file, address)
    except TracingError as err:
        _check_message(err)


def _run_row(file, address: int) -> None:
    from usdt.unwind.expressions import MemoryNotRead, evaluate
    from usdt.unwind.rules import Expression

    def read(address: int, _size: int) -> int:
        if address % 3:
            raise MemoryNotRead(address)
        return address // 2

    try:
        row = file.frame_table.row(address) if file.frame_table else None
        for rule in () if row is None else (row.cfa, *row.rules.values()):
            code = rule if isinstance(rule, Expression) else getattr(rule, "operand", 0)
            if isinstance(code, Expression):
                evaluate(code.code, {6: 8, 7: 96, 16: address}, read, 64)
    except (TracingError, MemoryNotRead) as err:
        _check_message(err)


def _check_message(error: Exception) -> None:
    assert str(error).isprintable(), repr(str(error))
