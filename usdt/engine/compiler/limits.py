"""Limits of records and of the values in them; defaults of options."""

from __future__ import annotations

from typing import Literal

__all__ = (
    "COPIES_BUFFER",
    "DEFAULT_BACKLOG",
    "DEFAULT_BUFFER",
    "DEFAULT_RESOLUTION",
    "DEFAULT_STACK",
    "DEFAULT_STRING",
    "DEFAULT_STRUCT",
    "FIRST_ADDRESS",
    "MAX_OUTPUTS",
    "MAX_READ",
    "MAX_RESOLUTION",
    "MAX_STACK",
    "UNWIND_METHODS",
    "UnwindMethod",
)

DEFAULT_BACKLOG = 64 << 20  # bytes of records that are copied from the buffer and wait
COPIES_BUFFER = 64 << 20  # bytes of the ring buffer if stacks are copied: 20 KiB for each hit
DEFAULT_BUFFER = 8 << 20  # bytes of the ring buffer
DEFAULT_RESOLUTION = 5  # of percentiles: 1.6 %; 4 would be 3.1 %
DEFAULT_STACK = 16384  # bytes of a user stack that are copied by default
DEFAULT_STRING = 128  # bytes that str() keeps by default
DEFAULT_STRUCT = 4096  # bytes that are kept of a structure by default
FIRST_ADDRESS = 4096  # below it are NULL and offsets from NULL; the lowcore on s390x
MAX_OUTPUTS = 64  # values of a record: bits of the bitmap of unreadable values
MAX_READ = 1 << 16  # bytes of one string, buffer or structure
MAX_RESOLUTION = 12  # of percentiles: a relative error of 0.012 %
MAX_STACK = 56 << 10  # bytes of a user stack that are copied

UnwindMethod = Literal["auto", "dwarf", "fp"]
#: How user stacks are unwound: by unwind tables where that is possible; by them; by frame pointers.
UNWIND_METHODS: tuple[UnwindMethod, ...] = ("auto", "dwarf", "fp")
